"""`KeptTrial`: the trial of a cell that has ended, and waits for its kernel to take it over (`guest/taken.py`).

A trial's process cannot become the kernel: nobody takes its wall away. So its values are pickled into the kernel, its files
promoted, and its outputs put out again, by the cell itself. Where one of these cannot be done, nothing is, and the
cell runs.
"""

import asyncio
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from freeact_sub.cells import CellError, CellOutput, ExecuteResult, size_of
from freeact_sub.errors import FreeactError, KernelError
from freeact_sub.events.answers import Effects
from freeact_sub.kernels.files import Changes, OwnFiles
from freeact_sub.kernels.files.own_files import promote
from freeact_sub.kernels.handover import move_values, own_cell, take_value, write_value
from freeact_sub.kernels.kernel import Kernel
from freeact_sub.kernels.variable_reports import About
from freeact_sub.system.closing import carry_out

OUTPUTS_CHARS: Final = 4_000_000
"""Maximum size of outputs that are put out again."""
TAKEN: Final = "freeact_guest.taken"
FACTS: Final = frozenset(("against", "modules", "around", "random", "used", "installed", "result"))
"""Facts that a trial tells of itself (`taken.facts`)."""
RESULT: Final = "_"
"""The variable with the value that a cell has put out."""
DIGEST_SECONDS: Final = 0.2
PROMOTE_SECONDS: Final = 3600.0
VALUE_SECONDS: Final = 10.0
"""Seconds to read a value of a harmless cell. Past them a person is asked."""


@dataclass(frozen=True, kw_only=True)
class KeptTrial:
    """A trial whose kernel still stands."""

    kernel: Kernel
    """The trial's."""
    own: OwnFiles
    changes: Changes
    code: str
    outputs: Sequence[CellOutput]
    effects: Effects
    before: Mapping[str, About]
    """The variables that it began with."""
    after: Mapping[str, About]
    facts: Mapping[str, Any]
    """Facts that it tells of itself (`taken.facts`); a cell that no person has seen may have made them up."""
    origin: Any
    """The process that it is a copy of."""
    ran: int = 0
    """The cells that had begun or ended when it was made."""

    @property
    def is_whole(self) -> bool:
        """Whether a run would have done just this: nothing was held back, and nothing is unknown."""
        size = sum(map(size_of, self.outputs))
        return (
            (self.effects.status, self.effects.cell, self.facts.get("against")) == ("done", "ok", "")
            and not (self.effects.left_out or self.changes.touched)
            and all(file.path != "…" for file in self.effects.files)
            and not any(isinstance(output, CellError) for output in self.outputs)
            and size <= OUTPUTS_CHARS
            and self.own.kind == "overlay"
            and not self._imports_changed_files
        )

    @property
    def is_harmless(self) -> bool:
        """Whether the cell changed nothing that was there: new variables do not count."""
        changed = any(change.what != "new" or change.imported for change in self.effects.variables)
        changed = changed or not self.before.keys().isdisjoint(self._names)  # another object of the same value
        return self.is_whole and not (changed or self.effects.files or self.facts["around"] or not self.facts["installed"])

    @property
    def _imports_changed_files(self) -> bool:
        names = {str(name).rpartition(".")[2] for name in self.facts["modules"]}
        return any(not names.isdisjoint(path.replace(".", "/").split("/")) for path in self.changes.paths)

    @property
    def _names(self) -> list[str]:
        """The variables that are not as they were."""
        new = [name for name, about in self.after.items() if (old := self.before.get(name)) is None or _differs(old, about)]
        has_result = any(isinstance(output, ExecuteResult) for output in self.outputs) and not self.facts["result"]
        return [*new, *([RESULT] if has_result else [])]

    async def plain_values(self) -> dict[str, Any]:
        """Return the new values of a harmless cell: data only, which has run no code here and runs none in the kernel.

        Raises:
            KernelError: There are other values, or objects that other variables have as well.
        """
        new = [name for name in self._names if name != RESULT]
        if new and await self._told(f"freeact.shares({new!r})") != "False":
            raise KernelError("its values are parts of others")
        return {
            name: await take_value(name, self.kernel, output=None, trust=False, seconds=VALUE_SECONDS)
            for name in self._names
        }

    async def taken_by(self, kernel: Kernel, values: Mapping[str, Any] | None = None) -> str:
        """Take the trial over: the next run of its code in the kernel is the trial's.

        Args:
            kernel: The kernel that it is a copy of.
            values: Its values, if they are only data (`plain_values`). None: they are pickled.

        Returns:
            Why the cell has to run instead. Empty: the trial is taken over.
        """
        try:
            if reason := await self._prepared(kernel, values):
                return reason
            await carry_out(asyncio.to_thread(self._promote), timeout_seconds=PROMOTE_SECONDS)  # not after the run's end
        except (FreeactError, OSError) as error:
            await self.let_go(kernel)
            return str(error)
        return ""

    async def let_go(self, kernel: Kernel) -> None:
        """Have the kernel run the code itself from now on. Raises nothing that a lost kernel does."""
        if kernel.lost_reason is None:
            await own_cell(kernel, "freeact.taken.forget()")

    async def aclose(self) -> None:
        """End the trial."""
        await carry_out(self.kernel.aclose())

    async def _prepared(self, kernel: Kernel, data: Mapping[str, Any] | None) -> str:
        file, names = "", self._names
        if names and data is None:
            file = f"values-{uuid.uuid4().hex}"
            if reason := await self._told(f"freeact.write({file!r}, {names!r}, {file!r})"):
                return reason
            await move_values(file, self.kernel, kernel)
        plan = {
            "code": self.code,
            "origin": self.origin,
            "before": {name: (about.id, about.digest) for name, about in self.before.items()},
            "seconds": DIGEST_SECONDS,
            "outputs": [(type(output).__name__, asdict(output)) for output in self.outputs],
            "deleted": [*(self.before.keys() - self.after.keys())],
            "values": file,
            "data": dict(data or {}),
            "unasked": data is not None,
            **{name: self.facts[name] for name in ("modules", "around", "random", "used", "result")},
        }
        return await own_cell(kernel, f"print(freeact.taken.ready({await write_value(plan, kernel)!r}), end='')")

    async def _told(self, call: str) -> str:
        return await own_cell(self.kernel, f"print({call}, end='')", module=TAKEN)

    def _promote(self) -> None:
        if self.own.look() != self.changes:
            raise KernelError("its files have changed since")
        if self.changes.paths:
            promote(self.own, self.changes)


def _differs(old: About, new: About) -> bool:
    return old.id != new.id or old.digest != new.digest
