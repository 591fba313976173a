"""Rules and the mode: the values that decide without a question. `Policy` holds all that decides on one agent's calls.

Rules are read from files, saved in files, and passed on as values. Levels, from the least to the most specific: the shipped
rules, the user's file, the project's file, the session. A `deny` of any level counts. Else the most specific level with a
matching rule counts: a project may allow a call that the shipped rules ask about. `RuleFiles` follows the files.

`ProjectRules` adds patterns to the project's file when a person answers "always in this project". Code in the workspace may
have changed the file since it was read. An answer must not make such content count as looked at: then nothing is added, and
a notice says why.

A matching rule decides, otherwise the mode. A child's policy includes its parent's, and the stricter of the two decides
every call: a child is never allowed more than its parent. Here texts are judged (`by_rule`, `by_mode`); `gate.py` judges
calls.
"""

import asyncio
import os
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from freeact_sub.approvals.patterns import UNKNOWN, WILD, Kind, Pattern, escaped, parse_pattern
from freeact_sub.calls import Topic
from freeact_sub.config.parsing import parse_toml, text_of_file
from freeact_sub.config.schema import PERMISSIONS_FILE, user_folder
from freeact_sub.config.trust import Trust
from freeact_sub.errors import ConfigError
from freeact_sub.modes import MODES, WALL_OF, WALLS, Mode, Wall, narrower
from freeact_sub.system.closing import DaemonThreads
from freeact_sub.system.safe_files import MAX_BYTES, beneath, make_folder, read_file, replace_beneath

Verdict: TypeAlias = Literal["allow", "ask", "deny"]
VERDICTS: Final[tuple[Verdict, ...]] = ("allow", "ask", "deny")
"""Verdicts from the least to the most strict."""

SHIPPED: Final = "default"
SESSION: Final = "this session"
_Mark: TypeAlias = tuple[int, ...] | None
"""A value that changes with the file, if there is one."""
LOOK_SECONDS: Final = 1.0
"""Seconds between two looks at the files, for followers that make no request."""
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
        """Return these rules with a more specific level first."""
        level = tuple(rules)
        return replace(self, levels=(level, *self.levels)) if level else self


def make_rules(entries: Mapping[Verdict, Iterable[str]]) -> tuple[Rule, ...]:
    """Make the level of a session from lists of patterns.

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
    """Return the rules that come with the program."""
    path = Path(__file__).with_name("defaults.toml")
    own = Rule(verdict="deny", pattern=parse_pattern(f"write:{escaped(str(user_folder()))}/**"), source=SHIPPED)
    return Rules(levels=((*read_rules(path, SHIPPED), own),))


def load_rules(files: Iterable[Path]) -> Rules:
    """Read the rules of files, the most specific first; the shipped rules come last.

    Raises:
        ConfigError: A file cannot be read, or has a wrong line.
    """
    return Rules(levels=(*(read_rules(path, str(path)) for path in files), *shipped_rules().levels))


def with_rule(content: bytes, verdict: Verdict, pattern: str, path: Path) -> bytes:
    """Add a pattern to the content of a rule file; comments and order stay.

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
    """Read the rules of a file.

    Raises:
        ConfigError: It cannot be read, or has a wrong line.
    """
    try:
        return parse_rules(read_file(path), path, source)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error


def parse_rules(file: bytes, path: Path, source: str) -> tuple[Rule, ...]:
    """Read the rules in a file's content.

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
    """Return the first line with these words, which the TOML parser does not tell; 1 if they are written in another way."""
    lines = text.splitlines()
    wanted = re.escape(words)
    for number, line in enumerate(lines, start=1):
        if re.search(wanted, line.partition("#")[0] if words.isidentifier() else line):
            return number
    return 1


class RuleFiles:
    """The rules of an agent's files. They count from the moment in which their file is saved.

    A denial counts at once. A permission counts at once where the file stands outside the workspace, or somebody has
    looked at its content: code of an agent can write the workspace. A file that is broken, or gone, keeps its
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
        """Return notices about changed files, each one once."""
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
        """Return whether all of a file counts: the file was given, and no agent's code has written it."""
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


