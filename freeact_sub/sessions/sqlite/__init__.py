"""The store `sqlite` (`SqliteStore`): all sessions of a user in one database of SQLite, with files beside it.

One database has all sessions, so that their list, their cost and the next sweep are queries. Texts above 32 kB, and the
files of other parts (`SessionStore.folder_of`), are in a folder of the session. All of it is in `$XDG_STATE_HOME/freeact`,
for its user alone (0700), and not in the workspace, which code may write.

A copy of a session has all rows and files of it, or those of its beginning.

Sweeping archives old sessions and removes the oldest above the limit, but never one that is open. An archived session keeps
its rows and can be resumed; its variables and the long outputs of its agents in the workspace are removed. When all sessions
exceed the limit in bytes, the oldest are removed. Outputs of agents without a session are removed when they are as old as a
session that is archived, and the remains of a killed program's session after a day.

Why not `pydantic_ai.conversation_store`: it stores a conversation when a run has ended, by an `await` of its own for each.
Here a call is committed before it runs and its result before it is used, in the middle of a run, together with events, and
by a thread that no event loop waits for. Its shape is good, and is taken over: a log of entries, each with the one before
it, and for each agent the newest, so that a history that is written anew (compaction, undo) keeps the old entries. `sqlite3`
is the standard library's; a library around it would be one more thing between a commit and the disk.
"""

import json
import logging
import os
import re
import shutil
import sqlite3
import stat
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from freeact_sub.config.budget import Usage
from freeact_sub.config.schema import SessionsConfig
from freeact_sub.errors import SessionError, no_such_session
from freeact_sub.sessions.sqlite.database import LOCK, NAME, Bodies, SessionLock, connect, connect_to_read, reason_of
from freeact_sub.sessions.sqlite.reader import UNREADABLE, SqliteReader, record_of, texts, usage_of
from freeact_sub.sessions.sqlite.writer import SqliteWriter
from freeact_sub.sessions.store import (
    FILES,
    FORK_NOTE,
    PAST,
    SESSION_ID,
    VARIABLES,
    ForkPoint,
    StoredSession,
    Swept,
    home_of_copy,
    new_session_id,
    stats_below,
)
from freeact_sub.system.process import state_folder
from freeact_sub.system.removal import remove
from freeact_sub.system.safe_files import link_or_copy

FOLDERS: Final = "sessions"
COPIES: Final = "workspaces"
RUNS: Final = "SELECT session_id, ending, status, parent_id, files FROM runs JOIN agents USING(session_id, agent_id)"
PROMPT_CHARS: Final = 4_000
"""Characters of a prompt that are searched."""

_ID: Final = re.compile(r"[0-9a-z-]{1,40}")
TABLES: Final[Mapping[str, Mapping[str, str]]] = {
    "sessions": {"created": ":now", "updated": ":now"},
    "agents": {"head": "head + :shift"},
    "runs": {"head": "head + :shift"},
    "entries": {"entry_id": "entry_id + :shift", "parent": "parent + :shift"},
    "calls": {"call_id": "NULL"},
    "answers": {"answer_id": "NULL"},
    "events": {"event_id": "NULL"},
}
"""All tables, and the columns whose values change. NULL: the next number."""
IN_PLACE: Final = ".saved-up-to"
"""The suffix of files that are overwritten in place."""
DAY_SECONDS: Final = 86_400
LARGE: Final = (VARIABLES, FILES, PAST)
"""Folders that an archived session does not keep."""
STRAY_SECONDS: Final = DAY_SECONDS
"""The least time that outputs of agents without a session stay, because such an agent may still be working elsewhere.
Folders and copies without a session stay as long, because a fork may be about to be made."""
MARK: Final = "swept"
"""A file that was last modified at the last sweep."""
BLOCK_BYTES: Final = 512
"""The unit of `st_blocks`: code writes the outputs, and a file with holes takes less than its size."""
OUTPUTS: Final = (".freeact", "outputs")
"""The folder in a workspace for long outputs and logs; each agent has a folder in it, named by its id."""
AGENT_ID: Final = re.compile(r"agent-[0-9a-f]{8}")

