"""Rules: what is decided without a question. Read from files, kept in files, and handed to `policy.decide` as values.

Levels, from the least to the most specific: what is shipped, the user's file, the project's file, the session. A `deny` of
any level counts. Else the most specific level that says something counts: a project may allow what is asked for as shipped.
"""

import os
import re
import tempfile
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from freeact_sub.approvals.patterns import Pattern, parse_pattern
from freeact_sub.errors import ConfigError

Verdict: TypeAlias = Literal["allow", "ask", "deny"]
VERDICTS: Final[tuple[Verdict, ...]] = ("allow", "ask", "deny")
"""From the least to the most strict."""

SHIPPED: Final = "default"
SESSION: Final = "this session"


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One entry of a list."""

    verdict: Verdict
    pattern: Pattern
    source: str
    """The file it stands in, `default`, or `this session`."""

    def __str__(self) -> str:
        return f'{self.verdict} "{self.pattern}"'


@dataclass(frozen=True, kw_only=True)
class Rules:
    """All rules, by level, the most specific first."""

    levels: tuple[tuple[Rule, ...], ...] = ()

    def with_session(self, rules: Iterable[Rule]) -> "Rules":
        """The rules with a more specific level before them."""
        level = tuple(rules)
        return replace(self, levels=(level, *self.levels)) if level else self


def make_rules(entries: Mapping[Verdict, Iterable[str]], source: str = SESSION) -> tuple[Rule, ...]:
    """One level, from lists of patterns.

    Raises:
        ValueError: A pattern is none.
    """
    return tuple(
        Rule(verdict=verdict, pattern=parse_pattern(text), source=source)
        for verdict, texts in entries.items()
        for text in texts
    )


@cache
def shipped_rules() -> Rules:
    """What counts where no file says otherwise."""
    path = Path(__file__).with_name("defaults.toml")
    return Rules(levels=(_read(path, SHIPPED),))


def load_rules(files: Iterable[Path]) -> Rules:
    """The rules of files, the most specific first, and behind them those that are shipped.

    Raises:
        ConfigError: A file cannot be read, or has a wrong line.
    """
    return Rules(levels=(*(_read(path, str(path)) for path in files), *shipped_rules().levels))


def add_rule(path: Path, verdict: Verdict, pattern: str) -> None:
    """Append a pattern to a list of a rule file; comments and order stay, and a reader sees the old file or the new one.

    Raises:
        ConfigError: The pattern is none, or the file has a wrong line or cannot be written.
    """
    import tomlkit  # noqa: PLC0415  # only who answers "always in this project" needs it

    try:
        parse_pattern(pattern)
    except ValueError as error:
        raise ConfigError(str(error)) from error
    try:
        known = _read(path, str(path)) if path.is_file() else ()
        if any(rule.verdict == verdict and str(rule.pattern) == pattern for rule in known):
            return
        document = tomlkit.parse(path.read_text(encoding="utf-8") if path.is_file() else "")
        entries: Any = document.setdefault(verdict, tomlkit.array().multiline(True))
        entries.append(pattern)
        _replace(path, tomlkit.dumps(document))
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror}") from error


def _replace(path: Path, text: str) -> None:
    target = path.resolve()
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    new = Path(name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        new.chmod(target.stat().st_mode & 0o777 if target.exists() else 0o644)
        new.replace(target)
    finally:
        new.unlink(missing_ok=True)


def _read(path: Path, source: str) -> tuple[Rule, ...]:
    try:
        text = path.read_text(encoding="utf-8")
        content = tomllib.loads(text)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigError(f"cannot read {path}: {error}") from error
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
        raise ConfigError(f'{path}, line {_line(text, verdict)}: {entry!r} is no text: write "KIND:GLOB"')
    try:
        return Rule(verdict=verdict, pattern=parse_pattern(entry), source=source)
    except ValueError as error:
        raise ConfigError(f"{path}, line {_line(text, entry)}: {error}") from error


def _line(text: str, words: str) -> int:
    """The first line that has the words; 1 where they are written in another way. TOML's reader does not tell."""
    lines = text.splitlines()
    wanted = re.escape(words)
    for number, line in enumerate(lines, start=1):
        if re.search(wanted, line.partition("#")[0] if words.isidentifier() else line):
            return number
    return 1
