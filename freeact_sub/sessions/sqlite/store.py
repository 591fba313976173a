"""`SqliteStore`: all sessions of a user in one database."""

import json
import logging
import re
import sqlite3
import stat
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from freeact_sub.config.budget import Usage
from freeact_sub.errors import SessionError, no_such_session
from freeact_sub.sessions.records import ForkPoint, StoredSession, Swept
from freeact_sub.sessions.sqlite import sweeping
from freeact_sub.sessions.sqlite.bodies import Bodies
from freeact_sub.sessions.sqlite.copying import copy_files, copy_rows
from freeact_sub.sessions.sqlite.database import NAME, connect, connect_to_read, reason_of
from freeact_sub.sessions.sqlite.lock import SessionLock
from freeact_sub.sessions.sqlite.reader import UNREADABLE, SqliteReader, record_of, texts, usage_of
from freeact_sub.sessions.sqlite.writer import SqliteWriter
from freeact_sub.sessions.store import SESSION_ID, new_session_id, stats_below
from freeact_sub.system.removal import remove

FOLDERS: Final = "sessions"
COPIES: Final = "workspaces"
RUNS: Final = "SELECT session_id, ending, status, parent_id, files FROM runs JOIN agents USING(session_id, agent_id)"
PROMPT_CHARS: Final = 4_000
"""Characters of a prompt that are searched."""
logger = logging.getLogger(__name__)

_ID: Final = re.compile(r"[0-9a-z-]{1,40}")


