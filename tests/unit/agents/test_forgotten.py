"""Background children that their parent has left at work: it is asked once; and what detached ones tell, and to whom."""

import asyncio
from collections import Counter

import pytest
from pydantic import BaseModel
from pydantic_ai.messages import ToolCallPart, ToolReturnPart
from support.agents import finished, of_kind, read, task
from support.waiting import eventually, soon

from freeact_sub import Budget
from freeact_sub.events import AgentFinished, AgentStarted
from freeact_sub.testing import first_prompt

pytestmark = pytest.mark.features("background")
ALLOW = {"headless": "allow", "subagents": {"detach": False}}
DETACH = {"mode": "full", "subagents": {"max_depth": 3}}


def subagents(action, *agent_ids, **arguments):
    return ToolCallPart("subagents", {"action": action, "agent_ids": list(agent_ids), **arguments})


def background(prompt, **arguments):
    return task(prompt, background=True, description=prompt, **arguments)


def told(messages):
    texts = [str(getattr(part, "content", "")) for m in messages if m.kind == "request" for part in m.parts]
    return "\n".join(texts)


class LeavingScript:
    """Turns by the first line's last word; a turn may be a function of the messages. The last one is repeated."""

    def __init__(self, **turns):
        self.turns, self.conversations = turns, {}

    def __call__(self, messages, info):
        prompt = first_prompt(messages).split("\n")[0]
        self.conversations[prompt] = messages
        turns = self.turns[prompt]
        turn = turns[min(sum(message.kind == "response" for message in messages), len(turns) - 1)]
        return turn(messages) if callable(turn) else turn


def questions(messages):
    return told(messages).count("Before you end: ")


async def test_the_model_is_asked_once_and_then_the_child_is_cancelled_with_a_warning(make):
    script = LeavingScript(root=[background("slow"), "first answer", "my answer", "never"], slow=[asyncio.Event()])
    async with make(script, config=ALLOW) as agent:
        events, result = await read(agent.run("root"))
    assert (result.status, result.output) == ("completed", "my answer")
    assert questions(script.conversations["root"]) == 1
    assert "(slow) is still at work in the background" in told(script.conversations["root"])
    assert finished(events)["slow"].status == "cancelled"
    [warning] = result.warnings
    assert warning.endswith("(slow) was still at work when the run ended, and was cancelled")
    assert of_kind(events, AgentFinished)[-1].warnings == result.warnings


async def test_a_model_that_waits_after_it_was_asked_has_the_answer(make):
    go = asyncio.Event()

    def wait(messages):
        del messages
        go.set()
        return subagents("wait")

    script = LeavingScript(root=[background("slow"), "too early", wait, "with all of it"], slow=[[go, "the find"]])
    async with make(script, config=ALLOW) as agent:
        events, result = await read(agent.run("root"))
    assert (result.output, result.warnings) == ("with all of it", ())
    assert finished(events)["slow"].status == "completed"
    assert "the find" in told(script.conversations["root"])


async def test_a_child_that_ends_meanwhile_is_told_and_nothing_is_asked(make):
    script = LeavingScript(root=[background("quick"), subagents("wait"), "done"], quick=["answer"])
    async with make(script, config=ALLOW) as agent:
        _, result = await read(agent.run("root"))
    assert questions(script.conversations["root"]) == 0
    assert result.warnings == ()


async def test_a_model_is_asked_about_working_children_in_each_run_and_at_each_level(make):
    script = LeavingScript(
        root=[background("slow"), "a", "b", task("middle"), "c"],
        middle=[background("slow"), "d", "e"],
        slow=[asyncio.Event()],
    )
    async with make(script, config=ALLOW | {"subagents": {"max_depth": 2, "detach": False}}) as agent:
        _, result = await read(agent.run("root"))
        assert result.output == "b"
        events, result = await read(agent.run("again"))
    assert result.warnings == ()
    assert questions(script.conversations["middle"]) == 1
    assert of_kind(events, AgentFinished)[1].warnings


class Total(BaseModel):
    total: int


async def test_an_answer_that_is_a_value_is_asked_about_as_well(make):
    def answer(messages):
        del messages
        return ToolCallPart("final_result", {"total": 7})

    script = LeavingScript(root=[background("slow"), answer, answer], slow=[asyncio.Event()])
    async with make(script, config=ALLOW, output_type=Total) as agent:
        _, result = await read(agent.run("root"))
    assert (result.status, result.output) == ("completed", Total(total=7))
    assert questions(script.conversations["root"]) == 1
    assert len(result.warnings) == 1


@pytest.mark.parametrize("budget", [Budget(turns=2), Budget(requests=3), Budget(tokens=4_000)])
async def test_an_answer_at_the_limit_stands_and_nothing_is_asked(make, budget):
    script = LeavingScript(root=[background("slow"), "x" * 3_000 if budget.tokens else "answer"], slow=[asyncio.Event()])
    async with make(script, config=ALLOW | {"model_settings": {"max_tokens": 300}}) as agent:
        _, result = await asyncio.wait_for(read(agent.run("root", budget=budget)), 120)
    if budget.tokens is None:
        assert result.status == "completed"
        assert questions(script.conversations["root"]) == 0
    assert result.status != "failed"


