"""`subagents.cache`: the same request is answered once in a session. Kernels are fakes."""

import asyncio

import pytest
from pydantic_ai import FunctionToolset
from pydantic_ai.messages import ModelResponse, ToolCallPart
from support.agents import cell, hand_over, of_kind, read, task
from support.waiting import eventually

from freeact_sub import SpawnRequest
from freeact_sub.agents.children.reuse import acts_outside
from freeact_sub.calls import Action, CodeAction, FileWrite, McpCall, NetworkConnect, ShellCommand, SpawnCall, ToolCall
from freeact_sub.events import AgentFinished, Notice, ToolOutput
from freeact_sub.testing import first_prompt

CACHE = {"subagents": {"cache": True, "max_depth": 1}}


class Counting:
    """Answers with the number of the question; the root asks two children, one after the other."""

    def __init__(self, *calls):
        self.calls = calls
        self.asked = 0

    def __call__(self, messages, info):
        done = sum(isinstance(message, ModelResponse) for message in messages)
        if first_prompt(messages) == "root":
            return self.calls[done] if done < len(self.calls) else "done"
        self.asked += 1
        if "typed" in first_prompt(messages):
            return hand_over({"number": self.asked}, wrapped=False)
        if "broken" in first_prompt(messages) and self.asked == 1:
            return ValueError("no")
        return f"answer {self.asked}"


async def test_the_same_question_is_answered_once_and_that_is_told(make):
    script = Counting(task("look", description="a"), task("look", description="b"))
    async with make(script, config={**CACHE, "mode": "ask"}) as agent:
        events, result = await read(agent.run("root"))
        later = await agent.spawn_and_run("look")
    first, second = [event for event in of_kind(events, AgentFinished) if event.depth]
    assert (first.output, second.output, later.output) == ("answer 1",) * 3
    assert script.asked == 1
    assert (first.usage.turns, second.usage.turns, later.usage.turns) == (1, 0, 0)
    assert result.tree_usage.turns == 4
    assert later.reused_from == first.agent_id
    [notice] = [event for event in of_kind(events, Notice) if event.depth]
    assert (notice.agent_id, first.agent_id in notice.content) == (second.agent_id, True)
    shown = [event.content for event in of_kind(events, ToolOutput)]
    assert f"{first.agent_id} gave this answer" not in shown[0]
    assert f"{first.agent_id} gave this answer" in shown[1]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"prompt": "look"}, {"prompt": "look there"}),
        ({"prompt": "look"}, {"prompt": "look", "mode": "plan"}),
        ({"prompt": "look"}, {"prompt": "look", "scope": "src"}),
        ({"prompt": "look", "branch": True}, {"prompt": "look", "branch": True}),
        ({"prompt": "broken"}, {"prompt": "broken"}),
    ],
)
async def test_what_differs_or_has_failed_is_done(make, one, other):
    script = Counting()
    async with make(script, config=CACHE) as agent:
        await agent.spawn_and_run(SpawnRequest(**one))
        again = await agent.spawn_and_run(SpawnRequest(**other))
    assert script.asked == 2
    assert (again.output, again.reused_from) == ("answer 2", "")


async def test_without_the_setting_everything_is_done(make):
    script = Counting(task("look"), task("look"))
    async with make(script) as agent:
        await read(agent.run("root"))
    assert script.asked == 2


async def test_answers_of_a_named_type_are_copies(make, tmp_path):
    folder = tmp_path / ".agents" / "agents"
    folder.mkdir(parents=True)
    head = "description: Counts.\noutput: {type: object, properties: {number: {type: integer}}, required: [number]}"
    (folder / "counter.md").write_text(f"---\n{head}\n---\n", encoding="utf-8")
    script = Counting()
    async with make(script, config={**CACHE, "agent_folders": (folder,)}) as agent:
        request = SpawnRequest(prompt="typed", agent="counter")
        first = await agent.spawn_and_run(request)
        first.output["number"] = 7
        second = await agent.spawn_and_run(request)
        second.output["number"] = 8
        third = await agent.spawn_and_run(request)
    assert script.asked == 1
    assert third.output == {"number": 1}


