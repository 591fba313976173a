"""Modules that variables were saved with: all imported from folders that are not Python's own.

To read variables is to import these again. Code with fewer rights may have changed them since, or put others before them in
the search path. So the host compares (`kernels/snapshots.py`, which uses this file as well).
"""

import contextlib
import hashlib
import importlib.machinery
import os
import site
import stat
import sys
import sysconfig
import types
from collections.abc import Collection, Iterator
from typing import Any

from ..values import fits

DIGEST_BYTES = 16
NAME_CHARS, PATH_CHARS = 1000, 10_000
"""Longest name and path that the host takes."""
SUFFIXES = (".py", ".pyc", ".so")


class Imported:
    """The modules of one kernel, from its start on."""

    def __init__(self) -> None:
        self.before = {name.partition(".")[0] for name in list(sys.modules)}
        """Modules that each kernel has before its first cell, which are never imported again."""
        self.own = own_folders()
        self.digests: dict[str, tuple[Any, str]] = {}
        """The spec of each module by its path (a reload makes a new one), and the digest of its file."""

    def look(self) -> None:
        """Note new modules. Called after each cell, so that a file changed later is known to have changed."""
        for path, spec in list(self.files()):
            if path not in self.digests or self.digests[path][0] is not spec:
                self.digests[path] = spec, digest_of(path)

    def modules(self) -> Iterator[tuple[str, Any]]:
        """Yield the modules that a new kernel has to import, by their names."""
        for name, module in list(sys.modules.items()):
            if fits(name, NAME_CHARS) and name.partition(".")[0] not in self.before:
                yield name, module

    def files(self) -> Iterator[tuple[str, Any]]:
        """Yield the files of modules that are not in Python's own folders."""
        for _, module in self.modules():
            if isinstance(module, types.ModuleType):
                spec = object.__getattribute__(module, "__dict__").get("__spec__")  # a lazy module stays lazy
                path = getattr(getattr(spec, "loader", None), "archive", None) or getattr(spec, "origin", None)
                if fits(path, PATH_CHARS) and os.path.isabs(path) and not self.is_own(path):
                    yield path, spec

    def told(self) -> dict[str, Any]:
        """Return for the host: the digest of each file, and the names that were looked up in each folder."""
        folders: dict[str, set[str]] = {}
        for name, _ in self.modules():
            above, _, last = name.rpartition(".")
            for place in self.places(above):
                folders.setdefault(place, set()).add(last)
        files = {path: digest for path, (_, digest) in self.digests.items()}
        for folder, names in folders.items():
            for path in (folder, *candidates(folder, names)):
                files.setdefault(path, digest_of(path))
        return {"files": files, "folders": {folder: sorted(names) for folder, names in folders.items()}}

    def places(self, package: str) -> Iterator[str]:
        """Yield where modules of a package are looked up, outside of Python's own folders. Args: package: empty: of none."""
        places: list[Any] = [*sys.path, os.curdir]
        if package:
            places = []
            with contextlib.suppress(Exception):  # a package may be anything
                places = list(sys.modules[package].__path__)
        for place in places:
            with contextlib.suppress(OSError, TypeError, ValueError):  # such as a working folder that is gone
                folder = os.path.abspath(place)
                if fits(folder, PATH_CHARS) and not self.is_own(folder):
                    yield folder

    def is_own(self, path: str) -> bool:
        """Whether a path is in one of Python's own folders."""
        return any(path == folder or path.startswith(folder + os.sep) for folder in self.own)


def own_folders() -> set[str]:
    """Return the folders of this Python and of its installed packages."""
    kinds = ("stdlib", "platstdlib", "purelib", "platlib")
    found = {*map(sysconfig.get_path, kinds), *site.getsitepackages(), site.getusersitepackages()}
    return {path for each in found if each for path in (os.path.abspath(each), os.path.realpath(each))}


def candidates(folder: str, names: Collection[str]) -> Iterator[str]:
    """Yield the files of a folder that these names would import; for a package, its `__init__`."""
    with contextlib.suppress(OSError, ValueError):
        for entry in os.listdir(folder):
            path = os.path.join(folder, entry)
            if entry.partition(".")[0] not in names:
                continue
            if entry.endswith(SUFFIXES):
                yield path
            elif entry in names and os.path.isdir(path):
                yield path
                yield from candidates(path, ("__init__",))


def digest_of(path: str) -> str:
    """Return the digest of a regular file's content. Empty: it is none, or cannot be read."""
    with contextlib.suppress(OSError, ValueError), open(path, "rb", opener=no_wait) as file:
        if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=DIGEST_BYTES)).hexdigest()
    return ""


def no_wait(path: str, flags: int) -> int:
    """Open a path without waiting, as for the writer of a pipe."""
    return os.open(path, flags | os.O_NONBLOCK)


@contextlib.contextmanager
def from_sources() -> Iterator[None]:
    """Compile modules outside Python's own folders from source inside the block, even if `__pycache__` holds them."""
    own, loader = Imported(), importlib.machinery.SourceFileLoader
    stats = loader.path_stats

    def path_stats(self: Any, path: Any) -> Any:
        if own.is_own(os.path.abspath(path)):
            return stats(self, path)
        raise OSError("its compiled file is ignored")

    loader.path_stats = path_stats  # type: ignore[method-assign]
    try:
        yield
    finally:
        loader.path_stats = stats  # type: ignore[method-assign]