async def test_an_answer_stands_where_the_model_fails_when_it_is_asked(make):
    script = LeavingScript(root=[background("slow"), "answer", RuntimeError("down")], slow=[asyncio.Event()])
    async with make(script, config=ALLOW) as agent:
        _, result = await read(agent.run("root"))
    assert (result.status, result.output, len(result.warnings)) == ("completed", "answer", 1)


async def test_an_answer_does_not_stand_where_the_model_goes_on_when_it_is_asked(make):
    script = LeavingScript(
        root=[background("slow"), "answer", subagents("list"), RuntimeError("down")], slow=[asyncio.Event()]
    )
    async with make(script, config=ALLOW) as agent:
        _, result = await read(agent.run("root"))
    assert (result.status, "down" in result.error) == ("failed", True)


async def test_a_run_that_is_cancelled_or_ends_at_a_limit_asks_nothing(make):
    silent = asyncio.Event()
    script = LeavingScript(root=[background("slow"), [silent]], slow=[silent])
    async with make(script, config=ALLOW) as agent:
        run = agent.run("root")
        _, result = await read(run, on_event=lambda event: event.depth and isinstance(event, AgentStarted) and run.cancel())
    assert (result.status, result.warnings) == ("cancelled", ())

    script = LeavingScript(root=[background("slow"), subagents("list")], slow=[silent])
    async with make(script, config=ALLOW) as agent:
        _, result = await read(agent.run("root", budget=Budget(turns=3)))
    assert result.status == "limit"
    assert questions(script.conversations["root"]) == 0
    assert len(result.warnings) == 1


async def test_children_that_a_program_leaves_behind_are_told_as_well(make):
    async with make(LeavingScript(slow=[asyncio.Event()]), config=ALLOW) as agent:

        async def program():
            return (await agent.spawn("slow")).agent_id

        _, result = await read(agent.run_program(program))
        assert result.warnings == (f"{result.output} was still at work when the run ended, and was cancelled",)
        _, result = await read(agent.run_program(lambda: soon(None)))
    assert result.warnings == ()


async def test_a_child_that_was_cancelled_is_not_told_as_left_at_work(make):
    async with make(LeavingScript(slow=[asyncio.Event()]), config=ALLOW) as agent:

        async def program():
            (await agent.spawn("slow")).cancel()

        _, result = await read(agent.run_program(program))
    assert result.warnings == ()


async def all_of(run):
    return [event async for event in run]


async def test_each_detached_agent_begins_and_ends_once_over_all_streams(make):
    go = asyncio.Event()
    script = LeavingScript(
        root=[background("one"), "home", "read", "read"],
        one=[[go, task("two", description="two")], "one is done"],
        two=["two is done"],
    )
    async with make(script, config=DETACH) as agent:
        first = await all_of(agent.run("root"))
        go.set()
        await eventually(lambda: not agent.debug.at_work)
        second = await all_of(agent.run("next"))
        third = await all_of(agent.run("next"))
    every = [*first, *second, *third]
    children = {event.agent_id for event in every if event.depth}
    assert len(children) == 2
    for kind in (AgentStarted, AgentFinished):
        assert Counter(event.agent_id for event in of_kind(every, kind) if event.depth) == dict.fromkeys(children, 1)
    assert [event.status for event in of_kind(every, AgentFinished)] == ["completed"] * 5
    for stream in (first, second, third):
        assert [event.seq for event in stream] == list(range(len(stream)))
    assert "one is done" in told(script.conversations["root"])


async def test_a_grandchilds_report_goes_to_its_nearest_working_ancestor(make):
    go, waits = asyncio.Event(), asyncio.Event()
    script = LeavingScript(
        root=[task("one"), [waits, subagents("list")], "home"],
        one=[background("two"), "one is done"],
        two=[[go, "two is done"]],
    )
    async with make(script, config=DETACH) as agent:

        def on_event(event):
            if isinstance(event, AgentFinished):
                (go if event.depth == 1 else waits).set()

        events = []
        async for event in agent.run("root"):
            events.append(event)
            on_event(event)
    text = told(script.conversations["root"])
    assert "whose run has ended]" in text
    assert "two is done" in text


async def test_a_grandchilds_report_between_runs_goes_to_the_root_in_its_next_run(make):
    go = asyncio.Event()
    script = LeavingScript(
        root=[task("one"), "home", "read"], one=[background("two"), "one is done"], two=[[go, "two is done"]]
    )
    async with make(script, config=DETACH) as agent:
        await all_of(agent.run("root"))
        go.set()
        await eventually(lambda: not agent.debug.at_work)
        await eventually(lambda: agent.debug.waiting_messages)
        await all_of(agent.run("next"))
    assert "two is done" in told(script.conversations["root"])


async def test_a_question_to_a_parent_that_has_ended_is_answered_at_once(make):
    go = asyncio.Event()
    ask = ToolCallPart("ask_parent", {"question": "which?"})
    script = LeavingScript(
        root=[task("one"), "home", "read"],
        one=[background("two"), "one is done"],
        two=[[go, ask], lambda m: str([p.content for p in m[-1].parts if isinstance(p, ToolReturnPart)][0])],
    )
    async with make(script, config=DETACH) as agent:
        await all_of(agent.run("root"))
        go.set()
        await eventually(lambda: not agent.debug.at_work)
        await eventually(lambda: agent.debug.waiting_messages)
        await all_of(agent.run("next"))
    assert "Your parent's run has ended: decide yourself" in told(script.conversations["root"])
