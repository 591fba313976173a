"""Files of the workspace that Python of a run uses (`FilesFeature`), and receipts of its actions (`ReceiptsFeature`).

Kernels report the files that they have read, written and removed after their cells (`files`). They are attributed to the
runs whose Python wrote them, with a warning if two agents of one root wrote the same file. Each use is passed to the parts
of a run that are `HearsUsed`.

Receipts are of cells, commands, calls, children and files, as the host saw them. `ReceiptBook` notes the actions of a run;
`file_facts` finds at its end the digests of its files, and whether the files that its answer names exist. An agent without
`FilesFeature` has no digests. Before that, a model that would end is told what is left (`ReceiptsPart.left`).
"""

import asyncio
import hashlib
import os
import re
import stat
import time
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path, PurePath, PurePosixPath
from typing import Any, Final, Protocol, TypeVar, runtime_checkable

from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, RetryPromptPart, ToolReturnPart

from freeact_sub.agents.feature import EndedCall, Feature, FeatureAgent, Handler, Proceed, RequestedCall, RunPart, UsedKernel
from freeact_sub.agents.life import TreeAgent, tree_agent
from freeact_sub.agents.prompt import texts_of_people
from freeact_sub.agents.results import RunResult
from freeact_sub.agents.root import whole_root
from freeact_sub.calls import Call, CodeAction, FileWrite, McpCall, ShellCommand, ToolCall
from freeact_sub.cells import CELL_TOOL
from freeact_sub.config.parsing import prose_of_file
from freeact_sub.config.schema import ON_THIS_MACHINE
from freeact_sub.errors import ApprovalDeniedError
from freeact_sub.events import Notice
from freeact_sub.events.ending import (
    CallReceipt,
    CellReceipt,
    ChildReceipt,
    CommandReceipt,
    Done,
    FileReceipt,
    NamedFile,
    ReceiptKind,
    Receipts,
    RunStatus,
)
from freeact_sub.kernels.files.places import around, opened_file, opened_workspace
from freeact_sub.system.safe_files import NOT_LOOKED_INTO, read_file, work_folders
from freeact_sub.text import code_title, one_line
from freeact_sub.tools import is_harmless
from freeact_sub.tools.children import Ask
from freeact_sub.tools.execute import NO_OUTPUT

MAX_FILES: Final = 1000
"""Files of each kind that are kept for one run, because code in a kernel can report anything."""
MAX_SHARED: Final = 20_000
"""Files that are kept for all agents of a root."""
MAX_WARNINGS: Final = 20
SHOWN: Final = 5
MAX_PATH_CHARS: Final = 4096
MAX_FILE_RECEIPTS: Final = 50
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
_MARKED: Final = re.compile(r"`([^`\n]+)`|\]\(([^)\s]+)\)")
"""A name in code marks, or behind a link."""
_HOST: Final = re.compile(r"[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)*\.[A-Za-z]{2,}")
_WORD: Final = re.compile(r"^[^\x00-\x7f]+")
_PATTERN: Final = re.compile(r"[\w.?+-]*\*[\w.*?+-]*")
_BLOCK: Final = re.compile(r"^ *(```+|~~~+).*?(?:^ *\1|\Z)", re.DOTALL | re.MULTILINE)
KEPT: Final = 30
"""Receipts of each kind that are kept."""
NAME_CHARS: Final = 100
COMMAND_CHARS: Final = 200
PRINTED_CHARS: Final = 300
_WORK: Final = frozenset({CELL_TOOL, "task", "delegate"})
"""Tools whose work has receipts of its own: cells and children."""
T = TypeVar("T")


