"""`decide` judges a call by rules and mode. It asks nobody, remembers nothing, and has no effect.

`decide_in_time` does the same while the event loop goes on.

`plan` and `auto` stand for a wall around the kernel: what the wall forbids is denied here as well, whatever a rule allows,
so that no question is about a call that cannot happen. Outside the wall, for MCP calls and a user's own tools, `auto` asks,
unless the server says that a tool is read-only; children stand behind the wall of their parent and need no question.
"""

import asyncio
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final, TypeAlias

from freeact_sub.approvals.access import judge_connection, judge_write, spellings
from freeact_sub.approvals.folder_reads import too_many
from freeact_sub.approvals.paths import by_names_alone
from freeact_sub.approvals.policy import Policy, Ruling, by_mode, by_rule, denied_by_mode, strictest
from freeact_sub.approvals.rules.patterns import escaped
from freeact_sub.calls import (
    Call,
    FanOut,
    FileWrite,
    McpCall,
    NetworkConnect,
    SavedVariables,
    ShellCommand,
    SpawnCall,
    ToolCall,
)
from freeact_sub.system.daemon_threads import DaemonThreads
from freeact_sub.system.folders import silent_mounts

FOR_A_PERSON: Final = Ruling(
    verdict="ask", rule="the kernel may do more than the one that saved them", lasting=False, needs_person=True
)
"""Calls that only a person can allow: neither a rule nor a headless setting does."""
NEEDS_APPROVAL: Final = Ruling(
    verdict="ask",
    rule="its developer requires a person's approval of each call",
    source="requires_approval",
    lasting=False,
    needs_person=True,
)
PATIENCE_SECONDS: Final = 1.0
"""A decision that takes longer may wait for a file system: then all are tried."""
LOOK_SECONDS: Final = 10.0
"""Bound on a decision where all file systems answer."""
_deciding: Final = DaemonThreads("decides")
_waiting: Final = DaemonThreads("tries mounts")
Places: TypeAlias = tuple[str, str]
"""Two regular expressions: of a folder with its last `/`, and of a name in it."""


def decide(call: Call, policy: Policy) -> Ruling:
    """Judges a call by rules and mode; of a child's policy and its parent's, the stricter counts."""
    ruling = _decide_here(call, policy)
    if ruling.verdict == "ask" and ruling.lasting and not ruling.suggests:
        ruling = replace(ruling, suggests=_suggested(call))
    if policy.parent is None or ruling.verdict == "deny":
        return ruling
    return strictest([ruling, decide(call, policy.parent)])


def _suggested(call: Call) -> tuple[str, ...]:
    """Patterns to offer for a call. The judges of commands and files suggest their own."""
    match call:
        case NetworkConnect():
            return (f"connect:{escaped(spellings(call)[0])}",)
        case ShellCommand() | FileWrite():
            return ()
        case _:
            return (call.kind if call.whole else f"{call.kind}:{escaped(call.subject)}",)


def _decide_here(call: Call, policy: Policy) -> Ruling:
    match call:
        case ShellCommand():
            from freeact_sub.approvals.shell import judge_command, judge_outside  # noqa: PLC0415  # it needs a parser

            return judge_outside(call, policy) if call.outside else judge_command(call, policy)
        case FileWrite():
            return strictest(judge_write(path, "", policy) for path in dict.fromkeys((call.path, call.named or call.path)))
        case NetworkConnect():
            return judge_connection(spellings(call), policy)
        case McpCall() if policy.mode == "plan" and not call.read_only:
            return denied_by_mode(policy, "MCP tools run only if their server says that they are read-only")
        case SpawnCall() if policy.mode == "plan" and call.mode not in (None, "plan"):
            return denied_by_mode(policy, "children can only be in mode plan as well")
        case SavedVariables():
            denied = by_rule(call.kind, [call.subject], policy)
            return denied if denied is not None and denied.verdict == "deny" else FOR_A_PERSON
        case ToolCall():
            return _tool(call, policy)
        case FanOut():  # a yes agrees to one bound, so there is no "always"
            return by_rule(call.kind, [call.subject], policy) or replace(by_mode(policy, call.topic), lasting=False)
        case _:
            return by_rule(call.kind, [call.subject], policy) or by_mode(policy, call.topic)


def _tool(call: ToolCall, policy: Policy) -> Ruling:
    if policy.mode == "plan" and not call.harmless:
        return denied_by_mode(policy, "tools that are not known to be read-only do not run")
    ruling = by_rule(call.kind, [call.subject], policy)
    if call.requires_approval and (ruling is None or ruling.verdict != "deny"):
        return NEEDS_APPROVAL
    if ruling is not None:
        return ruling
    if call.harmless:
        return Ruling(verdict="allow", rule="it touches only the agent and its children")
    return by_mode(policy, call.topic)


async def decide_in_time(call: Call, policy: Policy) -> Ruling:
    """Judges a call as `decide` does, while the event loop goes on, also where a file system does not answer.

    What a command names may lead into such a file system, also by a link or a wildcard, and who looks there waits as long as
    nobody answers. So the look is a thread's. If it takes too long, the call is judged by names alone: what these do not
    deny is asked about, and the question names what does not answer.
    """
    if not isinstance(call, ShellCommand | FileWrite):
        return decide(call, policy)  # which looks at no file
    loop = asyncio.get_running_loop()
    look = loop.run_in_executor(_deciding, decide, call, policy)
    done, _ = await asyncio.wait({look}, timeout=PATIENCE_SECONDS)
    silent: frozenset[str] = frozenset()
    if not done:
        silent = await loop.run_in_executor(_waiting, silent_mounts, "/")
        done, _ = await asyncio.wait({look}, timeout=0 if silent else LOOK_SECONDS)
    return look.result() if done else _unseen(call, policy, silent)


def _unseen(call: Call, policy: Policy, silent: frozenset[str]) -> Ruling:
    """Judges a call by names alone; it is asked at least. Args: silent: the mounts that do not answer."""
    with by_names_alone():
        ruling = decide(call, policy)
    if ruling.verdict == "deny" or (ruling.verdict, too_many(policy).verdict) == ("allow", "allow"):
        return ruling
    where = f"what is mounted at {', '.join(sorted(silent))} does not answer" if silent else "looking at them takes too long"
    return replace(ruling, verdict="ask", rule=f"its files are not known: {where}", lasting=False, suggests=())


def unasked_writes(policy: Policy, protected: Iterable[Path] = ()) -> tuple[tuple[Path, ...], tuple[Places, ...]]:
    """Return the files that an agent's code may change without approval, in a form that its kernel tests quickly.

    A cell that writes 20,000 files must not ask its host 20,000 times. So the kernel gets what is allowed in any case:
    the writable folders, and the exceptions in them that a rule may be about. The kernel may ask too often, never too
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
    """Exceptions from all rules that may deny a write or ask."""
    for level in policy.rules.levels:
        for rule in level:
            counts = rule.verdict == "deny" or (rule.verdict == "ask" and policy.mode != "full")
            if counts and rule.pattern.kind in ("file", "write"):
                yield from rule.pattern.places(policy.workspace)
    if policy.parent is not None:
        yield from _by_rules(policy.parent)