class SqliteStore:
    """The sessions in one folder. It keeps nothing open."""

    def __init__(self, folder: Path) -> None:
        """Args: folder: see `state_folder`; it need not exist."""
        self.folder = folder
        self.copies = folder.resolve() / COPIES

    def sessions(self, workspace: Path | None = None) -> list[StoredSession]:
        """Return all sessions, latest use first. Args: workspace: only those of this folder.

        Raises:
            SessionError: They cannot be read.
        """
        if workspace is None:
            return self._sessions("SELECT session_id FROM sessions")
        return self._sessions("SELECT session_id FROM sessions WHERE workspace = ?", str(workspace))

    def find(self, session_id: str) -> StoredSession:
        """Return a session by its id or an unambiguous beginning of it.

        Raises:
            SessionError: There is none, or more than one; or it cannot be read.
        """
        among = "SELECT session_id FROM sessions WHERE substr(session_id, 1, ?) = ?"
        found = self._sessions(among, len(session_id), session_id) if session_id else []  # every id begins with nothing
        exact = [session for session in found if session.session_id == session_id]
        if exact or len(found) == 1:
            return (exact or found)[0]
        if found:
            names = ", ".join(session.session_id for session in found[:5])
            raise SessionError(f"several sessions begin with {session_id!r}: give more of the id ({names})")
        raise no_such_session(session_id)

    def prompts(self) -> Iterator[tuple[str, str]]:
        """The beginnings of all prompts of the roots, each with the id of its session, to search in."""
        select = (
            "SELECT session_id, substr(prompt, 1, :chars) FROM runs JOIN agents USING(session_id, agent_id) "
            "WHERE parent_id IS NULL"
        )
        with self._reading() as connection:
            rows = [] if connection is None else connection.execute(select, {"chars": PROMPT_CHARS}).fetchall()
        for session_id, prompt in rows:
            yield session_id, beginning_of(prompt)

    def reader(self, session_id: str) -> SqliteReader:
        """Returns a reader of a session; see `SqliteReader`. Raises: SessionError: There is none, or it cannot be read."""
        self.find(session_id)
        return SqliteReader(self.folder, session_id, self.folder_of(session_id))

    def folder_of(self, session_id: str) -> Path:
        """The session's own folder, for files; it is removed with the session. It need not exist.

        Raises:
            SessionError: It is not a session's id.
        """
        if not _ID.fullmatch(session_id):
            raise SessionError(f"{session_id!r} is not a session id")
        return self.folder / FOLDERS / session_id

    def lock(self, session_id: str) -> SessionLock:
        """Returns the lock of a session."""
        return SessionLock(self.folder_of(session_id), session_id)

    def agents(self) -> dict[str, list[str]]:
        """The ids of all agents, by session. Raises: SessionError: They cannot be read."""
        found: dict[str, list[str]] = {}
        with self._reading() as connection:
            rows = [] if connection is None else connection.execute("SELECT session_id, agent_id FROM agents").fetchall()
        for session_id, agent_id in rows:
            found.setdefault(session_id, []).append(agent_id)
        return found

    def workspaces(self) -> set[Path]:
        """The workspaces of all sessions. Raises: SessionError: They cannot be read."""
        with self._reading() as connection:
            rows = [] if connection is None else connection.execute("SELECT workspace FROM sessions").fetchall()
        return {Path(row[0]) for row in rows}

    def size_bytes(self, session_id: str) -> int:
        """The bytes of the session's folder on disk, without its rows in the database."""
        found = {(each.st_dev, each.st_ino): each.st_size for each in stats_below(str(self.folder_of(session_id)))}
        return sum(found.values())  # earlier variables are second names of the same files

    @property
    def database_bytes(self) -> int:
        """The bytes of the database on disk."""
        size = 0
        for path in self.folder.glob(f"{NAME}*"):
            with suppress(FileNotFoundError):  # another program has closed the database: its log is removed then
                size += path.stat().st_size
        return size

    def open(self, session_id: str, *, secrets: Sequence[str], on_failure: Callable[[str], None]) -> SqliteWriter:
        """Open a session for writing; no other program can until the writer is closed."""
        lock, folder = self.lock(session_id), self.folder_of(session_id)
        lock.take()
        return SqliteWriter(
            self.folder, session_id, session_folder=folder, secrets=secrets, on_failure=on_failure, lock=lock
        )

    def is_open(self, session_id: str) -> bool:
        """Whether a program has it open for writing now."""
        return not self.lock(session_id).is_free()

    def is_sweep_due(self) -> bool:
        """Whether `sweep` has not been called for a day."""
        return sweeping.is_due(self)

    def sweep(
        self, workspace: Path, *, archive_after_days: float | None, max_bytes: int | None, stop: threading.Event
    ) -> Swept:
        """Archive old sessions, and remove the oldest above the limit."""
        return sweeping.sweep(self, workspace, archive_after_days=archive_after_days, max_bytes=max_bytes, stop=stop)

    def remove(self, session_id: str) -> None:
        """Remove a session, with the long outputs of its agents."""
        sweeping.remove_session(self, session_id)

    def drop(self, session_id: str) -> None:
        """Removes a session: its rows and its folder, and not the outputs of its agents.

        Raises:
            SessionBusyError: It is open.
            SessionError: There is none, or it cannot be removed.
        """
        session_id = self.find(session_id).session_id
        with self._changing(session_id, "removed"):
            with closing(connect(self.folder)) as connection:
                connection.execute("DELETE FROM sessions WHERE session_id = ?", (session_id,))
                connection.execute("PRAGMA incremental_vacuum").fetchall()
            remove(str(self.folder_of(session_id)))

    def drop_remains(self, before: float, stop: threading.Event) -> None:
        """Removes the folders that a program which was killed has left, with no session: of a fork, or of a removal.

        Args:
            before: Those that were last changed before this time.
            stop: Ends it soon after it is set.

        Raises:
            SessionError: The sessions cannot be read.
        """
        known = self._ids()
        with suppress(FileNotFoundError):
            for path in (self.folder / FOLDERS).iterdir():
                if known is None or path.name in known or not SESSION_ID.fullmatch(path.name) or stop.is_set():
                    continue
                found = path.lstat()
                if stat.S_ISDIR(found.st_mode) and found.st_mtime < before:
                    self._drop_remains_of(path.name)

    def _drop_remains_of(self, session_id: str) -> None:
        try:
            with self._changing(session_id, "removed"):  # one that is open, and has no prompt yet, has a lock and no row
                known = self._ids()
                if known is not None and session_id not in known:
                    remove(str(self.folder_of(session_id)))
        except SessionError as error:
            logger.info("not removed: %s", error)

    def _ids(self) -> set[str] | None:
        """The ids of all sessions, also of those that cannot be read. None: there is no database."""
        with self._reading() as connection:
            if connection is None:
                return None
            return {row[0] for row in connection.execute("SELECT session_id FROM sessions")}

    def archive(self, session_id: str, folders: Sequence[str]) -> None:
        """Removes large files of a session and keeps the conversation. Args: folders: names in the session's own folder.

        Raises:
            SessionBusyError: It is open.
            SessionError: It cannot be written.
        """
        with self._changing(session_id, "archived"):
            for name in folders:
                remove(str(self.folder_of(session_id) / name))
            with closing(connect(self.folder)) as connection:
                connection.execute("UPDATE sessions SET archived = 1 WHERE session_id = ?", (session_id,))

    def fork(self, session_id: str, *, is_mine: bool = False, point: ForkPoint | None = None) -> str:
        """Copies a session as a new one, wholly or not at all. Returns: the new id.

        Args:
            session_id: The session.
            is_mine: This program has it open, and nothing runs in it.
            point: Where the copy ends, and where it works. None: it has everything.

        Raises:
            SessionBusyError: It is open.
            SessionError: There is none, or it cannot be copied.
        """
        session_id = self.find(session_id).session_id
        new_id = new_session_id() if point is None else point.new_id
        with self._changing(session_id, "forked", is_mine=is_mine):
            folder = self.folder_of(new_id)
            try:
                copy_files(self.folder_of(session_id), folder)
                if point is not None:
                    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                    point.prepare(folder)
                with closing(connect(self.folder)) as connection:
                    copy_rows(connection, session_id, new_id, point)
            except BaseException:
                remove(str(folder))
                raise
        return new_id

    @contextmanager
    def _changing(self, session_id: str, what: str, *, is_mine: bool = False) -> Iterator[None]:
        """Have the lock of a session inside. Args: what: is done, for the error. is_mine: this program has the lock."""
        lock = self.lock(session_id)
        try:
            if not is_mine:
                lock.take()
            yield
        except (sqlite3.Error, OSError) as error:
            raise SessionError(f"the session {session_id} cannot be {what}: {reason_of(error, self.folder)}") from error
        finally:
            lock.give_back()

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection | None]:
        connection = connect_to_read(self.folder)
        try:
            yield connection
        except sqlite3.Error as error:
            raise SessionError(f"the sessions in {self.folder} cannot be read: {reason_of(error, self.folder)}") from error
        finally:
            if connection is not None:
                connection.close()

    def _sessions(self, among: str, *values: Any) -> list[StoredSession]:
        """Read sessions, latest use first, with as many queries for a thousand as for one.

        Args:
            among: A query for their ids.
            values: Its parameters.
        """
        with self._reading() as connection:
            if connection is None:
                return []
            sessions, agents, runs = (
                connection.execute(f"{select} WHERE session_id IN ({among}) {end}", values).fetchall()
                for select, end in (
                    ("SELECT * FROM sessions", "ORDER BY updated DESC, created DESC"),
                    ("SELECT session_id, COUNT(*) FROM agents", "GROUP BY session_id"),
                    (RUNS, "ORDER BY began"),
                )
            )
        counts, runs_of = dict(agents), defaultdict[str, list[sqlite3.Row]](list)
        for run in runs:
            runs_of[run["session_id"]].append(run)
        found = []
        for row in sessions:
            session_id = row["session_id"]
            try:
                bodies = Bodies(self.folder_of(session_id))
                found.append(_session(row, counts.get(session_id, 0), runs_of[session_id], bodies))
            except UNREADABLE as error:
                logger.warning("the session %s cannot be read: %s", session_id, error)
        return found


