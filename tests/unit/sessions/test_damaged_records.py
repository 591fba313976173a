"""A record that cannot be read takes no other one with it: a session is listed, resumed, copied, exported and removed."""

import contextlib
import sqlite3

import pytest
from pydantic_ai.messages import ModelRequest, ModelResponse, TextPart, ToolCallPart, ToolReturnPart, UserPromptPart
from support.sample_events import one_of_each
from support.sessions import root, writing
from support.thorough import sample

from freeact_sub.config.budget import Usage
from freeact_sub.errors import SessionError
from freeact_sub.export import FORMATS, export_session
from freeact_sub.features.sessions.journal import load
from freeact_sub.sessions.sqlite.database import NAME, connect, problem_of
from freeact_sub.sessions.sqlite.reader import LOST_MESSAGE, LOST_RESULT

DAMAGES = {
    "cut off": "{",
    "a list": "[]",
    "a number": "5",
    "an object": '{"usage": 7, "settings": 3, "addresses": 9, "type": "Response", "kind": "request", "parts": 1}',
    "not UTF-8": b"\xff\xfe{",
    "a file that is gone": "@sha256:" + "0" * 64,
    "very deep": "[" * 100_000,
    "nothing": "",
}
COLUMNS = {
    "sessions": ("model_facts", "title", "model"),
    "agents": ("mode", "description", "choices"),
    "runs": ("prompt", "budget", "ending", "output", "status", "files"),
    "entries": ("message",),
    "calls": ("args", "result", "name"),
    "answers": ("value",),
    "events": ("event", "type"),
}


@contextlib.contextmanager
def database(store):
    connection = sqlite3.connect(store.folder / NAME)
    try:
        yield connection
        connection.commit()
    finally:
        connection.close()


@pytest.fixture
async def damaged(tmp_path, store):
    """A store with two sessions, to damage."""
    for session in ("s-1", "s-2"):
        async with writing(store, session, workspace=tmp_path) as writer:
            agent = f"agent-{session[-1]}0000000"
            root(writer, agent)
            writer.run_begins(agent, 1, 1, prompt="begin", budget={})
            call = ToolCallPart("ask", {"question": "?"}, "c1")
            conversation = [ModelRequest(parts=[UserPromptPart("begin")]), ModelResponse(parts=[call])]
            conversation += [
                ModelRequest(parts=[ToolReturnPart("ask", "yes", "c1")]),
                ModelResponse(parts=[TextPart("done")]),
            ]
            writer.messages(agent, 0, conversation)
            writer.call_begins(agent, 1, 1, tool_call_id="c1", from_code=0, name="ask", args={"question": "?"})
            writer.call_ends(agent, 1, 1, outcome="success", result="yes")
            writer.answer(agent, 1, "digest", "known")
            for event in one_of_each():
                writer.event(agent, 1, type(event).__name__, event.to_json)
            writer.run_ends(agent, 1, status="completed", ending={"usage": Usage(turns=2)}, output="done")
            writer.files(agent, 1, "tree")
    return store


def all_of(store, session="s-1"):
    """All that is done with a session; the text of each export."""
    assert {one.session_id for one in store.sessions()} == {"s-1", "s-2"}
    assert store.find("s-2").status == "completed"
    resumed = load(store, session)
    exports = {to: export_session(session, to, store=store) for to in FORMATS}
    copy = store.fork(session)
    load(store, copy)
    store.remove(copy)
    store.remove(session)
    assert [one.session_id for one in store.sessions()] == ["s-2"]
    return resumed, exports


@pytest.mark.parametrize(
    ("table", "column", "damage"),
    sample([(table, column, name) for table in COLUMNS for column in COLUMNS[table] for name in DAMAGES], 62),
)
async def test_a_damaged_record_takes_no_other_one_with_it(table, column, damage, damaged):
    damage = DAMAGES[damage]
    with database(damaged) as connection:
        row = f"(SELECT MAX(rowid) FROM {table} WHERE session_id = 's-1')"
        value = damage if isinstance(damage, str) else None
        connection.execute(f"UPDATE {table} SET {column} = ? WHERE rowid = {row}", (value or "",))
        if isinstance(damage, bytes):
            connection.execute(f"UPDATE {table} SET {column} = CAST(? AS TEXT) WHERE rowid = {row}", (damage,))
    resumed, exports = all_of(damaged)
    if table == "events" and column == "event":
        assert "1 event of the session cannot be read" in exports["html"]
    if table == "entries":
        assert "without what cannot be read (1 message)" in resumed.summary()


