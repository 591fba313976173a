"""`unasked_writes`: which files an agent's code may change without a question, in a form that its kernel can test quickly.

A cell that writes 20,000 files must not ask its host 20,000 times. So the kernel is told what is allowed in any case:
folders, and an expression for the paths in them that a rule may be about. It may ask too often, never too seldom: what it
asks for is decided here, by all rules, and what people allow in a session changes nothing about what it asks.
"""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from freeact_sub.approvals.policy import Policy


def unasked_writes(policy: Policy, protected: Iterable[Path] = ()) -> tuple[tuple[Path, ...], str]:
    """Folders, and a regular expression of the absolute paths in them that are asked for; empty: none.

    Args:
        policy: The agent's.
        protected: Files and folders in the workspace that are asked for in any case.
    """
    folders = () if policy.mode == "plan" else (policy.workspace,)
    guarded = [f"{re.escape(str(path))}(/.*)?" for path in protected]
    return folders, "|".join(dict.fromkeys([*guarded, *_expressions(policy)]))


def _expressions(policy: Policy) -> Iterator[str]:
    """Of all rules that may forbid a write, or ask for it."""
    for level in policy.rules.levels:
        for rule in level:
            counts = rule.verdict == "deny" or (rule.verdict == "ask" and policy.mode != "full")
            if counts and rule.pattern.kind in ("file", "write"):
                yield rule.pattern.expression(policy.workspace)
    if policy.parent is not None:
        yield from _expressions(policy.parent)
