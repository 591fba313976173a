"""`ProjectRules`: the file of the project's rules, to which the answer "always in this project" adds.

Code in the workspace may have changed the file since it was read. What it wrote must not count as looked at because a
person has answered a question: then nothing is added, and whoever answered is told.
"""

from collections.abc import Iterable
from pathlib import Path

from freeact_sub.approvals.rules import with_rule
from freeact_sub.config import PERMISSIONS_FILE
from freeact_sub.errors import ConfigError
from freeact_sub.files import read_file, replace_file
from freeact_sub.trust import Trust


class ProjectRules:
    """The rules of one project, as the next start will read them."""

    def __init__(self, workspace: Path, trust: Trust) -> None:
        """Make it when the rules are read. Args: workspace: the project. trust: gets what is written."""
        self._workspace = workspace
        self._path = workspace / PERMISSIONS_FILE
        self._trust = trust
        self._known = self._content()

    def allow(self, patterns: Iterable[str]) -> None:
        """Allow what the patterns are about from now on.

        Raises:
            ConfigError: It cannot be written, or the file is not the one that was read.
        """
        content = new = self._content()
        trusted = content is None or self._trust.knows(self._path, content)
        if content != self._known and not trusted:
            raise ConfigError(f"{self._path} has changed, and nobody has looked at it since")
        if not self._path.resolve().is_relative_to(self._workspace):
            raise ConfigError(f"{self._path} is a link that leads out of the workspace")
        for text in patterns:
            new = with_rule(new or b"", "allow", text, self._path)
        if new is None or new == content:
            return
        try:
            replace_file(self._path, new)
        except OSError as error:
            raise ConfigError(f"cannot write {self._path}: {error.strerror}") from error
        self._known = new
        if trusted:
            self._trust.add({self._path: new})

    def _content(self) -> bytes | None:
        try:
            return read_file(self._path)
        except OSError:
            return None  # missing, or not to be read: whoever adds to it says why
