"""Receipts of a run's actions as the host saw them (`ReceiptsFeature`): cells, commands, calls, children, files.

`ReceiptBook` notes the actions of a run; `file_facts` finds at its end the digests of its files, and whether the files that
its answer names exist. Digests come from `files`; without that feature there are none.
"""

import asyncio
import hashlib
import os
import re
import stat
import time
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any, Final, TypeVar

from freeact_sub.agents.feature import EndedCall, Feature, FeatureAgent, Proceed, RequestedCall, RunPart, UsedKernel
from freeact_sub.agents.life import TreeAgent, tree_agent
from freeact_sub.agents.results import RunResult
from freeact_sub.calls import Call, CodeAction, McpCall, ShellCommand, ToolCall
from freeact_sub.errors import ApprovalDeniedError
from freeact_sub.events.ending import (
    CallReceipt,
    CellReceipt,
    ChildReceipt,
    CommandReceipt,
    Done,
    FileReceipt,
    Receipts,
    RunStatus,
)
from freeact_sub.features.files import FilesPart, RunFiles
from freeact_sub.kernels.files.places import around, opened_file, opened_workspace
from freeact_sub.system.safe_files import work_folders
from freeact_sub.text import code_title, one_line
from freeact_sub.tools import TOOL_NAMES
from freeact_sub.tools.children import Ask
from freeact_sub.tools.execute import NO_OUTPUT

MAX_FILES: Final = 50
"""Files read, and files written, that get a receipt."""
MAX_BYTES: Final = 32 << 20
"""Bytes of the largest file with a digest."""
MAX_SECONDS: Final = 0.3
"""Seconds to read files; a file that is not read by then has no digest."""
MAX_NAMES: Final = 20
ANSWER_CHARS: Final = 100_000
"""Characters of an answer in which names are looked for."""
WORD_CHARS: Final = 500
"""Characters of the longest word that may be a name; the pattern takes a time that grows with its square."""
SUFFIXES: Final = frozenset(
    """bib bmp bz2 c cfg conf cpp css csv doc docx feather gif gz h h5 hdf5 html ini ipynb jpeg jpg json jsonl md mp3 mp4
    npy npz odt parquet pdf pickle pkl png ppt pptx ps1 py rs rst sh sql sqlite svg tar tex tif tiff toml ts tsv txt wav
    webp xls xlsx xml yaml yml zip""".split()  # noqa: SIM905  # a list of words
)
"""Ends of names that are files, without those that are common in names of functions, attributes or products."""
_NAME: Final = re.compile(
    r"(?<![\w*?{}<>$@%\\./~+-])"  # not the end of a pattern, a template or an address
    r"(?P<name>(?:\.{0,2}/)?[\w.+-]+(?:/[\w.+-]+)*\.(?P<suffix>[A-Za-z][A-Za-z0-9]{0,7}))"
    r"(?![\w(*?{<$@/\\-]|\.\w)"
)
KEPT: Final = 30
"""Receipts of each kind that are kept."""
NAME_CHARS: Final = 100
COMMAND_CHARS: Final = 200
PRINTED_CHARS: Final = 300
_OWN: Final = TOOL_NAMES - {Ask.name}
"""Tools without an effect of their own, or whose work has receipts of its own: cells and children."""
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class FileFacts:
    """The facts about the files of one run."""

    read: tuple[FileReceipt, ...] = ()
    written: tuple[FileReceipt, ...] = ()
    left_out: int = 0
    """The number of files in neither list."""
    missing: tuple[str, ...] = ()
    """The files that the answer names, if none of them exists."""


async def file_facts(files: RunFiles, answer: str, workspace: Path) -> FileFacts:
    """Look at the files of a run, for about half a second at most. Args: answer: may name files."""
    names = named_files(answer)
    if not (names or files.read or files.written):
        return FileFacts()
    return await asyncio.to_thread(_look, files, names, workspace)


def _look(files: RunFiles, names: Collection[str], workspace: Path) -> FileFacts:
    deadline = time.monotonic() + MAX_SECONDS
    read, written = [*files.read], [*files.written]
    try:
        with opened_workspace(workspace) as root:
            receipts = {name: _receipt(name, root, deadline) for name in [*written[:MAX_FILES], *read[:MAX_FILES]]}
        missing = missing_files(names, workspace, {*files.read, *files.written, *files.removed})
    except OSError:  # the workspace is gone; the answer is not
        return FileFacts()
    return FileFacts(
        written=tuple(receipts[name] for name in written[:MAX_FILES]),
        read=tuple(receipts[name] for name in read[:MAX_FILES]),
        left_out=len(read[MAX_FILES:]) + len(written[MAX_FILES:]),
        missing=missing,
    )


def named_files(text: str) -> tuple[str, ...]:
    """Return the file names in a text, by their form alone: letters, digits and slashes that end in the suffix of a file."""
    found: dict[str, None] = {}
    for word in text[:ANSWER_CHARS].split():
        if "://" in word or len(word) > WORD_CHARS:
            continue
        for match in _NAME.finditer(word):
            if match["suffix"].lower() in SUFFIXES and len(found) < MAX_NAMES:
                found[match["name"]] = None
    return tuple(found)


