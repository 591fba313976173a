"""Which files code in a kernel may change without a question, and what a path really means.

Runs in kernels: standard library only. The test must be quick, for it stands before every `open` for writing: what a folder
really is, is found out once, and forgotten where a link may have come in (see `hook.py`).
"""

import os
import re
import sys
from typing import Any

HARMLESS = {f"/dev/{name}" for name in ("null", "stdout", "stderr", "stdin", "tty", "zero", "full")}


class Files:
    """Which files may be changed without a question."""

    def __init__(self, folders: list[str], asked: str) -> None:
        """Args: folders: all in them may be changed. asked: a regular expression of paths in them that may not."""
        self.folders = tuple(f"{path.rstrip('/')}/" for folder in folders for path in (folder, os.path.realpath(folder)))
        self.is_asked = re.compile(asked, re.DOTALL).fullmatch
        self.known: dict[str, tuple[str, ...]] = {}
        """Folders as code names them, by what they really are; empty: outside."""

    def are_free(self, path: str) -> bool:
        """The quick test of a path as code names it; False where more has to be found out."""
        folder, slash, name = path.rpartition("/")
        places = self.known.get(folder + slash)
        if places is None:
            places = self.learn(folder + slash)
        for place in places:
            if self.is_asked(place + name):
                return False
        return bool(places) and name not in ("", ".", "..") and not os.path.islink(path)

    def learn(self, folder: str) -> tuple[str, ...]:
        """Find out what a folder is, as it is named and without links; nothing where code may not write in it."""
        named, real = os.path.abspath(folder), os.path.realpath(folder)
        places = tuple(f"{path.rstrip('/')}/" for path in dict.fromkeys((named, real)))
        self.known[folder] = places if all(place.startswith(self.folders) for place in places) else ()
        return self.known[folder]

    def is_free(self, path: str) -> bool:
        """Whether an absolute path without links in it may be changed."""
        if path in HARMLESS or path.startswith("/dev/fd/"):
            return True
        return path.startswith(self.folders) and not self.is_asked(path)

    def forget(self) -> None:
        """Links may have come in."""
        self.known.clear()


def real_path(path: str, *, follow: bool) -> str:
    """An absolute path without links in it; without `follow` its last part may be one."""
    if follow:
        return os.path.realpath(path)
    folder, name = os.path.split(os.path.abspath(path))
    return os.path.join(os.path.realpath(folder), name)


def folder_of(descriptor: int) -> str:
    """The folder that is open as a descriptor."""
    if sys.platform == "linux":
        return os.readlink(f"/proc/self/fd/{descriptor}")
    fcntl: Any = __import__("fcntl")
    found: bytes = fcntl.fcntl(descriptor, fcntl.F_GETPATH, bytes(1024))
    return os.fsdecode(found.rstrip(b"\0"))


def as_text(path: str) -> str:
    """A name that JSON can carry: bytes that are no text are written out."""
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
