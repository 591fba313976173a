"""What runs have written is what they have really written; what they have removed is told of as such."""

import os

import pytest
from support.agents import cell, of_kind, read, root_text, task

from freeact_sub import Agent, Config
from freeact_sub.events import AgentFinished, ToolOutput
from freeact_sub.testing import ScriptedModel

pytestmark = pytest.mark.kernel


async def files_of(tmp_path, *cells, mode="full", rule=None):
    """What a child with these cells has written, and removed."""
    script = {"root": [[task("child")], "done"], "child": [*([cell(code)] for code in cells), "ok"]}
    async with Agent(Config(workspace=tmp_path, mode=mode), model=ScriptedModel(script)) as agent:
        events, _ = await read(agent.run("root"), *([rule] if rule else []))
    end = next(event for event in of_kind(events, AgentFinished) if event.depth)
    return set(end.files_written), set(end.files_removed)


def fill(folder, *names):
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("as it was")
        os.utime(folder / name, (1_000_000_000, 1_000_000_000))


TRY = """
import os, pathlib, shutil
def attempt(function, *arguments):
    try:
        function(*arguments)
    except OSError as error:
        print(type(error).__name__)
"""


async def test_an_open_that_fails_has_written_nothing(tmp_path):
    fill(tmp_path, "old.txt", "read_only/x.txt", "opened.txt")
    code = f"""{TRY}
attempt(open, "old.txt", "x")
attempt(open, "no_folder/new.txt", "w")
attempt(open, "read_only", "w")
attempt(open, "old.txt/x", "w")
attempt(open, "new.txt", "w")
attempt(open, "opened.txt", "a")
attempt(os.rename, "old.txt", "read_only")
attempt(os.rename, "old.txt", "no_folder/old.txt")
"""
    assert await files_of(tmp_path, code) == ({"new.txt", "opened.txt"}, set())


async def test_what_is_denied_or_kept_back_by_the_wall_is_not_written_and_not_removed(tmp_path):
    fill(tmp_path, "old.txt", "folder/x.txt")
    code = (
        TRY
        + """
attempt(open, "secret.txt", "w")
attempt(open, "old.txt", "a")
attempt(os.remove, "old.txt")
attempt(os.rename, "old.txt", "other.txt")
attempt(shutil.rmtree, "folder")
"""
    )
    assert await files_of(tmp_path, code, mode="plan") == (set(), set())


async def test_what_is_removed_is_told_whoever_does_it_in_python(tmp_path):
    names = (
        "remove.txt",
        "unlink.txt",
        "path.txt",
        "tree/a.txt",
        "tree/deep/b.txt",
        "source.txt",
        "replaced.txt",
        "moved.txt",
    )
    fill(tmp_path, *names, "target.txt", "kept.txt", "again.txt")
    (tmp_path / "empty").mkdir()
    code = (
        TRY
        + """
os.remove("remove.txt")
os.unlink(b"unlink.txt")
pathlib.Path("path.txt").unlink()
os.rmdir("empty")
shutil.rmtree("tree")
os.rename("source.txt", "target.txt")
pathlib.Path("replaced.txt").replace("new_name.txt")
shutil.move("moved.txt", "moved_away.txt")
attempt(os.remove, "never_there.txt")
attempt(os.rmdir, "kept.txt")
os.remove("again.txt")
open("again.txt", "w").close()
"""
    )
    written, removed = await files_of(tmp_path, code)
    assert written == {"target.txt", "new_name.txt", "moved_away.txt", "again.txt"}
    assert removed == {*names, "empty", "tree", "tree/deep"}


async def test_what_a_run_makes_and_takes_away_is_neither(tmp_path):
    fill(tmp_path, "old.txt")
    one = """
import os, tempfile, shutil
open("now.txt", "w").close()
os.remove("now.txt")
open("later.txt", "w").close()
open("same_cell.txt", "w").close()
!rm same_cell.txt
os.makedirs("made/deep")
open("made/deep/a.txt", "w").close()
with tempfile.NamedTemporaryFile(dir="."):
    pass
with open("whole.tmp", "w") as file:
    file.write("x")
os.replace("whole.tmp", "whole.txt")
"""
    two = """
os.remove("later.txt")
shutil.rmtree("made")
with open("old.txt", "a") as file:
    file.write("x")
"""
    assert await files_of(tmp_path, one, two) == ({"whole.txt", "old.txt"}, set())


async def test_a_file_that_is_flushed_in_a_later_cell_is_written(tmp_path):
    fill(tmp_path, "log.txt")
    cells = ("log = open('log.txt', 'a')\nlog.write('x')", "1", "log.close()")
    assert await files_of(tmp_path, *cells) == ({"log.txt"}, set())


@pytest.mark.parametrize("mode", ["ask", "auto"])
async def test_in_every_mode(tmp_path, mode):
    fill(tmp_path, "old.txt", "tree/a.txt")
    code = "import shutil, os\nshutil.rmtree('tree')\nos.remove('old.txt')\nopen('new.txt', 'w').close()"
    assert await files_of(tmp_path, code, mode=mode) == ({"new.txt"}, {"old.txt", "tree", "tree/a.txt"})


async def test_those_who_ask_for_a_child_read_what_it_has_removed(tmp_path):
    fill(tmp_path, "one.txt", "two.txt")
    script = {
        "root": [[task("one")], [cell("r = agent.task('two')\nprint(r.files_removed, r.files_written)")], "done"],
        "one": [[cell("import os; os.remove('one.txt')")], "ok"],
        "two": [[cell("import os; os.remove('two.txt')")], "ok"],
    }
    async with Agent(Config(workspace=tmp_path, mode="full"), model=ScriptedModel(script)) as agent:
        events, result = await read(agent.run("root"))
    [report] = [event.content for event in of_kind(events, ToolOutput) if event.tool_call_id and event.tool_name == "task"][
        :1
    ]
    assert "; files removed: one.txt]" in report
    assert root_text(events) == "('two.txt',) ()"
    assert result.files_removed == ()
