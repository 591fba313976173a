"""What a run has done, and how it ended: values that events, results and code in kernels share.

`Receipts` are what the host saw. Nothing in them comes from what a model says.
"""

from collections import Counter
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, Literal, TypeAlias

from pydantic import TypeAdapter, ValidationError

from freeact_sub.config.budget import Usage
from freeact_sub.text import counted, one_line

Done: TypeAlias = Literal["ok", "failed"]
NAMES_SHOWN: Final = 5


@dataclass(frozen=True, kw_only=True)
class CellReceipt:
    """A cell that was run."""

    status: Done
    code: str
    """Its first line."""
    printed: str = ""
    """The end of its output, or of its error."""


@dataclass(frozen=True, kw_only=True)
class CommandReceipt:
    """A program that code has started."""

    command: str
    outside: bool = False
    """It ran outside the sandbox (`agent.shell`)."""
    by_library: bool = False
    """Code of a library started it by itself, not code of a cell or of the workspace."""


@dataclass(frozen=True, kw_only=True)
class CallReceipt:
    """A call of a tool, of an MCP server or of `ask`, by the model or by code."""

    name: str
    status: Done


@dataclass(frozen=True, kw_only=True)
class ChildReceipt:
    """A child that has ended."""

    agent_id: str
    status: str
    """How its run ended."""


@dataclass(frozen=True, kw_only=True)
class FileReceipt:
    """A file of the workspace, as it was when the run ended."""

    path: str
    sha256: str = ""
    """Empty: it was gone, no regular file, or too large to be read in time."""
    size: int | None = None


@dataclass(frozen=True, kw_only=True)
class Receipts:
    """What a run has done. The lists keep the last of each kind, the numbers count all."""

    cells: tuple[CellReceipt, ...] = ()
    commands: tuple[CommandReceipt, ...] = ()
    calls: tuple[CallReceipt, ...] = ()
    children: tuple[ChildReceipt, ...] = ()
    files_read: tuple[FileReceipt, ...] = ()
    files_written: tuple[FileReceipt, ...] = ()
    cells_run: int = 0
    cells_failed: int = 0
    commands_run: int = 0
    library_commands_run: int = 0
    """Commands that libraries started by themselves; `commands_run` does not count them."""
    calls_made: int = 0
    calls_failed: int = 0
    children_ended: int = 0
    children_failed: int = 0
    left_out: int = 0
    """Entries that the lists do not keep."""

    @property
    def printed(self) -> str:
        """The end of the last output of its cells. Empty: they have put out nothing."""
        return next((cell.printed for cell in reversed(self.cells) if cell.printed), "")

    @property
    def nothing_was_run(self) -> bool:
        """Whether it has run no cell and no command, and has made no call and started no child."""
        return not (self.cells_run or self.commands_run or self.calls_made or self.children_ended)

    def __str__(self) -> str:
        if self.nothing_was_run:
            return "nothing was run"
        parts = [
            _counted(self.cells_run, "cell", self.cells_failed),
            _counted(self.commands_run, "command"),
            _counted(self.library_commands_run, "command by libraries", plural="commands by libraries"),
            _counted(self.calls_made, "call", self.calls_failed, _names([call.name for call in self.calls])),
            _counted(self.children_ended, "child", self.children_failed),
        ]
        return ", ".join(filter(None, parts))


def receipts_of(stored: Any) -> Receipts | None:
    """Receipts from their JSON value. None: there are none, or another version has written them."""
    try:
        return None if stored is None else _adapter().validate_python(stored)
    except ValidationError:
        return None


@cache
def _adapter() -> TypeAdapter[Receipts]:
    return TypeAdapter(Receipts)


def _counted(number: int, what: str, failed: int = 0, names: str = "", plural: str = "") -> str:
    more = ", ".join(filter(None, [names, f"{failed:,} failed" if failed else ""]))
    plural = "children" if what == "child" else plural
    many = f"{number:,} {plural}" if plural and number != 1 else counted(number, what)
    return f"{many}{f' ({more})' if more else ''}" if number else ""


def _names(names: list[str]) -> str:
    found = Counter(names)
    shown = [one_line(name, 60) + (f" x{times}" if times > 1 else "") for name, times in found.most_common(NAMES_SHOWN)]
    return ", ".join([*shown, *(["..."] if len(found) > len(shown) else [])])


RunStatus: TypeAlias = Literal["completed", "failed", "timeout", "limit", "cancelled", "rejected", "kernel_lost"]
"""How a run ended. The host decides it from events, never from text."""


FILES_SHOWN: Final = 8


@dataclass(frozen=True, kw_only=True)
class Ending:
    """How a run ended: all facts except the answer."""

    status: RunStatus
    error: str = ""
    """Why the status is not `completed`, in one sentence."""
    refused: str = ""
    """Why a child's model cannot give an answer of the requested type, in its words; the status is `failed` then."""
    usage: Usage = Usage()
    """The agent's own spending in the run."""
    tree_usage: Usage = Usage()
    """The spending of the agent and all its descendants in the run."""
    seconds: float = 0.0
    """The run's seconds, without the time in which a question was open or the agent waited for a slot."""
    reused_from: str = ""
    """The earlier child whose answer was reused. Empty: the answer is the agent's own."""
    files_read: tuple[str, ...] = ()
    """Files in the workspace that its cells read with Python, as relative paths; at most 1,000."""
    files_written: tuple[str, ...] = ()
    """Existing files that Python of its cells was seen to write; about 1,000 at most."""
    files_removed: tuple[str, ...] = ()
    """Files that Python of its cells removed or renamed, unless the run wrote them."""
    warnings: tuple[str, ...] = ()
    """Warnings about the result, one sentence each."""
    unattended: bool = False
    """Whether all its actions were denied because no person could be asked; a warning says so too."""
    receipts: Receipts | None = None
    """What it has done, as the host saw it. None: no model has answered, but Python code."""
    missing_files: tuple[str, ...] = ()
    """The names of files in the answer, if none of them is in the workspace."""
    verified: bool = False
    """The answer has passed the `check` of who started the run, or `verify` of its type."""
    unverified: str = ""
    """Why it has not, in one sentence, though it was asked for. Empty: it has, or there was no check."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What people and a parent's model read of it besides status, spending and files, in a few words each."""
        return () if self.receipts is None else (f"receipts: {self.receipts}",)

    @property
    def doubts(self) -> tuple[str, ...]:
        """One sentence for each fact that speaks against the answer."""
        shown, more = self.missing_files[:FILES_SHOWN], len(self.missing_files) - FILES_SHOWN
        names = f"{', '.join(shown)}{f' and {more:,} more' if more > 0 else ''}"
        missing = f"no file that the answer names exists: {names}" if shown else ""
        return tuple(filter(None, [missing, f"unverified: {self.unverified}" if self.unverified else ""]))
