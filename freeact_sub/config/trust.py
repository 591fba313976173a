"""The record of settings files whose contents a person has looked at (`Trust`).

An agent's code may write the workspace, and files there decide what the next start runs and allows: settings, rules, MCP
servers, agent types, skills. So a file is obeyed only with content that a person has reviewed. The record holds a digest for
each path (for a skill: of the list of its files), in the user's own folder: workspaces cannot reach it, and it copies no
secrets.

Trust in a script includes the files that a Python finds beside it, each by its size and digest: it imports
from the script's folder first, `json.py` in place of `json` too. Where `CACHE_VARIABLE` names another place for
compiled code, a Python reads none beside the sources (but `.pyc` files in their place, which count).
"""

import contextlib
import hashlib
import json
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from freeact_sub.errors import ConfigError
from freeact_sub.system.safe_files import locked_folder, read_file, replace_file

RECORD: Final = "trusted.json"
CACHE_VARIABLE: Final = "PYTHONPYCACHEPREFIX"
SAFE_VARIABLE: Final = "PYTHONSAFEPATH"
"""The variable with which a Python imports nothing from the script's folder, nor from its working directory (3.11 and
later)."""
PYTHON: Final = re.compile(r"(python|pypy)[\d.]*w?")
ISOLATED: Final = re.compile(r"-[bBdEhiqsSuvOx]*[PI]\w*")
"""Options with which a Python imports nothing from there."""
SCRIPTS: Final = frozenset((".py", ".pyw", ".pyz"))
MODULES: Final = frozenset((".py", ".pyw", ".pyc", ".so", ".pyd"))
SERVER_CODE: Final = frozenset((*SCRIPTS, ".js", ".mjs", ".cjs", ".ts", ".mts", ".cts", ".sh", ".bash", ".rb", ".pl"))
MAX_FILES: Final = 100
"""The most files of one folder; nobody looks at more."""


class Trust:
    """The record of the files in workspaces that one user trusts, each by its path and content."""

    def __init__(self, folder: Path) -> None:
        """Make the record. Args: folder: the user's own folder (`user_folder`), which need not exist."""
        self._record = folder / RECORD
        self._now: dict[str, str] = {}
        """The decisions of this process; they apply even if the file cannot be written."""

    def knows(self, path: Path, content: bytes) -> bool:
        """Return whether the record has the file with this content."""
        return digest(content) in (self._now.get(_key(path)), self._read().get(_key(path)))

    def add(self, files: Mapping[Path, bytes]) -> None:
        """Record the contents of files.

        Raises:
            ConfigError: The record cannot be written; it still applies to this process.
        """
        new = {_key(path): digest(content) for path, content in files.items()}
        self._now |= new
        try:
            with locked_folder(self._record.parent):
                known = {path: value for path, value in self._read().items() if os.path.lexists(path)}
                replace_file(self._record, json.dumps(known | new, indent=1, sort_keys=True).encode(), mode=0o600)
        except OSError as error:
            raise ConfigError(
                f"your decision to trust these files cannot be saved: cannot write {self._record}: {error.strerror}"
            ) from error

    def _read(self) -> dict[str, str]:
        """Read the record; an unreadable or wrong one counts as empty."""
        try:
            record = json.loads(read_file(self._record))
        except (OSError, ValueError, RecursionError):
            return {}
        return {path: value for path, value in record.items() if isinstance(value, str)} if isinstance(record, dict) else {}


def digest(content: bytes) -> str:
    """Return the digest of a content in the record."""
    return hashlib.sha256(content).hexdigest()


def _key(path: Path) -> str:
    return os.path.abspath(path)  # noqa: PTH100  # a link is its own name: what it leads to may be changed


def runs_python(words: Iterable[str]) -> bool:
    """Return whether one of these words is a Python."""
    return any(PYTHON.fullmatch(word.rpartition("/")[2]) for word in words)


def is_isolated(words: Iterable[str]) -> bool:
    """Return whether a Python started by these words imports nothing from the folder of its script."""
    return any(ISOLATED.fullmatch(word) for word in words)


def modules_beside(script: Path, workspace: Path) -> Mapping[Path, bytes] | None:
    """Return the files beside a script that it could import, each with the description by which it is trusted.

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
    """Yield the files that a script in a folder could import; none if it cannot be read."""
    for place, folders, names in os.walk(folder):
        links = [name for name in folders if (Path(place) / name).is_symlink()]
        folders[:] = sorted(name for name in folders if name.isidentifier() and name != "__pycache__" and name not in links)
        modules = (name for name in names if Path(name).suffix in MODULES)
        yield from (Path(place) / name for name in sorted((*modules, *filter(str.isidentifier, links))))


def description(path: Path) -> bytes:
    """Return the description by which a file is trusted: size and digest, for a link its target's name. Never raises."""
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
    """Return the scripts of the workspace that an MCP server's command names, with the files that they could import.

    Returns:
        Each file with the description by which it is trusted.
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
