"""What is written is read again, by other programs too; a disk that fails ends the keeping and not the work."""

import asyncio
import os
import sqlite3
import stat
import threading
from pathlib import Path

import pytest
from pydantic_ai.messages import ModelRequest, ModelResponse, TextPart, UserPromptPart
from support.sample_events import one_of_each
from support.sessions import root, writing
from support.waiting import turns

from freeact_sub.calls import ChildChoices
from freeact_sub.cells import CellError, StreamText
from freeact_sub.config.budget import Usage
from freeact_sub.errors import SessionBusyError, SessionError
from freeact_sub.events import (
    ApprovalDecided,
    CodeExecutionOutput,
    CodeExecutionOutputChunk,
    ToolCallStarted,
    ToolOutput,
)
from freeact_sub.events.ending import Receipts
from freeact_sub.events.json_lines import json_line
from freeact_sub.features.sessions.journal import load
from freeact_sub.sessions import newest
from freeact_sub.sessions.sqlite import SqliteStore
from freeact_sub.sessions.sqlite.database import MIGRATIONS, NAME, connect
from freeact_sub.sessions.sqlite.reader import LOST_MESSAGE


def asked(text):
    return ModelRequest(parts=[UserPromptPart(content=text)])


def answered(text):
    return ModelResponse(parts=[TextPart(content=text)])


def texts(messages):
    return [message.parts[0].content for message in messages]


def put_event(writer, event, agent_id="agent-1"):
    writer.event(agent_id, 1, type(event).__name__, event.to_json)


async def test_a_session_is_read_as_it_was_written(store):
    usage = Usage(turns=2, input_tokens=5)
    async with writing(store) as writer:
        root(writer)
        root(writer, "agent-2", key="agent:agent-1:subagent:x", parent_id="agent-1", depth=1, tool_call_id="c1")
        writer.run_begins("agent-1", 1, 1, prompt="count\nthe rows", budget={"turns": 3})
        writer.call_begins("agent-1", 1, 1, tool_call_id="c1", from_code=0, name="task", args={"prompt": "x"})
        writer.call_begins("agent-1", 1, 2, tool_call_id="c2", from_code=0, name="ask", args={})
        writer.call_ends("agent-1", 1, 1, outcome="success", result="42 rows")
        writer.run_ends(
            "agent-1",
            1,
            status="completed",
            ending={"usage": usage, "files_written": ["a.csv"], "receipts": Receipts(cells_run=1)},
            output={"n": 42},
        )
    session = store.find("s-1")
    assert (session.title, session.agents, session.usage, session.status) == ("count the rows", 2, usage, "completed")
    with store.reader("s-1") as reader:
        child = reader.agent("agent:agent-1:subagent:x")
        assert [agent.agent_id for agent in reader.agents()] == ["agent-1", "agent-2"]
        assert (child.agent_id, child.parent_id, child.tool_call_id, child.in_background) == (
            "agent-2",
            "agent-1",
            "c1",
            False,
        )
        (run,) = reader.runs("agent-1")
        assert (run.prompt, run.output, run.budget) == ("count\nthe rows", {"n": 42}, {"turns": 3})
        assert (run.usage, run.files_written, run.ended is not None) == (usage, ("a.csv",), True)
        assert run.receipts == Receipts(cells_run=1)
        done, begun = reader.calls("agent-1")
        assert (done.state, done.result, done.args) == ("done", "42 rows", {"prompt": "x"})
        assert (begun.state, begun.result) == ("begun", "")
        with pytest.raises(SessionError, match="has no agent 'nobody'; it has: agent-1, agent-2"):
            reader.agent("nobody")


async def test_a_history_that_is_written_anew_keeps_what_it_shares(store):
    async with writing(store) as writer:
        root(writer)
        writer.messages("agent-1", 0, [asked("a"), answered("b")])
        writer.messages("agent-1", 2, [asked("c")])
        await writer.commit()
        with store.reader("s-1") as reader:
            assert texts(reader.messages("agent-1")) == ["a", "b", "c"]
            writer.messages("agent-1", 1, [answered("other")])
            await writer.commit()
            assert texts(reader.messages("agent-1")) == ["a", "other"]
    async with writing(store) as writer:  # another program goes on
        writer.messages("agent-1", 2, [asked("d")])
    with store.reader("s-1") as reader:
        assert texts(reader.messages("agent-1")) == ["a", "other", "d"]
        assert reader.messages("nobody") == []


