"""`kill -9` of the program at each step of a promotion, and at each step of what undoes it: never half of it is left.

One program forks a child for each step; the child kills itself before the system call of that step.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.elsewhere import CANNOT_FORK
from support.thorough import THOROUGH

TESTS = Path(__file__).parents[2]

pytestmark = pytest.mark.skipif(CANNOT_FORK, reason="files are taken over where there are branches: on Linux")

PROGRAM = """
import asyncio, json, os, pathlib, shutil, sys
from freeact_sub.kernels.files import lay_over, promote, recover
from freeact_sub.kernels.files.own_files import stamps
from freeact_sub.system.private_folders import KernelFolder
from support.killing import killed_at

workspace, private, original = (pathlib.Path(sys.argv[1]) / name for name in ("ws", "private", "original"))
CALLS = ("rename", "link", "unlink", "rmdir", "mkdir", "fsync", "symlink")

def write(root, files):
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)

def tree(root):
    found = {}
    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root))
        if name.split("/")[0] != ".freeact":
            found[name] = os.readlink(path) if path.is_symlink() else path.read_text() if path.is_file() else "folder"
    return found

async def no_overlay(settings):
    return "none"

write(original, {"a/one": "1", "a/two": "2", "b/deep/three": "3", "four": "4", "dir/five": "5", "dir/six": "6"})
found, step = [], 0
while True:
    for folder in (workspace, private):
        shutil.rmtree(folder, ignore_errors=True)
    private.mkdir()
    shutil.copytree(original, workspace)
    folder = KernelFolder(private)
    own = asyncio.run(lay_over(workspace, folder, os.getpid(), None, lay=no_overlay))
    copy = own.root
    write(copy, {"a/one": "new", "b/deep/three": "new", "new/x/y": "n"})
    (copy / "a/two").unlink(); (copy / "four").unlink()
    write(copy, {"four/inside": "a folder now"})
    shutil.rmtree(copy / "dir"); (copy / "dir").write_text("a file now"); (copy / "link").symlink_to("a/one")
    (copy / "empty").mkdir()
    before, changes, after = tree(workspace), own.look(), tree(copy)
    assert before != after
    killed = killed_at(step, lambda: promote(own, changes), CALLS)
    half = tree(workspace) not in (before, after)
    again = 0
    while killed_at(again, lambda: recover(workspace), CALLS):
        again += 1
    recover(workspace)
    now = tree(workspace)
    if now == before:  # the same once more, as of a copy that is made now
        descriptor = os.open(workspace, os.O_RDONLY)
        own.before = stamps(descriptor)
        os.close(descriptor)
        promote(own, changes)
    found.append({
        "step": step, "half": half, "state": "before" if now == before else "after" if now == after else f"{now}",
        "undone in": again, "at last": tree(workspace) == after, "left": sorted(os.listdir(workspace / ".freeact")),
    })
    folder.give_up()
    if not killed:
        break
    step += int(sys.argv[3])
print(json.dumps({"found": found, "journals": [path.name for path in pathlib.Path(sys.argv[2]).rglob("*") if path.is_file()]}))
"""


@pytest.mark.slow
def test_a_program_that_is_killed_at_any_step_leaves_the_workspace_as_before_or_as_promoted(tmp_path):
    (tmp_path / "ws").mkdir()
    settings = tmp_path / "settings"
    environment = {**os.environ, "XDG_CONFIG_HOME": str(settings), "PYTHONPATH": str(TESTS)}
    command = [sys.executable, "-c", PROGRAM, str(tmp_path), str(settings), "1" if THOROUGH else "3"]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240, check=False)
    assert ran.stderr == ""
    told = json.loads(ran.stdout)
    found = told["found"]
    assert [each for each in found if each["state"] not in ("before", "after")] == []
    assert [each for each in found if not each["at last"] or each["left"] != [".gitignore"]] == []
    assert told["journals"] == [], "nothing is left of what is done"
    assert {"before", "after"} <= {each["state"] for each in found}
    assert any(each["half"] and each["undone in"] > 1 for each in found), "else there was nothing to undo"
