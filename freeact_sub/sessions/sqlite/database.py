"""The database: its tables, its versions, and connections to it; the texts beside it; the locks of sessions.

Write-ahead logging with `synchronous=NORMAL`: commits outlive the program, also after `kill -9`. A machine that loses its
power may lose the last commits, but never the database.

`Bodies` are texts of a session without secrets: small ones in the database, large ones in files named by their digest.
`SessionLock`: a session is open in one program at a time; the system releases it when that program ends.
"""

import fcntl
import hashlib
import json
import os
import re
import sqlite3
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from freeact_sub.errors import SessionBusyError, SessionError
from freeact_sub.system.process import late_secrets

NAME: Final = "sessions.db"
BUSY_SECONDS: Final = 5.0
"""Seconds that a write waits for another program's."""
RETRY_SECONDS: Final = 0.01

MIGRATIONS: Final[Sequence[str]] = (
    """
    CREATE TABLE sessions(
        session_id TEXT PRIMARY KEY, workspace TEXT NOT NULL, created REAL NOT NULL, updated REAL NOT NULL,
        title TEXT NOT NULL DEFAULT '', model TEXT NOT NULL DEFAULT '', archived INTEGER NOT NULL DEFAULT 0
    );
    CREATE INDEX sessions_by_workspace ON sessions(workspace, updated);
    CREATE TABLE agents(
        session_id TEXT NOT NULL REFERENCES sessions ON DELETE CASCADE, agent_id TEXT NOT NULL, key TEXT NOT NULL,
        parent_id TEXT, depth INTEGER NOT NULL, tool_call_id TEXT, description TEXT NOT NULL, agent_type TEXT,
        model TEXT NOT NULL, mode TEXT NOT NULL, in_background INTEGER NOT NULL, head INTEGER,
        PRIMARY KEY(session_id, agent_id)
    );
    CREATE TABLE runs(
        session_id TEXT NOT NULL REFERENCES sessions ON DELETE CASCADE, agent_id TEXT NOT NULL, number INTEGER NOT NULL,
        root_run INTEGER NOT NULL, prompt TEXT NOT NULL, budget TEXT NOT NULL, began REAL NOT NULL, ended REAL,
        status TEXT NOT NULL DEFAULT '', ending TEXT, output TEXT,
        PRIMARY KEY(session_id, agent_id, number)
    );
    CREATE TABLE entries(
        entry_id INTEGER PRIMARY KEY, session_id TEXT NOT NULL REFERENCES sessions ON DELETE CASCADE, agent_id TEXT NOT NULL,
        parent INTEGER, message TEXT NOT NULL
    );
    CREATE INDEX entries_by_agent ON entries(session_id, agent_id);
    CREATE TABLE calls(
        call_id INTEGER PRIMARY KEY, session_id TEXT NOT NULL REFERENCES sessions ON DELETE CASCADE, agent_id TEXT NOT NULL,
        run INTEGER NOT NULL, number INTEGER NOT NULL, tool_call_id TEXT, from_code INTEGER NOT NULL, name TEXT NOT NULL,
        args TEXT NOT NULL, began REAL NOT NULL, ended REAL, outcome TEXT NOT NULL DEFAULT '', result TEXT
    );
    CREATE INDEX calls_by_agent ON calls(session_id, agent_id);
    CREATE TABLE answers(
        answer_id INTEGER PRIMARY KEY, session_id TEXT NOT NULL REFERENCES sessions ON DELETE CASCADE, agent_id TEXT
        NOT NULL, root_run INTEGER NOT NULL, digest TEXT NOT NULL, value TEXT NOT NULL
    );
    CREATE INDEX answers_by_session ON answers(session_id);
    CREATE TABLE events(
        event_id INTEGER PRIMARY KEY, session_id TEXT NOT NULL REFERENCES sessions ON DELETE CASCADE, agent_id TEXT NOT NULL,
        root_run INTEGER NOT NULL, type TEXT NOT NULL, event TEXT NOT NULL
    );
    CREATE INDEX events_by_session ON events(session_id, agent_id);
    """,
    "ALTER TABLE agents ADD COLUMN scope TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE runs ADD COLUMN undone INTEGER NOT NULL DEFAULT 0",
    "ALTER TABLE runs ADD COLUMN head INTEGER; ALTER TABLE runs ADD COLUMN files TEXT",
    """
    ALTER TABLE sessions ADD COLUMN model_facts TEXT NOT NULL DEFAULT '{}';
    ALTER TABLE agents ADD COLUMN address TEXT NOT NULL DEFAULT ''
    """,
    """
    ALTER TABLE agents ADD COLUMN thinking TEXT NOT NULL DEFAULT '';
    ALTER TABLE agents ADD COLUMN tools TEXT;
    ALTER TABLE agents ADD COLUMN own_files INTEGER NOT NULL DEFAULT 0
    """,
    """
    ALTER TABLE agents ADD COLUMN choices TEXT NOT NULL DEFAULT '{}';
    UPDATE agents SET choices = json_object(
        'scope', scope, 'thinking', nullif(thinking, ''), 'tools', CASE WHEN json_valid(tools) THEN json(tools) END,
        'own_files', json(iif(own_files, 'true', 'false'))
    );
    ALTER TABLE agents DROP COLUMN scope;
    ALTER TABLE agents DROP COLUMN thinking;
    ALTER TABLE agents DROP COLUMN tools;
    ALTER TABLE agents DROP COLUMN own_files
    """,
)
"""The migrations, one for each version. A released one never changes; new ones are added at the end."""


