"""Reports on saving and restoring a kernel's variables."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Variable:
    """A variable that is kept, or that has come back."""

    name: str
    line: str
    """The name, type and size, such as `rows: list, length 3` or `n = 4`. Text of a model's code, as all here."""

    @property
    def type(self) -> str:
        """The variable's type, as the line names it."""
        return self.line.partition(": ")[2].partition(",")[0]


@dataclass(frozen=True, kw_only=True)
class LostVariable:
    """A variable that is not kept, or has not come back."""

    name: str
    type: str
    """The type, as in `sqlite3.Connection`."""
    reason: str
    cell: int | None
    """The execution count of the cell that made it. None: unknown."""


@dataclass(frozen=True, kw_only=True)
class SnapshotReport:
    """The result of `BranchingKernel.snapshot`."""

    kept: tuple[Variable, ...]
    lost: tuple[LostVariable, ...]
    size_bytes: int
    """The size of all files of the snapshot."""
    written_bytes: int
    """The size of the new files."""
    pause_seconds: float
    """Seconds for which the kernel's main thread stood still."""
    not_forked: str
    """The reason why the kernel itself had to save, with little time and room; empty: a fork of it has saved."""


@dataclass(frozen=True, kw_only=True)
class LeftOut:
    """Saved variables that were not read, because their code would get more rights than it had."""

    variables: tuple[Variable, ...]
    saved_in: str
    """The mode of the kernel that has saved them, as in `mode plan`."""
    more: str
    """The reading kernel's further right, as in `it has the network`, or the module that they need and that has changed
    since."""
    continue_in: str
    """The mode of a kernel that reads them without a question."""

    @property
    def lost(self) -> tuple[LostVariable, ...]:
        """The variables left out, as variables that did not come back."""
        reason = f"saved in {self.saved_in}, and this kernel may do more: {self.more}"
        return tuple(LostVariable(name=each.name, type=each.type, reason=reason, cell=None) for each in self.variables)


@dataclass(frozen=True, kw_only=True)
class RestoreReport:
    """The result of `BranchingKernel.restore`."""

    restored: tuple[Variable, ...]
    lost: tuple[LostVariable, ...]
    """Variables that were not saved, or were saved and could not be read."""
    left_out: tuple[LeftOut, ...] = ()