logger = logging.getLogger(__name__)
__all__ = ["SqliteReader", "SqliteStore", "SqliteWriter", "make_sqlite"]


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
        """Yield the beginning of each prompt of the roots, with the id of its session, to search in."""
        select = (
            "SELECT session_id, substr(prompt, 1, :chars) FROM runs JOIN agents USING(session_id, agent_id) "
            "WHERE parent_id IS NULL"
        )
        with self._reading() as connection:
            rows = [] if connection is None else connection.execute(select, {"chars": PROMPT_CHARS}).fetchall()
        for session_id, prompt in rows:
            yield session_id, beginning_of(prompt)

    def reader(self, session_id: str) -> SqliteReader:
        """Return a reader of a session; see `SqliteReader`. Raises: SessionError: There is none, or it cannot be read."""
        self.find(session_id)
        return SqliteReader(self.folder, session_id, self.folder_of(session_id))

    def folder_of(self, session_id: str) -> Path:
        """Return the session's own folder, for files; it is removed with the session. It need not exist.

        Raises:
            SessionError: It is not a session's id.
        """
        if not _ID.fullmatch(session_id):
            raise SessionError(f"{session_id!r} is not a session id")
        return self.folder / FOLDERS / session_id

    def lock(self, session_id: str) -> SessionLock:
        """Return the lock of a session."""
        return SessionLock(self.folder_of(session_id), session_id)

    def agents(self) -> dict[str, list[str]]:
        """Return the ids of all agents, by session. Raises: SessionError: They cannot be read."""
        found: dict[str, list[str]] = {}
        with self._reading() as connection:
            rows = [] if connection is None else connection.execute("SELECT session_id, agent_id FROM agents").fetchall()
        for session_id, agent_id in rows:
            found.setdefault(session_id, []).append(agent_id)
        return found

    def workspaces(self) -> set[Path]:
        """Return the workspaces of all sessions. Raises: SessionError: They cannot be read."""
        with self._reading() as connection:
            rows = [] if connection is None else connection.execute("SELECT workspace FROM sessions").fetchall()
        return {Path(row[0]) for row in rows}

    def size_bytes(self, session_id: str) -> int:
        """Return the bytes of the session's folder on disk, without its rows in the database."""
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
        """Return whether a program has the session open for writing now."""
        return not self.lock(session_id).is_free()

    def is_sweep_due(self) -> bool:
        """Return whether `sweep` has not been called for a day."""
        try:
            return time.time() - (self.folder / MARK).stat().st_mtime > DAY_SECONDS
        except OSError:
            return True

    def sweep(
        self, workspace: Path, *, archive_after_days: float | None, max_bytes: int | None, stop: threading.Event
    ) -> Swept:
        """Archive old sessions, and remove the oldest above the limit."""
        swept, sessions = Swept(), self.sessions()[::-1]
        before = 0.0 if archive_after_days is None else time.time() - archive_after_days * DAY_SECONDS
        for session in sessions:
            old = session.updated < before
            if old and not session.archived and not stop.is_set() and _archive(self, session):
                swept.archived.append(session.session_id)
        agents = self.agents()
        known, long_ago = {agent_id for ids in agents.values() for agent_id in ids}, min(before, time.time() - STRAY_SECONDS)
        for each in {workspace, *(session.workspace for session in sessions)}:
            _remove_strays(each, known, long_ago, stop)
        _remove_copies(self, time.time() - STRAY_SECONDS)
        self.drop_remains(time.time() - STRAY_SECONDS, stop)
        sizes = {session.session_id: _size(self, session, agents.get(session.session_id, [])) for session in sessions}
        total = sum(sizes.values()) + self.database_bytes
        for session in sessions:
            if max_bytes is None or total <= max_bytes or stop.is_set():
                break
            size = self.database_bytes
            if _remove(self, session):
                swept.removed.append(session.session_id)
                total -= sizes[session.session_id] + size - self.database_bytes
        if self.folder.is_dir():
            (self.folder / MARK).touch(mode=0o600)
        return swept

    def remove(self, session_id: str) -> None:
        """Remove a session, with the long outputs of its agents."""
        session = self.find(session_id)
        agents = _agents(self, session)
        self.drop(session.session_id)
        _remove_outputs(session.workspace, agents)
        home = home_of_copy(self, session.workspace)
        if home is not None and (home / FORK_NOTE).is_file() and not _is_used(self, home, _real_workspaces(self)):
            remove(str(home))

    def drop(self, session_id: str) -> None:
        """Remove a session: its rows and its folder, but not the outputs of its agents.

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
        """Remove folders without a session, left by a program that was killed during a fork or a removal.

        Args:
            before: Only folders that were last changed before this time.
            stop: Ends the removal soon after it is set.

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
        """Return the ids of all sessions, unreadable ones too. None: there is no database."""
        with self._reading() as connection:
            if connection is None:
                return None
            return {row[0] for row in connection.execute("SELECT session_id FROM sessions")}

    def archive(self, session_id: str, folders: Sequence[str]) -> None:
        """Remove large files of a session and keeps the conversation. Args: folders: names in the session's own folder.

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
        """Copy a session as a new one, wholly or not at all. Returns: the new id.

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
        """Hold the lock of a session inside. Args: what: the change, for the error. is_mine: this program has the lock."""
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
    """Return the record of a session. Args: agents: their number. runs: of all its agents, in the order of their start."""
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
    """Return the text of a JSON string that may be cut anywhere. Empty: it is in a file."""
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