def missing_files(names: Collection[str], workspace: Path, known: Collection[str]) -> tuple[str, ...]:
    """Return all these names, if none of them is a file in the workspace; otherwise none.

    A path outside the workspace may be a file that only the kernel sees, so it counts as an existing one.

    Args:
        names: The names in an answer.
        workspace: The folder.
        known: Files that the run has used or removed, relative to the workspace.
    """
    if not names or any(_is_there(name, workspace) for name in names):
        return ()
    wanted = {PurePosixPath(name).name for name in names}
    if wanted & {PurePosixPath(name).name for name in known} or wanted & _all_names(workspace):
        return ()  # an answer need not name the folder
    return tuple(names)


def _is_there(name: str, workspace: Path) -> bool:
    path = os.path.realpath(workspace / name)
    return not path.startswith(f"{os.path.realpath(workspace)}/") or os.path.lexists(path)


def _all_names(workspace: Path) -> set[str]:
    return {entry.name for _, entries in work_folders(workspace) for entry in entries}


def _receipt(name: str, root: int, deadline: float) -> FileReceipt:
    if time.monotonic() > deadline:
        return FileReceipt(path=name)
    try:
        with around(root, name) as (folder, last), opened_file(folder, last) as file:
            found = os.fstat(file.fileno())
            if not stat.S_ISREG(found.st_mode) or found.st_size > MAX_BYTES:
                return FileReceipt(path=name)
            return FileReceipt(path=name, sha256=hashlib.file_digest(file, "sha256").hexdigest(), size=found.st_size)
    except (OSError, ValueError):
        return FileReceipt(path=name)


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
        """Note a call that was run. Args: code: ran instead of a cell's own code. text: the result."""
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
        """Note an allowed program that code starts."""
        text, by_library = one_line(command.command, COMMAND_CHARS), command.by_library
        self._commands.append(CommandReceipt(command=text, outside=command.outside, by_library=by_library))
        self._count(**{"library_commands_run" if by_library else "commands_run": 1})

    def child(self, agent_id: str, status: RunStatus) -> None:
        """Note a child that has ended."""
        self._children.append(ChildReceipt(agent_id=agent_id, status=status))
        self._count(children_ended=1, children_failed=status != "completed")

    def receipts(self, files: FileFacts, *, has_model: bool) -> Receipts | None:
        """Return all receipts. None: Python code answers, and has done nothing that has one."""
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
    """Return the end of an output, whole lines if they are short."""
    text = text.strip()
    if len(text) <= PRINTED_CHARS:
        return text
    end = text[-PRINTED_CHARS:]
    return "…" + (end.partition("\n")[2] or end)


class ReceiptsPart(RunPart):
    """The receipts of one run."""

    def __init__(self, agent: TreeAgent) -> None:
        self.book, self._agent, self._found = ReceiptBook(), agent, FileFacts()

    async def call(self, call: RequestedCall, proceed: Proceed[T]) -> EndedCall[T]:
        """Give a receipt for a call that ran, however it ended."""
        code = call.args["code"] if call.is_changed else ""
        try:
            ended = await proceed()
        except ApprovalDeniedError:
            raise
        except BaseException as error:
            self.book.call(call.call, "failed", code=code, text=f"{type(error).__name__}: {error}")
            raise
        if ended.outcome != "denied":
            self.book.call(call.call, "ok" if ended.outcome == "success" else "failed", code=code, text=ended.text)
        return ended

    def did(self, agent: FeatureAgent, call: Call) -> None:
        """Give a receipt for a program that code starts."""
        del agent
        if isinstance(call, ShellCommand):
            self.book.command(call)

    async def closing(self, ending: RunResult, kernel: UsedKernel) -> None:
        """Look at the files; a copy of the workspace ends with its kernel."""
        run = self._agent.run
        for part in run.features.all(FilesPart):
            if not kernel.has_own_files:
                answer = ending.text if run.has_model and ending.status == "completed" else ""
                self._found = await file_facts(part.files, answer, self._agent.shared.config.workspace)

    def facts(self, ending: RunResult) -> RunResult:
        """Add the receipts, unless the answer was reused with those of the run that gave it."""
        receipts = ending.receipts or self.book.receipts(self._found, has_model=self._agent.run.has_model)
        return replace(ending, receipts=receipts, missing_files=self._found.missing)

    def ended(self, result: RunResult) -> None:
        """Give the parent's run a receipt for its child."""
        parent = self._agent.run.parent
        for part in () if parent is None else parent.features.all(ReceiptsPart):
            part.book.child(self._agent.agent_id, result.status)


class ReceiptsFeature(Feature):
    """The receipts of one tree of agents."""

    def run(self, agent: FeatureAgent) -> RunPart:
        """Keep the receipts of the run."""
        return ReceiptsPart(tree_agent(agent))