@dataclass(kw_only=True, eq=False)
class RunFiles:
    """The files of one run, relative to the workspace and in the order in which they were reported."""

    key: str
    """The agent's key, which shows its ancestors."""
    label: str
    read: dict[str, None] = field(default_factory=dict)
    written: dict[str, None] = field(default_factory=dict)
    removed: dict[str, None] = field(default_factory=dict)
    """Files and folders that existed before the run."""
    warnings: list[str] = field(default_factory=list)
    """Sentences for the parent."""

    @property
    def names(self) -> set[str]:
        """All files that were read, written or removed."""
        return {*self.read, *self.written, *self.removed}

    def undo(self, gone: Collection[str]) -> set[str]:
        """Forget writes to these paths and below, because they are gone; return the forgotten names."""
        undone = {name for name in self.written if name in gone or any(str(path) in gone for path in PurePath(name).parents)}
        for name in undone:
            del self.written[name]
        return undone

    def remove(self, names: Collection[str]) -> None:
        """Note removals by the run; files that it had written itself are in neither list."""
        undone = self.undo(frozenset(names))
        for name in names:
            if name not in undone and len(self.removed) < MAX_FILES:
                self.removed[name] = None

    def warn(self, text: str) -> None:
        """Add a warning to the run's result."""
        if len(self.warnings) < MAX_WARNINGS:
            self.warnings.append(text)


@dataclass(kw_only=True, eq=False)
class FileAttribution:
    """The writers of files in one run of a root, by agent."""

    _files: dict[str, dict[str, RunFiles]] = field(default_factory=dict)
    """The runs whose Python wrote a file, by its name and by the agent's key."""
    _warned_pairs: set[tuple[str, frozenset[str]]] = field(default_factory=set)

    def note(self, work: RunFiles, names: Iterable[str]) -> list[str]:
        """Note files that Python wrote in a run's kernel; return a warning for each agent whose Python wrote them too."""
        shared: dict[str, tuple[RunFiles, list[str]]] = {}
        for name in names:
            for key, other in self._files.get(name, {}).items():
                pair = (name, frozenset((work.key, key)))
                if key != work.key and pair not in self._warned_pairs:
                    self._warned_pairs.add(pair)
                    shared.setdefault(key, (other, []))[1].append(name)
            self._note(work, name)
        warnings = []
        for theirs, files in shared.values():
            text = _warning(files, theirs.label, work.label)
            theirs.warn(text)
            work.warn(text)
            warnings.append(text)
        return warnings

    def _note(self, work: RunFiles, name: str) -> None:
        if name not in work.written and len(work.written) >= MAX_FILES:
            return
        work.written[name] = None
        work.removed.pop(name, None)
        known = self._files.get(name, {})
        if known or len(self._files) < MAX_SHARED:
            self._files[name] = {**known, work.key: work}


def _warning(files: list[str], one: str, other: str) -> str:
    more = f" and {len(files) - SHOWN:,} more" if len(files) > SHOWN else ""
    return f"{one} and {other} have both written {', '.join(files[:SHOWN])}{more}: one may have undone the other's work"


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


NAMES: Final = _words(
    """.envrc .env Makefile makefile GNUmakefile *.mk Justfile justfile Taskfile.y*ml Rakefile CMakeLists.txt package.json
    .npmrc .yarnrc* Cargo.toml build.rs build.gradle* pom.xml Gemfile composer.json Dockerfile* pyproject.toml setup.py
    setup.cfg conftest.py noxfile.py tox.ini tasks.py sitecustomize.py usercustomize.py *.pth .pre-commit-config.yaml
    .gitmodules .gitattributes .gitlab-ci.yml docker-compose*.y*ml compose*.y*ml .bashrc .bash_profile .profile .zshrc
    .tool-versions mise.toml Vagrantfile Jenkinsfile .mcp.json mcp.json AGENTS.md AGENTS.override.md CLAUDE.md
    CLAUDE.local.md GEMINI.md"""
)
FOLDERS: Final = _words(".github .vscode .idea .husky .devcontainer .circleci .claude .cursor .git .venv")
"""Folders in which every file counts."""


def obeyed(written: Collection[str]) -> tuple[str, ...]:
    """Return a sentence for people, if there are files that other programs run or obey when a person uses the folder.

    Args:
        written: Names relative to the workspace.
    """
    found = [name for name in written if _is_obeyed(PurePath(name))]
    if not found:
        return ()
    more = f" and {len(found) - SHOWN:,} more" if len(found) > SHOWN else ""
    return (
        f"other programs run or obey what was written: {', '.join(found[:SHOWN])}{more}: look at it before you use them",
    )


def _is_obeyed(path: PurePath) -> bool:
    return any(fnmatchcase(path.name, name) for name in NAMES) or any(part in FOLDERS for part in path.parts[:-1])