@pytest.mark.parametrize("what", ["written", "removed"])
async def test_the_answer_of_a_child_that_has_written_or_removed_files_is_not_kept(make, what):
    def script(messages, info):
        done = sum(isinstance(message, ModelResponse) for message in messages)
        return [cell("1 + 1")] if not done else f"{len(messages)}"

    async with make(script, config={**CACHE, "mode": "full"}) as agent:
        child = await agent.spawn("write")
        getattr(agent.debug.agents[child.agent_id].run.files, what)["out.txt"] = None  # as the kernel's hook reports it
        first = await child.result()
        second = await agent.spawn_and_run("write")
        third = await agent.spawn_and_run("write")
    assert getattr(first, f"files_{what}") == ("out.txt",)
    assert (second.reused_from, third.reused_from) == ("", second.agent_id)


async def test_the_same_question_at_the_same_time_is_resumedce(make):
    asked = asyncio.Event()
    script = WaitingChild(asked)
    async with make(script, config=CACHE) as agent:
        children = [await agent.spawn("look") for _ in range(4)]
        other = await agent.spawn("look elsewhere")
        await eventually(lambda: script.asked == 2)
        children[3].cancel()
        assert (await children[3].result()).status == "cancelled"
        asked.set()
        results = [await child.result() for child in (*children[:3], other)]
    assert script.asked == 2
    assert [result.output for result in results[:3]] == ["answer"] * 3
    assert sorted(bool(result.reused_from) for result in results) == [False, False, True, True]


@pytest.mark.parametrize("ending", ["cancelled", "failed"])
async def test_where_the_first_one_does_not_complete_the_next_one_does_the_work(make, ending):
    asked = asyncio.Event()
    script = WaitingChild(asked, fails=ending == "failed")
    async with make(script, config=CACHE) as agent:
        first = await agent.spawn("look")
        await eventually(lambda: script.asked == 1)
        others = [await agent.spawn("look") for _ in range(2)]
        if ending == "cancelled":
            first.cancel()
        else:
            asked.set()
        assert (await first.result()).status == ending
        asked.set()
        results = [await child.result() for child in others]
    assert [result.output for result in results] == ["answer"] * 2
    assert script.asked == 2
    assert [bool(result.reused_from) for result in results] == [False, True]


class WaitingChild:
    """Answers when it is let."""

    def __init__(self, asked, *, fails=False):
        self.event = asked
        self.fails = fails
        self.asked = 0

    def __call__(self, messages, info):
        self.asked += 1
        return [self.event, ValueError("no") if self.fails and self.asked == 1 else "answer"]


async def test_a_child_that_has_used_a_tool_of_the_user_does_it_again(make):
    sent = []
    tools = FunctionToolset()

    @tools.tool_plain
    def send_mail() -> str:
        sent.append(1)
        return "sent"

    def script(messages, info):
        done = sum(isinstance(message, ModelResponse) for message in messages)
        return "sent" if done else ToolCallPart("send_mail", {})

    async with make(script, config={**CACHE, "mode": "full"}, toolsets=[tools]) as agent:
        results = await agent.run_parallel(["mail Bob"] * 3)
        results.append(await agent.spawn_and_run("mail Bob"))
    assert len(sent) == 4
    assert not any(result.reused_from for result in results)


async def test_what_a_child_below_has_done_counts_for_those_above(make):
    sent = []
    tools = FunctionToolset()

    @tools.tool_plain
    def send_mail() -> str:
        sent.append(1)
        return "sent"

    def script(messages, info):
        done = sum(isinstance(message, ModelResponse) for message in messages)
        if done:
            return "sent"
        return ToolCallPart("send_mail", {}) if first_prompt(messages) == "mail Bob" else task("mail Bob")

    config = {"subagents": {"cache": True, "max_depth": 2}, "mode": "full"}
    async with make(script, config=config, toolsets=[tools]) as agent:
        for _ in range(2):
            assert (await agent.spawn_and_run("have Bob mailed")).reused_from == ""
    assert len(sent) == 2


@pytest.mark.parametrize(
    ("call", "outside"),
    [
        (McpCall(server="a", tool="read", read_only=True), False),
        (McpCall(server="a", tool="write"), True),
        (ShellCommand(command="make", outside=True), True),
        (ShellCommand(command="curl x"), True),
        (NetworkConnect(host="a", port=1), True),
        (FileWrite(path="/tmp/x"), True),
        (ToolCall(tool_name="send_mail"), True),
        (ToolCall(tool_name="ask"), False),
        (CodeAction(code="1"), False),
        (SpawnCall(prompt="x"), False),
    ],
)
def test_what_acts_outside(call, outside):
    assert acts_outside(call) is outside


def test_a_kind_of_call_that_does_not_say_so_acts_outside():
    class Sent(Action):
        form = summary = question = "a mail"

    assert acts_outside(Sent())
