"""Actions and endings of runs: values that events, results and code in kernels share.

`Receipts` are the host's record. Nothing in them comes from what a model says.
"""

import json
from collections import Counter
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, Literal, TypeAlias

from pydantic import TypeAdapter, ValidationError

from freeact_sub.config.budget import Usage
from freeact_sub.text import counted, one_line

Done: TypeAlias = Literal["ok", "failed"]
ReceiptKind: TypeAlias = Literal["written", "read", "removed", "command", "none"]
NAMES_SHOWN: Final = 5
CELLS_SHOWN: Final = 3
CODE_CHARS: Final = 60


@dataclass(frozen=True, kw_only=True)
class CellReceipt:
    """A cell that was run."""

    status: Done
    code: str
    """The first line."""
    printed: str = ""
    """The end of the output, or of the error."""


@dataclass(frozen=True, kw_only=True)
class CommandReceipt:
    """A program that code has started."""

    command: str
    outside: bool = False
    """Whether the program ran outside the sandbox (`agent.shell`)."""
    by_library: bool = False
    """Whether a library started the program by itself, not code of a cell or of the workspace."""


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
    """The outcome of the run."""


@dataclass(frozen=True, kw_only=True)
class FileReceipt:
    """A file of the workspace, as it was when the run ended."""

    path: str
    sha256: str = ""
    """The digest. Empty: the file was gone, no regular file, or too large to be read in time."""
    size: int | None = None


@dataclass(frozen=True, kw_only=True)
class NamedFile:
    """A file that the answer names, and the receipt for it."""

    name: str
    receipt: ReceiptKind = "none"
    """`command`: a program that code has started names the file. `none`: no cell has used it, and no command names it."""


@dataclass(frozen=True, kw_only=True)
class Receipts:
    """Actions of a run. The lists keep the last of each kind, the numbers count all."""

    cells: tuple[CellReceipt, ...] = ()
    commands: tuple[CommandReceipt, ...] = ()
    calls: tuple[CallReceipt, ...] = ()
    children: tuple[ChildReceipt, ...] = ()
    files_read: tuple[FileReceipt, ...] = ()
    files_written: tuple[FileReceipt, ...] = ()
    named: tuple[NamedFile, ...] = ()
    """The files that the answer names."""
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
    """The number of entries that the lists do not keep."""

    @property
    def printed(self) -> str:
        """The end of the last output of the cells. Empty: there was none."""
        return next((cell.printed for cell in reversed(self.cells) if cell.printed), "")

    @property
    def nothing_was_run(self) -> bool:
        """Whether the run has run no cell and no command, made no call and started no child."""
        return not (self.cells_run or self.commands_run or self.calls_made or self.children_ended)

    @property
    def grounds(self) -> str:
        """The receipts on which the answer rests, in one line: its files, and the last cells by their numbers."""
        if self.nothing_was_run:
            return "no receipt: nothing was run"
        first = self.cells_run - len(self.cells) + 1
        cells = [*enumerate(self.cells, first)][-CELLS_SHOWN:]
        parts = [f"{file.name}: {file.receipt}" for file in self.named if file.receipt != "none"]
        parts += [f"cell {number}{' (failed)' * (cell.status == 'failed')}: {_quoted(cell.code)}" for number, cell in cells]
        missing = ", ".join(file.name for file in self.named if file.receipt == "none")
        return "; ".join([*(parts or [str(self)]), *([f"no receipt: {missing}"] if missing else [])])

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
    """Read receipts from their JSON value. None: there are none, or another version has written them."""
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


def _quoted(text: str) -> str:
    return json.dumps(one_line(text, CODE_CHARS), ensure_ascii=False)


def _names(names: list[str]) -> str:
    found = Counter(names)
    shown = [one_line(name, 60) + (f" x{times}" if times > 1 else "") for name, times in found.most_common(NAMES_SHOWN)]
    return ", ".join([*shown, *(["..."] if len(found) > len(shown) else [])])


RunStatus: TypeAlias = Literal["completed", "failed", "timeout", "limit", "cancelled", "rejected", "kernel_lost"]
"""The outcome of a run. The host decides it from events, never from text."""


FILES_SHOWN: Final = 8


@dataclass(frozen=True, kw_only=True)
class Ending:
    """The ending of a run: all facts except the answer."""

    status: RunStatus
    error: str = ""
    """The reason why the status is not `completed`, in one sentence."""
    refused: str = ""
    """The words of a child's model that cannot give an answer of the requested type; the status is `failed` then."""
    usage: Usage = Usage()
    """The agent's own spending in the run."""
    tree_usage: Usage = Usage()
    """The spending of the agent and all its descendants in the run."""
    seconds: float = 0.0
    """The run's seconds, without the time in which a question was open or the agent waited for a slot."""
    reused_from: str = ""
    """The earlier child whose answer was reused. Empty: the answer is the agent's own."""
    files_read: tuple[str, ...] = ()
    """Files in the workspace that Python in cells read, as relative paths; at most 1,000."""
    files_written: tuple[str, ...] = ()
    """Existing files that Python in cells was seen to write; about 1,000 at most."""
    files_removed: tuple[str, ...] = ()
    """Files that Python in cells removed or renamed, unless the run wrote them."""
    warnings: tuple[str, ...] = ()
    """Warnings about the result, one sentence each."""
    unattended: bool = False
    """Whether all actions were denied because no person could be asked; a warning says so too."""
    receipts: Receipts | None = None
    """The actions, as the host saw them. None: no model has answered, but Python code."""
    missing_files: tuple[str, ...] = ()
    """The names of files in the answer, if none of them is in the workspace."""
    verified: bool = False
    """Whether the answer has passed the starter's `check`, or its type's `verify`."""
    unverified: str = ""
    """One sentence on why the answer has not passed. Empty: it has, or there was no check."""

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes for people and a parent's model besides status, spending and files, in a few words each."""
        return () if self.receipts is None else (f"receipts: {self.receipts}",)

    @property
    def doubts(self) -> tuple[str, ...]:
        """Sentences on the facts that speak against the answer."""
        shown, more = self.missing_files[:FILES_SHOWN], len(self.missing_files) - FILES_SHOWN
        names = f"{', '.join(shown)}{f' and {more:,} more' if more > 0 else ''}"
        missing = f"no file that the answer names exists: {names}" if shown else ""
        return tuple(filter(None, [missing, f"unverified: {self.unverified}" if self.unverified else ""]))
