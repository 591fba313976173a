"""`ReceiptBook`: notes what a run does, where the host sees it happen."""

from collections import deque
from dataclasses import dataclass, field
from typing import Any, Final

from freeact_sub.calls import Call, CodeAction, McpCall, ShellCommand, ToolCall
from freeact_sub.events.ending import RunStatus
from freeact_sub.events.receipts import (
    CallReceipt,
    CellReceipt,
    ChildReceipt,
    CommandReceipt,
    Done,
    Receipts,
)
from freeact_sub.features.receipts.file_facts import FileFacts
from freeact_sub.text import one_line
from freeact_sub.titles import code_title
from freeact_sub.tools import TOOL_NAMES
from freeact_sub.tools.ask import Ask
from freeact_sub.tools.execute import NO_OUTPUT

KEPT: Final = 30
"""Receipts of each kind that are kept."""
NAME_CHARS: Final = 100
COMMAND_CHARS: Final = 200
PRINTED_CHARS: Final = 300
_OWN: Final = TOOL_NAMES - {Ask.name}
"""Tools that do nothing by themselves, or whose work has receipts of its own: cells and children."""


def _last() -> Any:
    return deque(maxlen=KEPT)


@dataclass(kw_only=True, eq=False)
class ReceiptBook:
    """The receipts of one run."""

    _cells: deque[CellReceipt] = field(default_factory=_last)
    _commands: deque[CommandReceipt] = field(default_factory=_last)
    _calls: deque[CallReceipt] = field(default_factory=_last)
    _children: deque[ChildReceipt] = field(default_factory=_last)
    _numbers: dict[str, Any] = field(default_factory=dict)

    def call(self, call: Call, status: Done, *, code: str = "", text: str = "") -> None:
        """A call was run. Args: code: what ran instead of a cell's own code. text: its result."""
        failed = status == "failed"
        match call:
            case CodeAction():
                printed = "" if text == NO_OUTPUT else _end(text)
                self._cells.append(CellReceipt(status=status, code=code_title(code or call.code), printed=printed))
                self._count(cells_run=1, cells_failed=failed)
            case McpCall() | ToolCall() if (name := _name(call)) not in _OWN:
                self._calls.append(CallReceipt(name=one_line(name, NAME_CHARS), status=status))
                self._count(calls_made=1, calls_failed=failed)

    def command(self, command: ShellCommand) -> None:
        """Code starts a program, which was allowed."""
        text, by_library = one_line(command.command, COMMAND_CHARS), command.by_library
        self._commands.append(CommandReceipt(command=text, outside=command.outside, by_library=by_library))
        self._count(**{"library_commands_run" if by_library else "commands_run": 1})

    def child(self, agent_id: str, status: RunStatus) -> None:
        """A child has ended."""
        self._children.append(ChildReceipt(agent_id=agent_id, status=status))
        self._count(children_ended=1, children_failed=status != "completed")

    def receipts(self, files: FileFacts, *, has_model: bool) -> Receipts | None:
        """All receipts. None: Python code answers, and has done nothing that has one."""
        if not has_model and not self._numbers:
            return None
        kept = len(self._cells) + len(self._commands) + len(self._calls) + len(self._children)
        totals = ("cells_run", "commands_run", "library_commands_run", "calls_made", "children_ended")
        return Receipts(
            cells=tuple(self._cells),
            commands=tuple(self._commands),
            calls=tuple(self._calls),
            children=tuple(self._children),
            **self._numbers,
            files_read=files.read,
            files_written=files.written,
            left_out=files.left_out + sum(self._numbers.get(name, 0) for name in totals) - kept,
        )

    def _count(self, **numbers: int) -> None:
        for name, number in numbers.items():
            self._numbers[name] = self._numbers.get(name, 0) + number


def _name(call: McpCall | ToolCall) -> str:
    return call.tool_name if isinstance(call, ToolCall) else call.subject


def _end(text: str) -> str:
    """The end of an output, whole lines if they are short."""
    text = text.strip()
    if len(text) <= PRINTED_CHARS:
        return text
    end = text[-PRINTED_CHARS:]
    return "…" + (end.partition("\n")[2] or end)
