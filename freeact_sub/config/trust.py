"""`Trust` records which contents of settings files a person has looked at.

An agent's code may write the workspace, and files there decide what the next start runs and allows: settings, rules, MCP
servers, agent types, skills. So a file is obeyed only with content that a person has reviewed. The record holds a digest for
each path (for a skill: of the list of its files), in the user's own folder: workspaces cannot reach it, and it copies no
secrets.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from freeact_sub.errors import ConfigError
from freeact_sub.system.safe_files import locked_folder, read_file, replace_file

RECORD: Final = "trusted.json"


class Trust:
    """The record of the files in workspaces that one user trusts, each by its path and content."""

    def __init__(self, folder: Path) -> None:
        """Args: folder: the user's own folder, see `user_folder`; it need not exist."""
        self._record = folder / RECORD
        self._now: dict[str, str] = {}
        """The decisions of this process; they apply even if the file cannot be written."""

    def knows(self, path: Path, content: bytes) -> bool:
        """Whether the record has the file with this content."""
        return digest(content) in (self._now.get(_key(path)), self._read().get(_key(path)))

    def add(self, files: Mapping[Path, bytes]) -> None:
        """Records the contents of files.

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
        """Reads the record; an unreadable or wrong one counts as empty."""
        try:
            record = json.loads(read_file(self._record))
        except (OSError, ValueError, RecursionError):
            return {}
        return {path: value for path, value in record.items() if isinstance(value, str)} if isinstance(record, dict) else {}


def digest(content: bytes) -> str:
    """The digest of a content in the record."""
    return hashlib.sha256(content).hexdigest()


def _key(path: Path) -> str:
    return os.path.abspath(path)  # noqa: PTH100  # a link is its own name: what it leads to may be changed
