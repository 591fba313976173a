"""An agent goes on with a session: after its end, and after a crash in the middle of a call. Kernels are fakes."""

import asyncio
import signal
import sys

import pytest
from pydantic_ai import FunctionToolset
from pydantic_ai.messages import ModelRequest, ModelResponse, ToolCallPart, ToolReturnPart, UserPromptPart
from support.agents import cell, of_kind, read, task
from support.sessions import as_after_a_crash, root, writing
from support.waiting import eventually

from freeact_sub import Agent, Config, default_features, list_sessions
from freeact_sub.errors import ConfigError, InvalidRequestError, SessionError
from freeact_sub.events import AgentFinished, Notice
from freeact_sub.testing import FakeKernelProvider, first_prompt

FULL = {"mode": "full"}


def responses(messages):
    return sum(message.kind == "response" for message in messages)


def returns(messages):
    return {part.tool_call_id: part.content for m in messages for part in m.parts if isinstance(part, ToolReturnPart)}


async def test_a_conversation_goes_on_in_another_program(make, store):
    async with make(["one"], session="new") as agent:
        await read(agent.run("first"))
        history, spent = agent.history, agent.usage
    async with make(lambda messages, info: f"{first_prompt(messages)}, {len(messages)}", session=agent.session_id) as again:
        assert (again.history, again.usage, again.session_id) == (history, spent, agent.session_id)
        assert again.agent_id == agent.agent_id
        events, result = await read(again.run("second"))
    assert result.output == "first, 3"
    (notice,) = [event.content for event in of_kind(events, Notice)]
    assert notice == f"session {agent.session_id} goes on: 2 messages of 1 agent"
    with store.reader(agent.session_id) as reader:
        assert [run.prompt for run in reader.runs()] == ["first", "second"]
        assert len(reader.messages(agent.agent_id)) == 4
        assert reader.messages(agent.agent_id)[:2] == history


async def test_resume_takes_folder_and_model_from_the_session(store, tmp_path):
    workspace = tmp_path / "w"
    workspace.mkdir()
    with pytest.raises(SessionError, match="there is no session"):
        Agent.resume("nobody")
    agent = Agent(Config(workspace=workspace, model="test"), kernel_provider=FakeKernelProvider(), session="new")
    async with agent:
        await read(agent.run("first"))
    again = Agent.resume(agent.session_id, kernel_provider=FakeKernelProvider())
    assert (again.config.workspace, again.config.model, len(again.history)) == (workspace, "test", len(agent.history))
    (listed,) = list_sessions(workspace)
    assert (listed.session_id, listed.title) == (agent.session_id, "first")
    assert list_sessions(tmp_path) == []


async def test_an_agent_that_is_opened_again_goes_on_with_its_session(make, store):
    agent = make(["one", "two"], session="new")
    for prompt in ("a", "b"):
        async with agent:
            await read(agent.run(prompt))
    with store.reader(agent.session_id) as reader:
        assert [run.prompt for run in reader.runs()] == ["a", "b"]
        assert len(reader.messages(agent.agent_id)) == 4
    async with make(["x", "y", "three"], session=agent.session_id) as other:
        await read(other.run("c"))
    with pytest.raises(SessionError, match="another program has used the session"):
        await agent.open()
    await agent.aclose()


async def test_what_a_session_cannot_be(make, store):
    with pytest.raises(SessionError, match="there is no session 'nobody'"):
        make([], session="nobody")
    async with make(["one"], session="new") as agent:
        await read(agent.run("first"))
    with pytest.raises(ConfigError, match="either `history` or"):
        make([], session=agent.session_id, history=agent.history)


async def test_after_a_crash_each_call_is_done_begun_or_not_begun(make, store, tmp_path, monkeypatch):
    """Three calls of one response: one is done, one at work and one waits for an answer when the program ends."""
    ready = {"begun": asyncio.Event(), "done": asyncio.Event()}

    async def quick() -> str:
        return "the quick result"

    async def slow() -> str:
        ready["begun"].set()
        await asyncio.Event().wait()

    calls = [ToolCallPart("quick", {}, "a"), ToolCallPart("slow", {}, "b"), task("never", description="c")]

    agent = make([calls, "done"], config={"mode": "ask"}, session="new", toolsets=[FunctionToolset([quick, slow])])
    async with agent:
        run = agent.run("root")

        async def reading():
            async for event in run:
                if type(event).__name__ == "ApprovalRequest" and event.call.kind != "spawn":
                    event.approve()
                if type(event).__name__ == "ToolOutput" and event.tool_call_id == "a":
                    ready["done"].set()

        reader = asyncio.create_task(reading())
        await ready["begun"].wait()
        await ready["done"].wait()
        crashed = await as_after_a_crash(agent, tmp_path / "crashed")
        run.cancel()
        await reader
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "crashed"))
    seen = []

    def script(messages, info):
        seen.append(returns(messages))
        return "on it"

    async with make(script, config={"mode": "ask"}, session=agent.session_id) as again:
        events, _ = await read(again.run("go on"))
    (found,) = seen
    assert found["a"] == "the quick result"
    assert found["b"].startswith("[UNKNOWN] The program ended while this call was at work")
    assert [text for name, text in found.items() if name not in "ab"] == [
        "[NOT RUN] The program ended before this call began."
    ]
    assert "the last run was cut off" in of_kind(events, Notice)[0].content
    with crashed.reader(agent.session_id) as stored:
        assert [run.status for run in stored.runs()] == ["interrupted", "completed"]


