"""`unasked_writes`: the files that an agent's code may change without a question, in a form that its kernel tests quickly.

A cell that writes 20,000 files must not ask its host 20,000 times. So the kernel gets what is allowed in any case:
folders, and what to ask for in them because a rule may be about it. The kernel may ask too often, never too seldom:
the host judges each request by all rules. Answers given during the session do not change what the kernel asks.
"""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypeAlias

from freeact_sub.approvals.policy import Policy

Places: TypeAlias = tuple[str, str]
"""Two regular expressions: of a folder with its last `/`, and of a name in it."""


def unasked_writes(policy: Policy, protected: Iterable[Path] = ()) -> tuple[tuple[Path, ...], tuple[Places, ...]]:
    """The writable folders, and the exceptions in them that need a question.

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