TABLES: Final = frozenset(re.findall(r"CREATE TABLE (\w+)", " ".join(MIGRATIONS)))
OF_THE_CONTENT: Final = (sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT)
"""Errors caused by the content of a database, not by the disk, its rights, or another program."""
CHECK_SECONDS: Final = 10.0
CHECK_STEPS: Final = 100_000
"""Steps of SQLite between two looks at the clock."""
MAX_CHARS: Final = 32_000
"""Characters of a text in the database, at most."""
FILES: Final = "texts"
_MARK: Final = "@sha256:"
"""Precedes the digest of a text in a file; no JSON begins with it."""
LOCK = "lock"


def connect(folder: Path) -> sqlite3.Connection:
    """Opens a connection that writes; creates the database, or migrates it to this version.

    Raises:
        SessionError: A newer version of this program wrote it.
        sqlite3.Error, OSError: It cannot be opened.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.chmod(0o700)
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        connection = sqlite3.connect(folder / NAME, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
        try:
            _prepare(connection, folder)
        except sqlite3.OperationalError as error:
            connection.close()
            # SQLite does not wait while another program creates the database
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(RETRY_SECONDS)
        except BaseException:
            connection.close()
            raise
        else:
            return connection


def _prepare(connection: sqlite3.Connection, folder: Path) -> None:
    connection.execute("PRAGMA auto_vacuum = INCREMENTAL")  # has an effect on a new database only
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute("PRAGMA foreign_keys = ON")
    _migrate(connection, folder)


def connect_to_read(folder: Path) -> sqlite3.Connection | None:
    """Opens a connection that only reads. None: there is no database.

    Raises:
        SessionError: It has another version, or cannot be read.
    """
    path = folder / NAME
    if not path.exists():
        return None
    try:
        if _version_of(path) < len(MIGRATIONS):
            connect(folder).close()
        connection = _opened(path)
    except (sqlite3.Error, OSError) as error:
        raise SessionError(f"the sessions in {path} cannot be read: {reason_of(error, folder)}") from error
    connection.row_factory = sqlite3.Row
    connection.text_factory = lambda text: text.decode("utf-8", "replace")
    return connection


def reason_of(error: Exception, folder: Path) -> str:
    """Returns the reason why the database in a folder cannot be used; if it is damaged, with the way out."""
    words = str(error) or type(error).__name__
    if isinstance(error, sqlite3.Error) and getattr(error, "sqlite_errorcode", 0) & 0xFF in OF_THE_CONTENT:
        return _damaged(folder, words)
    return words


def _damaged(folder: Path, words: str) -> str:
    path = folder / NAME
    others = " and ".join(f"{NAME}{end}" for end in ("-wal", "-shm") if (folder / f"{NAME}{end}").exists())
    return f"it is damaged ({words}): move {path}{others and f', with {others},'} to another folder; a new one is made then"


def problem_of(folder: Path) -> str:
    """Returns the problem of the database in a folder, with the way out."""
    try:
        connection = connect_to_read(folder)
    except SessionError as error:
        return str(error)
    if connection is None:
        return ""
    end = time.monotonic() + CHECK_SECONDS
    connection.set_progress_handler(lambda: time.monotonic() > end, CHECK_STEPS)
    try:
        found = connection.execute("PRAGMA integrity_check(1)").fetchone()[0]
        missing = TABLES - {row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    except sqlite3.Error as error:
        is_late = getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_INTERRUPT
        return "" if is_late else f"the sessions in {folder / NAME} cannot be read: {reason_of(error, folder)}"
    finally:
        connection.close()
    problem = f"it has no table {min(missing)}" if missing else "" if found == "ok" else " ".join(str(found).split())
    return f"the sessions in {folder / NAME} cannot be read: {_damaged(folder, problem[:200])}" if problem else ""


def _opened(path: Path) -> sqlite3.Connection:
    """Opens a connection that only reads, but may recover the log of a program that was killed while it wrote."""
    for mode in ("rw", "ro"):  # `ro` for a read-only folder, where nothing can be recovered
        connection = sqlite3.connect(f"{path.as_uri()}?mode={mode}", uri=True, timeout=BUSY_SECONDS, check_same_thread=False)
        try:
            connection.execute("PRAGMA query_only = ON")
            connection.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()
        except sqlite3.OperationalError:
            connection.close()
            if mode == "ro":
                raise
        except BaseException:
            connection.close()
            raise
        else:
            break
    return connection


def _version_of(path: Path) -> int:
    connection = _opened(path)
    try:
        version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    finally:
        connection.close()
    if version > len(MIGRATIONS):
        raise _newer(path)
    return version


def _newer(path: Path) -> SessionError:
    return SessionError(
        f"{path} was made by a newer version of freeact-sub: use that, or name another folder by XDG_STATE_HOME"
    )


def _migrate(connection: sqlite3.Connection, folder: Path) -> None:
    """Migrates the database, while other programs wait."""
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if version > len(MIGRATIONS):
        raise _newer(folder / NAME)
    if version == len(MIGRATIONS):
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        for migration in MIGRATIONS[version:]:
            for statement in filter(str.strip, migration.split(";")):
                connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise


class Bodies:
    """The texts of one session."""

    def __init__(self, folder: Path, secrets: Sequence[str] = ()) -> None:
        """Args: folder: the session's own. secrets: values that are never written."""
        self._folder = folder / FILES
        # longest first, since one may be part of another; also in their JSON form
        forms = {form for secret in secrets for form in (secret, _in_json(secret)) if form}
        self._secrets = sorted(forms, key=len, reverse=True)

    def clean(self, text: str) -> str:
        """Returns the text without secrets and lone surrogates."""
        for secret in (*self._secrets, *late_secrets()):
            if secret in text:
                text = text.replace(secret, "[secret]")
        return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode("utf-8")

    def stored(self, text: str) -> str:
        """Returns the database's value for a JSON text; writes a file for a large one."""
        text = self.clean(text)
        if len(text) <= MAX_CHARS:
            return text
        content = text.encode()
        digest = hashlib.sha256(content).hexdigest()
        path = self._folder / digest
        if not path.exists():
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            new = path.with_suffix(".new")
            new.write_bytes(content)
            os.replace(new, path)  # noqa: PTH105  # as the rest: at once, or not at all
        return _MARK + digest

    def text(self, stored: str) -> str:
        """Returns the text of a value in the database.

        Raises:
            SessionError: Its file is missing or was changed.
        """
        if not stored.startswith(_MARK):
            return stored
        digest = stored.removeprefix(_MARK)
        try:
            content = (self._folder / digest).read_bytes()
        except OSError as error:
            raise SessionError(f"a text of the session is missing: {error}") from error
        if hashlib.sha256(content).hexdigest() != digest:
            raise SessionError(f"a text of the session is damaged: {self._folder / digest}")
        return content.decode()


def _in_json(secret: str) -> str:
    return json.dumps(secret, ensure_ascii=False)[1:-1]


class SessionLock:
    """The lock of a session, from `take` to `give_back`."""

    def __init__(self, folder: Path, session_id: str) -> None:
        """Args: folder: the session's own; it need not exist."""
        self._path = folder / LOCK
        self._session_id = session_id
        self._descriptor: int | None = None

    def take(self) -> None:
        """Takes the lock.

        Raises:
            SessionBusyError: Another program, or another agent of this one, has it.
            OSError: The folder cannot be written.
        """
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(descriptor, 20, 0).decode("ascii", "replace").strip()
            os.close(descriptor)
            raise SessionBusyError(self._session_id, holder) from None
        except BaseException:
            os.close(descriptor)
            raise
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        self._descriptor = descriptor

    def give_back(self) -> None:
        """Releases the lock. Can be called again."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def is_free(self) -> bool:
        """Returns whether the session is free now; True also if it does not exist."""
        try:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            return True
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        finally:
            os.close(descriptor)
        return True
