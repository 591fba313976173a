"""The store `sqlite`: all sessions of a user in one database of SQLite, with files beside it.

One database has all sessions, so that their list, their cost and the next sweep are queries. Texts above 32 kB, and the
files of other parts (`SessionStore.folder_of`), are in a folder of the session. All of it is in `$XDG_STATE_HOME/freeact`,
for its user alone (0700), and not in the workspace, which code may write.

Why not `pydantic_ai.conversation_store`: it stores a conversation when a run has ended, by an `await` of its own for each.
Here a call is committed before it runs and its result before it is used, in the middle of a run, together with events, and
by a thread that no event loop waits for. Its shape is good, and is taken over: a log of entries, each with the one before
it, and for each agent the newest, so that a history that is written anew (compaction, undo) keeps the old entries. `sqlite3`
is the standard library's; a library around it would be one more thing between a commit and the disk.
"""

from freeact_sub.config.schema import SessionsConfig, state_folder
from freeact_sub.sessions.sqlite.reader import SqliteReader
from freeact_sub.sessions.sqlite.store import SqliteStore
from freeact_sub.sessions.sqlite.writer import SqliteWriter

__all__ = ["SqliteReader", "SqliteStore", "SqliteWriter", "make_sqlite"]


def make_sqlite(_: SessionsConfig) -> SqliteStore:
    """Makes the store of this user."""
    return SqliteStore(state_folder())