@pytest.mark.parametrize("lost", range(4))
async def test_a_conversation_without_a_message_is_one_that_models_accept(lost, damaged):
    with database(damaged) as connection:
        rows = connection.execute("SELECT entry_id FROM entries WHERE session_id = 's-1' ORDER BY entry_id").fetchall()
        connection.execute("UPDATE entries SET message = '{' WHERE entry_id = ?", rows[lost])
    with damaged.reader("s-1") as reader:
        messages = reader.messages("agent-10000000")
        assert len(messages) == len(reader.chain("agent-10000000")) == 4
    calls, results = [
        [part.tool_call_id for message in messages for part in message.parts if isinstance(part, kind)]
        for kind in (ToolCallPart, ToolReturnPart)
    ]
    assert calls == results == ([] if lost == 1 else ["c1"])
    texts = [str(getattr(part, "content", "")) for message in messages for part in message.parts]
    assert (LOST_MESSAGE if lost != 2 else LOST_RESULT) in texts


@pytest.mark.parametrize(
    "how", ["DELETE FROM entries WHERE entry_id = ?", "UPDATE entries SET parent = entry_id + 1 WHERE entry_id = ?"]
)
@pytest.mark.parametrize("lost", range(4))
async def test_a_broken_chain_is_told(how, lost, damaged):
    with database(damaged) as connection:
        rows = connection.execute("SELECT entry_id FROM entries WHERE session_id = 's-1' ORDER BY entry_id").fetchall()
        connection.execute(how, rows[lost])
    resumed, _ = all_of(damaged)
    assert "without what cannot be read" in resumed.summary()


@pytest.mark.parametrize("table", ["runs", "agents", "calls", "answers", "events"])
async def test_rows_that_are_gone_take_no_other_ones_with_them(table, damaged):
    with database(damaged) as connection:
        connection.execute(f"DELETE FROM {table} WHERE session_id = 's-1'")
    all_of(damaged)


async def test_texts_in_files_that_are_gone_take_no_other_record_with_them(damaged, tmp_path):
    async with writing(damaged, "s-1", workspace=tmp_path) as writer:
        writer.messages("agent-10000000", 0, [ModelRequest(parts=[UserPromptPart("x" * 40_000)])])
    (text,) = damaged.folder_of("s-1").glob("texts/*")
    text.unlink()
    resumed, _ = all_of(damaged)
    assert resumed.history[0].parts[0].content == LOST_MESSAGE


DATABASES = {
    "the head": lambda content: b"x" * 100 + content[100:],
    "cut": lambda content: content[: len(content) // 2],
    "a page": lambda content: content[:4096] + b"\xff" * 4096 + content[8192:],
    "no database": lambda _: b"something else\n" * 500,
}


@pytest.mark.parametrize("how", DATABASES)
async def test_a_damaged_database_is_seen_and_the_way_out_is_named(damaged, how):
    store = damaged
    path = store.folder / "sessions.db"
    with contextlib.closing(connect(store.folder)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    path.write_bytes(DATABASES[how](path.read_bytes()))
    problem = problem_of(store.folder)
    assert "it is damaged" in problem
    assert f"move {path}" in problem
    assert "a new one is made" in problem
    if how in ("the head", "no database"):
        with pytest.raises(SessionError, match="it is damaged .*: move "):
            store.sessions()
    for file in store.folder.glob("sessions.db*"):
        file.rename(store.folder.parent / file.name)
    assert problem_of(store.folder) == ""
    assert store.sessions() == []


def test_a_sound_database_and_none_have_no_problem(tmp_path):
    assert problem_of(tmp_path / "none") == ""
    connect(tmp_path / "state").close()
    assert problem_of(tmp_path / "state") == ""
    with contextlib.closing(connect(tmp_path / "state")) as connection:
        connection.execute("DROP TABLE answers")
    assert "it has no table answers" in problem_of(tmp_path / "state")
