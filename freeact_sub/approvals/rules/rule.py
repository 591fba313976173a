"""Rules: what is decided without a question. Read from files, kept in files, and handed to `decide` as values.

Levels, from the least to the most specific: what is shipped, the user's file, the project's file, the session. A `deny` of
any level counts. Else the most specific level with a matching rule counts: a project may allow a call that the shipped rules
ask about.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from freeact_sub.approvals.rules.patterns import Pattern, escaped, parse_pattern
from freeact_sub.config.parsing import parse_toml, text_of_file
from freeact_sub.config.schema import user_folder
from freeact_sub.errors import ConfigError
from freeact_sub.system.safe_files import read_file

Verdict: TypeAlias = Literal["allow", "ask", "deny"]
VERDICTS: Final[tuple[Verdict, ...]] = ("allow", "ask", "deny")
"""From the least to the most strict."""

SHIPPED: Final = "default"
SESSION: Final = "this session"


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


def make_rules(entries: Mapping[Verdict, Iterable[str]], source: str = SESSION) -> tuple[Rule, ...]:
    """Makes one level from lists of patterns.

    Raises:
        ValueError: A pattern is wrong.
    """
    return tuple(
        Rule(verdict=verdict, pattern=parse_pattern(text), source=source)
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
            raise ConfigError(f'{path}, line {_line(text, name)}: `{name}` is no list: write {name} = ["shell:git status"]')
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