async def test_a_prompt_whose_run_was_cut_off_before_its_first_request_is_not_lost(make, store):
    async with writing(store) as writer:
        root(writer)
        writer.run_begins("agent-1", 1, 1, prompt="count the files", budget={})
    async with writing(store) as writer:  # killed twice
        writer.run_begins("agent-1", 2, 2, prompt="of this folder", budget={})
    asked = []

    def script(messages, info):
        asked.append([part.content for m in messages for part in m.parts if part.part_kind == "user-prompt"])
        return "done"

    async with make(script, session="s-1") as agent:
        await read(agent.run("go on"))
        await read(agent.run("and now"))
    assert [sum("count the files" in text for text in prompts) for prompts in asked] == [1, 1]
    assert [text for text in asked[0] if "of this folder" in text]
    assert "go on" in asked[0][-1]
    async with make(script, session="s-1") as again:
        assert len(again.history) == len(agent.history)  # it stands in the session now


async def test_a_call_is_not_said_to_be_not_run_where_the_next_run_was_cut_off_at_once(make, store):
    response = ModelResponse(parts=[ToolCallPart("execute_ipython_cell", {"code": "1"}, "a")])
    async with writing(store) as writer:
        root(writer)
        writer.run_begins("agent-1", 1, 1, prompt="count", budget={})
        writer.messages("agent-1", 0, [ModelRequest(parts=[UserPromptPart("count")]), response])
        writer.call_begins("agent-1", 1, 1, name="execute_ipython_cell", args={}, tool_call_id="a", from_code=0)
    async with writing(store) as writer:
        writer.run_begins("agent-1", 2, 2, prompt="go on", budget={})
    seen = []

    def script(messages, info):
        seen.append(returns(messages)["a"])
        return "done"

    async with make(script, session="s-1") as agent:
        await read(agent.run("and now"))
    assert seen[0].startswith("[UNKNOWN]")
    assert [part.content for m in agent.history for part in m.parts if isinstance(part, UserPromptPart)][:2] == [
        "count",
        "go on",
    ]


async def test_children_and_asks_that_have_completed_are_not_paid_again(make, store, tmp_path, monkeypatch):
    """Two children of the same prompt and an ask are answered; the third child hangs when the program ends."""
    hangs, crash = asyncio.Event(), asyncio.Event()
    paid = []

    def script(messages, info):
        prompt = first_prompt(messages)
        if prompt == "root":
            turns = [[task("same")], [task("same")], [ToolCallPart("ask", {"prompt": "colour?"})], [task("hangs")]]
            again = [
                [
                    task("hangs"),
                    task("same"),
                    task("other"),
                    ToolCallPart("ask", {"prompt": "colour?"}),
                    task("same"),
                    task("same"),
                ]
            ]
            # the second program asks in another order, for more
            turns += again if crash.is_set() else []
            return turns[responses(messages)] if responses(messages) < len(turns) else "done"
        paid.append(prompt)
        if prompt == "hangs" and not crash.is_set():
            hangs.set()
            return asyncio.Event()
        return f"{prompt} {len(paid)}"

    async with make(script, config=FULL, session="new") as agent:
        run = agent.run("root")
        reading = asyncio.create_task(read(run))
        await hangs.wait()
        await as_after_a_crash(agent, tmp_path / "crashed")
        run.cancel()
        await reading
    assert sorted(paid) == ["colour?", "hangs", "same", "same"]
    paid.clear()
    crash.set()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "crashed"))
    async with make(script, config=FULL, session=agent.session_id) as again:
        events, _ = await read(again.run("go on"))
        # the third of the same prompt, and what had not completed, are new
        assert sorted(paid) == ["hangs", "other", "same"]
        ended = [event for event in of_kind(events, AgentFinished) if event.depth]
        assert sorted(event.output for event in ended if event.reused_from) == ["same 1", "same 2"]
        assert {event.usage.turns for event in ended if event.reused_from} == {0}
        assert {str(event.receipts) for event in ended if event.reused_from} == {"nothing was run"}
        await read(again.run("root"))
    paid.clear()
    async with make(script, config=FULL, session=agent.session_id) as third:
        await third.spawn_and_run("same")
    assert paid == ["same"]  # a run has completed since: what is asked now is asked anew


