"""`kill -9` of the program at each step of a take-over with all kinds of entries: the next start puts all of it back."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.thorough import THOROUGH

TESTS = Path(__file__).parents[2]

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="the program forks itself")

PROGRAM = """
import json, os, pathlib, shutil, stat, sys
from freeact_sub.kernels.files import FileChange, Stage, recover
from support.killing import killed_at

workspace = pathlib.Path(sys.argv[1])
CALLS = ("rename", "link", "unlink", "rmdir", "mkdir", "mkfifo", "symlink", "chmod", "fchmod")
WHOLE = sys.argv[3] == "whole"

def seen():
    found = {".": oct(workspace.lstat().st_mode)}
    for path in sorted(workspace.rglob("*")):
        name, mode = str(path.relative_to(workspace)), path.lstat().st_mode
        if name.split("/")[0] != ".freeact":
            content = os.readlink(path) if path.is_symlink() else path.read_text() if stat.S_ISREG(mode) else ""
            found[name] = (oct(mode), content)
    return found

def write(name, text, mode):
    path = workspace / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)

def of(name, mode):
    try:
        before = os.lstat(workspace / name).st_mode
    except FileNotFoundError:
        before = 0
    return FileChange(path=name, before=before, mode=mode)

FILE, FOLDER, LINK, PIPE = stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK, stat.S_IFIFO
NEW = {"changed": FILE | 0o600, "new/inner/file": FILE | 0o400, "became-file": FILE | 0o644, "closed/file": FILE | 0o640}

def take_over():
    with Stage(workspace) as stage:
        for path, mode in NEW.items():
            with stage.new_file(path, mode) as descriptor:
                os.write(descriptor, b"new")
        stage.new_link("became-link", "changed")
        stage.new_pipe("pipe", PIPE | 0o620)
        changes = [of(path, mode) for path, mode in NEW.items()]
        changes += [of("became-link", LINK | 0o777), of("pipe", PIPE | 0o620), of("new", FOLDER | 0o750)]
        changes += [of("new/inner", FOLDER | 0o700), of("gone", 0), of("folder/gone", 0), of("folder", 0), of("opened", FILE | 0o644)]
        changes += [of("became-folder", FOLDER | 0o711), of("mode", FOLDER | 0o770), of(".", FOLDER | 0o755)]
        assert stage.take_over(changes, whole=WHOLE) == set()

found, step = [], 0
while True:
    shutil.rmtree(workspace, ignore_errors=True)
    workspace.mkdir(mode=0o700)
    for name, mode in (("changed", 0o644), ("gone", 0o600), ("folder/gone", 0o640), ("opened", 0o600), ("became-link", 0o700)):
        write(name, "before", mode)
    write("became-folder", "before", 0o640)
    for name, mode in (("became-file", 0o700), ("mode", 0o700), ("closed", 0o500), ("folder", 0o711)):
        (workspace / name).mkdir(exist_ok=True)
        (workspace / name).chmod(mode)
    before = seen()
    killed = killed_at(step, take_over, CALLS)
    half = seen()
    again = 0
    while killed_at(again, lambda: recover(workspace), CALLS):
        again += 1
    recover(workspace)
    found.append({"step": step, "before": seen() == before, "half": half not in (before, seen()), "changed": {name: [before.get(name), seen().get(name)] for name in before | seen() if before.get(name) != seen().get(name)},
                  "left": sorted(os.listdir(workspace / ".freeact")) if (workspace / ".freeact").exists() else []})
    if not killed:
        break
    step += int(sys.argv[2])
print(json.dumps({"found": found, "now": seen()}))
"""


@pytest.mark.slow
@pytest.mark.parametrize("how", ["whole", "as far as it goes"])
def test_a_workspace_is_as_before_or_as_it_was_to_be(how, tmp_path):
    (tmp_path / "settings").mkdir()
    environment = {**os.environ, "XDG_CONFIG_HOME": str(tmp_path / "settings"), "PYTHONPATH": str(TESTS)}
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "ws"), "1" if THOROUGH else "3", how]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240, check=False)
    assert ran.stderr == ""
    told = json.loads(ran.stdout)
    *cut_off, last = told["found"]
    wrong = [each for each in cut_off if not each["before"] and each["half"]]
    assert wrong == [], "what was done is neither whole nor undone"
    assert [each for each in told["found"] if each["left"] not in ([], [".gitignore"])] == []
    assert sum(each["half"] for each in cut_off) > 5
    assert (last["before"], last["half"]) == (False, False)
    assert told["now"]["new/inner/file"] == ["0o100400", "new"]
    assert told["now"]["closed"] == ["0o40500", ""]
    assert {name: mode[0] for name, mode in told["now"].items() if name in ("mode", "pipe", "became-folder")} == {
        "mode": "0o40770",
        "pipe": "0o10620",
        "became-folder": "0o40711",
    }
    assert "gone" not in told["now"]
    assert "folder" not in told["now"]
    assert list((tmp_path / "settings").rglob("*.json")) == []
