"""Differences between a notebook's kernel and its copy, and how values of the copy are taken over.

Both describe themselves (`guest/state.py`): the copy in a cell of ours, this kernel in a bare fork, which may be ended if
the code of a value's type hangs. The copy's description is not trusted: it is text of a bounded length.
"""

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from freeact_sub.errors import KernelError
from freeact_sub.events.answers import VariableChange
from freeact_sub.kernels.copies.copied import NotebookCopy
from freeact_sub.kernels.copies.forks import BareFork, kernel_app, unsafe
from freeact_sub.kernels.guest import differences, state
from freeact_sub.kernels.guest import values as guest_values
from freeact_sub.kernels.handover import read_whole
from freeact_sub.kernels.variable_reports import FIELD_CHARS, REPORT_BYTES, About, compared, explained, parsed

VALUES_BYTES: Final = 1 << 40
REPORT_SECONDS: Final = state.DIGEST_SECONDS + 5
DESCRIBE_SECONDS: Final = 1.0


@dataclass(frozen=True, kw_only=True)
class CopyChange(VariableChange):
    """One variable that an agent has changed in its copy of a notebook's kernel."""

    also_here: bool = False
    """Whether the notebook has changed it as well since the copy was made."""


class EarlierVariables:
    """The kernel at one moment: a fork that tells the variables of that time."""

    def __init__(self, fork: BareFork) -> None:
        """Args: fork: made by `fork`."""
        self._fork = fork
        self._report: asyncio.Task[dict[str, About]] | None = None

    @staticmethod
    def fork(shell: Any) -> BareFork:
        """Fork the kernel. Called at that moment, in the main thread. Raises: OSError: there is no room for a process."""
        return BareFork(lambda: json.dumps(state.report(shell)).encode())

    async def report(self) -> dict[str, About]:
        """Describe the variables. Raises: KernelError: it takes too long."""
        if self._report is None:
            self._report = asyncio.ensure_future(self._made())
        return await asyncio.shield(self._report)

    def close(self) -> None:
        """End the fork."""
        self._fork.close()

    async def _made(self) -> dict[str, About]:
        return parsed(await self._fork.result(REPORT_SECONDS))


def changed(before: Mapping[str, About], now: Mapping[str, About], copy: Mapping[str, About]) -> list[CopyChange]:
    """Return the changes of a copy that this kernel does not have; `also_here` marks those that it has changed, too.

    Args:
        before: The variables when the copy was made.
        now: Those of this kernel.
        copy: Those of the copy.
    """
    by_copy = {change.name for change in compared(before, copy)}
    here = {change.name for change in compared(before, now)}
    differing = [change for change in compared(now, copy) if change.name in by_copy]
    return [CopyChange(**asdict(change), also_here=change.name in here) for change in differing]


async def take(file: str, scratch: Path) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the values of variables of a copy, and the reason for each missing one.

    To unpickle is to run code of the values' writer: a person has said yes before.

    Args:
        file: The file that the copy wrote (`NotebookCopy.write_values`).
        scratch: Its folder.

    Raises:
        KernelError: It cannot be read.
    """
    data = await asyncio.to_thread(read_whole, file, scratch, max_bytes=VALUES_BYTES)
    try:
        view = memoryview(data)
        values, unread = guest_values.read_groups(view)
        lost = {str(name): str(reason)[:FIELD_CHARS] for name, reason in guest_values.index_of(view)["lost"].items()}
    except (ValueError, LookupError, AttributeError, TypeError, RecursionError) as error:
        raise KernelError(f"the values cannot be read here: {type(error).__name__}: {error}") from error
    for name, problem in unread.items():
        lost[name] = f"it cannot be read here: {type(problem).__name__}: {guest_values.reason_of(problem)}"
    return values, lost


async def report_here(shell: Any, *, digests: bool = True) -> dict[str, About]:
    """Describe the variables of this kernel, in a fork of it. Call it in the main thread.

    Raises:
        KernelError: It cannot be forked now, or it takes too long.
    """
    if reason := unsafe(kernel_app()):
        raise KernelError(f"the variables cannot be inspected now: {reason}")
    fork = BareFork(lambda: json.dumps(state.report(shell, digests=digests)).encode())
    return parsed(await fork.result(REPORT_SECONDS if digests else DESCRIBE_SECONDS))


async def explained_here(changes: Sequence[CopyChange], file: str, scratch: Path, shell: Any) -> list[CopyChange]:
    """Return the changes with what differs, found out in a fork. Args: file: the copy has written it in its scratch folder.

    Raises:
        KernelError, ValueError: It is not known.
    """
    data = await asyncio.to_thread(read_whole, file, scratch)
    if reason := unsafe(kernel_app()):
        raise KernelError(reason)
    fork = BareFork(lambda: differences.compare(memoryview(data), state.variables(shell)))
    return [*explained(changes, json.loads(await fork.result(DESCRIBE_SECONDS)))]


async def report_of(copy: NotebookCopy) -> str:
    """Return the description of the variables of a copy, for `parsed`. Raises: KernelError: there is none."""
    file = await copy.write_state()
    return (await asyncio.to_thread(read_whole, file, copy.scratch, max_bytes=REPORT_BYTES)).decode(errors="replace")
