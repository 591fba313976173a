"""A thousand sessions cost no more queries than three."""

import pytest
from support.many_sessions import add_sessions

from freeact_sub.sessions import sqlite
from freeact_sub.sessions.sqlite.database import connect_to_read


@pytest.mark.parametrize("look", [lambda store: store.sessions(), lambda store: [store.find("s-0001")]])
def test_many_sessions_are_listed_and_one_is_found_with_a_few_queries(tmp_path, monkeypatch, look):
    queries = []

    def watched(folder):
        connection = connect_to_read(folder)
        connection.set_trace_callback(queries.append)
        return connection

    monkeypatch.setattr(sqlite, "connect_to_read", watched)
    asked = []
    for count in (3, 30):
        store = add_sessions(tmp_path / str(count), tmp_path, count)
        for session in look(store):
            assert (session.agents, session.usage.turns, session.status) == (1, 1 if session.once else 3, "completed")
        asked.append(len(queries))
        queries.clear()
    assert asked[0] == asked[1] > 0
