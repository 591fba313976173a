"""Programs that start without the seconds that their imports take: a Python that has them imported forks them.

`Program` is a `subprocess.Popen`, and `warm_terminal` what pexpect starts in a terminal; what they start is a child of this
process like any other, with its own arguments, variables, folder and descriptors. Only what Python does before it runs a
program is left out. Without `forking()`, and for all but the installed program and Python files, they start as ever.
"""

import contextlib
import gc
import inspect
import io
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import termios
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from fcntl import ioctl
from pathlib import Path
from typing import Any

import pexpect
import ptyprocess

PROGRAM = str(Path(sys.executable).with_name("freeact-sub"))
IMPORTED = (
    *("freeact_sub.cli", "freeact_sub.terminal", "freeact_sub.testing", "pydantic_ai.models.openai"),
    *("openai.resources.chat", "mcp.client.stdio", "ipykernel", "jupyter_client.manager", "rich.live", "prompt_toolkit.shortcuts"),
)  # fmt: skip
HEADER_BYTES = 8
LIMIT_SECONDS = 120

_server: list[socket.socket] = []


@contextlib.contextmanager
def forking() -> Iterator[None]:
    """For this time programs are forked, where the system makes orphans our children."""
    if _server or sys.platform != "linux":
        yield
        return
    here, there = socket.socketpair()
    with here, there:
        process = subprocess.Popen([sys.executable, __file__, str(there.fileno())], pass_fds=[there.fileno()])
        there.close()
        here.settimeout(LIMIT_SECONDS)
        _server.append(here)
        try:
            yield
        finally:
            _server.remove(here)
            here.close()
            process.wait(LIMIT_SECONDS)


def _can_be_forked(command: Sequence[str], env: Mapping[str, str] | None) -> bool:
    """Whether it is known what to run, and Python would start as it has here."""
    if not _server or any(name.startswith("PYTHON") and os.environ.get(name) != env[name] for name in env or ()):
        return False
    return command[0] == PROGRAM or (command[0] == sys.executable and command[1].endswith(".py"))


def _fork(
    command: Sequence[str], descriptors: Sequence[int], *, cwd: Any, env: Mapping[str, str] | None, terminal: bool = False
) -> int:
    """Start a program with these standard streams; its process id."""
    request = {
        "command": command,
        "cwd": os.fspath(cwd or Path.cwd()),
        "environment": dict(os.environ if env is None else env),
        "terminal": terminal,
    }
    content = json.dumps(request).encode()
    [server] = _server
    socket.send_fds(server, [len(content).to_bytes(HEADER_BYTES)], list(descriptors))
    server.sendall(content)
    return int.from_bytes(_read(server, HEADER_BYTES))


def _read(connection: socket.socket, size: int) -> bytes:
    content = b""
    while len(content) < size:
        part = connection.recv(size - len(content))
        if not part:
            raise EOFError
        content += part
    return content


class Program(subprocess.Popen[str]):
    """A program that is forked where it can be."""

    def _execute_child(self, *values: Any) -> None:
        start = super()._execute_child  # type: ignore[misc]
        named = dict(zip(inspect.signature(start).parameters, values, strict=True))
        command = [os.fspath(word) for word in named["args"]]
        if not _can_be_forked(command, named["env"]):
            start(*values)
            return
        ends = [named[name] for name in ("p2cread", "c2pwrite", "errwrite")]
        descriptors = [number if end == -1 else end for number, end in enumerate(ends)]
        self.pid = _fork(command, descriptors, cwd=named["cwd"], env=named["env"])
        self._child_created = True
        pipes = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
        self._close_pipe_fds(*(named[name] for name in pipes))  # type: ignore[attr-defined]


def run_program(
    command: Sequence[str | Path], *, cwd: Path, env: Mapping[str, str], timeout: float, stdin: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end; what it writes is kept as text."""
    pipe = subprocess.PIPE
    with Program(command, cwd=cwd, env=env, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as program:
        try:
            stdout, stderr = program.communicate(stdin, timeout)
        except BaseException:
            program.kill()
            raise
    return subprocess.CompletedProcess(command, program.returncode, stdout, stderr)


class TerminalProgram(pexpect.spawn):  # type: ignore[misc]
    """A program in a terminal that is forked where it can be."""

    def _spawnpty(self, args: list[str], **options: Any) -> Any:
        if not _can_be_forked(args, options["env"]):
            return super()._spawnpty(args, **options)
        ours, theirs = os.openpty()
        try:
            termios.tcsetwinsize(ours, options["dimensions"])
            pid = _fork(args, [theirs] * 3, cwd=options["cwd"], env=options["env"], terminal=True)
        finally:
            os.close(theirs)
        return ptyprocess.PtyProcess(pid, ours)


def _serve(connection: socket.socket) -> dict[str, Any]:
    """Fork a program for each request. Returns in the program, with its request."""
    while True:
        try:
            header, descriptors, _, _ = socket.recv_fds(connection, HEADER_BYTES, 3)
            request: dict[str, Any] = json.loads(_read(connection, int.from_bytes(header)))
        except (EOFError, ValueError):
            os._exit(0)  # nobody asks any more
        telling, told = os.pipe()
        between = os.fork()
        if between == 0:
            pid = os.fork()
            if pid == 0:
                return {**request, "descriptors": descriptors}
            os.write(told, pid.to_bytes(HEADER_BYTES))
            os._exit(0)  # the program is given to who looks after orphans: the tests
        os.waitpid(between, 0)
        connection.sendall(os.read(telling, HEADER_BYTES))
        for descriptor in (telling, told, *descriptors):
            os.close(descriptor)


def _become(request: dict[str, Any]) -> None:
    """Turn this fork into a process such as a start would have made."""
    for number, descriptor in enumerate(request["descriptors"]):
        os.dup2(descriptor, number)
    os.closerange(3, 1_000)
    if request["terminal"]:
        os.setsid()
        ioctl(0, termios.TIOCSCTTY, 0)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["environment"])
    time.tzset()
    tempfile.tempdir = None
    sys.stdin = sys.__stdin__ = _stream(0, "r", "strict")  # type: ignore[misc]
    sys.stdout = sys.__stdout__ = _stream(1, "w", "strict")  # type: ignore[misc]
    sys.stderr = sys.__stderr__ = _stream(2, "w", "backslashreplace")  # type: ignore[misc]


def _stream(descriptor: int, mode: str, errors: str) -> io.TextIOWrapper:
    raw = io.FileIO(descriptor, mode, closefd=False)
    buffer = io.BufferedReader(raw) if mode == "r" else io.BufferedWriter(raw)
    at_once = descriptor == 2 or os.isatty(descriptor)
    return io.TextIOWrapper(buffer, encoding="utf-8", errors=errors, line_buffering=at_once and mode == "w")


def main() -> None:
    """Be the Python that forks, and then each program."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # one that was meant for the tests
    sys.path[0] = str(Path(PROGRAM).parent)
    for name in IMPORTED:
        __import__(name)
    assert threading.active_count() == 1, threading.enumerate()
    gc.freeze()
    request = _serve(socket.socket(fileno=int(sys.argv[1])))
    _become(request)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.argv = request["command"] if request["command"][0] == PROGRAM else request["command"][1:]
    if sys.argv[0] == PROGRAM:
        from freeact_sub.cli import main as run

        sys.exit(run())
    sys.path[0] = str(Path(sys.argv[0]).resolve().parent)
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
