"""`SessionStore`: the protocol of stores for sessions, and the records of a session as plain values.

Agents at every depth have records of the same shape.

A store is found by its name, like kernel providers. An entry point of the group `freeact_sub.session_stores` names a
function of the settings (`SessionsConfig`) that makes a `SessionStore`. `sessions.store` is its name. Ours is `sqlite`
(`sessions/sqlite/`). Every agent and every command makes its store once, from its settings, and hands it on.
"""

import os
import re
import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, Self, TypeAlias

from freeact_sub import events as ev
from freeact_sub.cells import CELL_TOOL, CellError, ClearOutput, DisplayData, ExecuteResult, StreamText
from freeact_sub.config.budget import Usage
from freeact_sub.config.entry_points import SESSION_STORES
from freeact_sub.config.schema import SessionsConfig
from freeact_sub.errors import SessionError, way
from freeact_sub.events.ending import Receipts
from freeact_sub.modes import Mode

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelMessage

CallState: TypeAlias = Literal["begun", "done"]
"""`begun`: the call is running, or the program ended while it ran, so that its effect is unknown."""

INTERRUPTED = "interrupted"
"""The status of a run that was interrupted by the end of the program."""
VARIABLES: Final = "variables"
FILES: Final = "files"
PAST: Final = "past"
"""The names in a session's folder for the variables of its kernels, the states of its files, and earlier variables."""
FORK_NOTE: Final = "fork.json"
"""The file in which a fork of the past, beside its copy of the workspace, notes the differences from then."""
SESSION_ID: Final = re.compile(r"[0-9]{8}-[0-9]{4}-[0-9a-f]{6}")
"""The pattern of session ids (`new_session_id`)."""


@dataclass(frozen=True, kw_only=True)
class StoredSession:
    """One session, as a list shows it."""

    session_id: str
    workspace: Path
    created: float
    """Seconds since the epoch, as all times."""
    updated: float
    title: str
    """The first prompt, cut to 200 characters."""
    model: str
    """The setting `model`. Empty: the program passed a model object."""
    model_settings: dict[str, Any]
    """The settings that give the model a meaning, such as `base_url`, without secrets. Empty: they are not known."""
    addresses: tuple[str, ...]
    """The names and servers of the model and of its fallbacks."""
    archived: bool
    """Whether sweeping removed its variables and long outputs; the conversation is complete."""
    agents: int
    """The number of agents, the root included."""
    usage: Usage
    """The spending of all its agents."""
    once: bool = False
    """Whether the session is one prompt of `freeact-sub run`, which cannot be undone, and no conversation."""
    status: str
    """The status of the root's last run; `interrupted`: the program ended first."""


@dataclass(frozen=True, kw_only=True)
class StoredAgent:
    """The identity of an agent."""

    agent_id: str
    key: str
    parent_id: str | None
    """The agent that started it. None: it is the root."""
    depth: int
    tool_call_id: str | None
    """The parent's call that started it."""
    description: str
    agent_type: str | None
    model: str
    mode: Mode
    in_background: bool
    address: str = ""
    """The name and the server of its model. Empty: not known."""
    choices: dict[str, Any] = field(default_factory=dict)
    """Settings chosen for the agent; see `ChildChoices.kept`."""


@dataclass(frozen=True, kw_only=True)
class StoredRun:
    """One prompt of an agent, and its outcome."""

    agent_id: str
    number: int
    """The number of the run; an agent's first is 1."""
    root_run: int
    """The root's run that contains it."""
    prompt: str
    budget: dict[str, Any]
    began: float
    ended: float | None
    """The time of the end. None: the run is live, or the program ended first."""
    status: str
    """A `RunStatus`, or `interrupted`. Empty: it is live."""
    error: str
    usage: Usage
    """The agent's own spending."""
    tree_usage: Usage
    output: Any
    """The answer as a JSON value."""
    reused_from: str
    """The agent whose answer was reused. Empty: the answer is its own."""
    files_read: tuple[str, ...]
    files_written: tuple[str, ...]
    files_removed: tuple[str, ...]
    warnings: tuple[str, ...]
    missing_files: tuple[str, ...]
    receipts: Receipts | None
    """The actions of the run. None: it has none, or is older than receipts."""
    undone: bool
    """Whether the run was undone and not redone."""
    head: int | None
    """The last entry of the conversation before it. None: the conversation began with it."""
    files: str | None
    """The state of the workspace's files before it; empty: it is not kept. None: it cannot be undone."""
    unwritten: bool
    """Whether none of the run is in the conversation, because the program ended or the run is about to begin."""