BY_MODE: Final[Mapping[Topic, tuple[Verdict, Verdict, Verdict, Verdict]]] = {
    # plan, ask, auto, full
    "cells": ("ask", "ask", "allow", "allow"),
    "commands": ("ask", "ask", "allow", "allow"),
    "writes in the workspace": ("deny", "allow", "allow", "allow"),
    "writes outside the workspace": ("deny", "ask", "deny", "allow"),
    "connections": ("deny", "ask", "deny", "allow"),
    "MCP calls": ("deny", "ask", "ask", "allow"),
    "MCP calls that only read": ("ask", "ask", "allow", "allow"),
    "children": ("ask", "ask", "allow", "allow"),
    "tools": ("deny", "ask", "ask", "allow"),
    "notes": ("deny", "ask", "ask", "allow"),
    "fan-outs": ("ask", "ask", "ask", "allow"),
}
"""Verdicts without a matching rule, in the order of `MODES`."""
Places: TypeAlias = tuple[str, str]
"""Regular expressions for a folder with its last `/`, and for a name in it."""


@dataclass(frozen=True, kw_only=True)
class Ruling:
    """A verdict on a call, and its reason."""

    verdict: Verdict
    rule: str
    """The rule, as it is written, or the sentence that decided."""
    source: str = SHIPPED
    """The source of the rule: a file, `default`, `this session`, or `mode NAME`. Empty: `rule` names it."""
    decided_by: Rule | None = None
    """The rule that decided, if one did."""
    part: str = ""
    """The part of a shell command that decided; empty: all of the call."""
    lasting: bool = True
    """Whether a rule can change the verdict; if not, a decision applies to this call only."""
    needs_person: bool = False
    """Whether only a person may allow it: without one it is denied."""
    suggests: tuple[str, ...] = ()
    """Patterns that would allow the call."""
    walled: bool | None = None
    """Whether an allowed command runs behind the wall for programs that only read (True), or needs more than that (False).
    None: the wall of the mode is enough, or other parts of the command decide."""

    @property
    def reason(self) -> str:
        """The reason of a denial, in one sentence."""
        about = f"{shown(self.part)}: " if self.part else ""
        return f"{about}{self.rule}" + (f" ({self.source})" if self.source else "")


@dataclass(frozen=True, kw_only=True)
class Policy:
    """Everything that decides on an agent's calls."""

    workspace: Path
    mode: Mode = "ask"
    rules: Rules = field(default_factory=shipped_rules)
    scratch: tuple[Path, ...] = ()
    """The agent's own folders outside the workspace, in which it may write in every mode."""
    network: bool = False
    """Whether the wall of mode `auto` lets connections pass."""
    parent: "Policy | None" = None

    @property
    def wall(self) -> Wall:
        """The wall around the agent's kernel, never weaker than its parent's."""
        wall = WALL_OF[self.mode]
        return wall if self.parent is None else min(wall, self.parent.wall, key=WALLS.index)

    def in_mode(self, mode: Mode) -> "Policy":
        """Return this policy for a root in another mode, while each kernel is still behind the wall of the mode before.

        Narrower modes below the root stay. Where a mode asks little because of a wall that the kernel does not have
        yet, as much is asked as in mode `ask`.
        """
        if self.parent is None:
            wanted, parent = mode, None
        else:
            wanted, parent = narrower(self.mode, mode), self.parent.in_mode(mode)
        has_wall = WALLS.index(WALL_OF[self.mode]) <= WALLS.index(WALL_OF[wanted])
        return replace(self, mode=wanted if has_wall else narrower(wanted, "ask"), parent=parent)

    def with_rules(self, rules: Rules) -> "Policy":
        """Return this policy and its ancestors with these rules of files."""
        return replace(self, rules=rules, parent=self.parent.with_rules(rules) if self.parent else None)

    def with_session(self, rules: Iterable[Rule]) -> "Policy":
        """Return this policy with the session's rules before all others."""
        level = tuple(rules)
        parent = self.parent.with_session(level) if self.parent else None
        return replace(self, rules=self.rules.with_session(level), parent=parent)

    def with_scratch(self, folders: Iterable[Path]) -> "Policy":
        """Return this policy and its ancestors with these folders as scratch folders."""
        own = tuple(folders)
        parent = self.parent.with_scratch(own) if self.parent else None
        return replace(self, scratch=own, parent=parent)


