"""Terminal, host, program and kernel are killed at random moments: no question is lost, no process is left."""

import contextlib
import os
import random
import re
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from support.chat_server import ChatCall, ChatReply
from support.cli import PROGRAM, chat, environment
from support.terminal import CTRL_D, READY, Terminal
from support.thorough import THOROUGH
from support.waiting import command_of, wait_until

from freeact_sub.sessions import StoredSession, session_store

pytestmark = [pytest.mark.e2e, pytest.mark.kernel, pytest.mark.slow]
TIMES = 20 if THOROUGH else 6
SEED = int(os.environ.get("KILL_SEED", "") or random.randrange(10**6))
"""Which kills, and when: printed, and set by `KILL_SEED` for the same again."""
CODE = "sum(range(2 * 10**7)); print('the cell', 'ran')"


def script(request: dict[str, Any]) -> ChatReply:
    last = request["messages"][-1]
    over = last["role"] == "tool" or "whole final answer again" in str(last["content"])
    return ["I have ", "ended."] if over else [ChatCall("execute_ipython_cell", {"code": CODE})]


def of_the_program(process: psutil.Process, host: psutil.Process) -> dict[str, psutil.Process | None]:
    program = next(iter(host.children()), None)
    kernels = [found for found in host.children(recursive=True) if "forkserver/server.py" in command_of(found)]
    return {"terminal": process, "host": host, "program": program, "kernel": kernels[-1] if kernels else None}


@pytest.mark.timeout(1800)
def test_nothing_is_lost_and_nothing_is_left(tmp_path: Path) -> None:
    chance = random.Random(SEED)
    print(f"KILL_SEED={SEED}")
    for number in range(TIMES):
        print(kill_one(chance, tmp_path, number), flush=True)


def kill_one(chance: random.Random, folder: Path, number: int) -> str:
    """One conversation: ask, kill one process at some moment of the question or the cell, then come back to it."""
    victim = chance.choice(["terminal", "host", "program", "kernel"])
    at = chance.choice(["asked", "running"])
    prompt = f"prompt {number}"
    with chat(script) as server, Terminal([PROGRAM, *server.options], cwd=folder, env=environment()) as terminal:
        terminal.wait_at_bottom(READY)
        terminal.enter(prompt)
        terminal.wait_at_bottom("asks to run this cell")
        client = psutil.Process(terminal.pid)
        (host,) = client.children()
        everything = [client, host, *host.children(recursive=True)]
        wait_until(lambda: session_of(folder, prompt))
        if at == "running":
            terminal.answer("y", "asks to run this cell")
        moment = time.monotonic() + chance.random() * 0.6
        terminal.wait_until(lambda: time.monotonic() > moment, "the moment")
        everything += [process for process in of_the_program(client, host).values() if process is not None]
        target = of_the_program(client, host)[victim]
        if target is not None:
            with contextlib.suppress(psutil.NoSuchProcess):
                target.kill()
        if victim == "kernel":
            if at == "asked":
                terminal.answer("y", "asks to run this cell")
            terminal.wait_for("I have ended")
            terminal.wait_at_bottom(READY)
            terminal.press(CTRL_D)
        terminal.wait_end()
        if victim != "terminal":  # else the host and the program work on, or wait for an answer
            left = psutil.wait_procs(everything, timeout=60)[1]
            assert not left, (victim, at, left)
        again = come_back(server.options, folder, prompt)
        left = psutil.wait_procs(everything, timeout=60)[1]
        assert not left, (victim, at, left)
    return f"{victim} killed, {at}: {again}"


def session_of(folder: Path, prompt: str) -> StoredSession | None:
    """The session of this first prompt. None: it is not on disk yet."""
    return next((each for each in session_store().sessions(folder) if each.title == prompt), None)


def come_back(options: list[str], folder: Path, prompt: str) -> str:
    """Attach to the session, answer what is open, and go on with it; what became of the question."""
    session = session_of(folder, prompt)
    assert session is not None
    with Terminal([PROGRAM, "attach", session.session_id, *options], cwd=folder, env=environment()) as terminal:
        terminal.wait_for(prompt)
        terminal.wait_until(lambda: READY in terminal.bottom or "asks to run this cell" in terminal.bottom, "an end")
        became = "was answered"
        if READY not in terminal.bottom:
            became = "was asked again"
            terminal.answer("y", "asks to run this cell")
            terminal.wait_at_bottom(READY)
        else:
            terminal.wait_for_match(r"(denied|cancelled): .|the cell ran|I have ended")  # a block may follow the line
            if found := re.search(r"(denied|cancelled): (.*)", terminal.shown):
                became = f"did not run: {found[2]}"
        before = terminal.shown.count("I have ended")
        terminal.enter("and on")
        terminal.answer("y", "asks to run this cell")
        terminal.wait_until(lambda: terminal.shown.count("I have ended") > before, "the session to go on")
        terminal.wait_at_bottom(READY)
        terminal.press(CTRL_D)
        assert terminal.wait_end() == 0
    return became
