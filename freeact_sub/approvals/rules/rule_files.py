"""`RuleFiles`: rules that count from the moment in which their file is saved.

What a file forbids counts at once. What it allows counts at once where the file stands outside the workspace, or somebody
has looked at its content: code of an agent can write the workspace. A file that is broken, or gone, keeps its rules.
"""

import asyncio
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TypeAlias

from freeact_sub.approvals.rules.rule import Rules, parse_rules, read_rules, shipped_rules
from freeact_sub.config.schema import PERMISSIONS_FILE, user_folder
from freeact_sub.config.trust import Trust
from freeact_sub.errors import ConfigError
from freeact_sub.system.safe_files import read_file

_Mark: TypeAlias = tuple[int, ...] | None
"""Changes when the file changes. None: there is no file."""
LOOK_SECONDS: Final = 1.0
"""How often the files are looked at for those that make no request."""
CHANGED: Final = (
    "what it forbids counts from now on; what it allows counts once somebody has looked at it, at the next start"
)


class RuleFiles:
    """The rules of an agent's files."""

    def __init__(self, files: Iterable[Path], workspace: Path, trust: Trust) -> None:
        """Read the files.

        Args:
            files: The files, the most specific first.
            workspace: The agent's workspace. A `deny` in a file that is made there or in the user's folder later counts too.
            trust: The contents that somebody has looked at.

        Raises:
            ConfigError: A file cannot be read, or has a wrong line.
        """
        self._workspace = workspace
        self._trust = trust
        usual = (workspace / PERMISSIONS_FILE, user_folder() / PERMISSIONS_FILE.name)
        self._given = tuple(files)
        self._marks: dict[Path, _Mark] = {path: _mark(path) for path in self._given}
        self._levels = {path: read_rules(path, str(path)) for path in self._given}
        self._first = dict(self._levels)
        self._marks |= {path: None for path in usual if path not in self._marks and _mark(path) is None}
        self._rules = self._joined()
        self._unreported: dict[str, None] = {}
        self._followers: list[Callable[[Rules], None]] = []
        self._next_look: asyncio.TimerHandle

    @property
    def rules(self) -> Rules:
        """The rules as the files are now; the same object until one changes."""
        changed = [path for path, mark in self._marks.items() if _mark(path) != mark]
        self._unreported |= {sentence: None for path in changed if (sentence := self._renew(path))}
        if changed:
            self._rules = self._joined()
        return self._rules

    def notices(self) -> tuple[str, ...]:
        """What people should know of files that have changed; each sentence is returned once."""
        unreported, self._unreported = tuple(self._unreported), {}
        return unreported

    @contextmanager
    def followed(self, follower: Callable[[Rules], None]) -> Iterator[None]:
        """Call a function with the rules every second for the time of the context; one look serves all followers."""
        self._followers.append(follower)
        if len(self._followers) == 1:
            self._look_later()
        try:
            yield
        finally:
            self._followers.remove(follower)
            if not self._followers:
                self._next_look.cancel()

    def _look_later(self) -> None:
        self._next_look = asyncio.get_running_loop().call_later(LOOK_SECONDS, self._look)

    def _look(self) -> None:
        self._look_later()
        rules = self.rules
        for follower in self._followers:
            follower(rules)

    def _renew(self, path: Path) -> str:
        self._marks[path] = _mark(path)
        if self._marks[path] is None:
            return f"{path} is gone: its rules count until the end"
        try:
            content = read_file(path)
            new = parse_rules(content, path, str(path))
        except OSError as error:
            return f"cannot read {path}: {error.strerror}; the rules that were read before count"
        except ConfigError as error:
            return f"{error}; the rules that were read before count"
        if self._counts(path, content):
            self._levels[path] = self._first[path] = new
            return ""
        first = self._first.get(path, ())
        strict = [rule for rule in new if rule.verdict != "allow" and rule not in first]
        self._levels[path] = (*first, *strict)
        return f"{path} has changed: {CHANGED}" if any(rule.verdict == "allow" and rule not in first for rule in new) else ""

    def _counts(self, path: Path, content: bytes) -> bool:
        """Whether all of a file counts: the file was given, and no agent's code has written it."""
        places = (path.absolute(), path.resolve())
        outside = not any(place.is_relative_to(self._workspace) for place in places)
        return path in self._given and (outside or self._trust.knows(path, content))

    def _joined(self) -> Rules:
        return Rules(levels=(*self._levels.values(), *shipped_rules().levels))


def _mark(path: Path) -> _Mark:
    try:
        found = os.stat(path)  # noqa: PTH116  # before each decision
    except (OSError, ValueError):
        return None
    return (found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino)