def narrowed(parent: Policy, mode: Mode) -> Policy:
    """Return a child's policy. Args: mode: the wanted one; the parent's counts if it is narrower."""
    above = replace(parent, scratch=())
    return replace(above, mode=narrower(parent.mode, mode), parent=above)


def by_rule(kind: Kind, texts: Iterable[str], policy: Policy, also: Iterable[str] = ()) -> Ruling | None:
    """Judge an action that may be any of these texts by the rules; None if no rule matches.

    A rule that forbids counts if it could match one text; a rule that allows counts if it surely matches all of them. A
    `deny` that could match, but not surely, asks.
    """
    allowing = list(texts)
    forbidding = [*allowing, *also]
    possible = [rule for rule in _of_kind(policy.rules.levels, kind, "deny") if _may_be(rule, forbidding, policy)]
    for rule in possible:
        if any(rule.pattern.covers(text, policy.workspace) for text in forbidding):
            return _ruling(rule)
    if possible:
        rule = possible[0]
        return Ruling(verdict="ask", rule=f"it may be what is denied: {rule}", source=rule.source, lasting=False)
    rulings = (_by_level(level, kind, allowing, forbidding, policy) for level in policy.rules.levels)
    return next((ruling for ruling in rulings if ruling is not None), None)


def _by_level(
    level: tuple[Rule, ...], kind: Kind, allowing: list[str], forbidding: list[str], policy: Policy
) -> Ruling | None:
    for rule in _of_kind([level], kind, "ask"):
        if _may_be(rule, forbidding, policy):
            asked = policy.mode != "full"
            return _ruling(rule) if asked else replace(_ruling(rule), verdict="allow", source="mode full")
    for rule in _of_kind([level], kind, "allow"):
        if all(rule.pattern.covers(text, policy.workspace) for text in allowing):
            return _ruling(rule)
    return None


def _of_kind(levels: Iterable[tuple[Rule, ...]], kind: Kind, verdict: Verdict) -> Iterator[Rule]:
    return (rule for level in levels for rule in level if rule.pattern.kind == kind and rule.verdict == verdict)


def _may_be(rule: Rule, texts: list[str], policy: Policy) -> bool:
    return any(rule.pattern.may_match(text, policy.workspace) for text in texts)


def _ruling(rule: Rule) -> Ruling:
    return Ruling(verdict=rule.verdict, rule=str(rule), source=rule.source, decided_by=rule)


def by_mode(policy: Policy, topic: Topic) -> Ruling:
    """Judge a kind of call by the mode."""
    verdict = BY_MODE[topic][MODES.index(policy.mode)]
    done = {"allow": "allowed", "ask": "asked for", "deny": "denied"}[verdict]
    return Ruling(verdict=verdict, rule=f"{topic} are {done}", source=f"mode {policy.mode}")


def denied_by_mode(policy: Policy, sentence: str) -> Ruling:
    """Return a denial that no rule can lift: the wall of the mode stops the call."""
    return Ruling(verdict="deny", rule=sentence, source=f"mode {policy.mode}", lasting=False)


def unless_full(sentence: str, policy: Policy, part: str = "") -> Ruling:
    """Ask whatever the rules say, in every mode but `full`."""
    verdict: Verdict = "allow" if policy.mode == "full" else "ask"
    return Ruling(verdict=verdict, rule=sentence, part=part, lasting=False)


def strictest(rulings: Iterable[Ruling]) -> Ruling:
    """Return the strictest ruling, among equals one that no rule can change; it suggests the patterns of all that ask."""
    known = list(rulings)
    chosen = max(known, key=lambda ruling: (VERDICTS.index(ruling.verdict), not ruling.lasting))
    if chosen.verdict != "ask":
        walls = [ruling.walled for ruling in known]
        return replace(chosen, suggests=(), walled=True if True in walls else False if False in walls else None)
    asked = [ruling.suggests if ruling.lasting else () for ruling in known if ruling.verdict == "ask"]
    suggests = tuple(dict.fromkeys(text for texts in asked for text in texts)) if all(asked) else ()
    return replace(chosen, suggests=suggests)


