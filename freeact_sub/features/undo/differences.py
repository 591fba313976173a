"""Differences between two states, as effects of a prompt."""

import asyncio
from collections.abc import Sequence
from typing import Final

from freeact_sub.errors import KernelError
from freeact_sub.events.effects import Effects, FileEffect, VariableChange
from freeact_sub.kernels import Kernel
from freeact_sub.kernels.files.states.diffs import ChangedFile, unified
from freeact_sub.kernels.variable_reports import compared, reported, told
from freeact_sub.text import counted
from freeact_sub.tools import KernelAccess

SHOWN: Final = 200
DIFF_LINES: Final = 200


async def effects_since(
    before: Kernel | None, present: KernelAccess, files: Sequence[ChangedFile], problem: str, *, known: bool
) -> Effects:
    """Return the differences.

    Args:
        before: The kernel as it was. None: there were no variables, or they are not known.
        present: The kernel.
        files: The files that differ.
        problem: Why files cannot be compared. Empty: they can.
        known: The variables that there were are known.
    """
    problems, variables = [f"files: {problem}"] if problem else [], list[VariableChange]()
    try:
        earlier = {} if before is None else await reported(before)
        now = await reported(await present.get())
        variables = [*told(compared(earlier, now), SHOWN)] if known else []
    except KernelError as error:
        problems.append(f"variables: {error}")
    if not known:
        problems.append("variables: only those of the last prompts are kept in a kernel")
    effects = await asyncio.to_thread(lambda: tuple(map(_effect, files[:SHOWN])))
    if (more := len(files) - SHOWN) > 0:
        effects += (FileEffect(path="…", what="changed", note=f"and {counted(more, 'more path')}: /diff"),)
    return Effects(status="done", variables=tuple(variables), files=effects, reason="; ".join(problems))


def _effect(file: ChangedFile) -> FileEffect:
    lines = unified(file).removesuffix("\n").split("\n")
    more = [f"… {len(lines) - DIFF_LINES:,} more lines: /diff"] if len(lines) > DIFF_LINES else []
    diff = "\n".join([*lines[:DIFF_LINES], *more])
    return FileEffect(
        path=file.path,
        what="added" if file.before is None else "deleted" if file.after is None else "changed",
        diff=diff,
    )
