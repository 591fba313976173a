"""`SessionStore`: the protocol of stores for sessions. A store is found by its name, like kernel providers.

An entry point of the group `freeact_sub.session_stores` names a function of the settings (`SessionsConfig`) that makes a
`SessionStore`. `sessions.store` is its name. Ours is `sqlite` (`sessions/sqlite/`). Every agent and every command makes its
store once, from its settings, and hands it on.
"""

import os
import re
import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, Self

from freeact_sub.config.entry_points import SESSION_STORES
from freeact_sub.config.schema import SessionsConfig
from freeact_sub.errors import SessionError, way
from freeact_sub.events import Event
from freeact_sub.sessions.records import (
    ForkPoint,
    KnownAnswer,
    StoredAgent,
    StoredCall,
    StoredCell,
    StoredQuestion,
    StoredRun,
    StoredSession,
    Swept,
)

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelMessage

VARIABLES: Final = "variables"
FILES: Final = "files"
PAST: Final = "past"
"""The names in a session's folder for the variables of its kernels, the states of its files, and earlier variables."""
FORK_NOTE: Final = "fork.json"
"""The name of the file in which a fork of the past keeps what is not as it was then, beside its copy of the workspace."""
SESSION_ID: Final = re.compile(r"[0-9]{8}-[0-9]{4}-[0-9a-f]{6}")
"""What `new_session_id` makes."""


class SessionReader(Protocol):
    """Reads one session, open or not; a context manager. Each method sees what is on disk at its call.

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

    def events(self, agent_id: str | None = None, *, root_run: int | None = None) -> Iterator[Event]:
        """Return the events of an agent, or of all, in order. Args: root_run: only those of this run of the root."""

    def last_event(self, agent_id: str, kind: str) -> Event | None:
        """Return the last event of a class. None: no such event."""

    def cells(self, agent_id: str) -> list[StoredCell]:
        """Return the cells of an agent, in order."""

    def questions(self, agent_id: str | None = None) -> list[StoredQuestion]:
        """Return the approval requests with their decisions."""

    def known_answers(self, *, since: int = 0) -> list[KnownAnswer]:
        """Return the unused stored answers. Args: since: only those of later runs of the root."""


class SessionWriter(Protocol):
    """Writes one session, and holds it until closed. Writing methods return at once and never raise."""

    session_id: str

    @property
    def keeps(self) -> bool:
        """Whether further writes will be stored."""

    def start(self) -> None:
        """Start writing."""

    async def commit(self) -> bool:
        """Wait until all writes are on disk. Returns: False if they could not be stored."""

    async def aclose(self) -> None:
        """Finish writing, and release the session. Can be called again."""

    def session(self, *, workspace: Path, model: str, model_facts: str = "{}") -> None:
        """Record the session. An existing one continues, and its unfinished runs are marked as interrupted."""

    def agent(self, **columns: Any) -> None:
        """Record an agent. Args: columns: the fields of `StoredAgent`."""

    def mode(self, agent_id: str, mode: str) -> None:
        """Record that an agent has another mode."""

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
        """The beginnings of all prompts of the roots, each with the id of its session, to search in.

        Raises:
            SessionError: They cannot be read.
        """

    def reader(self, session_id: str) -> SessionReader:
        """A reader of a session. Raises: SessionError: There is none, or it cannot be read."""

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
        """Whether a program has it open for writing now."""

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
        """Whether `sweep` has not been called for a day."""

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
    """An id that sorts by time, such as `20261122-1754-9f3a1c`."""
    return f"{time.strftime('%Y%m%d-%H%M', time.gmtime())}-{secrets.token_hex(3)}"


def home_of_copy(store: SessionStore, workspace: Path) -> Path | None:
    """Return the folder that a fork has made for its copy of a workspace, also if it is gone.

    Args:
        store: The store of the fork.
        workspace: Where a session works. Only the copy itself has such a folder: people start sessions in any other
            folder, also in one below or above a copy.
    """
    home = workspace.parent
    return home if home.parent == store.copies and SESSION_ID.fullmatch(home.name) else None


def stats_below(folder: str) -> Iterator[os.stat_result]:
    """Yields the status of each file below a folder, without following links."""
    for place, _, names in () if os.path.islink(folder) else os.walk(folder):  # noqa: PTH114  # of text
        for name in names:
            with suppress(OSError):
                yield os.lstat(f"{place}/{name}")