async def test_events_come_back_and_make_cells_and_questions(store):
    samples = one_of_each()
    cell = [
        ToolCallStarted(
            agent_id="agent-1", tool_call_id="c", tool_name="execute_ipython_cell", args={"code": "f()"}, time=5.0
        ),
        CodeExecutionOutputChunk(agent_id="agent-1", tool_call_id="c", output=StreamText(name="stdout", text="hi")),
        CodeExecutionOutputChunk(agent_id="agent-1", tool_call_id="c", output=CellError(ename="E", evalue="v")),
        CodeExecutionOutput(agent_id="agent-1", tool_call_id="c", text="hi\nE: v", status="error", seconds=2.0),
        ToolOutput(agent_id="agent-1", tool_call_id="c", tool_name="execute_ipython_cell", content="hi\nE: v"),
        ToolCallStarted(agent_id="agent-1", tool_call_id="c", tool_name="execute_ipython_cell", args={"code": "g()"}),
    ]
    async with writing(store) as writer:
        for event in [*samples, *cell]:
            put_event(writer, event)
        put_event(writer, ApprovalDecided(request_id="nobody asked", allowed=True))
    with store.reader("s-1") as reader:
        assert [event.to_json() for event in reader.events()] == [
            *[event.to_json() for event in [*samples, *cell]],
            ApprovalDecided(request_id="nobody asked", allowed=True).to_json(),
        ]
        first, second = [item for item in reader.cells("agent-1") if item.tool_call_id == "c"]
        assert (first.code, first.status, first.text, first.seconds, first.began) == ("f()", "error", "hi\nE: v", 2.0, 5.0)
        assert [type(output).__name__ for output in first.outputs] == ["StreamText", "CellError"]
        assert (second.code, second.status, second.outputs) == ("g()", "", ())
        assert len(reader.questions()) == sum(type(event).__name__ == "ApprovalRequest" for event in samples)


async def test_large_texts_are_files_and_secrets_are_nowhere(store):
    secret = 'key-"\\é\n-0123456789'
    async with writing(store, secrets=[secret, ""]) as writer:
        root(writer)
        writer.run_begins("agent-1", 1, 1, prompt=f"use {secret}", budget={})
        writer.messages("agent-1", 0, [asked(secret + "x" * 100_000), asked(f"[{secret}]")])
        writer.call_begins("agent-1", 1, 1, tool_call_id="c", from_code=1, name=secret[:3], args={"text": [secret]})
        writer.call_ends("agent-1", 1, 1, outcome="success", result=f"{secret} of it")
        writer.run_ends("agent-1", 1, status="failed", ending={"error": secret}, output=secret)
    files = [path for path in store.folder.rglob("*") if path.is_file()]
    content = b"".join(path.read_bytes() for path in files)
    assert any(path.parent.name == "texts" for path in files)
    for form in (secret, json_line(secret)[1:-1], "0123456789"):
        assert form.encode() not in content
    with store.reader("s-1") as reader:
        assert texts(reader.messages("agent-1")) == ["[secret]" + "x" * 100_000, "[[secret]]"]
    next(path for path in files if path.parent.name == "texts").write_bytes(b"else")
    with store.reader("s-1") as reader:
        assert texts(reader.messages("agent-1")) == [LOST_MESSAGE, "[[secret]]"]
        assert reader.lost == {"message": 1}


async def test_half_a_character_costs_no_message(store):
    async with writing(store) as writer:
        root(writer, description="\udce9")
        writer.run_begins("agent-1", 1, 1, prompt="\udce9", budget={})
        writer.messages("agent-1", 0, [asked("caf\udce9"), asked("next")])
    with store.reader("s-1") as reader:
        assert texts(reader.messages("agent-1")) == ["caf?", "next"]


async def test_what_cannot_be_kept_takes_nothing_with_it(store, caplog):
    def broken(to):
        raise TypeError("no JSON")

    async with writing(store) as writer:
        root(writer)
        writer.put(broken)
        writer.run_begins("agent-1", 1, 1, prompt="after it", budget={})
        assert await writer.commit()
    assert store.find("s-1").title == "after it"
    assert "a part of session s-1 cannot be kept" in caplog.text


async def test_only_the_user_reads_the_folder(store):
    async with writing(store):
        pass
    assert stat.S_IMODE(store.folder.stat().st_mode) == 0o700


async def test_a_run_that_never_ended_is_cut_off_when_the_session_goes_on(store):
    async with writing(store) as writer:
        root(writer)
        writer.run_begins("agent-1", 1, 1, prompt="p", budget={})
    assert store.find("s-1").status == ""
    async with writing(store):
        pass
    assert store.find("s-1").status == "interrupted"


