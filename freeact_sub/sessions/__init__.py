"""Sessions on disk: what all agents of a root have done, so that nothing is lost with the process.

How to read a session::

    store = SessionStore(state_folder())
    for session in store.sessions():                    # `StoredSession`, the newest first
        print(session.session_id, session.title, session.usage)
    with store.reader(session_id) as reader:
        for agent in reader.agents():                   # `StoredAgent`, root first, in order of start, at every depth alike
            agent.parent_id, agent.tool_call_id         # who started it, by which call
            reader.runs(agent.agent_id)                 # `StoredRun`: prompt, budget, status, usage, times, answer, files
            reader.messages(agent.agent_id)             # `ModelMessage` of pydantic-ai: the conversation as it is now
            reader.cells(agent.agent_id)                # `StoredCell`: code, outputs (`freeact_sub.cells`), the end
            reader.questions(agent.agent_id)            # what was asked, and the answer
            reader.calls(agent.agent_id)                # `StoredCall`: each call, done or only begun
        for event in reader.events():                   # `freeact_sub.events`, of all agents, in their order
            ...

A reader needs no lock and may be used while the session goes on: it sees what is committed. Reading never writes.

The database knows no agents: it gets plain values (`SessionWriter`), and `agents/sessions/` knows what they mean. One
database has all sessions, so that a list of them, what they cost and what is to be swept are queries. Texts above 32 kB, and
whatever a part keeps for a session (`SessionStore.folder_of`), are files in a folder of the session. All of it is in
`$XDG_STATE_HOME/freeact`, for its user alone (0700), and not in the workspace, which code may write.

Why not `pydantic_ai.conversation_store`: it stores a conversation when a run has ended, by an `await` of its own for each.
Here a call is committed before it runs and its result before it is used, in the middle of a run, together with events,
and by a thread that no event loop waits for. Its shape is good, and is taken over: a log of entries, each with the
one before it, and for each agent the newest, so that a history that is written anew (compaction, undo) keeps what it
leaves. `sqlite3` is the standard library's; a library around it would be one more thing between a commit and the disk.
"""

from freeact_sub.sessions.lock import SessionLock
from freeact_sub.sessions.reader import SessionReader
from freeact_sub.sessions.records import (
    KnownAnswer,
    StoredAgent,
    StoredCall,
    StoredCell,
    StoredQuestion,
    StoredRun,
    StoredSession,
)
from freeact_sub.sessions.store import SessionStore, list_sessions, new_session_id, state_folder
from freeact_sub.sessions.writer import SessionWriter

__all__ = [
    "KnownAnswer",
    "SessionLock",
    "SessionReader",
    "SessionStore",
    "SessionWriter",
    "StoredAgent",
    "StoredCall",
    "StoredCell",
    "StoredQuestion",
    "StoredRun",
    "StoredSession",
    "list_sessions",
    "new_session_id",
    "state_folder",
]
