"""What agents do is in their session, at every depth alike. Kernels are fakes."""

import asyncio
import json

import pytest
from pydantic_ai import FunctionToolset
from pydantic_ai.messages import ToolCallPart
from support.agents import cell, read, task
from support.waiting import eventually

from freeact_sub import Config
from freeact_sub.errors import SessionBusyError
from freeact_sub.events import AgentFinished, Notice, ResponseChunk, UsageUpdated
from freeact_sub.features.sessions.agent_session import known_secrets
from freeact_sub.mcp.tokens import SignIn, TokenFile
from freeact_sub.testing import first_prompt

DEEP = {"subagents": {"max_depth": 3}, "mode": "full"}


def three_levels(messages, info):
    """Each agent runs a cell and starts one below it."""
    prompt, done = first_prompt(messages), sum(message.kind == "response" for message in messages)
    below = {"root": "child", "child": "grandchild"}.get(prompt)
    turns = [cell(f"print('{prompt}')"), *([task(below, description=f"the {below}")] if below else []), f"{prompt} done"]
    return turns[done]


async def test_agents_at_every_depth_have_the_same_record(make, store):
    async with make(three_levels, config=DEEP, session="new") as agent:
        events, result = await read(agent.run("root"))
        kept = [event for event in events if not isinstance(event, ResponseChunk)]
        history = agent.history
        infos = agent.agents()
    session = store.find(agent.session_id)
    assert (session.title, session.agents, session.status) == ("root", 3, "completed")
    assert session.usage == result.tree_usage
    with store.reader(agent.session_id) as reader:
        agents = reader.agents()
        assert [(item.agent_id, item.key, item.parent_id, item.depth) for item in agents] == [
            (info.agent_id, info.key, info.parent_id, info.depth) for info in infos
        ]
        assert [item.description for item in agents] == ["", "the child", "the grandchild"]
        assert {item.mode for item in agents} == {"full"}
        calls = {call.tool_call_id: call for call in reader.calls() if call.name == "task"}
        assert [calls[item.tool_call_id].agent_id for item in agents[1:]] == [item.parent_id for item in agents[1:]]
        for item, prompt in zip(agents, ("root", "child", "grandchild"), strict=True):
            (run,) = reader.runs(item.agent_id)
            finished = next(e for e in events if isinstance(e, AgentFinished) and e.agent_id == item.agent_id)
            assert (run.prompt, run.status, run.output, run.usage) == (prompt, "completed", f"{prompt} done", finished.usage)
            assert run.began <= run.ended
            (shown,) = reader.cells(item.agent_id)
            assert (shown.code, shown.status, shown.outputs[0].text) == (f"print('{prompt}')", "ok", f"{prompt}\n")
            assert reader.messages(item.agent_id)[-1].parts[0].content == f"{prompt} done"
            assert {call.state for call in reader.calls(item.agent_id)} == {"done"}
        kept_messages = reader.messages(agents[0].agent_id)
        assert [message.parts for message in kept_messages] == [message.parts for message in history]
        assert [bool(message.instructions) for message in kept_messages if message.kind == "request"] == [True, False, False]
        assert [event.to_json() for event in reader.events()] == [event.to_json() for event in kept]
        assert any(isinstance(event, UsageUpdated) for event in reader.events())
        child = reader.runs(agents[1].agent_id)[0]
        assert child.budget["turns"] == 10


async def test_questions_are_kept_with_their_answers(make, store):
    turns = [task("child"), "done"]
    script = lambda messages, info: (
        turns[sum(message.kind == "response" for message in messages)] if first_prompt(messages) == "root" else "child done"
    )
    async with make(script, config={"mode": "ask"}, session="new") as agent:
        await read(agent.run("root"))
    with store.reader(agent.session_id) as reader:
        (question,) = reader.questions()
        assert (question.request.call.kind, question.allowed) == ("spawn", True)


async def test_the_begin_of_a_call_is_on_disk_before_it_runs_and_its_end_before_it_is_used(make, store):
    seen = []

    def look(where):
        with store.reader(agent.session_id) as reader:
            calls = [(call.name, call.state) for call in reader.calls()]
            last = reader.messages(reader.agents()[0].agent_id)[-1]
        seen.append((where, calls, type(last).__name__))

    async def tool() -> str:
        look("tool")
        return "42"

    def script(messages, info):
        if len(messages) == 3:
            look("next request")
        return ["done", ToolCallPart("tool", {})][len(messages) == 1]

    async with make(script, config={"mode": "full"}, session="new", toolsets=[FunctionToolset([tool])]) as agent:
        await read(agent.run("root"))
    assert seen[0] == ("tool", [("tool", "begun")], "ModelResponse")
    assert seen[1][:2] == ("next request", [("tool", "done")])


async def test_cells_that_print_a_lot_are_kept_in_part(make, store):
    async with make([cell("print('x' * 150_000)"), "done"], config={"mode": "full"}, session="new") as agent:
        await read(agent.run("root"))
    with store.reader(agent.session_id) as reader:
        (shown,) = reader.cells(reader.agents()[0].agent_id)
    assert len("".join(output.text for output in shown.outputs)) == 100_000
    assert shown.output_file


