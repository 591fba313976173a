"""`SessionStore`: where sessions are kept. A store is found by its name, as kernel providers are.

An entry point of the group `freeact_sub.session_stores` names a function of the settings (`SessionsConfig`) that makes a
`SessionStore`. `sessions.store` is its name. Ours is `sqlite` (`sessions/sqlite/`). Every agent and every command makes its
store once, from its settings, and hands it on.
"""

import os
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
from freeact_sub.errors import SessionError
from freeact_sub.events import Event
from freeact_sub.sessions.records import (
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
"""Names in a session's folder: the variables of its kernels, and the states of its files."""


class SessionReader(Protocol):
    """Reads one session, open or not; a context manager. Each method sees what is on disk at its call.

    A record that cannot be read is left out, and counted in `lost`.
    """

    lost: Counter[str]
    """What could not be read so far, by a word for its kind."""

    def __enter__(self) -> Self: ...
    def __exit__(self, *_: object) -> None: ...

    def agents(self) -> list[StoredAgent]:
        """All agents, the root first, in order of their start."""

    def agent(self, agent_id: str) -> StoredAgent:
        """One agent, by its id, its key or a beginning of them. Raises: SessionError: There is none, or more than one."""

    def runs(self, agent_id: str | None = None) -> list[StoredRun]:
        """The runs of an agent, or of all, in order."""

    def messages(self, agent_id: str) -> "list[ModelMessage]":
        """The conversation of an agent as it is now."""

    def chain(self, agent_id: str) -> list[int]:
        """The number of each message of the conversation; a message keeps its number."""

    def calls(self, agent_id: str | None = None) -> list[StoredCall]:
        """The calls of an agent, or of all, in order."""

    def events(self, agent_id: str | None = None, *, root_run: int | None = None) -> Iterator[Event]:
        """The events of an agent, or of all, in order. Args: root_run: only those of this run of the root."""

    def last_event(self, agent_id: str, kind: str) -> Event | None:
        """The last event of a class. None: there is none."""

    def cells(self, agent_id: str) -> list[StoredCell]:
        """The cells of an agent, in order."""

    def questions(self, agent_id: str | None = None) -> list[StoredQuestion]:
        """What was asked of people, and their answers."""

    def known_answers(self, *, since: int = 0) -> list[KnownAnswer]:
        """Answers by content that nobody has used. Args: since: only those of later runs of the root."""


class SessionWriter(Protocol):
    """Writes one session, and holds it until it is closed. Methods that write return at once and never raise."""

    session_id: str

    @property
    def keeps(self) -> bool:
        """Whether what is handed over will be kept."""

    def start(self) -> None:
        """Begin to write."""

    async def commit(self) -> bool:
        """Wait until all that was handed over is on disk. Returns: False if it is not kept."""

    async def aclose(self) -> None:
        """Write what is left, and let others have the session. Can be called again."""

    def session(self, *, workspace: Path, model: str, model_facts: str = "{}") -> None:
        """There is this session; one that is there already goes on, and its runs that never ended are cut off."""

    def agent(self, **columns: Any) -> None:
        """An agent has started. Args: columns: as `StoredAgent` has them."""

    def run_begins(self, agent_id: str, number: int, root_run: int, *, prompt: str, budget: Any) -> None:
        """A run begins. Args: root_run: the run of the root that it belongs to."""

    def run_ends(self, agent_id: str, number: int, *, status: str, ending: Any, output: Any) -> None:
        """A run has ended."""

    def files(self, agent_id: str, number: int, tree: str) -> None:
        """The state of the workspace's files before a run. Args: tree: its name in the session's folder."""

    def undone(self, agent_id: str, numbers: Sequence[int], *, undone: bool) -> None:
        """Runs were taken back, or are there again."""

    def messages(self, agent_id: str, keep: int, new: Sequence[Any]) -> None:
        """A conversation goes on. Args: keep: so many messages of it stay, and the new ones follow."""

    def call_begins(self, agent_id: str, run: int, number: int, **columns: Any) -> None:
        """A call begins. Args: columns: as `StoredCall` has them."""

    def call_ends(self, agent_id: str, run: int, number: int, *, outcome: str, result: str) -> None:
        """A call has ended."""

    def answer(self, agent_id: str, root_run: int, digest: str, value: Any) -> None:
        """An answer that is given again to the same question."""

    def answer_used(self, answer_id: int, root_run: int) -> None:
        """An answer was given again."""

    def event(self, agent_id: str, root_run: int, kind: str, to_json: Callable[[], str]) -> None:
        """Something has happened. Args: kind: the event's class. to_json: makes its line."""


class SessionStore(Protocol):
    """All sessions of a user. Its methods block: an event loop calls them in a thread, except `open`."""

    def sessions(self, workspace: Path | None = None) -> list[StoredSession]:
        """All sessions, latest use first. Args: workspace: only those of this folder.

        Raises:
            SessionError: They cannot be read.
        """

    def find(self, session_id: str) -> StoredSession:
        """One session, by its id or a beginning that only its id has.

        Raises:
            SessionError: There is none, or more than one; or it cannot be read.
        """

    def reader(self, session_id: str) -> SessionReader:
        """A reader of a session. Raises: SessionError: There is none, or it cannot be read."""

    def open(self, session_id: str, *, secrets: Sequence[str], on_failure: Callable[[str], None]) -> SessionWriter:
        """Open a session for writing; nobody else can until the writer is closed.

        Args:
            session_id: The session; it need not exist.
            secrets: Values that are never written.
            on_failure: Called once, in any thread, with the reason why nothing more is kept.

        Raises:
            SessionBusyError: It is open elsewhere.
            OSError: It cannot be written.
        """

    def is_open(self, session_id: str) -> bool:
        """Whether somebody has it open for writing at this moment."""

    def folder_of(self, session_id: str) -> Path:
        """A private folder for files of the session. It need not exist, and is removed with the session.

        Raises:
            SessionError: That is no session's id.
        """

    def fork(self, session_id: str, *, is_mine: bool = False) -> str:
        """Copy a session as a new one. Args: is_mine: this program has it open, and nothing runs in it. Returns: the new id.

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
            workspace: A folder whose outputs are swept as those in the workspaces of sessions are.
            archive_after_days: Days without use after which a session is archived. None: never.
            max_bytes: Bytes that all sessions may take on disk. None: no limit.
            stop: Ends the sweep soon once it is set.

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
    """The sessions of this user, latest use first. Args: workspace: only those of this folder.

    Raises:
        SessionError: They cannot be read.
    """
    return session_store().sessions(workspace)


def newest(store: SessionStore, workspace: Path) -> StoredSession:
    """The latest session of a folder that has a prompt.

    Raises:
        SessionError: There is none, or they cannot be read.
    """
    for session in store.sessions(workspace):
        if session.title:
            return session
    raise SessionError(f"there is no session of {workspace} to continue: start a new one without --continue")


def new_session_id() -> str:
    """An id that sorts by time, such as `20261122-1754-9f3a1c`."""
    return f"{time.strftime('%Y%m%d-%H%M', time.gmtime())}-{secrets.token_hex(3)}"


def stats_below(folder: str) -> Iterator[os.stat_result]:
    """Yields the status of each file below a folder, without following links."""
    for place, _, names in () if os.path.islink(folder) else os.walk(folder):  # noqa: PTH114  # of text
        for name in names:
            with suppress(OSError):
                yield os.lstat(f"{place}/{name}")
