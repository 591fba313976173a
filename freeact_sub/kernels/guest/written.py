"""Which files code in a kernel has written. Sent into every kernel as source.

An audit hook sees each file that Python opens for writing, renames or removes in this process, and after each cell the host
is told of those below the working directory. What other programs write, and libraries past Python, is not seen.

The hook only notes names as code gives them, for it is called for every `open`; what they mean is found out after the cell,
or before something happens that would change it.
"""

import os
import sys
import threading
from collections.abc import Callable
from typing import Any

MAX_FILES = 1000
"""Told of after one cell."""
MAX_NOTED = 10_000
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
OTHERS = {"os.rename", "os.remove", "os.chdir"}


class WrittenFiles:
    """Remembers paths until the host is told."""

    def __init__(self) -> None:
        self.noted: dict[str, None] = {}
        """As code named them."""
        self.paths: dict[str, None] = {}
        """Absolute, below the root; in the order in which they were written."""
        self.root = ""
        self.begin(lambda _: None)

    def begin(self, send: Callable[[list[str]], Any]) -> None:
        """Forget what was, and tell by this function from now on."""
        self.send = send
        self.noted.clear()
        self.paths.clear()

    def hook(self) -> Callable[[str, tuple[Any, ...]], None]:
        """What Python calls for each audit event."""
        noted, others, writing = self.noted, OTHERS, WRITING

        def hook(event: str, arguments: tuple[Any, ...]) -> None:
            if event == "open":
                if arguments[2] & writing:
                    path = arguments[0]
                    if path.__class__ is str and len(noted) < MAX_NOTED:
                        noted[path] = None
                    else:
                        self.add(path)
            elif event in others:
                self.on_other(event, arguments)

        return hook

    def on_other(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Names change: of files, or what relative ones mean."""
        self.resolve()
        if event == "os.rename":
            self.discard(arguments[0])  # many programs write a file under another name until it is whole
            self.add(arguments[1])
        elif event == "os.remove":
            self.discard(arguments[0])

    def resolve(self) -> None:
        """Find out what the noted names mean."""
        names = list(self.noted)
        self.noted.clear()
        for name in names:
            self.add(name)

    def add(self, path: Any) -> None:
        """A file is written."""
        absolute = self.absolute(path)
        if absolute is not None and len(self.paths) < MAX_FILES:
            self.paths[absolute] = None
        if len(self.noted) >= MAX_NOTED:
            self.resolve()

    def discard(self, path: Any) -> None:
        """A file is gone."""
        absolute = self.absolute(path)
        if absolute is not None:
            self.paths.pop(absolute, None)

    def absolute(self, path: Any) -> str | None:
        """The path, if it is below the working directory in which the kernel started."""
        if isinstance(path, int):
            return None
        try:
            text = os.path.abspath(os.fsdecode(path))
        except Exception:  # noqa: BLE001  # border: a path may be an object of the cell's own, which may raise anything
            return None
        return text if text.startswith(self.root) and "__pycache__" not in text else None

    def tell(self) -> None:
        """Called after each cell: tell of what is new."""
        self.resolve()
        if self.paths:
            paths = list(self.paths)
            self.paths.clear()
            self.send(paths)


WRITTEN = WrittenFiles()
_watching = threading.Lock()


def watch(shell: Any, send: Callable[[list[str]], Any]) -> None:
    """Watch this process from now on; `send` is called after each cell that has written files.

    Called again, as in a copy of a kernel, it only begins anew.
    """
    WRITTEN.begin(send)
    if _watching.acquire(blocking=False):  # never released: an audit hook cannot be taken away
        WRITTEN.root = os.path.join(os.getcwd(), "")  # where the kernel starts; a copy may be made anywhere
        sys.addaudithook(WRITTEN.hook())
        shell.events.register("post_execute", WRITTEN.tell)
