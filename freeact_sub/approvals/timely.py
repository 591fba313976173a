"""`decide_in_time`: a decision during which the event loop continues, also where a file system does not answer.

What a command names may lead into such a file system, also by a link or a wildcard, and who looks there waits as long as
nobody answers. So the look is a thread's. If it takes too long, the call is judged by names alone: what these do not deny is
asked about, and the question names what does not answer.
"""

import asyncio
from dataclasses import replace
from typing import Final

from freeact_sub.approvals.decision import decide
from freeact_sub.approvals.folder_reads import too_many
from freeact_sub.approvals.paths import by_names_alone
from freeact_sub.approvals.policy import Policy, Ruling
from freeact_sub.calls import Call, FileWrite, ShellCommand
from freeact_sub.system.daemon_threads import DaemonThreads
from freeact_sub.system.mounts import silent_mounts

PATIENCE_SECONDS: Final = 1.0
"""A decision that takes longer may wait for a file system: then all are tried."""
LOOK_SECONDS: Final = 10.0
"""Bound on a decision where all file systems answer."""
_deciding: Final = DaemonThreads("decides")
_waiting: Final = DaemonThreads("tries mounts")


async def decide_in_time(call: Call, policy: Policy) -> Ruling:
    """Judges a call as `decide` does; without looking at files if that takes too long."""
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
