"""Copies a session: its rows in the database, and its files."""

import os
import shutil
import sqlite3
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from freeact_sub.sessions.lock import NAME as LOCK

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


def copy_rows(connection: sqlite3.Connection, session_id: str, new_id: str) -> None:
    """Copies all rows of a session, in one transaction. Raises: sqlite3.Error."""
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
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise


def copy_files(folder: Path, new: Path) -> None:
    """Copies a session's folder. Files that are only ever replaced become hard links. Raises: OSError."""
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
                _link(source, there / name)


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError:  # another file system, or too many links
        if os.path.lexists(source):  # else git, which still reads the workspace, has removed it
            shutil.copy2(source, target, follow_symlinks=False)
