"""`Line`: questions to the host from a kernel, and from every process that its cells fork.

Runs in kernels: standard library only. A forked process shares neither threads nor sockets with the kernel. It sends one
end of its own socket to the kernel, which passes the question to the host and the reply back.
"""

import contextlib
import errno
import json
import os
import socket
import sys
import threading
from collections.abc import Callable
from typing import Any

WAITING_WORKER = ("concurrent.futures.thread", "_worker")
"""The function, with its module, in which a thread of a pool waits for work."""
WALLED = "walled"
"""The reply to the question about a program that may start behind the wall for programs that only read."""
NO_LINE = "denied: this process cannot ask its kernel, and so not the host"


OWN_ENDS: set[int] = set()
"""Pipes, connections and mapped files that belong to the kernel and not to its code, by inode."""
OWN_CHILDREN: set[int] = set()
"""Processes that the kernel has forked for itself, such as branches and savers; not programs of its code."""


class LineThread(threading.Thread):
    """A thread that belongs to the kernel and not to its code."""


def is_idle_worker(thread: threading.Thread) -> bool:
    """Whether a thread of `asyncio.to_thread` has nothing to do. A branch has a loop and a pool of its own."""
    frame: Any = sys._current_frames().get(thread.ident or 0)  # noqa: SLF001  # documented
    waits = frame is not None and (frame.f_globals["__name__"], frame.f_code.co_name) == WAITING_WORKER
    return waits and thread.name.startswith("asyncio_")


class Line:
    """Questions of this process and of processes forked from it."""

    def __init__(self, ask_host: Callable[..., Any]) -> None:
        """Args: ask_host: sends a method and its parameters, and waits for the reply."""
        self.ask_host = ask_host
        self.home = os.getpid()
        self.theirs: socket.socket | None = None

    @property
    def is_forked(self) -> bool:
        """Whether this process was forked from the kernel."""
        return os.getpid() != self.home

    def open(self) -> None:
        """Prepare for a process that is about to be forked."""
        if self.theirs is None and not self.is_forked:
            ours, self.theirs = socket.socketpair()
            OWN_ENDS.update(os.fstat(end.fileno()).st_ino for end in (ours, self.theirs))
            LineThread(target=self.serve, args=(ours,), name="freeact line", daemon=True).start()

    def ask(self, **params: Any) -> Any:
        """Wait for the host's reply, and return it.

        Raises:
            PermissionError: The reply is no.
        """
        try:
            return self.ask_through_kernel(params) if self.is_forked else self.ask_host("check", **params)
        except (RuntimeError, OSError) as error:
            raise PermissionError(errno.EACCES, str(error)) from None

    def ask_through_kernel(self, params: dict[str, Any]) -> str | None:
        """Ask from a forked process."""
        if self.theirs is None:
            raise RuntimeError(NO_LINE)
        ours, theirs = socket.socketpair()
        with ours:
            with theirs:
                socket.send_fds(self.theirs, [b"?"], [theirs.fileno()])
            ours.sendall(json.dumps(params).encode())
            ours.shutdown(socket.SHUT_WR)
            reply = received(ours)
        if reply not in (b"allowed", WALLED.encode()):
            raise RuntimeError(reply.decode() or NO_LINE)
        return WALLED if reply == WALLED.encode() else None

    def serve(self, ours: socket.socket) -> None:
        """Accept questions of forked processes; each is asked in its own thread."""
        while True:
            _, descriptors, _, _ = socket.recv_fds(ours, 1, 1)
            for descriptor in descriptors:
                asker = socket.socket(fileno=descriptor)
                LineThread(target=self.reply, args=(asker,), name="freeact question", daemon=True).start()

    def reply(self, asker: socket.socket) -> None:
        """Pass the question of a forked process to the host."""
        with asker:
            try:
                reply = WALLED if self.ask_host("check", **json.loads(received(asker))) == WALLED else "allowed"
            except BaseException as error:  # noqa: BLE001  # border: an interrupt, too, must reach the process that waits
                reply = str(error) or "interrupted"
            with contextlib.suppress(OSError):  # it has not waited
                asker.sendall(reply.encode())


def received(connection: socket.socket) -> bytes:
    """Return everything that the other end sends."""
    pieces = []
    while piece := connection.recv(65536):
        pieces.append(piece)
    return b"".join(pieces)