def copy_rows(connection: sqlite3.Connection, session_id: str, new_id: str, point: ForkPoint | None = None) -> None:
    """Copy the rows of a session, in one transaction. Args: point: where the copy ends. Raises: sqlite3.Error."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        last, first = connection.execute(
            "SELECT COALESCE(MAX(entry_id), 0), (SELECT MIN(entry_id) FROM entries WHERE session_id = ?) FROM entries",
            (session_id,),
        ).fetchone()
        values = {"old": session_id, "new": new_id, "now": time.time(), "shift": last + 1 - (first or 0)}
        for table, changed in TABLES.items():
            columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
            taken = [{"session_id": ":new", **changed}.get(column, column) for column in columns]
            connection.execute(
                f"INSERT INTO {table}({', '.join(columns)}) SELECT {', '.join(taken)} FROM {table} "  # noqa: S608  # names of ours
                "WHERE session_id = :old ORDER BY rowid",
                values,
            )
        if point is not None:
            _cut(connection, point, values["shift"])
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise


def copy_files(folder: Path, new: Path) -> None:
    """Copy a session's folder. Files that are only ever replaced become hard links. Raises: OSError."""
    for place, _, names in os.walk(folder):
        there = new / Path(place).relative_to(folder)
        there.mkdir(mode=0o700, parents=True)
        for name in names:
            if name == LOCK:
                continue
            source = Path(place) / name
            if source.parent == folder or name.endswith(IN_PLACE):
                shutil.copy2(source, there / name, follow_symlinks=False)
            else:
                link_or_copy(source, there / name)


CUT: Final = """
    UPDATE agents SET head = (
        SELECT head FROM runs WHERE runs.session_id = :new AND runs.agent_id = agents.agent_id AND root_run > :last
        ORDER BY number LIMIT 1
    ) WHERE session_id = :new AND EXISTS (
        SELECT 1 FROM runs WHERE runs.session_id = :new AND runs.agent_id = agents.agent_id AND root_run > :last
    );
    UPDATE agents SET head = :head WHERE session_id = :new AND parent_id IS NULL;
    DELETE FROM runs WHERE session_id = :new AND root_run > :last;
    DELETE FROM answers WHERE session_id = :new AND root_run > :last;
    DELETE FROM events WHERE session_id = :new AND root_run > :last;
    DELETE FROM calls WHERE session_id = :new AND NOT EXISTS (
        SELECT 1 FROM runs WHERE runs.session_id = :new AND runs.agent_id = calls.agent_id AND runs.number = calls.run
    );
    DELETE FROM agents WHERE session_id = :new AND parent_id IS NOT NULL AND NOT EXISTS (
        SELECT 1 FROM runs WHERE runs.session_id = :new AND runs.agent_id = agents.agent_id
    );
    WITH RECURSIVE kept(entry_id) AS (
        SELECT head FROM agents WHERE session_id = :new UNION SELECT head FROM runs WHERE session_id = :new
        UNION SELECT parent FROM entries JOIN kept USING(entry_id)
    ) DELETE FROM entries WHERE session_id = :new AND entry_id NOT IN (
        SELECT entry_id FROM kept WHERE entry_id IS NOT NULL
    )
"""
"""Statements that trim a copy to an earlier moment. A conversation ends before its agent's first run after that."""


def _cut(connection: sqlite3.Connection, point: ForkPoint, shift: int) -> None:
    """Cut the rows of a new session. Args: shift: by how much the numbers of its entries differ."""
    values: dict[str, str | int | None] = {"new": point.new_id, "workspace": str(point.workspace)}
    connection.execute("UPDATE sessions SET workspace = :workspace WHERE session_id = :new", values)
    old, new = point.states
    connection.execute(
        "UPDATE runs SET files = ? || substr(files, ?) WHERE session_id = ? AND substr(files, 1, ?) = ?",
        (new, len(old) + 1, point.new_id, len(old), old),
    )
    if point.last is None:
        return
    values |= {"last": point.last, "head": None if point.head is None else point.head + shift}
    for statement in CUT.split(";"):
        connection.execute(statement, values)


