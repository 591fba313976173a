"""A Python that has imported what a program needs, and forks it on request: the seconds of its imports are spent once.

What it forks becomes a child of the process that has asked, which must be a child subreaper, with its own arguments,
variables, folder and descriptors. Both ends are here: `forking_python` and `fork` are the tests', `serve` and `become` run in
that Python. With the standard library only: what is forked has imported no more than it asks for.
"""

import contextlib
import gc
import inspect
import io
import json
import os
import socket
import subprocess
import sys
import tempfile
import termios
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from fcntl import ioctl
from typing import Any

HEADER_BYTES = 8
MAX_DESCRIPTORS = 4
LIMIT_SECONDS = 120


@contextlib.contextmanager
def forking_python(script: str, *arguments: str) -> Iterator[socket.socket]:
    """For this time a Python runs the script, which imports and then calls `serve`; the connection to it is for `fork`."""
    here, there = socket.socketpair()
    with here, there:
        command = [sys.executable, script, str(there.fileno()), *arguments]
        process = subprocess.Popen(command, pass_fds=[there.fileno()])
        there.close()
        here.settimeout(LIMIT_SECONDS)
        try:
            yield here
        finally:
            here.close()
            process.wait(LIMIT_SECONDS)


def starts_like_here(env: Mapping[str, str] | None) -> bool:
    """Whether Python would start with these variables as it has started here."""
    return not any(name.startswith("PYTHON") and os.environ.get(name) != env[name] for name in env or ())


def fork(
    server: socket.socket,
    command: Sequence[str],
    descriptors: Sequence[int],
    *,
    cwd: Any,
    env: Mapping[str, str] | None,
    session: bool = False,
    terminal: bool = False,
) -> int:
    """Start a program.

    Args:
        server: From `forking_python`.
        command: What is in its `sys.argv`.
        descriptors: Which are its descriptors 0, 1, 2 and so on, `MAX_DESCRIPTORS` at most.
        cwd: Its folder; None: ours.
        env: Its variables; None: ours.
        terminal: Its standard input is to be its controlling terminal.

    Returns:
        Its process id.
    """
    request = {
        "command": command,
        "cwd": os.fspath(cwd or os.getcwd()),
        "environment": dict(os.environ if env is None else env),
        "session": session or terminal,
        "terminal": terminal,
    }
    content = json.dumps(request).encode()
    socket.send_fds(server, [len(content).to_bytes(HEADER_BYTES)], list(descriptors))
    server.sendall(content)
    return int.from_bytes(_read(server, HEADER_BYTES))


class ForkedProcess(subprocess.Popen[Any]):
    """A process that is forked if there is who can; the descriptors that it is passed are its 3, 4 and so on then."""

    def server_for(self, command: Sequence[str], env: Mapping[str, str] | None) -> socket.socket | None:
        """Who forks it; None: it is started."""
        raise NotImplementedError

    def _execute_child(self, *values: Any) -> None:
        start = super()._execute_child  # type: ignore[misc]
        named = dict(zip(inspect.signature(start).parameters, values, strict=True))
        command = [os.fspath(word) for word in named["args"]]
        server = self.server_for(command, named["env"]) if starts_like_here(named["env"]) else None
        if server is None:
            start(*values)
            return
        ends = [named[name] for name in ("p2cread", "c2pwrite", "errwrite")]
        descriptors = [number if end == -1 else end for number, end in enumerate(ends)]
        options = {"cwd": named["cwd"], "env": named["env"], "session": named["start_new_session"]}
        self.pid = fork(server, command, [*descriptors, *named["pass_fds"]], **options)
        self._child_created = True
        pipes = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
        self._close_pipe_fds(*(named[name] for name in pipes))  # type: ignore[attr-defined]


def _read(connection: socket.socket, size: int) -> bytes:
    content = b""
    while len(content) < size:
        part = connection.recv(size - len(content))
        if not part:
            raise EOFError
        content += part
    return content


def serve(descriptor: int) -> dict[str, Any]:
    """Fork a program for each request that comes over this descriptor. Returns in the program, with its request."""
    sys.modules["rfc3987_syntax"] = None  # type: ignore[assignment]  # see tests/conftest.py
    assert threading.active_count() == 1, threading.enumerate()
    gc.freeze()
    connection = socket.socket(fileno=descriptor)
    while True:
        try:
            header, descriptors, _, _ = socket.recv_fds(connection, HEADER_BYTES, MAX_DESCRIPTORS)
            request: dict[str, Any] = json.loads(_read(connection, int.from_bytes(header)))
        except (EOFError, ValueError):
            os._exit(0)  # nobody asks any more
        telling, told = os.pipe()
        waiting, given = os.pipe()
        between = os.fork()
        if between == 0:
            pid = os.fork()
            if pid == 0:
                if request["session"]:
                    os.setsid()
                os.write(told, os.getpid().to_bytes(HEADER_BYTES))
                os.read(waiting, 1)
                return {**request, "descriptors": descriptors}
            os._exit(0)  # the program is given to who looks after orphans: the tests
        os.waitpid(between, 0)
        os.write(given, b"1")
        connection.sendall(os.read(telling, HEADER_BYTES))
        for number in (telling, told, waiting, given, *descriptors):
            os.close(number)


def become(request: dict[str, Any]) -> None:
    """Turn this fork into a process such as a start would have made."""
    for number, descriptor in enumerate(request["descriptors"]):
        os.dup2(descriptor, number)
    os.closerange(len(request["descriptors"]), 1_000)
    if request["terminal"]:
        ioctl(0, termios.TIOCSCTTY, 0)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.pycache_prefix = os.environ.get("PYTHONPYCACHEPREFIX")
    sys.dont_write_bytecode = "PYTHONDONTWRITEBYTECODE" in os.environ
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
