"""Copies a session: all of its rows and files, or those of its beginning."""

import os
import shutil
import sqlite3
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from freeact_sub.sessions.records import ForkPoint
from freeact_sub.sessions.sqlite.lock import NAME as LOCK
from freeact_sub.system.links import link_or_copy

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


def copy_rows(connection: sqlite3.Connection, session_id: str, new_id: str, point: ForkPoint | None = None) -> None:
    """Copies the rows of a session, in one transaction. Args: point: where the copy ends. Raises: sqlite3.Error."""
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
"""What leaves of a copy only what there was at a moment. A conversation ends before its agent's first run after that."""


def _cut(connection: sqlite3.Connection, point: ForkPoint, shift: int) -> None:
    """Cuts the rows of a new session. Args: shift: by how much the numbers of its entries differ."""
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
