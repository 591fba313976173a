"""Frames between terminals and hosts, the sockets of live hosts, and who may connect.

A socket is `hosts/PID` in the folder of sessions, named by its host: the session is known later, and changes.
A process that has come of the program is refused: code in a kernel must not answer its own questions.
"""

import contextlib
import json
import os
import select
import signal
import socket
import struct
import sys
import time
from collections import deque
from collections.abc import Iterator
from pathlib import PurePath
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from freeact_sub.system.process import stat_fields, state_folder

ATTACH, INPUT, SIZE, BACK, ASK, END, OUTPUT, TOLD = b"a", b"i", b"s", b"b", b"q", b"e", b"o", b"t"
"""The kinds of frames: a terminal comes (with its size), types, has another size, comes back after a stop; anybody asks for
the state, or ends the program by a signal. From the host: what the program writes, and facts."""
State: TypeAlias = Literal["working", "waiting", "done"]
PIECE: Final = 65536
CONTENT_BYTES: Final = 2**20
"""Bound on a frame."""
ANSWER_SECONDS: Final = 1.0
WAKING_SECONDS: Final = 10.0
"""Seconds for the answer of a host to attach to, or to end: it may have been stopped, or the machine busy."""
POLL_SECONDS: Final = 0.02
_HEADER: Final = struct.Struct("!cI")
_CREDENTIALS: Final = struct.Struct("3i")


class Wire:
    """One end of a connection. No method waits."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self.connection = connection
        self._read = bytearray()
        self._unsent: deque[bytes] = deque()
        """Frames, of which the first may be sent in part."""
        self.waiting_bytes = 0
        """The bytes that the other end has not taken yet."""

    def fileno(self) -> int:
        """Return the descriptor, for `select`."""
        return self.connection.fileno()

    def put(self, kind: bytes, content: bytes = b"") -> None:
        """Send a frame, now or as soon as `flush` can."""
        self._unsent.append(_HEADER.pack(kind, len(content)) + content)
        self.waiting_bytes += len(self._unsent[-1])
        self.flush()

    def tell(self, **facts: Any) -> None:
        """Send facts."""
        self.put(TOLD, json.dumps(facts).encode())

    def flush(self) -> None:
        """Send what can be sent. An end that is gone is found by `frames`."""
        with contextlib.suppress(OSError):
            while self._unsent:
                sent = self.connection.send(self._unsent[0])
                self.waiting_bytes -= sent
                if sent == len(self._unsent[0]):
                    self._unsent.popleft()
                else:
                    self._unsent[0] = self._unsent[0][sent:]

    def finish(self, seconds: float) -> None:
        """Send what is left, as far as that is possible in this time."""
        self.connection.settimeout(seconds)
        with contextlib.suppress(OSError):
            self.connection.sendall(b"".join(self._unsent))

    def drop_unsent(self) -> None:
        """Forget all but the frame whose beginning may have been sent."""
        while len(self._unsent) > 1:
            self.waiting_bytes -= len(self._unsent.pop())

    def frames(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield the frames that have come.

        Raises:
            EOFError: The other end is gone, or says what is no frame.
        """
        try:
            piece = self.connection.recv(PIECE)
        except BlockingIOError:
            return
        except OSError as error:
            raise EOFError from error
        if not piece:
            raise EOFError
        self._read += piece
        while len(self._read) >= _HEADER.size:
            kind, size = _HEADER.unpack_from(self._read)
            if size > CONTENT_BYTES:
                raise EOFError
            if len(self._read) < (end := _HEADER.size + size):
                return
            content = bytes(self._read[_HEADER.size : end])
            del self._read[:end]
            yield kind, content


class LiveHost(NamedTuple):
    """A conversation that has a program now."""

    name: str
    """The name of its socket: the process id of the host."""
    session: str
    """The id of the session; that of the host, if nothing is recorded."""
    workspace: str
    state: State


def hosts_folder(*, makes: bool = False) -> int:
    """Return a descriptor of the private folder of the sockets. Args: makes: make it if need be.

    Raises:
        OSError: It is not there, cannot be made, or is another user's.
    """
    folder = state_folder() / "hosts"
    if makes:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    found = os.fstat(descriptor)
    if found.st_uid != os.getuid() or found.st_mode & 0o077:
        os.close(descriptor)
        raise PermissionError(f"{folder} is not private")
    return descriptor