@runtime_checkable
class HearsUsed(Protocol):
    """A part of a run that hears of used files."""

    def used(self, agent: TreeAgent, names: Sequence[str]) -> None:
        """Note files that code of an agent or a node has used, and folders with a `/` behind them."""


class FileReports:
    """The reports of one kernel about files in the workspace, for the run to which its code belongs."""

    def __init__(self, agent: TreeAgent) -> None:
        self._agent = agent

    def note(self, params: Mapping[str, Any], files: RunFiles, writers: FileAttribution) -> None:
        """Note a report. Args: files: those of the run. writers: those of all runs."""
        for name in self._names(params.get("read")):
            if len(files.read) < MAX_FILES and not NOT_LOOKED_INTO.intersection(PurePath(name).parts[:-1]):
                files.read[name] = None
        written = self._names(params.get("written"))
        for name in written:
            path = str(self._agent.shared.config.workspace / name)
            self._agent.run.features.did(self._agent, FileWrite(path=path))
        for warning in writers.note(files, written):
            self._agent.emitter.put(Notice(content=warning))
        files.undo(frozenset(self._names(params.get("undone"))))
        files.remove(self._names(params.get("removed")))
        self._used([*self._names(params.get("read")), *written, *(f"{name}/" for name in self._names(params.get("named")))])

    def _used(self, names: Sequence[str]) -> None:
        for part in self._agent.run.features.all(HearsUsed):  # type: ignore[type-abstract]  # it only calls isinstance
            part.used(self._agent, names)

    def _names(self, paths: Any) -> list[str]:
        return list(_within(self._agent.shared.config.workspace, paths)) if isinstance(paths, list) else []


def _within(workspace: Path, paths: list[Any]) -> Iterator[str]:
    """Return the paths in the workspace, relative to it. Only names are compared; no file is touched."""
    for path in paths[:MAX_FILES]:
        if isinstance(path, str) and len(path) <= MAX_PATH_CHARS:
            whole = Path(os.path.normpath(workspace / path))
            if workspace in whole.parents:
                yield str(whole.relative_to(workspace))


class FilesPart(RunPart):
    """The files of one run."""

    def __init__(self, agent: TreeAgent, attribution: FileAttribution) -> None:
        self.files, self.attribution = RunFiles(key=agent.key, label=agent.label), attribution

    def facts(self, ending: RunResult) -> RunResult:
        """Name the files, and warn of those that other programs obey."""
        files = self.files
        other: Sequence[str] = obeyed(files.written) if files.written else ()
        return replace(
            ending,
            files_read=tuple(files.read),
            files_written=tuple(files.written),
            files_removed=tuple(files.removed),
            warnings=(*files.warnings, *other, *ending.warnings),
        )


class FilesFeature(Feature):
    """The uses of files in one tree of agents."""

    def __init__(self) -> None:
        self._attribution = FileAttribution()

    def run(self, agent: FeatureAgent) -> RunPart:
        """Make the part; a run of the root begins a new account of the writers."""
        if agent.parent_id is None:
            self._attribution = FileAttribution()
        return FilesPart(tree_agent(agent), self._attribution)

    def requests(self, agent: FeatureAgent) -> Mapping[str, Handler]:
        """Take the reports of a kernel on the files that its code has used."""
        whole = tree_agent(agent)
        reports = FileReports(whole)

        async def files(params: Mapping[str, Any], _clock: Any) -> None:
            for part in whole.run.features.all(FilesPart):
                reports.note(params, part.files, part.attribution)

        return {"files": files}


