"""Files that code in a kernel may change without a question, and the real places of paths.

Runs in kernels: standard library only. The test stands before every `open` for writing and must be quick. So it remembers
which paths are free, and for each folder its real path, the names that need a question, and its links: a look at each file
would cost more than all else. Such facts hold for a moment only: a program that runs beside the cell may change them.
"""

import fcntl
import functools
import os
import re
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

try:
    from IPython.external.pickleshare import PickleShareDB
except ImportError:  # not in a kernel, or a version that keeps its notes in another way
    PickleShareDB = None

WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
HARMLESS = {f"/dev/{name}" for name in ("null", "stdout", "stderr", "stdin", "tty", "zero", "full")}
BELIEVED_SECONDS = 0.5
BELIEVED_TIMES = 50
"""Period without a second look at a folder, as a multiple of the time that reading it took."""
MAX_FREE = 10_000
"""Maximum paths to remember."""
MAX_TESTS = 1000


class Folder:
    """Facts about a folder in which code writes, from the last look at it."""

    __slots__ = ("is_asked", "links", "until")

    def __init__(self, until: float, links: frozenset[str], is_asked: Callable[[str], Any]) -> None:
        self.until = until
        """The end of the time in which the facts are believed."""
        self.links = links
        self.is_asked = is_asked
        """Tells whether a name needs a question."""


class Files:
    """Files that may be changed without a question."""

    def __init__(self, folders: Iterable[str], asked: Iterable[tuple[str, str]]) -> None:
        """Args: folders: all in them may be changed. asked: exceptions, as in `AuditSettings`."""
        self.free: dict[str, Folder] = {}
        """Paths, as code names them, that may be changed while their folder is believed."""
        self.known: dict[str, Folder | None] = {}
        """Folders as code names them; empty: the working directory. None: code may not write in it."""
        self.tests: dict[frozenset[str], Callable[[str], Any]] = {}
        """Tests whether a name needs a question, by the paths of the folder."""
        self.set(folders, asked)

    def set(self, folders: Iterable[str], asked: Iterable[tuple[str, str]]) -> None:
        """Change the rules."""
        self.folders = tuple(f"{path.rstrip('/')}/" for folder in folders for path in (folder, os.path.realpath(folder)))
        self.ask_about(asked)

    def ask_about(self, asked: Iterable[tuple[str, str]]) -> None:
        """Change the exceptions. Called in any thread: one that still uses the old ones leaves nothing for later."""
        self.asked = [(re.compile(folder, re.DOTALL).fullmatch, name) for folder, name in asked]
        self.tests, self.known = {}, {}
        self.free.clear()

    def are_free(self, path: str, now: Callable[[], float] = time.monotonic) -> bool:
        """Whether a path, as code names it, is surely free. `make_hook` examines `free` itself."""
        place, slash, name = path.rpartition("/")
        folder = self.known.get(place or slash)
        if folder is None or folder.until < now():
            folder = self.learn(place or slash)
        if folder is None or name in folder.links or folder.is_asked(name):
            return False
        if len(self.free) >= MAX_FREE:
            self.free.clear()
        self.free[path] = folder
        return True

    def learn(self, path: str) -> Folder | None:
        """Look at a folder. While it stays as it was, so do the paths in it that may be changed."""
        started, known = time.monotonic(), self.known
        places = frozenset(f"{place.rstrip('/')}/" for place in (absolute(path), os.path.realpath(from_here(path))))
        if not all(place.startswith(self.folders) for place in places):
            known[path] = None
            return None
        try:
            with os.scandir(path or ".") as entries:
                links = frozenset(entry.name for entry in entries if entry.is_symlink())
        except OSError:
            links = frozenset()  # the action will fail by itself
        ended = time.monotonic()
        until = ended + max(BELIEVED_SECONDS, BELIEVED_TIMES * (ended - started))
        test, before = self.names_asked(places), known.get(path)
        if before is not None and (before.links, before.is_asked) == (links, test):
            before.until = until
            return before
        if len(known) >= MAX_TESTS:
            self.forget()
        folder = known[path] = Folder(until, links, test)
        return folder

    def names_asked(self, places: frozenset[str]) -> Callable[[str], Any]:
        """Return the test whether a name needs a question in a folder of these paths; other paths are resolved first."""
        tests = self.tests
        test = tests.get(places)
        if test is None:
            names = [name for is_about, name in self.asked if any(map(is_about, places))]
            if len(tests) >= MAX_TESTS:
                tests.clear()
            test = tests[places] = re.compile("|".join([r"\.{0,2}", *names]), re.DOTALL).fullmatch
        return test

    def is_free(self, path: str, operation: str) -> bool:
        """Whether an absolute path without links in it needs no question for this operation."""
        own = (f"/proc/{os.getpid()}/fd/{kind}:[" for kind in ("pipe", "socket"))  # where `/dev/stdout` leads
        if path in HARMLESS or path.startswith(("/dev/fd/", *own)):
            return True
        if f"{path}/" in self.folders:
            return operation not in ("remove", "rename")
        folder, slash, name = path.rpartition("/")
        return path.startswith(self.folders) and not self.names_asked(frozenset((folder + slash,)))(name)

    def forget(self) -> None:
        """Look at each folder again before it is believed: folders have changed."""
        for path, folder in list(self.known.items()):
            if folder is None or len(self.known) >= MAX_TESTS:
                self.known.pop(path, None)
            if folder is not None:
                folder.until = 0.0


