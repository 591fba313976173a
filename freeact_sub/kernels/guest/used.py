"""Reports which files Python code in a kernel reads, writes and removes. Sent into every kernel as source.

An audit hook sees each file that Python opens, renames or removes in this process, and after each cell those below the
working directory are reported to the host. The hook cannot see the files of other programs, or of libraries that go past
Python. But it sees when a program starts: its working folder and the folders in its command are reported too, and the host
takes them for used (`named_in`).

The hook runs before an action, which may then fail. It is called for every `open`, so it only notes names as given. They are
resolved and checked after the cell: a written file exists, and has changed since the cell began or can be written; a removed
one existed and is gone. Denied actions are left out: the hook that asks, if there is one, also notes names
(`hook.make_hook`).
"""

import contextlib
import itertools
import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from . import stack
from .halves import HALVES
from .line import OWN_CHILDREN
from .writable import WRITING, absolute, folder_of

MAX_FILES = 1000
"""Maximum files of each kind that are reported after one cell."""
MAX_PENDING = 10_000
STARTS = {"subprocess.Popen", "os.system", "os.posix_spawn", "os.fork", "os.forkpty", "pty.spawn"}
REMOVES = {"os.remove", "os.rmdir"}
OTHERS = {"os.rename", "os.chdir", "os.mkdir", *REMOVES, *STARTS}
"""Events that are also asked about, if there is a host to ask (`hook.Watch.handlers`)."""
PACKAGES = {"__pycache__", "site-packages", "node_modules", ".venv", "venv", ".git", ".freeact"}
"""Names of folders whose files are not data of the user's."""
MAX_WORDS = 200
"""Maximum different names to look at in one command."""
BETWEEN_WORDS = re.compile(r"""[\s"'`=:;,|&<>(){}]+""")
"""Separators of names in a command, a script or an option (`--root=sub`, `sub/test_a.py::test_b`). Nothing is run by it."""

CLOCK_STEP_NS = 20_000_000
"""Possible delay of the coarse clock that dates files."""


