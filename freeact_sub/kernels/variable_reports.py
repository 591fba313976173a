"""Kernels' descriptions of their variables (`guest/state.py`), read and compared: text of a bounded length, not trusted."""

import asyncio
import contextlib
import json
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, TypeVar

from pydantic import TypeAdapter

from freeact_sub.errors import KernelError
from freeact_sub.events.answers import Difference, VariableChange
from freeact_sub.kernels.guest import state
from freeact_sub.kernels.handover import move_values, own_cell, read_whole
from freeact_sub.kernels.kernel import Kernel
from freeact_sub.text import counted

REPORT_BYTES: Final = 32 << 20
DIFFERENCE_CHARS: Final = 20_000
REPORT_SECONDS: Final = state.DIGEST_SECONDS + 20
FIELD_CHARS: Final = 300
VARIABLES: Final = 100_000
Change = TypeVar("Change", bound=VariableChange)


@dataclass(frozen=True, kw_only=True)
class About:
    """A description of a variable, as from `state.report`."""

    id: int = 0
    digest: str = ""
    why: str = ""
    kind: str = ""
    shape: str = ""
    columns: tuple[str, ...] = ()
    text: str = ""
    imported: bool = False

    @property
    def line(self) -> str:
        """Type, size and value, as far as they are known."""
        return " ".join(part for part in (self.kind, self.shape, self.text) if part)


def compared(before: Mapping[str, About], after: Mapping[str, About]) -> Iterator[VariableChange]:
    """Yield the variables that differ, by name."""
    for name in sorted({*before, *after}):
        old, new = before.get(name), after.get(name)
        if new is None:
            yield VariableChange(name=name, what="deleted", before=old.line if old is not None else "")
        elif old is None:
            yield VariableChange(name=name, what="new", after=new.line, imported=new.imported)
        elif old.digest and new.digest:
            if old.digest != new.digest:
                yield VariableChange(name=name, what="changed", before=old.line, after=new.line)
        elif old.id == new.id and (old.why or new.why):
            yield VariableChange(name=name, what="perhaps", before=old.line, after=new.line)
        elif old.id != new.id or old.digest != new.digest:
            yield VariableChange(name=name, what="changed", before=old.line, after=new.line)


def told(changes: Iterable[VariableChange], limit: int) -> Iterator[VariableChange]:
    """Yield the certain changes, imports last; one that stands for those past the limit tells their number."""
    found = sorted((change for change in changes if change.what != "perhaps"), key=lambda change: change.imported)
    yield from found[:limit]
    left = [change for change in found[limit:] if not change.imported]
    if left:
        yield VariableChange(name="…", what="changed", before=f"{counted(len(left), 'more variable')}", after="not shown")


def explained(changes: Iterable[Change], found: Any) -> Iterator[Change]:
    """Yield the changes with what differs in them, as `guest/differences.py` tells. Raises: ValueError: It is none."""
    read: dict[str, Difference] = TypeAdapter(dict[str, Difference]).validate_python(found)
    for change in changes:
        difference = read.get(change.name)
        is_told = difference is not None and change.what == "changed" and len(repr(difference)) < DIFFERENCE_CHARS
        yield replace(change, difference=difference) if is_told else change


async def differences(found: list[VariableChange], before: Kernel, now: Kernel) -> list[VariableChange]:
    """Return the changes between two kernels with what differs; as they are where it cannot be found out."""
    name = f"values-{uuid.uuid4().hex}"
    names = [change.name for change in found if change.what == "changed"]
    with contextlib.suppress(KernelError, OSError, ValueError, RecursionError):
        variables = "freeact.state.variables(get_ipython())"
        await own_cell(now, f"freeact.differences.write({name!r}, {names!r}, {variables})", REPORT_SECONDS)
        await move_values(name, now, before)
        call = f"freeact.state.write_new({name!r}, freeact.differences.compare({name!r}, {variables}))"
        await own_cell(before, call, REPORT_SECONDS)
        return [*explained(found, json.loads(await asyncio.to_thread(read_whole, name, before.scratch or Path())))]
    return found


async def reported(kernel: Kernel) -> dict[str, About]:
    """Return a kernel's description of its variables, from a silent cell of ours, after the running one.

    Raises:
        KernelError: It gives none.
    """
    if kernel.scratch is None:
        raise KernelError("its provider keeps no files for it")
    name = f"variables-{uuid.uuid4().hex}"
    await own_cell(kernel, f"freeact.state.report_to({name!r})", REPORT_SECONDS)
    try:
        return parsed(await asyncio.to_thread(read_whole, name, kernel.scratch, max_bytes=REPORT_BYTES))
    except OSError as error:
        raise KernelError(f"its report cannot be read: {error}") from error


def parsed(data: bytes | bytearray) -> dict[str, About]:
    """Return a report, each of its texts bounded.

    Raises:
        KernelError: It is none.
    """
    try:
        found = json.loads(data)
        items = list(found.items())[:VARIABLES]
        return {str(name)[: state.NAME_CHARS]: _about(about) for name, about in items}
    except (ValueError, LookupError, AttributeError, TypeError, RecursionError) as error:
        raise KernelError("the variables could not be described") from error


def _about(about: Any) -> About:
    texts = {name: str(about[name])[:FIELD_CHARS] for name in ("digest", "why", "kind", "shape", "text")}
    columns = tuple(str(column)[:FIELD_CHARS] for column in about["columns"][: state.COLUMNS])
    return About(id=int(about["id"]), columns=columns, imported=about["imported"] is True, **texts)
