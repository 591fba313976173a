"""Permission rules for a person: the decision about a call with its rule, or all rules."""

import asyncio
import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Final, NamedTuple

from freeact_sub.approvals import Policy, Verdict, decide, decide_in_time, load_rules
from freeact_sub.approvals.policy import Rule
from freeact_sub.calls import CALLS, Call, CodeAction, HarmlessCode, ShellCommand, ToolCall
from freeact_sub.config.schema import Config
from freeact_sub.errors import ConfigError
from freeact_sub.kernels.wall.sandbox import support
from freeact_sub.text import visible
from freeact_sub.tools import is_harmless

ASKS_ABOUT_CODE: Final = ("plan", "ask")
"""Modes in which only a rule lets a cell run unasked."""


def ruling_text(config: Config, kind: str, text: str) -> tuple[Verdict, str]:
    """Return the verdict on a call, and a line about it. Not for the thread of an event loop.

    Raises:
        ConfigError: The text is not what the kind needs, or a file with rules is wrong.
    """
    ruling = asyncio.run(decide_in_time(call_of(kind, text), policy_of(config)))
    return ruling.verdict, visible(f"{ruling.verdict}: {ruling.reason}")


def rules_text(config: Config) -> str:
    """Return all rules, the most specific file first; each file's in the form in which it is written."""
    lines = []
    for level in policy_of(config).rules.levels:
        if level:
            lines.append(f"# {level[0].source}")
        for verdict in ("deny", "ask", "allow"):
            patterns = [str(rule.pattern) for rule in level if rule.verdict == verdict]
            if patterns:
                lines += [f"{verdict} = [", *(f"    {json.dumps(item, ensure_ascii=False)}," for item in patterns), "]"]
    return "\n".join(lines)


class CodeRule(NamedTuple):
    """A rule by which cells run unasked in a mode that asks about them."""

    source: str
    """The file of the rule, or words for the session."""
    is_for_harmless: bool
    """Whether only cells that change nothing run unasked."""


def code_rule(config: Config, session: Iterable[Rule] = ()) -> CodeRule | None:
    """Return the rule by which cells run unasked in a mode that asks about them. None: they are asked about.

    Args:
        config: The settings, with the present mode.
        session: The rules of the session.

    Raises:
        ConfigError: A file with rules is wrong.
    """
    if config.mode not in ASKS_ABOUT_CODE:
        return None
    policy = policy_of(config).with_session(session)
    ruling, harmless = (decide(kind(code="x"), policy) for kind in (CodeAction, HarmlessCode))
    if ruling.verdict == "allow":
        return CodeRule(ruling.source, is_for_harmless=False)
    is_tried = config.mode == "ask" and config.effects.enabled
    return CodeRule(harmless.source, is_for_harmless=True) if is_tried and harmless.verdict == "allow" else None


def policy_of(config: Config) -> Policy:
    """Return the policy of these settings."""
    return Policy(workspace=config.workspace, mode=config.mode, rules=load_rules(config.permission_files))


def call_of(kind: str, text: str) -> Call:
    """Return the call that a text stands for, by the `form` of its kind."""
    if kind not in CALLS:
        kinds = "; ".join(f"{name}: {call.form}" for name, call in CALLS.items())
        raise ConfigError(f"--kind must be one of these, each with the form of its CALL: {kinds}")
    try:
        call = CALLS[kind].parse(text)
    except ValueError as error:
        raise ConfigError(str(error)) from error
    if isinstance(call, ShellCommand):  # as a kernel on this machine starts it
        machine = support()
        return replace(call, wall=machine.landlock > 0 and machine.seccomp)
    return replace(call, harmless=is_harmless(text)) if isinstance(call, ToolCall) else call