@dataclass(frozen=True, kw_only=True)
class StoredCall:
    """One call, made by the model or by code in a cell."""

    call_id: int
    """The number of the call; numbers follow the order of the starts."""
    agent_id: str
    run: int
    tool_call_id: str | None
    """The id of the model's call; for a call from code, that of its cell."""
    from_code: bool
    name: str
    args: dict[str, Any]
    state: CallState
    began: float
    ended: float | None
    outcome: str
    """`success`, `failed` or `denied`, once it has ended."""
    result: str
    """The result that the model reads, once it has ended."""


@dataclass(frozen=True, kw_only=True)
class StoredCell:
    """One cell and its outputs."""

    agent_id: str
    tool_call_id: str | None
    code: str
    began: float
    outputs: tuple[StreamText | DisplayData | ExecuteResult | CellError, ...]
    """The outputs in order, without text beyond 100,000 characters."""
    text: str
    """The text that the model read."""
    status: str
    """`ok`, `error`, `aborted` and the like. Empty: it has not ended, or never ran."""
    seconds: float
    output_file: str | None
    """A file in the workspace with the whole output, if `text` is cut."""


@dataclass(frozen=True, kw_only=True)
class StoredQuestion:
    """An approval request."""

    request: ev.ApprovalRequest
    allowed: bool | None
    """The decision. None: nobody answered."""
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class KnownAnswer:
    """The answer of a child or an `ask`, for reuse after a crash."""

    answer_id: int
    digest: str
    """The digest of prompt, type, model, inputs and output type."""
    agent_id: str
    root_run: int
    """The root's run in which it was answered."""
    value: Any


@dataclass(frozen=True, kw_only=True)
class ForkPoint:
    """The end of a session's copy, and the place where the copy works."""

    new_id: str
    workspace: Path
    last: int | None
    """The last run of the root in the copy; 0: none. None: the copy has everything."""
    head: int | None = None
    """The last entry of the root's conversation."""
    states: tuple[str, str] = ("", "")
    """The prefixes of the names of file states, in the original and in the copy."""
    prepare: Callable[[Path], None] = lambda _: None
    """Called with the copy's own folder, before anybody sees the copy."""


def cells_of(events: Iterator[ev.Event]) -> list[StoredCell]:
    """Return the cells among the events of one agent. A later turn may reuse a call's id."""
    cells: list[dict[str, Any]] = []
    at_work: dict[str | None, dict[str, Any]] = {}
    for event in events:
        cell = at_work.get(event.tool_call_id)
        match event:
            case ev.ToolCallStarted(tool_name=name) if name == CELL_TOOL:
                cell = at_work[event.tool_call_id] = {"code": str(event.args.get("code", "")), "began": event.time}
                cell |= {"agent_id": event.agent_id, "tool_call_id": event.tool_call_id, "outputs": []}
                cells.append(cell | {"text": "", "status": "", "seconds": 0.0, "output_file": None})
                at_work[event.tool_call_id] = cells[-1]
            case ev.CodeExecutionOutputChunk(output=ClearOutput()) if cell is not None:
                cell["outputs"].clear()
            case ev.CodeExecutionOutputChunk(output=output) if cell is not None:
                cell["outputs"].append(output)
            case ev.CodeExecutionOutput() if cell is not None:
                cell |= {"status": event.status, "seconds": event.seconds, "output_file": event.output_file}
                cell["text"] = event.text
            case ev.ToolOutput(tool_name=name) if name == CELL_TOOL and cell is not None:
                cell["text"] = cell["text"] or event.content
                del at_work[event.tool_call_id]
            case _:
                pass
    return [StoredCell(**{**cell, "outputs": tuple(cell["outputs"])}) for cell in cells]


@dataclass
class Swept:
    """The outcome of a sweep."""

    archived: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)


