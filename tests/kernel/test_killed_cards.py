"""`kill -9` of any process of a program at any moment around an open card: nothing is lost, nothing is left."""

import contextlib
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
import pytest
from support import card_program
from support.elsewhere import CANNOT_FORK
from support.sandbox import NEEDS_A_WALL
from support.thorough import sample
from support.waiting import LIMIT_SECONDS, command_of, is_running, wait_until
from support.warm import WarmProgram, forking

from freeact_sub.system.safe_files import mounts_in

pytestmark = [
    pytest.mark.kernel,
    pytest.mark.skipif(CANNOT_FORK, reason="kernels are branched on Linux only"),
    NEEDS_A_WALL,
]
MOMENTS, SAMPLE = 100, 3
ANSWERS = ("yes", "no", "at-once")
FIRST_SECONDS, DOUBLINGS = 0.02, 7
"""The moments after the card are between this and so many times its double: to the end of the program on any machine."""


class Program:
    """A program with a card, in a workspace with one file and a temporary folder of its own."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.temporary = Path(folder, "t")
        self.temporary.mkdir(exist_ok=True)
        env = {**os.environ, "TMPDIR": str(self.temporary), "XDG_STATE_HOME": str(folder / "s")}
        env["PYTHONPATH"] = os.pathsep.join(sys.path)
        command = [sys.executable, card_program.__file__, *arguments]
        self.process = WarmProgram(command, cwd=folder / "w", env=env, stdout=subprocess.PIPE, text=True)
        self.told = {}

    def read(self, until: str = "") -> None:
        """Read what it tells, up to a word or to its end."""
        for line in self.process.stdout:
            word, *more = json.loads(line)
            self.told[word] = more
            if word == until:
                return

    def all_processes(self) -> list[psutil.Process]:
        """Those of the program, the first one first, and all that it has started."""
        with contextlib.suppress(psutil.NoSuchProcess):
            first = psutil.Process(self.process.pid)
            return [first, *first.children(recursive=True)]
        return []

    def end(self) -> None:
        """Read to its end."""
        with self.process:
            self.read()
            self.process.wait(LIMIT_SECONDS)


@pytest.fixture(scope="module", autouse=True)
def warm():
    with forking():
        yield


@pytest.mark.parametrize("number", sample(range(MOMENTS), SAMPLE))
def test_whatever_is_killed_around_a_card_nothing_is_lost_and_nothing_is_left(number):
    chance, answer = random.Random(number), ANSWERS[number % len(ANSWERS)]
    with tempfile.TemporaryDirectory(prefix="killed-") as name:
        folder = Path(name)
        workspace = folder / "w"
        workspace.mkdir()
        (workspace / "rows").write_text("one")
        program = Program(folder, answer)
        program.read("card")
        time.sleep(FIRST_SECONDS * 2 ** chance.uniform(0, DOUBLINGS))  # the moment that is tried
        there = program.all_processes()
        victim = chance.choice(there or [None])
        told = f"{number}: {answer}, {describe(victim, there)}"
        with contextlib.suppress(psutil.NoSuchProcess, AttributeError):
            victim.kill()
        there += program.all_processes()
        program.end()
        wait_until(lambda: not [each for each in there if each.is_running() and is_running(each.pid)])
        found = [path.name for path in workspace.iterdir() if path.name != ".freeact"]
        assert found == ["rows"] or (found == ["done"] and answer != "no"), told
        assert victim is there[0] or program.told["result"][0] == "completed", told
        again = Program(folder, "resume", *program.told["session"])
        again.end()
        assert again.told["result"] == ["completed", "2 prompts"], told
        assert [path.name for path in workspace.iterdir() if path.name != ".freeact"] == found, told
        left = [path.name for path in (folder / "t").iterdir()]
        assert (left, [*mounts_in(name)]) == ([], []), told


def describe(victim, there):
    """Which process was killed, for people."""
    try:
        return f"{there.index(victim)} of {len(there)}: {command_of(victim)[-200:]}"
    except (ValueError, AttributeError):
        return "nothing"
