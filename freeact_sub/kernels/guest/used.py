"""Which files code in a kernel has read and written. Sent into every kernel as source.

An audit hook sees each file that Python opens, renames or removes in this process, and after each cell the host is told of
those below the working directory. What other programs write the hook cannot see, nor what libraries do past Python; but it
sees that a program is started, and since when there may be files of it: the host looks for them.

The hook only notes names as code gives them, for it is called for every `open`; what they mean is found out after the cell,
or before something happens that would change it.
"""

import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

MAX_FILES = 1000
"""Of each kind, told of after one cell."""
MAX_NOTED = 10_000
MAX_CODE_CHARS = 100_000
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
STARTS = {"subprocess.Popen", "os.system", "os.posix_spawn", "os.fork", "os.forkpty", "pty.spawn"}
OTHERS = {"os.rename", "os.remove", "os.chdir", *STARTS}
PACKAGES = {"__pycache__", "site-packages", "node_modules", ".venv", "venv", ".git", ".freeact"}
"""What is read in folders of these names is nobody's data."""


class UsedFiles:
    """Remembers paths until the host is told."""

    def __init__(self) -> None:
        self.noted: dict[str, None] = {}
        """Written, as code named them."""
        self.noted_read: dict[str, None] = {}
        self.written: dict[str, None] = {}
        """Absolute, below the root; in the order in which they were written."""
        self.read: dict[str, None] = {}
        self.programs: int | None = None
        """When the cell has started its first program, in ns. None: it has not."""
        self.since = time.time_ns()
        """When the cell began."""
        self.code = ""
        self.root = ""
        self.begin(lambda _: None)

    def begin(self, send: Callable[[dict[str, Any]], Any]) -> None:
        """Forget what was, and tell by this function from now on."""
        self.send = send
        for names in (self.noted, self.noted_read, self.written, self.read):
            names.clear()
        self.programs = None

    def begin_cell(self, info: Any) -> None:
        """Called before each cell."""
        self.since, self.code = time.time_ns(), str(info.raw_cell)[:MAX_CODE_CHARS]

    def hook(self) -> Callable[[str, tuple[Any, ...]], None]:
        """What Python calls for each audit event."""
        noted, noted_read, others, writing = self.noted, self.noted_read, OTHERS, WRITING

        def hook(event: str, arguments: tuple[Any, ...]) -> None:
            if event == "open":
                path = arguments[0]
                if arguments[2] & writing:
                    if path.__class__ is str and len(noted) < MAX_NOTED:
                        noted[path] = None
                    else:
                        self.add(path)
                elif len(noted_read) < MAX_NOTED:  # past it nothing more is told of
                    if path.__class__ is str:
                        noted_read[path] = None
                    else:
                        self.add_read(path)
            elif event in others:
                self.on_other(event, arguments)

        return hook

    def on_other(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Names change: of files, or what relative ones mean. Or a program is started."""
        if event in STARTS:
            self.on_start()
            return
        self.resolve()
        if event == "os.rename":
            self.discard(arguments[0])  # many programs write a file under another name until it is whole
            self.add(arguments[1])
        elif event == "os.remove":
            self.discard(arguments[0])
        else:
            self.resolve_read()

    def on_start(self) -> None:
        """A program begins to work."""
        if self.programs is None:
            self.programs = time.time_ns()

    def resolve(self) -> None:
        """Find out what the noted names mean."""
        names = list(self.noted)
        self.noted.clear()
        for name in names:
            self.add(name)

    def resolve_read(self) -> None:
        """The same for what was read."""
        names = list(self.noted_read)
        self.noted_read.clear()
        for name in names:
            if len(self.read) >= MAX_FILES:
                break
            if not name.startswith("/") or name.startswith(self.root):  # most are modules: no more work for them
                self.add_read(name)

    def add(self, path: Any) -> None:
        """A file is written."""
        absolute = self.absolute(path)
        if absolute is not None and "__pycache__" not in absolute and len(self.written) < MAX_FILES:
            self.written[absolute] = None
        if len(self.noted) >= MAX_NOTED:
            self.resolve()

    def add_read(self, path: Any) -> None:
        """A file is read, if there is one."""
        if len(self.read) >= MAX_FILES:
            return
        absolute = self.absolute(path)
        if (
            absolute is not None
            and PACKAGES.isdisjoint(absolute[len(self.root) :].split(os.sep))
            and os.path.isfile(absolute)
        ):
            self.read[absolute] = None

    def discard(self, path: Any) -> None:
        """A file is gone."""
        absolute = self.absolute(path)
        if absolute is not None:
            self.written.pop(absolute, None)

    def absolute(self, path: Any) -> str | None:
        """The path, if it is below the working directory in which the kernel started."""
        if isinstance(path, int):
            return None
        try:
            text = os.path.abspath(os.fsdecode(path))
        except Exception:  # noqa: BLE001  # border: a path may be an object of the cell's own, which may raise anything
            return None
        return text if text.startswith(self.root) else None

    def tell(self) -> None:
        """Called after each cell: tell of what is new."""
        self.resolve()
        self.resolve_read()
        told: dict[str, Any] = {}
        if self.read:
            told["read"] = list(self.read)
        if self.written:
            told["written"] = list(self.written)
        if self.programs is not None:
            told |= {"programs": self.programs, "code": self.code}
        self.read.clear()
        self.written.clear()
        self.programs = None
        if told:
            self.send({**told, "since": self.since})


USED = UsedFiles()
_watching = threading.Lock()


def watch(shell: Any, send: Callable[[dict[str, Any]], Any]) -> None:
    """Watch this process from now on; `send` is called after each cell that has used files or started programs.

    Called again, as in a copy of a kernel, it only begins anew.
    """
    USED.begin(send)
    if _watching.acquire(blocking=False):  # never released: an audit hook cannot be taken away
        USED.root = os.path.join(os.getcwd(), "")  # where the kernel starts; a copy may be made anywhere
        sys.addaudithook(USED.hook())
        shell.events.register("pre_run_cell", USED.begin_cell)
        shell.events.register("post_execute", USED.tell)