async def test_answers_are_known_until_the_root_has_completed_a_run(store):
    async with writing(store) as writer:
        root(writer)
        for number in (1, 2):
            writer.run_begins("agent-1", number, number, prompt="p", budget={})
        writer.run_ends("agent-1", 1, status="completed", ending={}, output="")
        writer.answer("agent-2", 1, "old", {"output": 1})
        writer.answer("agent-3", 2, "new", {"output": 2})
    with store.reader("s-1") as reader:
        (known,) = load(store, "s-1").answers["new"]
        assert (known.digest, known.value, known.agent_id) == ("new", {"output": 2}, "agent-3")
        assert [answer.digest for answer in reader.known_answers()] == ["old", "new"]
    async with writing(store) as writer:
        writer.run_begins("agent-1", 3, 3, prompt="p", budget={})
        writer.answer_used(known.answer_id, 3)
        writer.run_ends("agent-1", 3, status="completed", ending={}, output="")
    with store.reader("s-1") as reader:
        assert load(store, "s-1").answers == {}
        assert [answer.root_run for answer in reader.known_answers()] == [1, 3]


async def test_sessions_are_found_by_folder_id_and_how_an_id_begins(store):
    for number, folder in enumerate(("/a", "/b", "/a")):
        async with writing(store, f"s-{number}", workspace=Path(folder)) as writer:
            root(writer)
            if number != 2:
                writer.run_begins("agent-1", 1, 1, prompt=f"p{number}", budget={})
    assert [session.session_id for session in store.sessions(Path("/b"))] == ["s-1"]
    assert len(store.sessions()) == 3
    assert newest(store, Path("/a")).session_id == "s-0"  # nothing was asked in the newer one
    with pytest.raises(SessionError, match=r"no session of /c to continue"):
        newest(store, Path("/c"))
    with pytest.raises(SessionError, match=r"several sessions begin with 's-'"):
        store.find("s-")
    for name in ("nobody", "../x"):
        with pytest.raises(SessionError, match="there is no session"):
            store.find(name)
    with pytest.raises(SessionError, match="is not a session id"):
        store.folder_of("../x")


def test_without_a_database_there_are_no_sessions(store):
    assert store.sessions() == []
    with pytest.raises(SessionError, match="there is no session 'x'"):
        store.reader("x")


async def test_a_session_that_is_open_is_neither_opened_twice_nor_removed(store):
    async with writing(store):
        pass
    lock, other = store.lock("s-1"), store.lock("s-1")
    lock.take()
    assert not other.is_free()
    with pytest.raises(
        SessionBusyError, match=rf"open in another program \(process {os.getpid()}\).*Agent\(session=\'new\'\)"
    ):
        other.take()
    with pytest.raises(SessionBusyError):
        store.remove("s-1")
    lock.give_back()
    lock.give_back()
    assert other.is_free()
    store.remove("s-1")
    assert store.sessions() == []
    assert not store.folder_of("s-1").exists()


async def test_removing_takes_all_rows_and_an_archive_keeps_the_conversation(store):
    async with writing(store) as writer:
        root(writer)
        writer.messages("agent-1", 0, [asked("a" * 50_000)])
    folder = store.folder_of("s-1") / "variables"
    folder.mkdir()
    (folder / "x").write_bytes(b"1" * 1000)
    assert store.size_bytes("s-1") > 51_000
    store.archive("s-1", ["variables"])
    assert store.find("s-1").archived
    assert not folder.exists()
    with store.reader("s-1") as reader:
        assert len(reader.messages("agent-1")) == 1
    store.remove("s-1")
    connection = sqlite3.connect(store.folder / NAME)
    assert [connection.execute(f"SELECT COUNT(*) FROM {table}").fetchone()[0] for table in ("agents", "entries")] == [0, 0]
    connection.close()


async def test_a_database_of_a_newer_version_is_left_alone(store):
    async with writing(store):
        pass
    connection = sqlite3.connect(store.folder / NAME)
    connection.execute(f"PRAGMA user_version = {len(MIGRATIONS) + 1}")
    connection.close()
    with pytest.raises(SessionError, match="newer version"):
        store.sessions()
    failures = []
    async with writing(store, failures=failures) as writer:
        assert not await writer.commit()
    assert len(failures) == 1
    assert "newer version" in failures[0]