class SessionReader(Protocol):
    """A reader of one session, open or not, as a context manager. Each method sees the state on disk at its call.

    An unreadable record is left out and counted in `lost`.
    """

    lost: Counter[str]
    """The numbers of unreadable records so far, by kind."""

    def __enter__(self) -> Self: ...
    def __exit__(self, *_: object) -> None: ...

    def agents(self) -> list[StoredAgent]:
        """Return all agents, root first, in the order of their start."""

    def agent(self, agent_id: str) -> StoredAgent:
        """Return an agent by its id, its key or a beginning of them. Raises: SessionError: None fits, or several do."""

    def runs(self, agent_id: str | None = None) -> list[StoredRun]:
        """Return the runs of an agent, or of all agents, in order."""

    def messages(self, agent_id: str) -> "list[ModelMessage]":
        """Return an agent's present conversation."""

    def chain(self, agent_id: str) -> list[int]:
        """Return the number of each message of the conversation; a message keeps its number."""

    def calls(self, agent_id: str | None = None) -> list[StoredCall]:
        """Return the calls of an agent, or of all agents, in order."""

    def events(self, agent_id: str | None = None, *, root_run: int | None = None) -> Iterator[ev.Event]:
        """Return the events of an agent, or of all, in order. Args: root_run: only those of this run of the root."""

    def last_event(self, agent_id: str, kind: str) -> ev.Event | None:
        """Return the last event of a class, if any."""

    def cells(self, agent_id: str) -> list[StoredCell]:
        """Return the cells of an agent, in order."""

    def questions(self, agent_id: str | None = None) -> list[StoredQuestion]:
        """Return the approval requests with their decisions."""

    def known_answers(self, *, since: int = 0) -> list[KnownAnswer]:
        """Return the unused stored answers. Args: since: only those of later runs of the root."""


class SessionWriter(Protocol):
    """A writer of one session, which it holds until closed. Writing methods return at once and never raise."""

    session_id: str

    @property
    def keeps(self) -> bool:
        """Whether further writes will be stored."""

    def start(self) -> None:
        """Start writing."""

    async def commit(self) -> bool:
        """Wait until all writes are on disk; return False if they could not be stored."""

    async def aclose(self) -> None:
        """Finish writing, and release the session. Can be called again."""

    def session(self, *, workspace: Path, model: str, model_facts: str = "{}") -> None:
        """Record the session. An existing one continues, and its unfinished runs are marked as interrupted."""

    def agent(self, **columns: Any) -> None:
        """Record an agent. Args: columns: the fields of `StoredAgent`."""

    def mode(self, agent_id: str, mode: str) -> None:
        """Record an agent's new mode."""

    def run_begins(self, agent_id: str, number: int, root_run: int, *, prompt: str, budget: Any) -> None:
        """Record the start of a run. Args: root_run: the root's run that contains it."""

    def run_ends(self, agent_id: str, number: int, *, status: str, ending: Any, output: Any) -> None:
        """Record the end of a run."""

    def files(self, agent_id: str, number: int, tree: str) -> None:
        """Record the state of the workspace's files before a run. Args: tree: its name in the session's folder."""

    def undone(self, agent_id: str, numbers: Sequence[int], *, undone: bool) -> None:
        """Record that runs were undone or redone."""

    def messages(self, agent_id: str, keep: int, new: Sequence[Any]) -> None:
        """Record a conversation. Args: keep: the number of earlier messages that stay before the new ones."""

    def call_begins(self, agent_id: str, run: int, number: int, **columns: Any) -> None:
        """Record the start of a call. Args: columns: the fields of `StoredCall`."""

    def call_ends(self, agent_id: str, run: int, number: int, *, outcome: str, result: str) -> None:
        """Record the end of a call."""

    def answer(self, agent_id: str, root_run: int, digest: str, value: Any) -> None:
        """Record an answer for reuse by the same request."""

    def answer_used(self, answer_id: int, root_run: int) -> None:
        """Record the reuse of an answer."""

    def event(self, agent_id: str, root_run: int, kind: str, to_json: Callable[[], str]) -> None:
        """Record an event. Args: kind: its class. to_json: makes its line."""


