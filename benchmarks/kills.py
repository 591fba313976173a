"""Five children at work, and one process after the other is killed: what is left three seconds after the end?

Each round starts a program with a root, five children, a cell at work in each, a daemon and shared memory that each cell
has made, and an MCP server of each child, which has a daemon too. At a random moment one process is killed (`kill -9`): the
host, the fork server, a guard, a kernel or an MCP server. Where the host lives, it gets a Ctrl-C a moment later and has five
seconds.

Fails (exit status 1) where a host did not end in time, or where a process, socket, folder or shared memory is left.

    python -m benchmarks.kills [--rounds 30] [--seed 1] [--minutes 60]
"""

import argparse
import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import psutil

from benchmarks.common import OtherLoad, Row, clock, report

CHILDREN: Final = 5
AT_WORK_SECONDS: Final = 120.0
END_SECONDS: Final = 5.0
"""How long a host may take from Ctrl-C to its end."""
LEFT_SECONDS: Final = 3.0
"""When nothing may be left any more."""
VICTIMS: Final = ("host", "fork server", "guard", "kernel", "MCP server")

SERVER: Final = """
import json, os, signal, sys, time
if not os.fork():
    os.setsid()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(600)
for line in sys.stdin:
    request = json.loads(line)
    answer = {
        "initialize": lambda: {
            "protocolVersion": request["params"]["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "pid", "version": "1"},
        },
        "tools/list": lambda: {"tools": [{"name": "pid", "inputSchema": {"type": "object"}}]},
        "tools/call": lambda: {"content": [{"type": "text", "text": str(os.getpid())}]},
    }.get(request.get("method"))
    if "id" in request:
        result = {"result": answer()} if answer else {"error": {"code": -32601, "message": "no such method"}}
        print(json.dumps({"jsonrpc": "2.0", "id": request["id"], **result}), flush=True)
"""

CELL: Final = """
import multiprocessing.shared_memory, subprocess, pathlib, time
memory = multiprocessing.shared_memory.SharedMemory(create=True, size=1_000_000)
daemon = subprocess.Popen(["setsid", "sleep", "1000"])
await agent.mcp.pid.pid()
pathlib.Path(f"at-work-{daemon.pid}").touch()
for number in range(10_000):
    print(number, flush=True)
    time.sleep(0.01)
"""

HOST: Final = """
import asyncio, sys
from pathlib import Path
from pydantic_ai.messages import ToolCallPart
from freeact_sub import Agent, Config
from freeact_sub.terminal.asking import Approver
from freeact_sub.terminal.run_once import run_once
from freeact_sub.testing import ScriptedModel

cell, server, children, mode = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
script = {
    "root": [[ToolCallPart("task", {"prompt": f"work {number}"}) for number in range(children)], "done"],
    "work": [ToolCallPart("execute_ipython_cell", {"code": cell}), "done"],
}
servers = {"pid": {"command": sys.executable, "args": ["-c", server]}}
config = Config(workspace=Path.cwd(), mode=mode, headless="allow", mcp_servers=servers)
make = lambda: Agent(config, model=ScriptedModel(script))
sys.exit(asyncio.run(run_once(make, "root", output="json", approver=Approver())))
"""


class Round:
    """One program and all that comes of it."""

    def __init__(self, folder: Path, mode: str) -> None:
        self.workspace = folder / "w"
        self.temporary = folder / "t"
        self._shared_memory = set(_shared_memory())
        for path in (self.workspace, self.temporary):
            path.mkdir()
        with (folder / "errors").open("wb") as errors:
            self.host = subprocess.Popen(
                [sys.executable, "-c", HOST, CELL, SERVER, str(CHILDREN), mode],
                cwd=self.workspace,
                env={**os.environ, "TMPDIR": str(self.temporary)},
                stdout=subprocess.DEVNULL,
                stderr=errors,
                start_new_session=True,
            )

    def is_at_work(self) -> bool:
        """Whether a cell of each child runs."""
        return len(list(self.workspace.glob("at-work-*"))) == CHILDREN

    def processes(self) -> list[psutil.Process]:
        """All that came of the program: what stands below it, and what carries its folder in its environment."""
        found = {}
        with contextlib.suppress(psutil.NoSuchProcess):
            found = {process.pid: process for process in psutil.Process(self.host.pid).children(recursive=True)}
        mark = str(self.temporary).encode()
        for path in Path("/proc").glob("[0-9]*/environ"):
            with contextlib.suppress(OSError, psutil.NoSuchProcess):
                if mark in path.read_bytes() and int(path.parent.name) != self.host.pid:
                    found[int(path.parent.name)] = psutil.Process(int(path.parent.name))
        return [process for process in found.values() if _is_running(process)]

    def victims(self, kind: str) -> list[int]:
        """The processes of one kind."""
        if kind == "host":
            return [self.host.pid]
        chosen = []
        for process in self.processes():
            with contextlib.suppress(psutil.NoSuchProcess):
                if _kind(process) == kind:
                    chosen.append(process.pid)
        return chosen

    def left(self) -> list[str]:
        """What is still there, each thing named."""
        sockets = [
            line.split()[-1]
            for line in Path("/proc/net/unix").read_text(encoding="utf-8", errors="replace").splitlines()
            if str(self.temporary) in line
        ]
        return [
            *(f"process {process.pid}: {_command(process)[:80]}" for process in self.processes()),
            *(f"socket {path}" for path in sockets),
            *(f"folder {path}" for path in self.temporary.iterdir()),
            *(f"shared memory {name}" for name in set(_shared_memory()) - self._shared_memory),
        ]