def _session(row: sqlite3.Row, agents: int, runs: list[sqlite3.Row], bodies: Bodies) -> StoredSession:
    """The record of a session. Args: agents: their number. runs: of all its agents, in the order of their start."""
    usage = sum((_usage(run["ending"], bodies) for run in runs), Usage())
    of_root = [run for run in runs if run["parent_id"] is None]
    facts = _json_object(row["model_facts"], bodies)
    converted = {
        "workspace": Path(row["workspace"]),
        "archived": bool(row["archived"]),
        "model_settings": settings if isinstance(settings := facts.get("settings"), dict) else {},
        "addresses": texts(facts.get("addresses")),
        "status": of_root[-1]["status"] if of_root else "",
        "once": [run["files"] for run in of_root] == [None],
    }
    return record_of(StoredSession, row, **converted, agents=agents, usage=usage)


def beginning_of(stored: str) -> str:
    """The text of a JSON string that may be cut anywhere. Empty: it is in a file."""
    for end in ("", '"'):
        try:
            value = json.loads(stored + end)
        except ValueError:
            continue
        return value if isinstance(value, str) else ""
    return stored.removeprefix('"')


def _usage(ending: str | None, bodies: Bodies) -> Usage:
    return usage_of(_json_object("{}" if ending is None else ending, bodies).get("usage"))


def _json_object(stored: str, bodies: Bodies) -> dict[str, Any]:
    """Return a stored object; empty if it is unreadable."""
    try:
        value = json.loads(bodies.text(stored))
    except UNREADABLE as error:
        logger.warning("a part of a session cannot be read: %s", error)
        return {}
    return value if isinstance(value, dict) else {}