def _address(folder: int, name: str) -> str:
    """Return a path of a socket that is short enough for the system, however long that of the folder is."""
    return f"/proc/self/fd/{folder}/{name}" if sys.platform == "linux" else str(state_folder() / "hosts" / name)


def listen(folder: int) -> socket.socket:
    """Listen at a new socket in the folder, which `publish` names. Raises: OSError: The system cannot, or has no room."""
    name = f".{os.getpid()}"
    with contextlib.suppress(FileNotFoundError):  # of a killed process
        os.unlink(name, dir_fd=folder)
    listener = socket.socket(socket.AF_UNIX)
    try:
        listener.bind(_address(folder, name))
    except OSError:
        listener.close()
        raise
    listener.listen(8)
    listener.setblocking(False)
    return listener


def publish(folder: int, listener: socket.socket, name: str) -> None:
    """Give a new socket its name: who finds it can connect."""
    os.rename(PurePath(listener.getsockname()).name, name, src_dir_fd=folder, dst_dir_fd=folder)


def connect(name: str) -> socket.socket:
    """Connect to a host. Raises: OSError: It is gone; its socket is removed."""
    folder = hosts_folder()
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(ANSWER_SECONDS)
    try:
        connection.connect(_address(folder, name))
    except OSError as error:
        connection.close()
        if isinstance(error, ConnectionRefusedError):  # nobody listens there any more
            with contextlib.suppress(OSError):
                os.unlink(name, dir_fd=folder)
        raise
    finally:
        os.close(folder)
    return connection


def live_hosts(*, wakes: bool = False) -> list[LiveHost]:
    """Return this user's conversations that have a program, the latest first, without hosts that do not answer.

    Args:
        wakes: A host that a signal has stopped (`kill -STOP`) is continued, so that it answers.
    """
    try:
        folder = hosts_folder()
    except OSError:
        return []
    begun = {}
    try:
        for name in filter(str.isdigit, os.listdir(folder)):  # noqa: PTH208  # pathlib knows no descriptors
            with contextlib.suppress(OSError):
                begun[name] = os.stat(name, dir_fd=folder).st_mtime_ns
    finally:
        os.close(folder)
    found = [_asked(name, wakes=wakes) for name in sorted(begun, key=begun.__getitem__, reverse=True)]
    return [host for host in found if host is not None]


def _connect_to_stopped(name: str) -> socket.socket:
    """Connect to a host, which others may have asked while it was stopped until it had no room left. Raises: OSError."""
    deadline = time.monotonic() + ANSWER_SECONDS
    while True:
        try:
            return connect(name)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise
            os.kill(int(name), signal.SIGCONT)
            time.sleep(POLL_SECONDS)


def _asked(name: str, *, wakes: bool) -> LiveHost | None:
    try:
        with _connect_to_stopped(name) if wakes else connect(name) as connection:
            if wakes:  # it listens, so the process of this id is the host; one that is not stopped notices nothing
                os.kill(int(name), signal.SIGCONT)
            host = Wire(connection)
            host.put(ASK)
            select.select([host], [], [], WAKING_SECONDS if wakes else ANSWER_SECONDS)
            told = json.loads(next(host.frames())[1])
            return LiveHost(name=name, session=told["session"] or name, workspace=told["workspace"], state=told["state"])
    except (OSError, EOFError, StopIteration, ValueError, KeyError):  # it is about to begin or to end, or refuses us
        return None


def may_connect(connection: socket.socket, program: int) -> bool:
    """Return whether a process may talk to the host: it is this user's, and has not come of the program."""
    if sys.platform != "linux":  # the folder is private
        return True
    found = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    process, user, _ = _CREDENTIALS.unpack(found)
    if user != os.getuid() or process <= 0:
        return False
    with contextlib.suppress(OSError):  # it or a parent has ended, maybe after it gave its connection to another one
        while process not in (0, program):
            process = int(stat_fields(process)[1])
        return bool(process == 0)
    return False
