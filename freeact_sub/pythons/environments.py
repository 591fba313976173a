"""Programs and modules of a Python environment, found by its files: virtual ones, Conda's, and whole Pythons."""

import functools
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from freeact_sub.pythons import installed

MARKS: Final = ("pyvenv.cfg", "conda-meta")
"""Names that make a folder an environment."""
USUAL: Final = frozenset(
    (*installed.PARTS, *installed.BASE_PARTS, *MARKS, "sbin", "man", "doc", "var", ".gitignore", ".lock", "CACHEDIR.TAG")
)
"""The contents of a virtual environment that holds nothing else."""


def is_environment(folder: str) -> bool:
    """Return whether a Python that is started from the folder's `bin` belongs to the folder."""
    return any(os.path.exists(os.path.join(folder, mark)) for mark in MARKS) or bool(package_folders(folder))


def parts_of(folder: str) -> list[str]:
    """Return the paths of an environment that must not be written: the folder, or parts of it where it is also a project."""
    try:
        names = set(os.listdir(folder))
    except OSError:
        return []
    if "pyvenv.cfg" not in names or names <= USUAL:
        return [folder]  # nothing may be added: a `pyvenv.cfg` would name another Python
    return inner_parts(folder)


def inner_parts(folder: str) -> list[str]:
    """Return the parts of an environment, without the folder itself."""
    parts = (*installed.PARTS, *installed.BASE_PARTS, "sbin", "conda-meta")
    return [path for part in parts if os.path.lexists(path := os.path.join(folder, part))]


def package_folders(folder: str) -> list[str]:
    """Return the folders with the packages of an environment."""
    return [
        path
        for lib in ("lib", "lib64")
        for python in _names(os.path.join(folder, lib))
        if re.match(r"(python|pypy)\d", python)
        for packages in ("site-packages", "dist-packages")
        if os.path.isdir(path := os.path.join(folder, lib, python, packages))
    ]


def base_of(folder: str) -> str:
    """Return the folder of the Python that a virtual environment was made with; empty: not a virtual environment."""
    found = re.search(r"^\s*home\s*=\s*(.+?)\s*$", installed.read(os.path.join(folder, "pyvenv.cfg")), re.MULTILINE)
    return os.path.dirname(found[1]) if found else ""


def sources_of(packages: str) -> tuple[str, ...]:
    """Return the folders from which a folder of packages imports more, once they exist (`.pth`, editable installs)."""
    try:
        status = os.stat(packages)
    except OSError:
        return ()
    return _sources(packages, status.st_ino, status.st_mtime_ns)


@functools.lru_cache(maxsize=64)
def _sources(packages: str, *identity: int) -> tuple[str, ...]:
    """Cache by the folder's identity and time of change: reading it takes milliseconds."""
    del identity
    named = (os.path.join(packages, name) for name in _names(packages) if name.endswith(".pth"))
    to_come = {os.path.join(packages, path) for pth in named for path in installed.named_by(pth)}
    return tuple(sorted(installed.editable(packages) | to_come))


def links_from(path: str) -> Iterator[str]:
    """Yield the path, and each path that it leads to, link by link."""
    for _ in range(40):  # as many as the system follows
        yield path
        try:
            target = os.readlink(path)
        except OSError:
            return
        path = os.path.normpath(os.path.join(os.path.dirname(path), target))


def words_of_script(path: str) -> list[str]:
    """Return the words of a script's first two lines, which hold its interpreter, even if its path is too long for one."""
    try:
        with Path(path).open("rb") as file:
            head = file.read(1000)
    except OSError:
        return []
    if not head.startswith(b"#!"):
        return []
    return re.findall(r"[^\s'\"#!]+", "\n".join(os.fsdecode(head).splitlines()[:2]))


def _names(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []
