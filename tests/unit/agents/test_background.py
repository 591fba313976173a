"""Children in the background: what their parent is told, what it can do with them, and how they end."""

import asyncio

import pytest
from pydantic_ai.messages import ToolCallPart, ToolReturnPart
from support.agents import cell, finished, of_kind, read, task
from support.waiting import eventually

from freeact_sub.agents.child import NO_ANSWER
from freeact_sub.errors import AgentBusyError
from freeact_sub.events import (
    AgentFinished,
    AgentMessage,
    AgentStarted,
    ResponseChunk,
    ToolOutput,
)
from freeact_sub.testing import first_prompt

pytestmark = pytest.mark.features("background")
ALLOW = {"headless": "allow", "subagents": {"detach": False}}


def subagents(action, *agent_ids, **arguments):
    return ToolCallPart("subagents", {"action": action, "agent_ids": list(agent_ids), **arguments})


def told(messages):
    """All that a model was told after its first prompt, as text."""
    texts = [
        str(getattr(part, "content", "")) for message in messages[1:] if message.kind == "request" for part in message.parts
    ]
    return "\n".join(texts)


def child_id(messages):
    """The id of the first background child that a conversation has started."""
    for message in messages:
        for part in message.parts:
            if isinstance(part, ToolReturnPart) and "works in the background" in str(part.content):
                return str(part.content).split()[0]
    raise AssertionError


class FamilyScript:
    """Turns of the root as functions of the messages; turns of children by their prompts."""

    def __init__(self, *root, **children):
        self.root, self.children, self.conversations = root, children, {}

    def __call__(self, messages, info):
        prompt = first_prompt(messages).split("\n")[0]
        self.conversations[prompt] = messages
        turns = self.children.get(prompt, self.root)
        turn = turns[min(sum(message.kind == "response" for message in messages), len(turns) - 1)]
        return turn(messages) if callable(turn) else turn


async def test_the_parent_goes_on_and_is_told_of_the_end(make):
    go, ended = asyncio.Event(), asyncio.Event()
    script = FamilyScript(
        task("one", background=True, description="slow"), [cell("1 + 1"), ended], "all read", one=[[go, "the answer"]]
    )
    async with make(script, config=ALLOW) as agent:

        def on_event(event):
            if isinstance(event, ToolOutput) and event.tool_name == "execute_ipython_cell":
                ended.set()
            if isinstance(event, ToolOutput) and event.tool_name == "task":
                go.set()
            if isinstance(event, AgentFinished) and event.depth == 1:
                ended.set()

        events, result = await read(agent.run("root"), on_event=on_event)
    [started, _] = of_kind(events, ToolOutput)
    assert "works in the background; you are told when it has ended" in started.content
    assert "cancelled if you give your final answer before" in started.content
    text = told(script.conversations["root"])
    assert "(slow) has ended]\n[agent-" in text
    assert text.rstrip().endswith("the answer")
    assert result.output == "all read"
    assert result.tree_usage.turns == 4


async def test_waiting_gives_the_answer_and_no_message_comes_beside_it(make):
    script = FamilyScript(
        [task("one", background=True), task("two", background=True)],
        subagents("wait"),
        "done",
        one=["first"],
        two=["second"],
    )
    async with make(script, config=ALLOW) as agent:
        events, _ = await read(agent.run("root"))
    [answer] = [event.content for event in of_kind(events, ToolOutput) if event.tool_name == "subagents"]
    assert "first" in answer
    assert "second" in answer
    both = told(script.conversations["root"])
    assert both.count("first") == both.count("second") == 1


async def test_waiting_is_bounded(make):
    works, silent = asyncio.Event(), asyncio.Event()
    script = FamilyScript(
        task("one", background=True),
        lambda m: [works, subagents("wait", child_id(m), seconds=0.05)],
        "done",
        one=[["at work", silent]],
    )
    async with make(script, config=ALLOW) as agent:
        events, result = await read(
            agent.run("root"), on_event=lambda event: event.depth and isinstance(event, ResponseChunk) and works.set()
        )
    assert [event.content for event in of_kind(events, ToolOutput)][1].split(", ")[0].endswith(": running")
    assert result.status == "completed"
    assert [event.status for event in of_kind(events, AgentFinished)] == ["cancelled", "completed"]


async def test_a_child_can_be_steered_and_cancelled_with_what_it_has(make):
    began, go, answered = asyncio.Event(), asyncio.Event(), asyncio.Event()
    script = FamilyScript(
        task("one", background=True),
        [began, cell("'began'")],
        lambda m: subagents("message", child_id(m), text="look at the second file"),
        [answered, cell("'answered'")],
        lambda m: subagents("cancel", child_id(m)),
        "done",
        one=[["I have half of it", cell("1")], [go, cell("2")], ["and the rest", cell("3")], [asyncio.Event()]],
    )
    async with make(script, config=ALLOW) as agent:

        def on_event(event):
            if event.depth and isinstance(event, ToolOutput):
                {"1": began, "3": answered}.get(event.content, asyncio.Event()).set()
            if isinstance(event, AgentMessage):
                go.set()

        events, _ = await read(agent.run("root"), on_event=on_event)
    [child] = {event.agent_id for event in events if event.depth}
    assert told(script.conversations["one"]).count("[Message from the agent that started you]\nlook at the second file") == 1
    messages = [(event.kind, event.recipient_id) for event in of_kind(events, AgentMessage)]
    assert {(event.task, event.success, event.error) for event in of_kind(events, AgentMessage)} == {("one", None, "")}
    assert messages == [("status", child), ("cancel", child)]
    outputs = [event.content for event in of_kind(events, ToolOutput) if event.tool_name == "subagents"]
    assert outputs[0] == f"{child} reads it before its next request."
    assert f"{child} has ended:\n[ERROR] The child did not complete: the run was cancelled" in outputs[1]
    assert outputs[1].endswith("What it had so far:\nand the rest")


async def test_the_list_says_what_each_child_does(make):
    began = asyncio.Event()
    script = FamilyScript(
        task("one", background=True),
        [began, cell("'began'")],
        subagents("list"),
        "done",
        one=[cell("'first'"), task("below", description="a count"), "x"],
        below=[[asyncio.Event()]],
    )
    async with make(script, config={**ALLOW, "subagents": {"max_depth": 2, "detach": False}}) as agent:
        actions = []

        def on_event(event):
            if isinstance(event, AgentStarted) and event.depth == 2:
                actions.append(next(info.action for info in agent.agents() if info.depth == 1))
                began.set()

        events, _ = await read(agent.run("root"), on_event=on_event)
    [listed] = [event.content for event in of_kind(events, ToolOutput) if event.tool_name == "subagents"]
    assert actions == ["task: a count"]
    assert listed.endswith("; now: task: a count")


@pytest.mark.parametrize("ending", ["it is done", "it fails"])
async def test_an_end_that_nobody_waits_for_is_on_the_stream(make, ending):
    go, told_of_it = asyncio.Event(), asyncio.Event()
    last = ending if ending == "it is done" else RuntimeError("the server is gone")
    script = FamilyScript(
        task("one", background=True), [told_of_it, cell("1")], "done", one=[[go, last] if isinstance(last, str) else last]
    )
    async with make(script, config=ALLOW) as agent:

        def on_event(event):
            if isinstance(event, ToolOutput) and event.tool_name == "task":
                go.set()
            if isinstance(event, AgentFinished) and event.depth:
                told_of_it.set()

        events, _ = await read(agent.run("root"), on_event=on_event)
    [message] = of_kind(events, AgentMessage)
    assert (message.kind, message.depth, message.recipient_id) == ("status", 1, agent.agent_id)
    assert ("completed" in message.content) == (ending == "it is done")
    assert ("it is done" if ending == "it is done" else "the server is gone") in message.content
    assert (message.task, message.success) == ("one", ending == "it is done")
    assert ("the server is gone" in message.error) == (not message.success)


async def test_a_child_asks_and_its_parent_answers(make):
    question = ToolCallPart("ask_parent", {"question": "which file?"})
    script = FamilyScript(
        task("one", background=True),
        subagents("wait"),
        lambda m: subagents("message", child_id(m), text="the second"),
        subagents("wait"),
        "done",
        one=[question, lambda m: f"I was told: {told(m)}"],
    )
    async with make(script, config=ALLOW) as agent:
        events, _ = await read(agent.run("root"))
    asked, answered = of_kind(events, AgentMessage)
    assert (asked.kind, asked.depth, asked.recipient_id, asked.content) == ("request", 1, agent.agent_id, "which file?")
    assert (answered.kind, answered.depth, answered.recipient_id) == ("response", 0, asked.agent_id)
    assert asked.correlation_id == answered.correlation_id != ""
    assert (asked.task, asked.success, asked.error) == ("one", None, "")
    assert (answered.task, answered.success, answered.error, answered.content) == ("one", True, "", "the second")
    outputs = [event.content for event in of_kind(events, ToolOutput) if event.tool_name == "subagents"]
    assert "It asks, and waits for your answer (action message): which file?" in outputs[0]
    assert outputs[2].endswith("I was told: the second")


async def test_a_question_waits_only_so_long(make):
    asked = asyncio.Event()
    question = ToolCallPart("ask_parent", {"question": "which?"})
    script = FamilyScript(task("one", background=True), [asked, cell("0")], subagents("wait"), "done", one=[question, told])
    async with make(script, config=ALLOW | {"subagents": {"question_seconds": 0.05, "detach": False}}) as agent:
        events, _ = await read(
            agent.run("root"), on_event=lambda event: event.depth and isinstance(event, ToolOutput) and asked.set()
        )
    [answer, _] = of_kind(events, AgentFinished)
    assert answer.output == f"Your parent did not answer within 0.05 s: {NO_ANSWER}."
    request, response = [event for event in of_kind(events, AgentMessage) if event.kind in ("request", "response")]
    assert (response.task, response.correlation_id) == ("one", request.correlation_id)
    assert (response.success, response.error) == (False, "the question was not answered within 0.05 s")
    assert "asks, and waits at most 0.05 s for subagents(action='message')]\nwhich?" in told(script.conversations["root"])


async def test_only_background_children_are_offered_to_ask(make):
    offered = {}

    def script(messages, info):
        prompt = first_prompt(messages).split("\n")[0]
        offered[prompt] = {tool.name for tool in info.function_tools}
        if prompt != "root":
            return "fine"
        return (
            "done"
            if len(messages) > 3
            else subagents("wait")
            if len(messages) > 1
            else [task("one"), task("two", background=True)]
        )

    async with make(script, config=ALLOW) as agent:
        await read(agent.run("root"))
    assert "ask_parent" in offered["two"]
    assert "ask_parent" not in offered["one"] | offered["root"]


async def test_children_end_before_their_parent(make):
    silent = asyncio.Event()
    script = FamilyScript(
        [task(f"child {number}", background=True) for number in range(7)],
        "I am done",
        **{f"child {number}": [silent] for number in range(7)},
    )
    async with make(script, config=ALLOW) as agent:
        events, result = await read(agent.run("root"))
        assert not agent.debug.at_work
    assert result.status == "completed"
    assert [event.status for event in of_kind(events, AgentFinished)] == ["cancelled"] * 7 + ["completed"]
    assert all(kernel.lost_reason for kernel in agent.provider.kernels)


async def test_a_cancel_of_the_parent_reaches_them(make):
    silent = asyncio.Event()
    script = FamilyScript([task("one", background=True)], [silent], one=[silent])
    async with make(script, config=ALLOW) as agent:
        run = agent.run("root")
        events, result = await read(
            run, on_event=lambda event: event.depth and isinstance(event, AgentStarted) and run.cancel()
        )
    assert [event.status for event in of_kind(events, AgentFinished)] == ["cancelled", "cancelled"]
    assert result.status == "cancelled"


async def test_a_child_s_own_background_children_end_with_it(make):
    silent = asyncio.Event()
    script = FamilyScript([task("one")], "done", one=[task("two", background=True), "one is done"], two=[silent])
    async with make(script, config=ALLOW | {"subagents": {"max_depth": 2, "detach": False}}) as agent:
        events, _ = await read(agent.run("root"))
    assert [(event.depth, event.status) for event in of_kind(events, AgentFinished)] == [
        (2, "cancelled"),
        (1, "completed"),
        (0, "completed"),
    ]


async def test_one_slot_is_enough_for_a_parent_that_waits_for_its_background_child(make):
    script = FamilyScript(
        [task("one")], "done", one=[task("two", background=True), subagents("wait"), "one is done"], two=["two is done"]
    )
    async with make(script, config=ALLOW | {"subagents": {"max_depth": 2, "max_concurrent": 1, "detach": False}}) as agent:
        events, _ = await read(agent.run("root"))
    assert [event.status for event in of_kind(events, AgentFinished)] == ["completed"] * 3


@pytest.mark.features("sessions")
async def test_detached_children_live_on_and_their_parent_is_told_in_its_next_run(make):
    go = asyncio.Event()
    script = FamilyScript([task("one", background=True)], "I go home", lambda m: told(m), one=[[go, "found it"]])
    async with make(script, config={"headless": "allow"}) as agent:
        run = agent.run("root")
        events = [event async for event in run]
        assert [event.status for event in of_kind(events, AgentFinished)] == ["completed"]
        assert (await run.result()).output == "I go home"  # nobody was asked about a child that lives on
        [child] = agent.debug.at_work
        child = agent.debug.agents[child]
        with pytest.raises(AgentBusyError, match="or a detached child, is at work"):
            await agent.fork()
        go.set()
        await eventually(lambda: not agent.debug.at_work)
        await eventually(lambda: agent.debug.waiting_messages)
        assert child.run.status == "completed"
        result = await agent.run("and now?").result()
    assert "has ended]" in result.output
    assert result.output.endswith("found it\n\nand now?")


async def test_detached_children_end_when_the_root_is_closed(make):
    silent = asyncio.Event()
    script = FamilyScript([task("one", background=True)], "I go home", one=[silent])
    agent = make(script, config={"headless": "allow"})
    async with agent:
        [event async for event in agent.run("root")]
        [child] = agent.debug.at_work
        child = agent.debug.agents[child]
    assert child.run.status == "cancelled"
    assert not agent.debug.at_work
    assert all(kernel.lost_reason for kernel in agent.provider.kernels)


async def test_there_is_a_bound_on_how_many(make):
    silent = asyncio.Event()
    script = FamilyScript(
        [task(f"child {number}", background=True) for number in range(22)],
        "done",
        **{f"child {number}": [silent] for number in range(22)},
    )
    async with make(script, config=ALLOW) as agent:
        events, _ = await read(agent.run("root"))
    refused = [event.content for event in of_kind(events, ToolOutput) if event.outcome == "failed"]
    assert refused == ["[ERROR] 20 background children are at work: wait for one of them, or cancel one"] * 2


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (subagents("cancel", "agent-0"), "background child of yours, these are: none"),
        (subagents("wait", "agent-0"), "background child of yours, these are: none"),
        (subagents("message", "agent-0", text="x"), "child of yours, nor of one of your children"),
    ],
)
async def test_a_child_that_there_is_not_is_an_answer(make, call, words):
    async with make(FamilyScript(call, "done"), config=ALLOW) as agent:
        events, result = await read(agent.run("root"))
    [output] = of_kind(events, ToolOutput)
    assert output.content == f"[ERROR] 'agent-0' is not a {words}"
    assert result.status == "completed"


async def test_a_child_that_may_not_be_started_is_an_answer(make):
    script = FamilyScript(task("one", background=True, agent="nobody"), "done")
    async with make(script, config=ALLOW) as agent:
        events, result = await read(agent.run("root"))
    [output] = of_kind(events, ToolOutput)
    assert output.content == "[ERROR] there is no agent type 'nobody': there are none"
    assert result.status == "completed"


async def test_the_sdk_can_steer_and_cancel_any_child(make):
    silent, go = asyncio.Event(), asyncio.Event()
    script = FamilyScript(task("one"), "done", one=[[cell("1")], [go, cell("2")], [silent]])
    async with make(script, config=ALLOW) as agent:
        run = agent.run("root")

        def on_event(event):
            if event.depth and isinstance(event, ToolOutput) and event.content == "1":
                assert run.send("be quick", event.agent_id)
                assert not run.send("who?", "agent-0")
                go.set()
            if event.depth and isinstance(event, ToolOutput) and event.content == "2":
                assert run.cancel(event.agent_id)

        events, result = await read(run, on_event=on_event)
    assert "be quick" in told(script.conversations["one"])
    assert finished(events)[""].status in ("completed", "cancelled")
    assert [event.status for event in of_kind(events, AgentFinished)] == ["cancelled", "completed"]
    assert result.output == "done"