class UsedFiles:
    """Paths until they are reported."""

    def __init__(self) -> None:
        self.pending: dict[str, int] = {}
        """Paths opened for writing, as named by the code, with the flags of the last time."""
        self.pending_read: dict[str, None] = {}
        self.written: dict[str, bool] = {}
        """Absolute paths to write below the root, in order. True: only if they have changed."""
        self.read: dict[str, None] = {}
        self.removed: dict[str, None] = {}
        """Existing paths to remove."""
        self.named: dict[str, None] = {}
        """Absolute folders that commands have named or worked in."""
        self.made: set[str] = set()
        """Folders created in this kernel."""
        self.since = time.time_ns()
        self.root = ""
        self.has_hook = False
        self.begin(lambda _: None)

    def begin(self, send: Callable[[dict[str, Any]], Any]) -> None:
        """Start anew, and report through this function."""
        self.send = send
        for names in (self.pending, self.pending_read, self.written, self.read, self.removed, self.named, self.made):
            names.clear()

    def begin_cell(self, _info: Any) -> None:
        """Note the time. Called before each cell."""
        self.since = time.time_ns()

    def add_hook(self, hook: Callable[[str, tuple[Any, ...]], None]) -> None:
        """Let Python call this hook for each audit event; it contains the noting."""
        self.has_hook = True
        sys.addaudithook(hook)

    def hook(self) -> Callable[[str, tuple[Any, ...]], None]:
        """Return the function that notes an audit event."""
        pending, pending_read, others, writing = self.pending, self.pending_read, OTHERS, WRITING

        def hook(event: str, arguments: tuple[Any, ...]) -> None:
            if event == "open":
                path, flags = arguments[0], arguments[2]
                if flags & writing:
                    if path.__class__ is str and len(pending) < MAX_PENDING:
                        pending[path] = flags
                    else:
                        self.add(path, flags)
                elif len(pending_read) < MAX_PENDING:  # beyond it nothing more is reported
                    if path.__class__ is str:
                        pending_read[path] = None
                    else:
                        self.add_read(path)
            elif event in others:
                self.on_other(event, arguments)

        return hook

    def on_other(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Note changed names, a changed working directory or a started program."""
        if HALVES.is_of_kernel:  # it forks for itself: a branch, a trial, a process that saves
            return
        if event in STARTS:
            self.note_names(*command_of(event, arguments))
            return
        self.resolve()
        if event == "os.rename":
            source, target, source_folder, target_folder = arguments
            self.remove(source, source_folder)
            self.add(target, folder=target_folder)
        elif event in REMOVES:
            self.remove(*arguments)
        elif event == "os.mkdir":
            self.make(arguments[0], arguments[2])
        else:
            self.resolve_read()

    def note_names(self, command: Iterable[Any] = (), cwd: Any = None) -> None:
        """Note the folders that a command names. Args: command: its words, or a shell's. cwd: its working folder."""
        if self.root:
            with contextlib.suppress(Exception):  # border: words may be objects of the cell's own, which may raise anything
                for folder in named_in([os.fsdecode(word) for word in command], os.fsdecode(cwd or os.getcwd())):
                    is_own = PACKAGES.isdisjoint(folder[len(self.root) :].split(os.sep))
                    if is_own and folder.startswith(self.root) and len(self.named) < MAX_FILES:
                        self.named[folder] = None

    def resolve(self) -> None:
        """Resolve the noted names."""
        names = list(self.pending.items())
        self.pending.clear()
        for name, flags in names:
            self.add(name, flags)

    def resolve_read(self) -> None:
        """Resolve the names of files that were read."""
        names = list(self.pending_read)
        self.pending_read.clear()
        for name in names:
            if len(self.read) >= MAX_FILES:
                break
            if not name.startswith("/") or name.startswith(self.root):  # most are modules: no more work for them
                self.add_read(name)

    def add(self, path: Any, flags: int = os.O_EXCL, folder: int = -1) -> None:
        """Note a file to write.

        Args:
            path: Its name.
            flags: The flags of the call. `O_EXCL`: an existing file stays as it is.
            folder: Descriptor of the folder that the path is relative to.
        """
        absolute = self.absolute(path, folder)
        if absolute is not None and "__pycache__" not in absolute and len(self.written) < MAX_PENDING:
            self.written[absolute] = self.written.get(absolute, True) and bool(flags & os.O_EXCL)
        if len(self.pending) >= MAX_PENDING:
            self.resolve()

    def add_read(self, path: Any) -> None:
        """Note a file that is read, if it exists."""
        if len(self.read) >= MAX_FILES:
            return
        absolute = self.absolute(path)
        if (
            absolute is not None
            and PACKAGES.isdisjoint(absolute[len(self.root) :].split(os.sep))
            and os.path.isfile(absolute)
        ):
            self.read[absolute] = None

    def make(self, path: Any, folder: int) -> None:
        """Note a folder to create, unless it exists."""
        absolute = self.absolute(path, folder)
        if absolute is not None and len(self.made) < MAX_PENDING and changed_at(absolute) is None:
            self.made.add(absolute)

    def remove(self, path: Any, folder: int = -1) -> None:
        """Note a file or folder to remove; one that this cell wrote or created is not reported."""
        if len(self.removed) >= MAX_FILES:
            return
        absolute = self.absolute(path, folder)
        changed = None if absolute is None else changed_at(absolute)
        if absolute is None or changed is None or "__pycache__" in absolute:
            return
        is_own = absolute in self.made or (absolute in self.written and self.is_new(changed))
        if not is_own:
            self.removed[absolute] = None

    def is_new(self, changed: int) -> bool:
        """Whether the cell was running at this time."""
        return changed >= self.since - CLOCK_STEP_NS

    def absolute(self, path: Any, folder: int = -1) -> str | None:
        """Return the path if it is below the kernel's first working directory."""
        if isinstance(path, int):
            return None
        try:
            if folder >= 0:
                path = os.path.join(folder_of(folder), os.fsdecode(path))
            text = absolute(os.fsdecode(path))
        except Exception:  # noqa: BLE001  # border: a path may be an object of the cell's own, which may raise anything
            return None
        return text if text.startswith(self.root) else None

    def send_report(self) -> None:
        """Report new paths. Called after each cell."""
        self.resolve()
        self.resolve_read()
        changed = {path: changed_at(path) for path in self.written}
        written = [
            path
            for path, when in changed.items()
            if when is not None and (self.is_new(when) or not (self.written[path] or cannot_be_written(path)))
        ]
        report = {
            "read": list(self.read),
            "written": written[:MAX_FILES],
            "undone": [path for path, when in changed.items() if when is None][:MAX_FILES],
            "named": list(self.named),
            "removed": [path for path in self.removed if not os.path.lexists(path)],
        }
        for names in (self.written, self.read, self.removed, self.named):
            names.clear()
        report = {what: names for what, names in report.items() if names}
        if report:
            self.send(report)


def changed_at(path: str) -> int | None:
    """Return the time of the last change of a file or its name, in ns. None: it does not exist."""
    try:
        return os.lstat(path).st_ctime_ns
    except (OSError, ValueError):
        return None


def cannot_be_written(path: str) -> bool:
    """Whether opening a file for writing fails."""
    return not os.path.isfile(path) or not os.access(path, os.W_OK)


def command_of(event: str, arguments: tuple[Any, ...]) -> tuple[list[Any], Any]:
    """Return the words of the command in an audit event, and its working folder, for `note_names`."""
    if event not in ("subprocess.Popen", "os.posix_spawn", "os.system", "pty.spawn"):
        return [], None
    given = arguments[1] if event in ("subprocess.Popen", "os.posix_spawn") else arguments[0]
    words: list[Any] = [given] if isinstance(given, str | bytes | os.PathLike) else list(given)
    script = stack.script_for(words)
    return [*words, *([] if script is None else [script])], arguments[2] if event == "subprocess.Popen" else None


def programs_run() -> bool:
    """Whether a program runs that code of this process has started."""
    own = {*OWN_CHILDREN}
    if not os.path.isdir("/proc/self/task"):
        return True
    for thread in os.listdir("/proc/self/task"):
        with contextlib.suppress(OSError), open(f"/proc/self/task/{thread}/children") as file:
            for child in file.read().split():
                with contextlib.suppress(OSError), open(f"/proc/{child}/stat", errors="replace") as told:
                    if int(child) not in own and told.read().rpartition(")")[2].split()[0] not in "ZX":
                        return True
    return False


def named_in(words: Iterable[str], cwd: str) -> Iterator[str]:
    """Yield the absolute folders of a command: its working folder, and the ones that it names or whose files it names."""
    yield absolute(cwd)
    names = dict.fromkeys(name for word in words for name in (word, *BETWEEN_WORDS.split(word)) if name)
    for name in itertools.islice(names, MAX_WORDS):
        path = absolute(os.path.join(cwd, name))
        if os.path.lexists(path):
            yield path if os.path.isdir(path) else os.path.dirname(path)


USED = UsedFiles()


def watch(shell: Any, send: Callable[[dict[str, Any]], Any]) -> None:
    """Watch this process from now on; `send` is called after each cell that used files.

    Called again, as in a branch, it only starts anew: an audit hook cannot be removed.
    """
    USED.begin(send)
    if USED.root:
        return
    USED.root = os.path.join(os.getcwd(), "")  # where the kernel starts; a copy may be made anywhere
    if not USED.has_hook:
        USED.add_hook(USED.hook())
    shell.events.register("pre_run_cell", USED.begin_cell)
    shell.events.register("post_execute", USED.send_report)