async def test_what_acted_outside_is_done_again(make, store, tmp_path, monkeypatch):
    async def outside() -> str:
        return "done"

    crash, hangs, paid = asyncio.Event(), asyncio.Event(), []

    def script(messages, info):
        prompt = first_prompt(messages)
        if prompt == "root":
            turns = [task("acts"), task("hangs")] if not crash.is_set() else [task("acts"), task("hangs"), task("acts")]
            return turns[responses(messages)] if responses(messages) < len(turns) else "done"
        if prompt == "hangs":
            hangs.set()
            return "x" if crash.is_set() else asyncio.Event()
        paid.append(prompt)
        return "it acted" if responses(messages) else ToolCallPart("outside", {})

    tools = [FunctionToolset([outside])]
    async with make(script, config=FULL, session="new", toolsets=tools) as agent:
        run = agent.run("root")
        reading = asyncio.create_task(read(run))
        await hangs.wait()
        await as_after_a_crash(agent, tmp_path / "crashed")
        run.cancel()
        await reading
    before = len(paid)
    crash.set()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "crashed"))
    async with make(script, config=FULL, session=agent.session_id, toolsets=tools) as again:
        events, _ = await read(again.run("go on"))
    assert len(paid) == 2 * before
    assert not any(event.reused_from for event in of_kind(events, AgentFinished))


async def test_a_crash_in_a_cell_names_what_its_code_had_done(make, store, tmp_path, monkeypatch):
    hangs = asyncio.Event()

    def script(messages, info):
        prompt = first_prompt(messages)
        if prompt == "root":
            return cell("!sleep 100") if len(messages) == 1 else "done"
        hangs.set()
        return asyncio.Event()

    async with make(script, config=FULL, session="new") as agent:
        run = agent.run("root")
        reading = asyncio.create_task(read(run))
        await asyncio.wait_for(_begun(store, agent), 60)
        await as_after_a_crash(agent, tmp_path / "crashed")
        run.cancel()
        await reading
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "crashed"))
    async with make(["x"], config=FULL, session=agent.session_id) as again:
        (text,) = returns(again.history).values()
    assert text.startswith("[UNKNOWN]")
    assert "asked for the same, they answer at once" in text


async def _begun(store, agent):
    def has_called():
        with store.reader(agent.session_id) as reader:
            return reader.calls()

    await eventually(lambda: store.folder.exists() and store.sessions())
    await eventually(has_called)


IS_KILLED = """
import asyncio, os, pathlib, signal, sys
from freeact_sub import Agent, Config
from freeact_sub.testing import FakeKernelProvider, ScriptedModel

async def main():
    config, model = Config(workspace=pathlib.Path(sys.argv[1])), ScriptedModel(["done"])
    async with Agent(config, model=model, kernel_provider=FakeKernelProvider(), session="new") as agent:
        os.write(1, agent.session_id.encode())
        os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


@pytest.mark.slow
async def test_a_session_exists_once_its_agent_is_open(make, store, tmp_path):
    """The program is killed before its first prompt."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", IS_KILLED, str(tmp_path), stdout=asyncio.subprocess.PIPE
    )
    written, _ = await process.communicate()
    assert process.returncode == -signal.SIGKILL
    async with make(lambda *_: "done", session=written.decode()) as agent:
        assert (agent.session_id, agent.history) == (written.decode(), [])
        _, result = await read(agent.run("Go."))
        assert result.status == "completed"


async def test_features_that_belong_to_an_agent_leave_its_session_alone(make, store):
    """A program that hands the same objects to a second agent reads that, and the first one goes on as it was."""
    features = default_features()
    async with make(["one"] * 2, session="new", features=features) as agent:
        await read(agent.run("a"))
        session = agent.session_id
        with pytest.raises(InvalidRequestError, match="belongs to another agent"):
            make(["two"], session="new", features=features)
        assert agent.session_id == session
        await read(agent.run("b"))
    with store.reader(session) as reader:
        assert [run.prompt for run in reader.runs()] == ["a", "b"]