def _command(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.NoSuchProcess:  # it has ended meanwhile
        return ""


def _kind(process: psutil.Process) -> str:
    command = _command(process)
    if "guard.py" in command:
        return "guard"
    if SERVER in command:
        return "MCP server" if process.ppid() != 1 and os.getsid(process.pid) != process.pid else "daemon"
    if "forkserver/server.py" in command:
        parent = process.parent()
        return "fork server" if parent is not None and "guard.py" in _command(parent) else "kernel"
    return "other"


def _is_running(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _shared_memory() -> list[str]:
    return os.listdir("/dev/shm")  # noqa: PTH208  # a listing of names


def _until(condition: Callable[[], Any], seconds: float) -> float | None:
    """Seconds until the condition held; None: it did not in time."""
    started = clock()
    while not condition():
        if clock() - started > seconds:
            return None
        time.sleep(0.02)
    return clock() - started


def play(kind: str, mode: str, chance: random.Random) -> tuple[list[str], float, float]:
    """One round. Returns what went wrong, the seconds from Ctrl-C to the host's end, and those until nothing was left."""
    with tempfile.TemporaryDirectory(prefix="k", ignore_cleanup_errors=True) as folder:
        game = Round(Path(folder), mode)
        try:
            if (
                _until(lambda: game.is_at_work() or game.host.poll() is not None, AT_WORK_SECONDS) is None
                or game.host.poll()
            ):
                return [f"the program did not come to work: {(Path(folder) / 'errors').read_text()[-500:]}"], 0, 0
            time.sleep(chance.random())
            victims = game.victims(kind)
            if not victims:
                return [f"there is no {kind}"], 0, 0
            os.kill(chance.choice(victims), signal.SIGKILL)
            ended = 0.0
            if kind != "host":
                time.sleep(chance.random() * 2)
                if game.host.poll() is None:
                    os.kill(game.host.pid, signal.SIGINT)
                seconds = _until(lambda: game.host.poll() is not None, END_SECONDS * 6)
                if seconds is None:
                    return [f"the host has not ended {END_SECONDS * 6:g} s after Ctrl-C: {game.left()}"], 0, 0
                ended = seconds
            game.host.wait()
            clean = _until(lambda: not game.left(), LEFT_SECONDS * 10)
            problems = [f"left: {thing}" for thing in game.left()]
            if ended > END_SECONDS:
                problems.append(f"the host ended only {ended:.1f} s after Ctrl-C")
            if clean is not None and clean > LEFT_SECONDS:
                problems.append(f"nothing was left only after {clean:.1f} s")
            return problems, ended, clean or 0.0
        finally:
            for process in game.processes():
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
            game.host.kill()
            game.host.wait()


def run(*, small: bool = False, rounds: int | None = None, seed: int = 1, minutes: float = 60) -> dict[str, Any]:
    """Thirty rounds; small: one. No round begins past the minutes."""
    load, chance, started = OtherLoad(), random.Random(seed), clock()  # which process, and when
    count = rounds or (1 if small else 30)
    failed: list[str] = []
    killed: Counter[str] = Counter()
    with_problems = 0
    ends, cleans = [0.0], [0.0]
    for number in range(count):
        if clock() - started > minutes * 60:
            break
        kind, mode = VICTIMS[number % len(VICTIMS)], ("full", "auto")[number // len(VICTIMS) % 2]
        problems, ended, clean = play(kind, mode, chance)
        killed[kind] += 1
        ends.append(ended)
        cleans.append(clean)
        if problems:
            with_problems += 1
            failed += [f"round {number + 1}, mode {mode}, {kind} killed: {problem}" for problem in problems]
    played = killed.total()
    rows = [
        Row(figure="rounds", unit="", values={"all": float(played)}),
        Row(figure="rounds with problems", unit="", values={"all": float(with_problems)}),
        Row(figure="Ctrl-C to the host's end, at most", unit="s", values={"all": max(ends)}),
        Row(figure="until nothing was left, at most", unit="s", values={"all": max(cleans)}),
    ]
    summary = (
        f"{played} of {count} rounds in {clock() - started:.0f} s, {with_problems} with problems; "
        f"killed: {', '.join(f'{kind} {times}' for kind, times in killed.items())}"
    )
    return report("kills", rows, load, [*failed, summary]) | {"failed": failed}


def main() -> int:
    """Exit status 1 if anything was left."""
    parser = argparse.ArgumentParser(description="Kill one process after the other, and look what is left.")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=60, help="no round begins past this time")
    arguments = parser.parse_args()
    result = run(rounds=arguments.rounds, seed=arguments.seed, minutes=arguments.minutes)
    print(
        *(f"{row['figure']}: {row['values']['all']:.3g} {row['unit']}" for row in result["rows"]), *result["notes"], sep="\n"
    )
    return 1 if result["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