def shown(part: str) -> str:
    """Return a part of a command, for people."""
    return part.replace(UNKNOWN, "$…").replace(WILD, "*")


def unasked_writes(policy: Policy, protected: Iterable[Path] = ()) -> tuple[tuple[Path, ...], tuple[Places, ...]]:
    """Return the files that an agent's code may change without approval, in a form that its kernel tests quickly.

    A cell that writes 20,000 files must not ask its host 20,000 times. So the kernel gets the
    writable folders, and the exceptions in them that a rule may be about. The kernel may ask too often, never too
    seldom: the host judges each request by all rules. Answers given during the session do not change what it asks.

    Args:
        policy: The agent's policy.
        protected: Files and folders in the workspace that always need a question.
    """
    folders = () if policy.mode == "plan" else (policy.workspace,)
    return folders, tuple(dict.fromkeys([*_protected(protected), *_by_rules(policy)]))


def _protected(paths: Iterable[Path]) -> Iterator[Places]:
    for path in paths:
        yield re.escape(f"{path.parent}/"), re.escape(path.name)
        yield f"{re.escape(str(path))}/.*", ".*"


def _by_rules(policy: Policy) -> Iterator[Places]:
    """Yield exceptions from all rules that may deny a write or ask."""
    for level in policy.rules.levels:
        for rule in level:
            counts = rule.verdict == "deny" or (rule.verdict == "ask" and policy.mode != "full")
            if counts and rule.pattern.kind in ("file", "write"):
                yield from rule.pattern.places(policy.workspace)
    if policy.parent is not None:
        yield from _by_rules(policy.parent)


SAVE_SECONDS: Final = 10.0
"""Bound on the wait for the disk."""
_saving: Final = DaemonThreads("saves rules")


class ProjectRules:
    """The rules of one project's file, to which a person adds."""

    def __init__(self, workspace: Path, trust: Trust) -> None:
        """Note the file's present content. Args: workspace: the project. trust: records the written contents."""
        self._workspace = workspace
        self._path = workspace / PERMISSIONS_FILE
        self._trust = trust
        self._known = self._content()
        self._lock = threading.Lock()

    async def allow_in_time(self, patterns: Iterable[str]) -> None:
        """Add patterns in a thread: the event loop does not wait for the disk.

        Raises:
            ConfigError: As by `allow`, or the disk does not answer.
        """
        saving = asyncio.get_running_loop().run_in_executor(_saving, self.allow, tuple(patterns))
        done, _ = await asyncio.wait({saving}, timeout=SAVE_SECONDS)
        if not done:
            raise ConfigError(f"{self._path} could not be written within {SAVE_SECONDS:g} s")
        saving.result()

    def allow(self, patterns: Iterable[str]) -> None:
        """Add patterns to the `allow` list. Can be called in any thread.

        Raises:
            ConfigError: The file cannot be written, or has changed since it was read.
        """
        with self._lock:  # two answers may come at the same time
            self._allow(patterns)

    def _allow(self, patterns: Iterable[str]) -> None:
        content = new = self._content()
        trusted = content is None or self._trust.knows(self._path, content)
        if content != self._known and not trusted:
            raise ConfigError(
                f"{self._path} has changed since a person last reviewed it: start the program again to review it"
            )
        link = next((path for path in (self._path.parent, self._path) if path.is_symlink()), None)
        if link is not None:
            raise ConfigError(f"{link} is a symbolic link: rules are not written through one")
        for text in patterns:
            new = with_rule(new or b"", "allow", text, self._path)
        if new is None or new == content:
            return
        try:
            make_folder(self._path.parent)
            replace_beneath(self._workspace, self._path, new)
        except OSError as error:
            raise ConfigError(f"cannot write {self._path}: {error.strerror}") from error
        self._known = new
        if trusted:
            self._trust.add({self._path: new})

    def _content(self) -> bytes | None:
        try:
            with open(self._path, "rb", opener=beneath(self._workspace)) as file:
                return file.read(MAX_BYTES)
        except OSError:
            return None  # missing, or not to be read: whoever adds to it says why