class SessionStore(Protocol):
    """The sessions of a user. The methods block, so an event loop calls them in a thread, except `open`."""

    copies: Path
    """The folder of the copies of workspaces in which forks work, each in a folder by the fork's id (`home_of_copy`). A copy
    is removed with the last session that works in it."""

    def sessions(self, workspace: Path | None = None) -> list[StoredSession]:
        """Return all sessions, latest use first. Args: workspace: only those of this folder.

        Raises:
            SessionError: They cannot be read.
        """

    def find(self, session_id: str) -> StoredSession:
        """Return a session by its id or an unambiguous beginning of it.

        Raises:
            SessionError: There is none, or more than one; or it cannot be read.
        """

    def prompts(self) -> Iterator[tuple[str, str]]:
        """Yield the beginning of each prompt of the roots, with the id of its session, to search in.

        Raises:
            SessionError: They cannot be read.
        """

    def reader(self, session_id: str) -> SessionReader:
        """Return a reader of a session. Raises: SessionError: There is none, or it cannot be read."""

    def open(self, session_id: str, *, secrets: Sequence[str], on_failure: Callable[[str], None]) -> SessionWriter:
        """Open a session for writing; no other program can until the writer is closed.

        Args:
            session_id: The session; it need not exist.
            secrets: Values that are never written.
            on_failure: Called once, in any thread, with the reason if writing has failed for good.

        Raises:
            SessionBusyError: It is open elsewhere.
            OSError: It cannot be written.
        """

    def is_open(self, session_id: str) -> bool:
        """Return whether a program has the session open for writing now."""

    def folder_of(self, session_id: str) -> Path:
        """Return the private folder for files of the session. It need not exist, and is removed with the session.

        Raises:
            SessionError: It is not a session's id.
        """

    def fork(self, session_id: str, *, is_mine: bool = False, point: ForkPoint | None = None) -> str:
        """Copy a session as a new one, wholly or not at all. Returns: the new id.

        Args:
            session_id: The session.
            is_mine: This program has it open, without a live run.
            point: Where the copy ends, and where it works. None: it has everything.

        Raises:
            SessionBusyError: It is open.
            SessionError: There is none, or it cannot be copied.
        """

    def remove(self, session_id: str) -> None:
        """Remove a session, with the long outputs of its agents.

        Raises:
            SessionBusyError: It is open.
            SessionError: There is none, or it cannot be removed.
        """

    def is_sweep_due(self) -> bool:
        """Return whether `sweep` has not been called for a day."""

    def sweep(
        self, workspace: Path, *, archive_after_days: float | None, max_bytes: int | None, stop: threading.Event
    ) -> Swept:
        """Archive old sessions, and remove the oldest above the limit.

        Args:
            workspace: A further folder whose outputs are swept, besides the workspaces of sessions.
            archive_after_days: Days without use after which a session is archived. None: never.
            max_bytes: Bytes that all sessions may take on disk. None: no limit.
            stop: Ends the sweep soon after it is set.

        Raises:
            SessionError: They cannot be read.
        """


def session_store(settings: SessionsConfig | None = None) -> SessionStore:
    """Make the store that the settings name. Args: settings: None: the defaults.

    Raises:
        ConfigError: It is not installed, or cannot be loaded.
    """
    settings = settings or SessionsConfig()
    store: SessionStore = SESSION_STORES.load(settings.store)(settings)
    return store


def list_sessions(workspace: Path | None = None) -> list[StoredSession]:
    """Return the sessions of this user, latest use first. Args: workspace: only those of this folder.

    Raises:
        SessionError: They cannot be read.
    """
    return session_store().sessions(workspace)


def newest(store: SessionStore, workspace: Path) -> StoredSession:
    """Return the latest session of a folder that has a prompt.

    Raises:
        SessionError: There is none, or they cannot be read.
    """
    for session in store.sessions(workspace):
        if session.title:
            return session
    begin = way("Agent(session='new') starts a new one", "start a new one without --continue")
    raise SessionError(f"there is no session of {workspace} to continue: {begin}")


def new_session_id() -> str:
    """Return an id that sorts by time, such as `20261122-1754-9f3a1c`."""
    return f"{time.strftime('%Y%m%d-%H%M', time.gmtime())}-{secrets.token_hex(3)}"


def home_of_copy(store: SessionStore, workspace: Path) -> Path | None:
    """Return the folder that a fork has made for its copy of a workspace, even if it is gone.

    Args:
        store: The store of the fork.
        workspace: Where a session works. Only the copy itself has such a folder: people start sessions in any other
            folder, also in one below or above a copy.
    """
    home = workspace.parent
    return home if home.parent == store.copies and SESSION_ID.fullmatch(home.name) else None


def stats_below(folder: str) -> Iterator[os.stat_result]:
    """Yield the status of each file below a folder, without following links."""
    for place, _, names in () if os.path.islink(folder) else os.walk(folder):  # noqa: PTH114  # it is text
        for name in names:
            with suppress(OSError):
                yield os.lstat(f"{place}/{name}")
