"""Effects of a cell in a trial, while a person is asked whether it may run.

A trial changes nothing: it runs in a copy of the kernel with its own copy of the workspace, and both are dropped.
"""

from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Final, Literal, Protocol, TypeAlias, runtime_checkable

from freeact_sub.cells import MimeBundle, ReplyStatus

TrialStatus: TypeAlias = Literal["done", "stopped", "refused"]
"""`done`: the cell ran to its end; `stopped`: it ran up to an action that must not happen unasked, or to a bound;
`refused`: it was not tried."""
Changed: TypeAlias = Literal["new", "changed", "deleted", "perhaps"]
"""`perhaps`: the value is too large to be compared in time."""


@dataclass(frozen=True, kw_only=True)
class VariableChange:
    """One variable that differs."""

    name: str
    what: Changed
    before: str = ""
    """The type, the shape and, if short, the value."""
    after: str = ""
    imported: bool = False
    """Whether the variable is a module, or part of one, that the copy has imported."""


@dataclass(frozen=True, kw_only=True)
class FileEffect:
    """One file, link or folder of the workspace that the cell changed."""

    path: str
    """The path relative to the workspace; an empty folder, or one with other permissions, ends with a slash."""
    what: Literal["added", "changed", "deleted"]
    diff: str = ""
    """A unified diff of a text. Empty: the file is no text, or its lines are the same."""
    note: str = ""
    """Facts that the diff does not show: sizes, permissions, a cut."""


@dataclass(frozen=True, kw_only=True)
class Effects:
    """Effects of a cell in a trial."""

    status: TrialStatus
    reason: str = ""
    """The place where the trial stopped, or the reason why there was none."""
    cell: ReplyStatus | None = None
    """The end of the cell; `timeout`: its time was up. None: it did not run, or was stopped before its end."""
    output: str = ""
    """Head and tail of the output."""
    displays: tuple[MimeBundle, ...] = ()
    """Pictures and tables."""
    variables: tuple[VariableChange, ...] = ()
    """Variables the cell changed, as the trial reports them; files are compared by the host."""
    files: tuple[FileEffect, ...] = ()
    left_out: tuple[str, ...] = ()
    """Changed paths that freeact or git obey, and paths of neither file, link nor folder."""
    seconds: float = 0.0
    """Seconds from the beginning of the trial to its end."""
    off: bool = False
    """Whether front ends show nothing: trials are off (setting `effects.enabled`, or the mode), or the question is
    closed."""
    outdated_by: tuple[str, ...] = ()
    """Paths of the workspace that changed after an earlier trial of this cell, which was therefore tried again."""

    def shows_as(self, other: "Effects") -> bool:
        """Return whether a person who saw the others has seen these: the end, the variables and the files.

        Outputs and values of variables do not count: the time, a duration or an address differs each time. Where the time
        was up in both, the progress of the cells does not count either.
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
    """The maker of trials for open requests."""

    def effects(self, request_id: str) -> Effects | None:
        """Return the effects of a request, as far as they are known."""
        ...

    def effects_ready(self, request_id: str, code: str | None = None) -> Awaitable[Effects]:
        """Try the code of a request, or other code, unless its last trial holds; wait for the end."""
        ...