@dataclass(frozen=True, kw_only=True)
class FileFacts:
    """The facts about the files of one run."""

    read: tuple[FileReceipt, ...] = ()
    written: tuple[FileReceipt, ...] = ()
    left_out: int = 0
    """The number of files in neither list."""
    missing: tuple[str, ...] = ()
    """The files that the answer names, if none of them exists."""
    named: tuple[NamedFile, ...] = ()
    """The files that the answer names."""


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
            receipts = {
                name: _receipt(name, root, deadline) for name in [*written[:MAX_FILE_RECEIPTS], *read[:MAX_FILE_RECEIPTS]]
            }
        missing = missing_files(names, workspace, files.names)
        kinds: dict[ReceiptKind, dict[str, None]] = {"removed": files.removed, "read": files.read, "written": files.written}
        used = {_last_part(name): kind for kind, found in kinds.items() for name in found}
    except OSError:  # the workspace is gone; the answer is not
        return FileFacts()
    return FileFacts(
        written=tuple(receipts[name] for name in written[:MAX_FILE_RECEIPTS]),
        read=tuple(receipts[name] for name in read[:MAX_FILE_RECEIPTS]),
        left_out=len(read[MAX_FILE_RECEIPTS:]) + len(written[MAX_FILE_RECEIPTS:]),
        missing=missing,
        named=tuple(NamedFile(name=name, receipt=used.get(_last_part(name), "none")) for name in names),
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
    found = absent_files(names, workspace, known)
    return found if len(found) == len(names) else ()


def absent_files(names: Collection[str], workspace: Path, known: Collection[str]) -> tuple[str, ...]:
    """Return each of these names that is no file in the workspace, and no address. Args: see `missing_files`."""
    lost = [name for name in names if not (_is_there(name, workspace) or _is_address(name, workspace))]
    seen = {_last_part(name) for name in known} | _all_names(workspace) if lost else set[str]()
    seen |= {name.rpartition(" ")[2] for name in seen}  # a text has its words only
    return tuple(name for name in lost if not {_last_part(name), _without_word(name)} & seen)  # nor need it name the folder


def _last_part(name: str) -> str:
    return PurePosixPath(name).name


def _without_word(name: str) -> str:
    """Return the last part of a name without a word of a language that sets no space between words, if it has one."""
    last = _last_part(name)
    rest = _WORD.sub("", last)
    return last if rest.startswith(".") else rest


def unfounded_files(
    answer: str, workspace: Path, files: RunFiles | None, conversation: Sequence[ModelMessage]
) -> tuple[str, ...]:
    """Return the names of missing files in an answer that nothing in the conversation explains.

    Names in code marks and links count one by one, others only if none of all names exists. Blocks of code are examples. A
    result of a call explains a name, and so does a file that the run has written: a program may write it later. The model
    has looked for a file that both prompt and code name. If no code names it, but a pattern in code fits it or a result
    lists its folder, the model knows that it is missing: the answer says so, or proposes the file.
    """
    text = _BLOCK.sub("", answer)
    written = [] if files is None else [*files.written]
    names = absent_files(named_files(text), workspace, () if files is None else files.names)
    if len(names) < len(named_files(text)):
        marked = {match[1] or match[2] for match in _MARKED.finditer(text)}
        names = tuple(name for name in names if name in marked)
    if not names:
        return ()
    said, code, results = "\n".join(texts_of_people(conversation)), *_calls_in(conversation)
    patterns = [found for found in _PATTERN.findall(code) if len(found.strip("*?.")) > 1]
    made = "\n".join(_text_of(name, workspace) for name in written[-MAX_FILE_RECEIPTS:])

    def is_explained(name: str) -> bool:
        last = _without_word(name)
        if last in results or last in made or last in code:
            return last in results or last in made or last in said
        is_looked_for = any(fnmatchcase(last.casefold(), pattern.casefold()) for pattern in patterns)
        return is_looked_for or _is_listed((workspace / name).parent, results, {*map(_last_part, written)})

    return tuple(name for name in names if not is_explained(name))


def _is_listed(folder: Path, text: str, later: Collection[str]) -> bool:
    """Return whether a text has all names in a folder, or in the first existing one above it, but those that came later."""
    there = next(place for place in (folder, *folder.parents) if place.is_dir())
    try:
        listed = [name for name in os.listdir(there) if name not in later]  # noqa: PTH208  # only the names
    except OSError:
        return False
    listed = [name for name in listed if not (name.startswith(".") or name in NOT_LOOKED_INTO)]
    return bool(listed) and all(name in text for name in listed)


def _text_of(name: str, workspace: Path) -> str:
    try:
        return prose_of_file(read_file(workspace / name))
    except OSError:
        return ""


def _calls_in(conversation: Sequence[ModelMessage]) -> tuple[str, str]:
    """Return all calls of a conversation, and all results."""
    calls = (call for message in conversation if isinstance(message, ModelResponse) for call in message.tool_calls)
    parts = (part for message in conversation if isinstance(message, ModelRequest) for part in message.parts)
    results = (_texts_of(part.content) for part in parts if isinstance(part, ToolReturnPart | RetryPromptPart))
    return "\n".join(str(each) for call in calls for each in call.args_as_dict().values()), "\n".join(results)


def _texts_of(content: Any) -> str:
    """Return the text of a result, without its pictures."""
    items = content if isinstance(content, list) else [content]
    texts = (getattr(item, "content", item) for item in items if not hasattr(item, "data"))
    return "\n".join(map(str, texts))


def _is_there(name: str, workspace: Path) -> bool:
    path = os.path.realpath(workspace / name)
    return not path.startswith(f"{os.path.realpath(workspace)}/") or os.path.lexists(path)


def _is_address(name: str, workspace: Path) -> bool:
    host, _, path = name.partition("/")
    return bool(path and _HOST.fullmatch(host)) and not (workspace / host).exists()


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
            case McpCall() | ToolCall() if not _is_own(name := _name(call)):
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
            named=tuple(map(self._with_command, files.named)),
            left_out=files.left_out + sum(self._numbers.get(name, 0) for name in totals) - kept,
        )

    def _with_command(self, file: NamedFile) -> NamedFile:
        return replace(file, receipt="command") if file.receipt == "none" and self.has_command(file.name) else file

    def has_command(self, name: str) -> bool:
        """Return whether a command names a file."""
        return any(_last_part(name) in ran.command for ran in self._commands)

    def _count(self, **numbers: int) -> None:
        for name, number in numbers.items():
            self._numbers[name] = self._numbers.get(name, 0) + number


