"""`Effects`: what a cell did in a trial, while a person was asked whether it may run.

A trial changes nothing: it is a copy of the kernel with its own copy of the workspace, and it is dropped.
"""

from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Final, Literal, Protocol, TypeAlias, runtime_checkable

from freeact_sub.cells import MimeBundle, ReplyStatus

TrialStatus: TypeAlias = Literal["done", "stopped", "refused"]
"""`done`: the cell ran to its end; `stopped`: it ran up to something that must not happen unasked, or to a bound;
`refused`: it was not tried."""
Changed: TypeAlias = Literal["new", "changed", "deleted", "perhaps"]
"""`perhaps`: the value is too large to be compared in time."""


@dataclass(frozen=True, kw_only=True)
class VariableChange:
    """One variable that differs."""

    name: str
    what: Changed
    before: str = ""
    """Its type, its shape and, if short, its value."""
    after: str = ""
    imported: bool = False
    """It is a module, or of one: the copy has imported it."""


@dataclass(frozen=True, kw_only=True)
class FileEffect:
    """One file, link or folder of the workspace that the cell changed."""

    path: str
    """Relative to the workspace; an empty folder, or one with other permissions, ends with a slash."""
    what: Literal["added", "changed", "deleted"]
    diff: str = ""
    """A unified diff of a text. Empty: it is none, or its lines are the same."""
    note: str = ""
    """What the diff does not show: sizes, permissions, that it is cut."""


@dataclass(frozen=True, kw_only=True)
class Effects:
    """What a cell did in a trial."""

    status: TrialStatus
    reason: str = ""
    """Where it stopped, or why it was not tried."""
    cell: ReplyStatus | None = None
    """How the cell ended; `timeout`: its time was up. None: it did not run, or was stopped before its end."""
    output: str = ""
    """Head and tail of what it put out."""
    displays: tuple[MimeBundle, ...] = ()
    """Its pictures and tables."""
    variables: tuple[VariableChange, ...] = ()
    """As the trial describes them: what the cell has changed. Files are compared by the host."""
    files: tuple[FileEffect, ...] = ()
    left_out: tuple[str, ...] = ()
    """Changed paths that freeact or git obey, and what is neither file, link nor folder."""
    seconds: float = 0.0
    """From the beginning of the trial to its end."""
    off: bool = False
    """Front ends show nothing of it: trials are off (setting `effects.enabled`, or the mode), or the question is closed."""
    outdated_by: tuple[str, ...] = ()
    """Paths of the workspace that changed after an earlier trial of this cell, which was therefore tried again."""

    def shows_as(self, other: "Effects") -> bool:
        """Whether a person who saw the others has seen these: where it ended, which variables and what of the files.

        Not the output, nor the variables' values: the time, a duration or an address differs each time. Nor, where the
        time was up in both, how far the cell had come by then.
        """
        if self.cell == other.cell == "timeout":
            return (self.status, self.reason) == (other.status, other.reason)
        mine, theirs = (
            (one.status, one.reason, one.cell, one.files, one.left_out, {(each.name, each.what) for each in one.variables})
            for one in (self, other)
        )
        return mine == theirs


CLOSED: Final = Effects(status="refused", reason="the question is closed", off=True)


@runtime_checkable
class EffectsSource(Protocol):
    """Tries what open requests ask for."""

    def effects(self, request_id: str) -> Effects | None:
        """What is known by now of the effects of a request."""
        ...

    def effects_ready(self, request_id: str, code: str | None = None) -> Awaitable[Effects]:
        """Tries what a request asks for, or other code, unless the last trial of it holds; waits for the end of that."""
        ...