def test_the_choices_of_children_in_an_older_database_are_kept(store):
    store.folder.mkdir()
    connection = sqlite3.connect(store.folder / NAME)
    connection.executescript(";".join(MIGRATIONS[:6]))
    connection.execute("PRAGMA user_version = 6")
    connection.execute("INSERT INTO sessions(session_id, workspace, created, updated) VALUES('s-1', '.', 1, 1)")
    named = ("a-1", "file a", "high", '["ask"]', 1), ("a-2", "", "", None, 0), ("a-3", "file b", "", "{damaged", 0)
    for agent in named:
        connection.execute(
            "INSERT INTO agents(session_id, key, parent_id, depth, description, model, mode, in_background, "
            "agent_id, scope, thinking, tools, own_files) VALUES('s-1', '', '', 1, '', '', 'ask', 0, ?, ?, ?, ?, ?)",
            agent,
        )
    connection.commit()
    connection.close()
    connect(store.folder).close()
    with store.reader("s-1") as reader:
        kept = [ChildChoices(**agent.choices).kept for agent in reader.agents()]
    assert kept == [
        {"scope": "file a", "thinking": "high", "tools": ["ask"], "own_files": True},
        {},
        {"scope": "file b"},
    ]


async def test_a_database_that_was_being_made_when_its_program_was_killed_is_mended(store):
    """A journal without its end stands beside it, which only a connection that may write can take away."""
    store.folder.mkdir(parents=True)
    connection = sqlite3.connect(store.folder / NAME, isolation_level=None)
    connection.execute("CREATE TABLE t(x)")
    connection.execute("PRAGMA cache_spill = 1")
    connection.execute("PRAGMA cache_size = 1")
    connection.execute("BEGIN")
    connection.executemany("INSERT INTO t VALUES(?)", [("x" * 1000,)] * 100)
    copies = {path.name: path.read_bytes() for path in store.folder.iterdir()}  # as kill -9 leaves them
    connection.execute("ROLLBACK")
    connection.close()
    assert f"{NAME}-journal" in copies
    for name, content in copies.items():
        (store.folder / name).write_bytes(content)
    assert store.sessions() == []


def test_several_programs_make_the_database_at_once(store):
    problems = []

    def make():
        try:
            connect(store.folder).close()
        except Exception as error:
            problems.append(error)

    def look():
        try:
            store.sessions()
        except Exception as error:
            problems.append(error)

    threads = [threading.Thread(target=target) for target in (make, look) * 4]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    assert store.sessions() == []


async def test_a_database_that_stays_locked_ends_the_keeping_and_says_so_once(store, monkeypatch):
    monkeypatch.setattr("freeact_sub.sessions.sqlite.database.BUSY_SECONDS", 0.05)
    async with writing(store):
        pass
    other = sqlite3.connect(store.folder / NAME, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    failures = []
    async with writing(store, failures=failures) as writer:
        assert not await writer.commit()
        root(writer)
        assert not await writer.commit()
        assert not writer.keeps
    other.execute("ROLLBACK")
    other.close()
    assert len(failures) == 1
    assert "locked" in failures[0]


async def test_a_folder_that_cannot_be_made_ends_the_keeping(tmp_path):
    (tmp_path / "file").write_text("")
    failures = []
    async with writing(SqliteStore(tmp_path / "file" / "state"), failures=failures) as writer:
        assert not await writer.commit()
    assert len(failures) == 1


async def test_a_full_disk_ends_the_keeping_and_the_database_stays_whole(store):
    failures = []
    async with writing(store, failures=failures) as writer:
        root(writer)
        await writer.commit()
        writer.put(lambda to: to.execute("PRAGMA max_page_count = 1"))  # SQLite says what a full disk makes it say
        writer.messages("agent-1", 0, [asked("x" * 20_000)] * 50)
        assert not await writer.commit()
    assert failures == ["database or disk is full"]
    with store.reader("s-1") as reader:
        assert reader.messages("agent-1") == []
        assert len(reader.agents()) == 1


async def test_a_disk_that_does_not_answer_is_not_waited_for(store, monkeypatch):
    monkeypatch.setattr("freeact_sub.sessions.sqlite.writer.COMMIT_SECONDS", 0.05)
    go_on, failures = threading.Event(), []
    async with writing(store, failures=failures) as writer:
        writer.put(lambda to: go_on.wait(60))
        assert not await writer.commit()
        [thread] = [thread for thread in threading.enumerate() if thread.name.startswith("writes session")]
    assert "does not answer" in failures[0]
    go_on.set()
    await asyncio.to_thread(thread.join, 60)


async def test_a_commit_can_be_cancelled_and_what_it_waited_for_is_kept(store):
    go_on = threading.Event()
    async with writing(store) as writer:
        writer.put(lambda to: go_on.wait(60))
        root(writer)
        waiting = asyncio.create_task(writer.commit())
        await turns()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        go_on.set()
        assert await writer.commit()
    with store.reader("s-1") as reader:
        assert len(reader.agents()) == 1
