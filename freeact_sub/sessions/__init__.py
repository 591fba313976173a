"""Sessions: the record on disk of all agents of a root, which survives the process.

How to read a session::

    store = session_store()
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

A reader needs no lock and works while the session continues: it sees committed data. Reading never writes.

A store receives plain values (`SessionWriter`); `features/sessions/` gives them their meaning. A setting selects the store
(`store.py`); the default is a SQLite database (`sqlite/`).
"""

from freeact_sub.sessions.store import (
    FILES,
    FORK_NOTE,
    PAST,
    VARIABLES,
    ForkPoint,
    KnownAnswer,
    SessionReader,
    SessionStore,
    SessionWriter,
    StoredAgent,
    StoredCall,
    StoredCell,
    StoredQuestion,
    StoredRun,
    StoredSession,
    cells_of,
    home_of_copy,
    list_sessions,
    new_session_id,
    newest,
    session_store,
    stats_below,
)
from freeact_sub.system.process import state_folder

__all__ = [
    "FILES",
    "FORK_NOTE",
    "PAST",
    "VARIABLES",
    "ForkPoint",
    "KnownAnswer",
    "SessionReader",
    "SessionStore",
    "SessionWriter",
    "StoredAgent",
    "StoredCall",
    "StoredCell",
    "StoredQuestion",
    "StoredRun",
    "StoredSession",
    "cells_of",
    "home_of_copy",
    "list_sessions",
    "new_session_id",
    "newest",
    "session_store",
    "state_folder",
    "stats_below",
]
