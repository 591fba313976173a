"""`Policy` judges texts by rules and mode; `decision.py` judges calls by it.

A matching rule decides, otherwise the mode. A child's policy includes its parent's, and the stricter of the two decides
every call: a child is never allowed more than its parent.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from freeact_sub.approvals.rules.patterns import UNKNOWN, WILD, Kind
from freeact_sub.approvals.rules.rule import SHIPPED, VERDICTS, Rule, Rules, Verdict, shipped_rules
from freeact_sub.calls import Topic
from freeact_sub.modes import MODES, WALL_OF, WALLS, Mode, Wall, narrower

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
    "fan-outs": ("ask", "ask", "ask", "allow"),
}
"""The verdicts without a matching rule, in the order of `MODES`."""


@dataclass(frozen=True, kw_only=True)
class Ruling:
    """A verdict on a call, and what decided it."""

    verdict: Verdict
    rule: str
    """The rule, as it is written, or the sentence that decided."""
    source: str = SHIPPED
    """The source of the rule: a file, `default`, `this session`, or `mode NAME`. Empty: `rule` names it."""
    decided_by: Rule | None = None
    """The rule that decided. None: another sentence did."""
    part: str = ""
    """The part of a shell command that decided; empty: all of the call."""
    lasting: bool = True
    """False if no rule can change it: a decision applies to this call only."""
    needs_person: bool = False
    """Only a person may allow it: without one it is denied."""
    suggests: tuple[str, ...] = ()
    """Patterns that would allow the call."""
    walled: bool | None = None
    """An allowed command runs behind the wall for programs that only read (True), needs more than that (False), or None: the
    wall of the mode is enough, or it is part of a command of which other parts decide."""

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
    """Folders of the agent's own, outside the workspace, in which it may write in every mode."""
    network: bool = False
    """In mode `auto` the wall lets connections pass."""
    parent: "Policy | None" = None

    @property
    def wall(self) -> Wall:
        """The wall around the agent's kernel, never weaker than its parent's."""
        wall = WALL_OF[self.mode]
        return wall if self.parent is None else min(wall, self.parent.wall, key=WALLS.index)

    def in_mode(self, mode: Mode) -> "Policy":
        """This policy while its root is in another mode, and each kernel still behind the wall of the mode before.

        What is narrower below the root stays so. Where a mode asks little because of a wall that the kernel does not have
        yet, as much is asked as in mode `ask`.
        """
        if self.parent is None:
            wanted, parent = mode, None
        else:
            wanted, parent = narrower(self.mode, mode), self.parent.in_mode(mode)
        has_wall = WALLS.index(WALL_OF[self.mode]) <= WALLS.index(WALL_OF[wanted])
        return replace(self, mode=wanted if has_wall else narrower(wanted, "ask"), parent=parent)

    def with_rules(self, rules: Rules) -> "Policy":
        """This policy and its ancestors with these rules of files."""
        return replace(self, rules=rules, parent=self.parent.with_rules(rules) if self.parent else None)

    def with_session(self, rules: Iterable[Rule]) -> "Policy":
        """This policy with the session's rules before all others."""
        level = tuple(rules)
        parent = self.parent.with_session(level) if self.parent else None
        return replace(self, rules=self.rules.with_session(level), parent=parent)

    def with_scratch(self, folders: Iterable[Path]) -> "Policy":
        """This policy and its ancestors with these folders as scratch folders."""
        own = tuple(folders)
        parent = self.parent.with_scratch(own) if self.parent else None
        return replace(self, scratch=own, parent=parent)


def narrowed(parent: Policy, mode: Mode) -> Policy:
    """A child's policy. Args: mode: the wanted one; the parent's counts if it is narrower."""
    above = replace(parent, scratch=())
    return replace(above, mode=narrower(parent.mode, mode), parent=above)


def by_rule(kind: Kind, texts: Iterable[str], policy: Policy, also: Iterable[str] = ()) -> Ruling | None:
    """Judges an action that may be any of these texts by the rules; None if no rule matches.

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
    """Judges a kind of call by the mode."""
    verdict = BY_MODE[topic][MODES.index(policy.mode)]
    done = {"allow": "allowed", "ask": "asked for", "deny": "denied"}[verdict]
    return Ruling(verdict=verdict, rule=f"{topic} are {done}", source=f"mode {policy.mode}")


def denied_by_mode(policy: Policy, sentence: str) -> Ruling:
    """A denial that no rule can lift: the wall of the mode stops the call."""
    return Ruling(verdict="deny", rule=sentence, source=f"mode {policy.mode}", lasting=False)


def unless_full(sentence: str, policy: Policy, part: str = "") -> Ruling:
    """Asks whatever the rules say, in every mode but `full`."""
    verdict: Verdict = "allow" if policy.mode == "full" else "ask"
    return Ruling(verdict=verdict, rule=sentence, part=part, lasting=False)


def strictest(rulings: Iterable[Ruling]) -> Ruling:
    """The strictest ruling; of equals one that no rule can change. It suggests the patterns of all that ask."""
    known = list(rulings)
    chosen = max(known, key=lambda ruling: (VERDICTS.index(ruling.verdict), not ruling.lasting))
    if chosen.verdict != "ask":
        walls = [ruling.walled for ruling in known]
        return replace(chosen, suggests=(), walled=True if True in walls else False if False in walls else None)
    asked = [ruling.suggests if ruling.lasting else () for ruling in known if ruling.verdict == "ask"]
    suggests = tuple(dict.fromkeys(text for texts in asked for text in texts)) if all(asked) else ()
    return replace(chosen, suggests=suggests)


def shown(part: str) -> str:
    """A part of a command, for people."""
    return part.replace(UNKNOWN, "$…").replace(WILD, "*")