def compile_rules(folders: Iterable[str], asked: Iterable[tuple[str, str]], workspace: str) -> None:
    """Compile the expressions of these rules, for processes that are forked after it: `re` has them then.

    Args: as for `Files`; workspace: where most files are changed.
    """
    places = {f"{place.rstrip('/')}/" for place in (os.path.abspath(workspace), os.path.realpath(workspace))}
    Files(folders, asked).names_asked(frozenset(places))


def real_path(path: str, *, follow: bool) -> str:
    """Return an absolute path without links in it; without `follow` its last part may be one."""
    if follow:
        return os.path.realpath(from_here(path))
    folder, name = os.path.split(absolute(path))
    return os.path.join(os.path.realpath(folder), name)


def absolute(path: str) -> str:
    """Return the absolute path like `os.path.abspath`, but also in a removed working directory, where programs still run."""
    return os.path.abspath(from_here(path))


def from_here(path: str) -> str:
    """Return a path that does not need the working directory, if that was removed; its links stay."""
    if path.startswith("/"):
        return path
    try:
        os.getcwd()
    except FileNotFoundError:
        return os.path.join(os.readlink("/proc/self/cwd").removesuffix(" (deleted)"), path)
    return path


def folder_of(descriptor: int) -> str:
    """Return the path that a descriptor, mostly of a folder, leads to."""
    if hasattr(fcntl, "F_GETPATH"):
        found: bytes = fcntl.fcntl(descriptor, fcntl.F_GETPATH, bytes(1024))
        return os.fsdecode(found.rstrip(b"\0"))
    return os.readlink(f"/proc/self/fd/{descriptor}")


def is_only_read(descriptor: int) -> bool:
    """Whether a descriptor was not opened to write; mode, owner and times can be changed through it all the same."""
    try:
        return fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY
    except OSError:
        return False  # the call fails by itself


def report_opens_in_folders(asking: threading.local) -> None:
    """Let `os.open` with a folder's descriptor report the folder by an event `freeact.open`; its own event leaves it out.

    Args:
        asking: The watch's set; its own event needs no question.
    """
    plain = os.open

    @functools.wraps(plain)
    def open_in_folder(path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if dir_fd is None or not flags & WRITING:
            return plain(path, flags, mode, dir_fd=dir_fd)
        sys.audit("freeact.open", path, None, flags, dir_fd)
        before, asking.now = getattr(asking, "now", False), True
        try:
            return plain(path, flags, mode, dir_fd=dir_fd)
        finally:
            asking.now = before

    os.open = open_in_folder
    os.supports_dir_fd.add(open_in_folder)


def keep_notes_of_ipython(shell: Any) -> None:
    """Keep the notes of `%cd`, `%bookmark` and `%store` in the kernel's temporary folder: the user's is not the agent's."""
    if PickleShareDB is not None:
        shell.db = PickleShareDB(os.path.join(tempfile.gettempdir(), "ipython-notes"))


def as_text(path: str) -> str:
    """Return a name that JSON can carry: bytes that are not text are written out."""
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
