"""Rules: decisions without a question. They are read from files, saved in files, and passed to `decide` as values.

Levels, from the least to the most specific: what is shipped, the user's file, the project's file, the session. A `deny` of
any level counts. Else the most specific level with a matching rule counts: a project may allow a call that the shipped rules
ask about.
"""

import asyncio
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from freeact_sub.approvals.rules.patterns import Pattern, escaped, parse_pattern
from freeact_sub.config.parsing import parse_toml, text_of_file
from freeact_sub.config.schema import PERMISSIONS_FILE, user_folder
from freeact_sub.config.trust import Trust
from freeact_sub.errors import ConfigError
from freeact_sub.system.safe_files import read_file

Verdict: TypeAlias = Literal["allow", "ask", "deny"]
VERDICTS: Final[tuple[Verdict, ...]] = ("allow", "ask", "deny")
"""From the least to the most strict."""

SHIPPED: Final = "default"
SESSION: Final = "this session"
_Mark: TypeAlias = tuple[int, ...] | None
"""Changes when the file changes. None: there is no file."""
LOOK_SECONDS: Final = 1.0
"""How often the files are looked at for those that make no request."""
CHANGED: Final = (
    "what it forbids counts from now on; what it allows counts once somebody has looked at it, at the next start"
)


@dataclass(frozen=True, kw_only=True)
class Rule:
    """A pattern with its verdict."""

    verdict: Verdict
    pattern: Pattern
    source: str
    """The file of the rule, `default`, or `this session`."""

    def __str__(self) -> str:
        return f'{self.verdict} "{self.pattern}"'


@dataclass(frozen=True, kw_only=True)
class Rules:
    """All rules, by level, the most specific first."""

    levels: tuple[tuple[Rule, ...], ...] = ()

    def with_session(self, rules: Iterable[Rule]) -> "Rules":
        """These rules with a more specific level first."""
        level = tuple(rules)
        return replace(self, levels=(level, *self.levels)) if level else self


def make_rules(entries: Mapping[Verdict, Iterable[str]]) -> tuple[Rule, ...]:
    """Makes the level of a session from lists of patterns.

    Raises:
        ValueError: A pattern is wrong.
    """
    return tuple(
        Rule(verdict=verdict, pattern=parse_pattern(text), source=SESSION)
        for verdict, texts in entries.items()
        for text in texts
    )


@cache
def shipped_rules() -> Rules:
    """The rules that come with the program."""
    path = Path(__file__).with_name("defaults.toml")
    own = Rule(verdict="deny", pattern=parse_pattern(f"write:{escaped(str(user_folder()))}/**"), source=SHIPPED)
    return Rules(levels=((*read_rules(path, SHIPPED), own),))


def load_rules(files: Iterable[Path]) -> Rules:
    """Reads the rules of files, the most specific first; the shipped rules come last.

    Raises:
        ConfigError: A file cannot be read, or has a wrong line.
    """
    return Rules(levels=(*(read_rules(path, str(path)) for path in files), *shipped_rules().levels))


def with_rule(content: bytes, verdict: Verdict, pattern: str, path: Path) -> bytes:
    """Adds a pattern to the content of a rule file; comments and order stay.

    Args:
        content: The content of the file; empty for a new one.
        verdict: The list to add to.
        pattern: The pattern.
        path: The file, for messages.

    Raises:
        ConfigError: The pattern is wrong, or the file has a wrong line.
    """
    import tomlkit  # noqa: PLC0415  # only who answers "always in this project" needs it

    try:
        parse_pattern(pattern)
    except ValueError as error:
        raise ConfigError(str(error)) from error
    known = parse_rules(content, path, str(path))
    if any(rule.verdict == verdict and str(rule.pattern) == pattern for rule in known):
        return content
    document = tomlkit.parse(text_of_file(content))
    entries: Any = document.setdefault(verdict, tomlkit.array().multiline(True))
    entries.append(pattern)
    return tomlkit.dumps(document).encode()


def read_rules(path: Path, source: str) -> tuple[Rule, ...]:
    """Reads the rules of a file.

    Raises:
        ConfigError: It cannot be read, or has a wrong line.
    """
    try:
        return parse_rules(read_file(path), path, source)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error


def parse_rules(file: bytes, path: Path, source: str) -> tuple[Rule, ...]:
    """Reads the rules in a file's content.

    Raises:
        ConfigError: The file has a wrong line.
    """
    try:
        content = parse_toml(file)
    except ValueError as error:
        raise ConfigError(f"cannot read {path}: {error}") from error
    text = text_of_file(file)
    rules: list[Rule] = []
    for name, entries in content.items():
        verdict = next((verdict for verdict in VERDICTS if verdict == name), None)
        if verdict is None:
            raise ConfigError(f"{path}, line {_line(text, name)}: unknown list `{name}`: use allow, ask or deny")
        if not isinstance(entries, list):
            raise ConfigError(
                f'{path}, line {_line(text, name)}: `{name}` is not a list: write {name} = ["shell:git status"]'
            )
        for entry in entries:
            rules.append(_rule(verdict, entry, source, path, text))  # noqa: PERF401  # a comprehension hides the check
    return tuple(rules)


def _rule(verdict: Verdict, entry: object, source: str, path: Path, text: str) -> Rule:
    if not isinstance(entry, str):
        raise ConfigError(f'{path}, line {_line(text, verdict)}: {entry!r} is not text: write "KIND:GLOB"')
    try:
        return Rule(verdict=verdict, pattern=parse_pattern(entry), source=source)
    except ValueError as error:
        raise ConfigError(f"{path}, line {_line(text, entry)}: {error}") from error


def _line(text: str, words: str) -> int:
    """The first line with these words, which the TOML parser does not tell; 1 if they are written in another way."""
    lines = text.splitlines()
    wanted = re.escape(words)
    for number, line in enumerate(lines, start=1):
        if re.search(wanted, line.partition("#")[0] if words.isidentifier() else line):
            return number
    return 1


class RuleFiles:
    """The rules of an agent's files. They count from the moment in which their file is saved.

    What a file forbids counts at once. What it allows counts at once where the file stands outside the workspace, or
    somebody has looked at its content: code of an agent can write the workspace. A file that is broken, or gone, keeps its
    rules.
    """

    def __init__(self, files: Iterable[Path], workspace: Path, trust: Trust) -> None:
        """Read the files.

        Args:
            files: The files, the most specific first.
            workspace: The agent's workspace. A `deny` in a file that is made there or in the user's folder later counts too.
            trust: The contents that a person has reviewed.

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
        """Return notices about changed files; each one is returned once."""
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