def _is_own(name: str) -> bool:
    """Return whether a tool has no effect of its own, or its work has receipts of its own."""
    return name in _WORK or (name != Ask.name and is_harmless(name))


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

    def __init__(self, agent: TreeAgent, feature: "ReceiptsFeature") -> None:
        self.book, self._agent, self._feature, self._found = ReceiptBook(), agent, feature, FileFacts()
        self._failed: tuple[str, int] | None = None
        """The title of the model's last cell, if it failed and nothing has run since, and the denials before it."""

    async def call(self, call: RequestedCall, proceed: Proceed[T]) -> EndedCall[T]:
        """Give a receipt for a call that ran, however it ended."""
        code, denied = call.args["code"] if call.is_changed else "", self._agent.run.denied
        action = call.call
        try:
            ended = await proceed()
        except ApprovalDeniedError:
            raise
        except BaseException as error:
            self.book.call(call.call, "failed", code=code, text=f"{type(error).__name__}: {error}")
            raise
        if ended.outcome != "denied":
            self.book.call(call.call, "ok" if ended.outcome == "success" else "failed", code=code, text=ended.text)
        if call.by == "model" and (call.name in _WORK or not _is_own(call.name)):
            self._failed = None
            if isinstance(action, CodeAction) and ended.outcome == "failed":
                self._failed = code_title(code or action.code), denied
        return ended

    async def left(self, answer: str) -> Sequence[str]:
        """Return a last cell that failed, if no "no" of a person or a rule has stopped it, and files that do not exist."""
        title, denied = self._failed or ("", 0)
        is_left = title and denied == self._agent.run.denied
        facts = [f"the last cell failed, and nothing has run since: {title}"] if is_left else []
        if missing := await self._unfounded(answer):
            facts.append(f"the answer names files that do not exist: {', '.join(missing)}")
        return facts

    async def _unfounded(self, answer: str) -> Sequence[str]:
        """Return files; none of a root that has done nothing, of a typed answer, and where the agent has other files."""
        run, done = self._agent.run, self.book.receipts(FileFacts(), has_model=False)
        said = next((each.text for each in reversed(run.conversation) if isinstance(each, ModelResponse)), None)
        if (self._agent.parent is None and done is None) or said != answer or not named_files(answer):
            return ()
        config, kernel = self._agent.shared.config, whole_root(self._feature.root).callers_loop.kernel
        if kernel.has_own_files or config.kernel.provider not in ON_THIS_MACHINE:
            return ()
        files = next((part.files for part in run.features.all(FilesPart)), None)
        missing = await asyncio.to_thread(unfounded_files, answer, config.workspace, files, run.conversation)
        return [name for name in missing if not self.book.has_command(name)]

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
        return ReceiptsPart(tree_agent(agent), self)