async def test_without_a_session_nothing_is_written(make, store):
    async with make(["done"]) as agent:
        await read(agent.run("root"))
    assert agent.session_id is None
    assert not store.folder.exists()


async def test_secrets_are_in_no_file(make, store, tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-environment-0123")
    secrets = {"sk-environment-0123", "header-key-4567", "env-token-89ab", "url-password-cd", "gateway-token-ef"}
    secrets |= {"access-token-0246", "refresh-token-1357", "client-secret-89", "own-secret-of-settings"}
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "own"))
    tokens = {"access_token": "access-token-0246", "refresh_token": "refresh-token-1357"}
    client = {"client_secret": "client-secret-89"}
    url = "http://127.0.0.1:1/signed-in"
    TokenFile("y", url).write(SignIn(url=url, tokens=tokens, client=client))
    config = {
        "mode": "full",
        "base_url": "http://me:url-password-cd@127.0.0.1:1/v1",
        "kernel": {"env": {"MY_TOKEN": "env-token-89ab"}, "gateway": {"token": "gateway-token-ef"}},
        "mcp_servers": {
            "x": {"url": "http://127.0.0.1:1/mcp", "headers": {"X-Any": "Bearer header-key-4567"}, "disabled": True},
            "y": {"url": url, "oauth": {"client_secret": "own-secret-of-settings"}, "disabled": True},
        },
    }
    text = " ".join(secrets)
    script = [cell(f"print({text!r})"), f"they are {text}"]
    async with make(script, config=config, session="new") as agent:
        await read(agent.run(f"root {text}"))
    found = [path for path in store.folder.rglob("*") if path.is_file()]
    content = b"".join(path.read_bytes() for path in found)
    assert b"they are" in content
    assert [secret for secret in secrets if secret.encode() in content] == []


def test_short_values_and_other_names_are_no_secrets(tmp_path):
    found = known_secrets(
        Config(workspace=tmp_path), {}, {"API_KEY": "short", "PATH": "/usr/local/bin", "A_TOKEN": "12345678"}
    )
    assert found == ["12345678"]


@pytest.mark.parametrize("problem", ["file", "locked"])
async def test_a_state_folder_that_cannot_be_used_is_told_of_once_and_the_work_goes_on(make, store, problem):
    if problem == "file":
        store.folder.parent.mkdir(parents=True)
        store.folder.write_text("")
    else:
        (store.folder / "sessions.db").mkdir(parents=True)  # no database
    async with make([cell("print(1)"), "done", cell("print(2)"), "done"], config={"mode": "full"}, session="new") as agent:
        first, result = await read(agent.run("root"))
        second, _ = await read(agent.run("more"))
    assert result.output == "done"
    (notice,) = [event.content for event in [*first, *second] if isinstance(event, Notice)]
    assert "is not kept" in notice


async def test_an_agent_that_is_cancelled_has_its_end_in_the_session(make, store):
    waiting = asyncio.Event()

    async def tool() -> str:
        waiting.set()
        await asyncio.Event().wait()

    script = [ToolCallPart("tool", {}), "done"]
    async with make(script, config={"mode": "full"}, session="new", toolsets=[FunctionToolset([tool])]) as agent:
        run = agent.run("root")
        reading = asyncio.create_task(read(run))
        await waiting.wait()
        run.cancel()
        await reading
    with store.reader(agent.session_id) as reader:
        (run,), (call,) = reader.runs(), reader.calls()
        assert run.status == "cancelled"
        assert (call.state, call.result) == ("done", "cancelled")
        assert len(reader.messages(run.agent_id)) == 3  # the call was answered, or no model would take it


async def test_what_returns_no_json_is_kept_as_text(make, store):
    async with make(["done"], session="new") as agent:

        async def program():
            return {1: object(), "text": "kept"}

        await read(agent.run_program(program))
    with store.reader(agent.session_id) as reader:
        (run,) = reader.runs()
    assert json.loads(run.output)["text"] == "kept"


async def test_a_session_that_is_open_is_not_opened_twice(make, store):
    async with make(["done"], session="new") as agent:
        await read(agent.run("root"))
        await eventually(store.sessions)
        other = make(["done"], session=agent.session_id)
        with pytest.raises(SessionBusyError, match="open in another program"):
            await other.open()
        await other.aclose()
    async with make(["done"], session=agent.session_id) as again:
        assert again.history == agent.history


async def test_an_agent_that_cannot_be_opened_gives_its_session_back(make, store, monkeypatch):
    agent = make(["done"], session="new")
    with monkeypatch.context() as broken:
        broken.setattr("freeact_sub.kernels.files.recover", _no_workspace)
        with pytest.raises(OSError, match="no workspace"):
            await agent.open()
    async with agent:
        await read(agent.run("root"))
    assert [session.session_id for session in store.sessions()] == [agent.session_id]


def _no_workspace(_):
    raise OSError("no workspace")
