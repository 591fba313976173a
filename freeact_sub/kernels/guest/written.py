"""Which files code in a kernel has written. Sent into every kernel as source.

An audit hook sees each file that Python opens for writing, renames or removes in this process, and after each cell the host
is told of those below the working directory. What other programs write, and libraries past Python, is not seen.
"""

import os
import sys
import threading
from collections.abc import Callable
from typing import Any

MAX_FILES = 1000
"""Told of in all; a kernel that writes more is not asked to remember them."""
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
EVENTS = {"open", "os.rename", "os.remove"}


class WrittenFiles:
    """Remembers paths until the host is told."""

    def __init__(self) -> None:
        self.begin(lambda _: None)

    def begin(self, send: Callable[[list[str]], Any]) -> None:
        """Forget what was, and tell by this function from now on."""
        self.send = send
        self.root = os.path.join(os.getcwd(), "")
        self.paths: dict[str, None] = {}
        """Absolute; in the order in which they were written."""

    def on_audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Called for every event of the process: it must be quick, and must never raise."""
        if event not in EVENTS:
            return
        if event == "open":
            if arguments[2] & WRITING and not isinstance(arguments[0], int):
                self.add(arguments[0])
        elif event == "os.rename":
            self.discard(arguments[0])
            self.add(arguments[1])
        else:
            self.discard(arguments[0])

    def add(self, path: Any) -> None:
        """A file is written."""
        absolute = self.absolute(path)
        if absolute is not None and len(self.paths) < MAX_FILES:
            self.paths[absolute] = None

    def discard(self, path: Any) -> None:
        """A file is gone: many programs write a temporary one and give it its name when it is whole."""
        absolute = self.absolute(path)
        if absolute is not None:
            self.paths.pop(absolute, None)

    def absolute(self, path: Any) -> str | None:
        """The path, if it is below the working directory in which the kernel started."""
        try:
            text = os.fsdecode(path)
            if not text.startswith("/"):
                text = os.path.join(os.getcwd(), text)
        except Exception:  # noqa: BLE001  # border: a path may be an object of the cell's own, which may raise anything
            return None
        return text if text.startswith(self.root) and "__pycache__" not in text else None

    def tell(self) -> None:
        """Called after each cell: tell of what is new."""
        if self.paths:
            paths, self.paths = list(self.paths), {}
            self.send(paths)


WRITTEN = WrittenFiles()
_watching = threading.Lock()


def watch(shell: Any, send: Callable[[list[str]], Any]) -> None:
    """Watch this process from now on; `send` is called after each cell that has written files.

    Called again, as in a copy of a kernel, it only begins anew.
    """
    WRITTEN.begin(send)
    if _watching.acquire(blocking=False):  # never released: an audit hook cannot be taken away
        sys.addaudithook(WRITTEN.on_audit)
        shell.events.register("post_execute", WRITTEN.tell)
