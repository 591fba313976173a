"""A thousand sessions, put into the database at once."""

import time
from contextlib import closing
from pathlib import Path

from freeact_sub.sessions.sqlite import SqliteStore
from freeact_sub.sessions.sqlite.database import connect


def add_sessions(folder: Path, here: Path, count: int = 1_000) -> SqliteStore:
    """Sessions of this folder and of others, and runs of one prompt; number 0 is the newest."""
    now = time.time()
    with closing(connect(folder)) as connection:
        connection.execute("BEGIN")
        for number in range(count):
            session, once = f"s-{number:04}", number % 3 == 2
            place = str(here if number % 3 != 1 else here / "elsewhere")
            at = now - 3_600 * number
            connection.execute(
                "INSERT INTO sessions(session_id, workspace, created, updated, title) VALUES (?, ?, ?, ?, ?)",
                (session, place, at, at, f"clean station {number}\nand more"),
            )
            connection.execute(
                "INSERT INTO agents(session_id, agent_id, key, depth, description, model, mode, in_background) "
                "VALUES (?, 'agent-1', 'k', 0, '', 'm', 'ask', 0)",
                (session,),
            )
            for run in range(1, 2 if once else 4):
                connection.execute(
                    "INSERT INTO runs(session_id, agent_id, number, root_run, prompt, budget, began, status, ending, files) "
                    "VALUES (?, 'agent-1', ?, ?, ?, '{}', ?, 'completed', ?, ?)",
                    (session, run, run, f'"prompt {run} of number {number:04}"', at, ENDING, None if once else ""),
                )
        connection.execute("COMMIT")
    return SqliteStore(folder)


ENDING = '{"usage": {"turns": 1, "input_tokens": 1000, "output_tokens": 34}}'
