"""A stored session in a notebook: it is drawn prompt by prompt, also one agent of it, and `%agent_resume` goes on with it."""

import shutil

import pytest
from notebook_kernel import notebook_kernel
from support.chat_server import ChatCall, ChatServer, by_turn
from support.cli import prompt_of
from support.stories import apply, block_of

from freeact_sub import events, list_sessions
from freeact_sub.errors import SessionError
from freeact_sub.notebook.display import pages_of, read_stored
from freeact_sub.notebook.render import shown_status, steps_of
from freeact_sub.sessions import session_store, state_folder
from freeact_sub.sessions.sqlite import SqliteStore

ROOT = {"agent_id": "agent-root"}
CHILD = {"agent_id": "agent-child", "parent_id": "agent-root", "depth": 1}


def started(who, prompt):
    return events.AgentStarted(**who, prompt=prompt, time=1.0)


def ended(who, output):
    return events.AgentFinished(**who, output=output, status="completed", time=2.0)


def test_there_is_a_page_for_each_prompt_and_a_resumed_child_has_one_block():
    first = [started(ROOT, "one"), started(CHILD, "review"), ended(CHILD, "reviewed"), started(CHILD, "and now?")]
    second = [started(ROOT, "two"), events.Response(**ROOT, content="half an answer")]
    pages = list(
        pages_of([*first, ended(CHILD, "right"), ended(ROOT, "done"), events.Notice(**CHILD, content="x"), *second])
    )
    assert [prompt for prompt, _ in pages] == ["one", "two"]
    assert [[*page.stories.by_id] for _, page in pages] == [["agent-root", "agent-child"], ["agent-root"]]
    block = pages[0][1].stories.by_id["agent-child"]
    assert [getattr(step, "content", step.text) for step in steps_of(block)[:3]] == [
        "reviewed",
        "resumed: and now?",
        "right",
    ]
    assert block.finished.output == "right"
    cut_off = pages[1][1].stories.by_id["agent-root"]
    cut_off.cut_off()
    assert shown_status(cut_off) == "interrupted"
    assert list(pages_of([])) == []


def test_a_session_that_there_is_not(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with pytest.raises(SessionError, match="there is no session 'x'"):
        read_stored(session_store(), "x", None)


@pytest.mark.kernel
async def test_a_notebook_goes_on_after_its_kernel_was_started_again(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    folder = tmp_path / "folder"
    folder.mkdir()
    code = {"code": "notes = 6 * 7"}
    root = by_turn(
        [ChatCall("task", {"prompt": "look", "description": "the looker"})],
        [ChatCall("execute_ipython_cell", code)],
        ["first answer"],
        [ChatCall("execute_ipython_cell", {"code": "print('notes are', notes)"})],
        ["second answer"],
    )

    def script(request):
        return ["looked"] if prompt_of(request) == "look" else root(request)

    async with ChatServer(script) as server:
        options = f"--model openai-chat:local --base-url {server.base_url} --sandbox off --yes --here"
        async with notebook_kernel(folder) as notebook:
            await notebook.run("%load_ext freeact_sub.notebook")
            nothing = await notebook.run("%agent_resume")
            await notebook.run(f"%%agent {options}\nFirst")
        (session,) = list_sessions()
        shutil.rmtree(folder / "sockets")  # of the kernel that has ended
        async with notebook_kernel(folder) as notebook:
            await notebook.run("%load_ext freeact_sub.notebook")
            going_on = await notebook.run(f"%agent_resume {options}")
            second = await notebook.run("%%agent\nSecond")
            twice = await notebook.run(f"%agent_resume {session.session_id}")
            shown = await notebook.run(f"%agent_show {session.session_id}")
            child = await notebook.run(f"%agent_show {session.session_id} {child_of(session)}")
            unknown = await notebook.run(f"%agent_show {session.session_id} nobody")
            await notebook.run("%agent_close")
    assert "there is no session of" in nothing.text
    assert f"going on with {session.session_id}: First" in going_on.text
    assert "notes are 42" in second.html
    assert "second answer" in second.html
    assert "'agent' is open here: `%agent_close agent` first" in twice.text
    for text in ("First", "the looker", "looked", "first answer", "Second", "notes are 42", "second answer"):
        assert text in shown.html
    assert "looked" in child.html
    assert "first answer" not in child.html
    assert "has no agent 'nobody'" in unknown.text


def child_of(session):
    with SqliteStore(state_folder()).reader(session.session_id) as reader:
        return reader.agents()[1].agent_id


def test_many_answered_questions_to_a_model_are_one_line_and_a_failed_one_is_told():
    made = block_of(started(ROOT, "map"))
    for number in range(20):
        call = {**ROOT, "call_id": f"ask-{number}"}
        apply(made, events.ToolCallStarted(**call, tool_name="ask", args={"prompt": f"row {number}"}))
        ended = "failed" if number == 7 else "success"
        apply(made, events.ToolOutput(**call, tool_name="ask", content=f"answer {number}", outcome=ended))
    first, failed, last = steps_of(made)
    assert (first.text, failed.result, last.text) == (
        "7 questions to a model, answered",
        "answer 7",
        "12 questions to a model, answered",
    )
