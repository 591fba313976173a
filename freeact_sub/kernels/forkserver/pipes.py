"""What kernels tell the fork server over a pipe each: that their sockets are bound, and which processes are their pasts.

A past is a fork that a kernel has made of itself before a cell (`pasts.py`). It sleeps, as a child of the server, until the
kernel ends: then it takes the kernel's place, if the kernel has said so, or ends as well. What a kernel says is not trusted:
it can name a process only that it has forked, or that nobody has.

Loaded by `server.py`; it needs the standard library only.
"""

import contextlib
import os
import signal
from typing import Any

READ_BYTES = 65536
LINE_BYTES = 100


class KernelPipes:
    """The pipes of all kernels that may write to one."""

    def __init__(self, server: Any) -> None:
        self.server = server
        self.readers: dict[int, int] = {}
        """The read end of each pipe, and the kernel that writes."""
        self.unread: dict[int, bytes] = {}
        self.pasts: dict[int, int] = {}
        """Of which kernel a process is a past, the oldest first."""
        self.next: dict[int, int] = {}
        """Of a kernel, the past that takes its place when it ends."""

    def open(self) -> tuple[int, int]:
        """A pipe for a kernel that is to be forked."""
        reader, writer = os.pipe()
        os.set_blocking(reader, False)
        return reader, writer

    def hear(self, reader: int) -> None:
        """Reads what has come."""
        kernel, data = self.readers[reader], b""
        with contextlib.suppress(BlockingIOError):
            data = os.read(reader, READ_BYTES)
            if not data:
                self.close(reader)
                return
        *lines, self.unread[reader] = (self.unread.get(reader, b"") + data).split(b"\n")
        if len(self.unread[reader]) > LINE_BYTES:
            self.close(reader)
        for line in lines:
            word, _, number = line.decode(errors="replace").partition(" ")
            if word == "bound":
                self.server.send({"bound": kernel})
            elif number.isdecimal():
                self.take(kernel, word, int(number))

    def take(self, kernel: int, word: str, past: int) -> None:
        """One word of a kernel about a past."""
        if word == "past" and past not in self.server.known() and self.may_be_past(past, kernel):
            self.pasts[past] = kernel
        elif self.pasts.get(past) == kernel and word == "next":
            self.next[kernel] = past
        elif self.pasts.get(past) == kernel and word == "drop":
            self.end_past(past)

    def is_ours(self, pid: int) -> bool:
        """Whether a process is a child of this one."""
        return parent(pid) == os.getpid()

    def may_be_past(self, pid: int, kernel: int) -> bool:
        """Whether a kernel may name a process as its past: a fork of its copy is its child, any other past comes to us."""
        return self.is_ours(pid) or parent(pid) == kernel or self.is_below(pid, kernel)

    def is_below(self, pid: int, kernel: int) -> bool:
        """Whether a process is two generations below a kernel."""
        return parent(parent(pid)) == kernel

    def end_past(self, past: int) -> None:
        """Ends a past, whose end is reaped as any other's."""
        del self.pasts[past]
        with contextlib.suppress(ProcessLookupError):
            os.kill(past, signal.SIGKILL)

    def hear_all(self) -> None:
        """Reads all pipes: what a kernel has written before its end comes before the end."""
        for reader in list(self.readers):
            self.hear(reader)

    def forget(self, kernel: int) -> None:
        """The kernel is being ended, and nothing takes its place."""
        for reader in [reader for reader, writer in self.readers.items() if writer == kernel]:
            self.close(reader)
        self.next.pop(kernel, None)

    def close(self, reader: int) -> None:
        """Hears no more of a kernel."""
        del self.readers[reader]
        self.unread.pop(reader, None)
        os.close(reader)

    def successor(self, kernel: int) -> int:
        """The past that takes the place of a kernel that has ended, with those that are older than itself; 0: there is none.

        The others are ended by whoever ends what a kernel leaves behind.
        """
        own = [past for past, of in self.pasts.items() if of == kernel]
        chosen = self.next.pop(kernel, 0)
        if chosen not in own:
            self.forget(kernel)
            chosen = 0
        for past in own:
            del self.pasts[past]
        if chosen:
            self.pasts.update(dict.fromkeys(own[: own.index(chosen)], chosen))
            self.readers.update({reader: chosen for reader, writer in self.readers.items() if writer == kernel})
        return chosen

    def wake(self, past: int) -> None:
        """Lets a past go on, when all that the kernel before it has left is gone."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(past, signal.SIGUSR1)


def parent(pid: int) -> int:
    """The parent of a process; 0: the process does not exist."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # the name, in parentheses, may hold anything; the parent is the second field after it
            return int(file.read().rpartition(b")")[2].split()[1])
    except OSError:
        return 0
