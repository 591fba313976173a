"""Generated cells: what a trial shows is what the cell then does, and without a yes nothing is done."""

import difflib
import json
import re
import stat
from pathlib import Path

import pytest
from support.agents import of_kind
from support.elsewhere import CANNOT_FORK
from support.generated_cells import SETUP, generated_cell
from support.sandbox import NEEDS_A_WALL
from support.thorough import sample
from support.trials import asking, tree

from freeact_sub.events import CodeExecutionOutput
from freeact_sub.kernels.variable_reports import compared, parsed

pytestmark = [
    pytest.mark.kernel,
    pytest.mark.skipif(CANNOT_FORK, reason="kernels are branched on Linux only"),
    NEEDS_A_WALL,
]
CELLS, SAMPLE, BATCH = 300, 12, 20
PROBE = """
(lambda sys, json, os: open('probe.json', 'w').write(json.dumps({
    'variables': (state := sys.modules['freeact_guest.state']).report(state.shell_here()),
    'process': [os.getcwd(), sorted(os.environ.items()), os.umask(os.umask(0o22))],
})))(*map(__import__, ('sys', 'json', 'os')));
"""


def changed(before, after):
    """What differs between two `tree`s, as `FileEffect`s tell it: by path, with the text that was added."""
    found = {}
    for path in before.keys() | after.keys():
        old, new = before.get(path), after.get(path)
        if old is not None and new is not None and old[0] == new[0] and (old[2] == new[2] or stat.S_ISDIR(old[0])):
            continue
        found[path] = "added" if old is None else "deleted" if new is None else "changed"
    full = {str(above) for path in found for above in Path(path).parents}
    folders = {path for path in found if stat.S_ISDIR((after.get(path) or before.get(path))[0])}
    return {
        f"{path}/" if path in folders and what != "deleted" else path: what
        for path, what in found.items()
        if not (path in folders and path in full and what == "added")
    }


def added_lines(before, after, path):
    """The lines of a text that the diff of a path must show. None: it is no text."""
    if any(stat.S_ISLNK(entries[path][0]) for entries in (before, after) if path in entries):
        return None
    try:
        texts = [entry[2].decode() if entry else "" for entry in (before.get(path), after.get(path))]
    except UnicodeDecodeError:
        return None
    if all(texts) and len({text.endswith("\n") for text in texts}) == 2:
        texts = [text if text.endswith("\n") else f"{text} (no newline at the end)" for text in texts]
    return list(difflib.unified_diff(*map(str.splitlines, texts), lineterm="", n=2))[2:]


def without_address(change):
    """A change without the place in memory, or the number of a thread, that the text of a value may tell."""
    return [
        re.sub("0x[0-9a-f]+|(?<=stopped )[0-9]+", "", text)
        for text in (change.name, change.what, change.before, change.after)
    ]


async def test_generated_cells_do_what_their_trials_have_shown_and_nothing_without_a_yes(tmp_path):
    numbers = sample(range(CELLS), SAMPLE)
    tried = {"done": 0, "stopped": 0, "errors": 0}
    for start in range(0, len(numbers), BATCH):
        workspace = tmp_path / str(start)
        for name in ("rows.csv", "notes", "other", "sub/one", "sub/deeper/two", "a/b/c/three", "empty/.keep", "d/four"):
            (workspace / name).parent.mkdir(parents=True, exist_ok=True)
            (workspace / name).write_text(f"{name}\nsecond line\n")
        await check(workspace, numbers[start : start + BATCH], tried)
    assert tried["done"] > len(numbers) // 2
    assert tried["errors"] < len(numbers) // 2


async def check(workspace, numbers, tried):
    cells = [generated_cell(number) for number in numbers]
    script = [code for cell, _ in cells for code in (cell, PROBE)]
    async with asking(workspace, SETUP, PROBE, *script) as question:

        async def probed():
            """The state, once the question after the probe is there."""
            request = await question()
            assert request.call.code == PROBE
            request.approve()
            following = await question()
            file = workspace / "probe.json"
            found = json.loads(file.read_text())
            file.unlink()
            return found, tree(workspace), following

        request = await question()
        await request.effects_ready()  # the kernel knows what the probe calls
        request.approve()
        state, files, request = await probed()
        for number, (code, stops) in zip(numbers, cells, strict=True):
            assert request.call.code == code
            effects = await request.effects_ready()
            told = f"cell {number}:\n{code}\n{effects}"
            assert tree(workspace) == files, told
            assert effects.status == ("stopped" if stops and "Error" not in effects.output else "done"), told
            tried[effects.status] += 1
            tried["errors"] += effects.cell == "error"
            says_yes = not stops and number % 4 != 3
            request.approve() if says_yes else request.deny()
            state_then, files_then, request = await probed()
            if not says_yes:
                assert (state_then, files_then) == (state, files), told
                continue
            ran = of_kind(question.events, CodeExecutionOutput)[-2]
            assert (ran.status, ran.text.strip("\n"), ran.displays) == (
                effects.cell, effects.output.strip("\n"), effects.displays,
            ), told  # fmt: skip
            assert {file.path: file.what for file in effects.files} == changed(files, files_then), told
            for file in effects.files:
                if file.diff and (lines := added_lines(files, files_then, file.path)) is not None:
                    assert file.diff.splitlines()[2:] == lines, told
            reports = (parsed(json.dumps(each["variables"]).encode()) for each in (state, state_then))
            really = [each for each in compared(*reports) if each.what != "perhaps"]
            assert [*map(without_address, effects.variables)] == [*map(without_address, really)], told
            state, files = state_then, files_then