def _archive(store: SqliteStore, session: StoredSession) -> bool:
    try:
        _check_unused(store, session)
        agents = _agents(store, session)
        store.archive(session.session_id, LARGE)
        _remove_outputs(session.workspace, agents)
    except SessionError as error:  # it may be open
        logger.info("not archived: %s", error)
        return False
    return True


def _remove(store: SqliteStore, session: StoredSession) -> bool:
    try:
        _check_unused(store, session)
        store.remove(session.session_id)
    except SessionError as error:
        logger.info("not removed: %s", error)
        return False
    return True


def _check_unused(store: SqliteStore, session: StoredSession) -> None:
    """Raise SessionError if the session was used, or removed, since the sweep began."""
    if store.find(session.session_id).updated != session.updated:
        raise SessionError(f"the session {session.session_id} has been used since")


def _size(store: SqliteStore, session: StoredSession, agents: list[str]) -> int:
    """Return the bytes of a session on disk, with the long outputs of its agents."""
    size, folder = store.size_bytes(session.session_id), _outputs(session.workspace)
    for agent_id in filter(AGENT_ID.fullmatch, agents if folder is not None else ()):
        size += sum(min(found.st_size, found.st_blocks * BLOCK_BYTES) for found in stats_below(f"{folder}/{agent_id}"))
    return size


def _agents(store: SqliteStore, session: StoredSession) -> list[str]:
    """Return the agents whose outputs are removed with the session: no other session, such as a fork, has them."""
    agents = store.agents()
    others = {other.session_id for other in store.sessions() if not other.archived} - {session.session_id}
    kept = {agent_id for other in others for agent_id in agents.get(other, ())}
    return [each for each in agents.get(session.session_id, ()) if AGENT_ID.fullmatch(each) and each not in kept]


def _remove_outputs(workspace: Path, agents: list[str]) -> None:
    folder = _outputs(workspace)
    for agent_id in agents if folder is not None else ():
        remove(f"{folder}/{agent_id}")


def _remove_strays(workspace: Path, known: AbstractSet[str], before: float, stop: threading.Event) -> None:
    """Remove the outputs of agents without a session that were last written before a time."""
    folder = _outputs(workspace)
    for path in folder.iterdir() if folder is not None else ():
        if AGENT_ID.fullmatch(path.name) and path.name not in known and not stop.is_set():
            with suppress(FileNotFoundError):  # another program removes it
                written = [path.lstat().st_mtime, *(found.st_mtime for found in stats_below(str(path)))]
                if max(written) < before:
                    remove(str(path))


def _is_used(store: SqliteStore, home: Path, workspaces: AbstractSet[Path]) -> bool:
    """Return whether a session works in the folder of a copy, anywhere below it, or in the folder of all copies.

    A session further above, as in the user's home, does not count: it would keep all copies for ever.
    """
    copies, home = _real(store.copies), _real(home)
    return any(each == copies or each.is_relative_to(home) for each in workspaces)


def _real_workspaces(store: SqliteStore) -> set[Path]:
    return {_real(workspace) for workspace in store.workspaces()}


def _real(path: Path) -> Path:
    return Path(os.path.realpath(path))  # `resolve` raises for links in a circle


def _remove_copies(store: SqliteStore, before: float) -> None:
    """Remove the copies of workspaces in which no session works. Args: before: only those made before this time."""
    workspaces = _real_workspaces(store)
    with suppress(FileNotFoundError):
        for path in store.copies.iterdir():
            is_old = SESSION_ID.fullmatch(path.name) and path.lstat().st_mtime < before
            if is_old and not _is_used(store, path, workspaces):
                remove(str(path))


def _outputs(workspace: Path) -> Path | None:
    """Return the folder of agents' outputs. None: there is none, or a link, which code may have made, leads to it."""
    folder = workspace
    for name in OUTPUTS:
        folder /= name
        try:
            if not stat.S_ISDIR(folder.lstat().st_mode):
                return None
        except OSError:
            return None
    return folder


def make_sqlite(_: SessionsConfig) -> SqliteStore:
    """Makes the store of this user."""
    return SqliteStore(state_folder())
