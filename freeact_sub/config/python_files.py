"""Files that a Python finds beside a script: it imports from the script's folder first, `json.py` in place of `json` too.

They belong to what a person trusts with the script, each by its size and digest. Where `CACHE_VARIABLE` names another place
for what a Python compiles, it reads nothing compiled beside the sources (but `.pyc` files in their place, which count).
"""

import contextlib
import hashlib
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

CACHE_VARIABLE: Final = "PYTHONPYCACHEPREFIX"
SAFE_VARIABLE: Final = "PYTHONSAFEPATH"
"""With it, a Python imports nothing from the script's folder, nor from the one in which it is started (3.11 and later)."""
PYTHON: Final = re.compile(r"(python|pypy)[\d.]*w?")
ISOLATED: Final = re.compile(r"-[bBdEhiqsSuvOx]*[PI]\w*")
"""Options with which a Python imports nothing from there."""
SCRIPTS: Final = frozenset((".py", ".pyw", ".pyz"))
MODULES: Final = frozenset((".py", ".pyw", ".pyc", ".so", ".pyd"))
SERVER_CODE: Final = frozenset((*SCRIPTS, ".js", ".mjs", ".cjs", ".ts", ".mts", ".cts", ".sh", ".bash", ".rb", ".pl"))
MAX_FILES: Final = 100
"""Of one folder; nobody looks at more."""


def runs_python(words: Iterable[str]) -> bool:
    """Whether one of these words is a Python."""
    return any(PYTHON.fullmatch(word.rpartition("/")[2]) for word in words)


def is_isolated(words: Iterable[str]) -> bool:
    """Whether a Python that is started by these words imports nothing from the folder of its script."""
    return any(ISOLATED.fullmatch(word) for word in words)


def modules_beside(script: Path, workspace: Path) -> Mapping[Path, bytes] | None:
    """The files beside a script that it could import, each with the description by which it is trusted.

    Returns:
        None: There are too many; or the folder is the workspace itself, which nobody looks through.
    """
    if script.parent.resolve() == workspace.resolve():
        return None
    found = dict[Path, bytes]()
    for path in _modules(script.parent):
        if path != script:
            found[path] = description(path)
        if len(found) > MAX_FILES:
            return None
    return found


def _modules(folder: Path) -> Iterator[Path]:
    """Raises nothing: a folder that cannot be read has none."""
    for place, folders, names in os.walk(folder):
        links = [name for name in folders if (Path(place) / name).is_symlink()]
        folders[:] = sorted(name for name in folders if name.isidentifier() and name != "__pycache__" and name not in links)
        modules = (name for name in names if Path(name).suffix in MODULES)
        yield from (Path(place) / name for name in sorted((*modules, *filter(str.isidentifier, links))))


def description(path: Path) -> bytes:
    """What a file is trusted as: its size and digest; a link as its target's name, too. Never raises."""
    try:
        target = f"a link to {str(path.readlink())!r}, " if path.is_symlink() else ""
        if path.is_dir():
            return f"{target}a folder".encode()
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:  # noqa: PTH123  # it is a descriptor
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return b"not a file"
            size, digest = os.fstat(file.fileno()).st_size, hashlib.file_digest(file, "sha256").hexdigest()
        return f"{target}{size:,} bytes, sha256 {digest}".encode("utf-8", "surrogateescape")
    except OSError as error:
        return f"cannot be read: {error.strerror}".encode()


def scripts_of_server(command: str, args: Sequence[str], cwd: Path, workspace: Path) -> dict[Path, bytes]:
    """The scripts of the workspace that the command of an MCP server names, and what a Python can import beside them.

    Returns:
        Each with the description by which it is trusted.
    """
    found = dict[Path, bytes]()
    words = (command, *args)
    roots = {workspace, workspace.resolve()}
    for word in words:
        with contextlib.suppress(OSError, ValueError, RuntimeError):
            path = cwd / Path(word).expanduser()
            is_inside = any(place.is_relative_to(root) for place in (path, path.resolve()) for root in roots)
            if not is_inside or not path.is_file() or not (path.suffix in SERVER_CODE or os.access(path, os.X_OK)):
                continue
            found[path] = description(path)
            if (path.suffix in SCRIPTS or runs_python(words)) and not is_isolated(words):
                found |= modules_beside(path, workspace) or {}
    return found
