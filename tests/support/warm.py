"""Programs that start without the seconds that their imports take: a Python that has them imported forks them.

`Program` is a `subprocess.Popen`, and `warm_terminal` what pexpect starts in a terminal; what they start is a child of this
process like any other (`support/forking.py`). Only what Python does before it runs a program is left out.
Without `forking()`, and for all but the installed program, Python files and modules, they start as ever.
"""

import contextlib
import os
import runpy
import signal
import socket
import subprocess
import sys
import termios
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pexpect
import ptyprocess

sys.path.append(str(Path(__file__).parents[1]))  # as the Python that forks
from support.forking import ForkedProcess, become, fork, forking_python, serve, starts_like_here

PROGRAM = str(Path(sys.executable).with_name("freeact-sub"))
IMPORTED = (
    *("freeact_sub.cli", "freeact_sub.terminal", "freeact_sub.testing", "pydantic_ai.models.openai"),
    *("openai.resources.chat", "mcp.client.stdio", "ipykernel", "jupyter_client.manager", "rich.live", "prompt_toolkit.shortcuts"),
)  # fmt: skip

_server: list[socket.socket] = []


@contextlib.contextmanager
def forking() -> Iterator[None]:
    """For this time programs are forked, where the system makes orphans our children."""
    from support.elsewhere import CANNOT_FORK

    if _server or CANNOT_FORK:
        yield
        return
    with forking_python(__file__) as server:
        _server.append(server)
        try:
            yield
        finally:
            _server.remove(server)


def _server_for(command: Sequence[str]) -> socket.socket | None:
    of_python = command[0] == sys.executable and command[1].endswith((".py", "-m"))
    if _server and (command[0] == PROGRAM or of_python):
        return _server[0]
    return None


class WarmProgram(ForkedProcess):
    """A program that is forked where it can be."""

    def server_for(self, command: Sequence[str], env: Mapping[str, str] | None) -> socket.socket | None:
        """As long as there is `forking`."""
        del env
        return _server_for(command)


def run_program(
    command: Sequence[str | Path], *, cwd: Path, env: Mapping[str, str], timeout: float, stdin: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end; what it writes is kept as text."""
    pipe = subprocess.PIPE
    with WarmProgram(command, cwd=cwd, env=env, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as program:
        try:
            stdout, stderr = program.communicate(stdin, timeout)
        except BaseException:
            program.kill()
            raise
    return subprocess.CompletedProcess(command, program.returncode, stdout, stderr)


class TerminalProgram(pexpect.spawn):  # type: ignore[misc]
    """A program in a terminal that is forked where it can be."""

    def _spawnpty(self, args: list[str], **options: Any) -> Any:
        server = _server_for(args) if starts_like_here(options["env"]) else None
        if server is None:
            return super()._spawnpty(args, **options)
        ours, theirs = os.openpty()
        try:
            termios.tcsetwinsize(ours, options["dimensions"])
            pid = fork(server, args, [theirs] * 3, cwd=options["cwd"], env=options["env"], terminal=True)
        finally:
            os.close(theirs)
        return ptyprocess.PtyProcess(pid, ours)


def main() -> None:
    """Be the Python that forks, and then each program."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # one that was meant for the tests
    sys.path[0] = str(Path(PROGRAM).parent)
    for name in IMPORTED:
        __import__(name)
    request = serve(int(sys.argv[1]))
    become(request)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    command = request["command"]
    sys.argv = command if command[0] == PROGRAM else command[1:]
    if command[0] == PROGRAM:
        from freeact_sub.cli import main as run

        sys.exit(run())
    if sys.argv[0] == "-m":
        del sys.argv[0]
        sys.path[0] = os.getcwd()
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
        return
    sys.path[0] = str(Path(sys.argv[0]).resolve().parent)
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
