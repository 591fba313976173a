"""Calls of the SDK inside an agent: what they start is the agent's own, and no slot is held while it waits. Kernels are fakes."""

import asyncio
import contextlib
import contextvars
import threading
from dataclasses import replace

import pytest
from pydantic_ai import FunctionToolset
from pydantic_ai.messages import ToolCallPart
from support.agents import finished, of_kind, read, task
from support.tables import each
from support.thorough import sample
from support.waiting import eventually, turns

from freeact_sub import Budget, ChildRequest, FreeactError
from freeact_sub.events import AgentFinished, AgentStarted, ToolOutput
from freeact_sub.testing import first_prompt

LIMIT = 120
DEEP = {"mode": "full", "subagents": {"max_depth": 4, "max_concurrent": 1}}


def call(prompt, way="spawn_and_run"):
    return ToolCallPart("helper", {"prompt": prompt, "way": way})


class Ways:
    """A user's tool that starts a child, by every way there is."""

    def __init__(self):
        self.agent = None
        self.left = []

    def toolset(self):
        toolset = FunctionToolset()
        toolset.add_function(self.helper)
        return toolset

    async def helper(self, prompt: str, way: str) -> str:
        result = await getattr(self, way)(prompt)
        return f"{result.status}: {result.output or result.error}"

    async def spawn_and_run(self, prompt):
        return await self.agent.spawn_and_run(prompt)

    async def spawn(self, prompt):
        return await (await self.agent.spawn(prompt)).result()

    async def run_parallel(self, prompt):
        return (await self.agent.run_parallel([prompt, prompt]))[1]

    async def gather(self, prompt):
        return (await asyncio.gather(self.agent.spawn_and_run(prompt), self.agent.spawn_and_run(prompt)))[0]

    async def task(self, prompt):
        return await asyncio.create_task(self.agent.spawn_and_run(prompt))

    async def thread(self, prompt):
        loop = asyncio.get_running_loop()
        return await asyncio.to_thread(lambda: self._from_thread(loop, prompt))

    async def own_thread(self, prompt):
        loop, ended = asyncio.get_running_loop(), asyncio.get_running_loop().create_future()

        def work():
            with contextlib.suppress(FreeactError):  # the run has ended before this thread came to ask
                result = self._from_thread(loop, prompt)
                loop.call_soon_threadsafe(ended.set_result, result)

        threading.Thread(target=contextvars.copy_context().run, args=(work,)).start()
        return await ended

    async def leave(self, prompt):
        self.left.append(await self.agent.spawn(prompt))
        return replace(await self.agent.spawn_and_run("leaf"), output="left")

    def _from_thread(self, loop, prompt):
        return asyncio.run_coroutine_threadsafe(self.agent.spawn_and_run(prompt), loop).result(LIMIT)


WAYS = ["spawn_and_run", "spawn", "run_parallel", "gather", "task", "thread", "own_thread"]


def nested(way, levels, size=1):
    """The root starts children; each, down to the last level, calls the tool; the last answers."""

    def turn(messages, info):
        del info
        prompt = first_prompt(messages).split("\n")[0]
        if len(messages) > 1:
            return "done" if prompt == "root" else str(messages[-1].parts[0].content)
        if prompt == "root":
            return [task("level 1", description=f"child {number}") for number in range(size)]
        level = int(prompt.split()[1])
        return call(f"level {level + 1}", way) if level < levels else "answer"

    return turn


def toolbox(make, script, *, config=DEEP, **kwargs):
    ways = Ways()
    ways.agent = make(script, config=config, toolsets=[ways.toolset()], **kwargs)
    return ways


def check_family(events, depth):
    starts = of_kind(events, AgentStarted)
    by_id = {event.agent_id: event for event in starts}
    assert {event.depth for event in starts} == set(range(depth + 1))
    assert all(by_id[event.parent_id].depth == event.depth - 1 for event in starts if event.parent_id)
    assert {event.status for event in of_kind(events, AgentFinished)} == {"completed"}


@each("way", WAYS)
@pytest.mark.slow
async def test_five_children_that_each_start_one_end_with_one_slot(make, way):
    ways = toolbox(make, nested(way, 2, size=5))
    async with ways.agent as agent:
        events, result = await asyncio.wait_for(read(agent.run("root")), LIMIT)
        assert agent.debug.free_slots == agent.config.subagents.max_concurrent
    assert result.status == "completed"
    check_family(events, 2)
    answers = [event.content for event in of_kind(events, ToolOutput) if event.tool_name == "helper"]
    assert answers == ["completed: answer"] * 5


@pytest.mark.parametrize("way", ["spawn_and_run", "thread", "gather"])
async def test_a_tool_of_a_child_of_a_tool_of_a_child(make, way):
    ways = toolbox(make, nested(way, 4, size=2))
    async with ways.agent as agent:
        events, _ = await asyncio.wait_for(read(agent.run("root")), LIMIT)
    check_family(events, 4)


async def test_a_tools_spawn_is_refused_at_the_default_depth_with_the_reason(make):
    ways = toolbox(make, nested("spawn_and_run", 2, size=5), config={"mode": "full", "subagents": {"max_concurrent": 1}})
    async with ways.agent as agent:
        events, result = await asyncio.wait_for(read(agent.run("root")), LIMIT)
        assert len(agent.agents()) == 6
    outputs = [event.content for event in of_kind(events, ToolOutput) if event.tool_name == "helper"]
    assert len(outputs) == 5
    assert all("`subagents.max_depth`" in text for text in outputs)
    assert result.status == "completed"


async def test_a_tools_child_has_the_mode_and_the_budget_of_the_calling_agent(make):
    ways = toolbox(make, nested("spawn_and_run", 2), factory=Narrow())
    async with ways.agent as agent:
        _, result = await asyncio.wait_for(read(agent.run("root")), LIMIT)
        child, grandchild = list(agent.debug.agents.values())[1:]
    assert (child.policy.mode, grandchild.policy.mode) == ("auto", "auto")
    assert grandchild.run.account.budget.tokens < child.run.account.budget.tokens == 50_000
    assert result.tree_usage.turns == 5
    assert child.run.account.usage.turns == 3


class Narrow:
    def create(self, request, context):
        return (
            request.replace(mode="auto", budget=Budget(tokens=50_000))
            if context.depth == 0
            else request.replace(mode="full")
        )


class Caller:
    """A child that answers by itself and starts others."""

    ways: Ways

    def __init__(self, way):
        self.way = way

    async def run(self, prompt, context):
        del context
        return (await getattr(self.ways, self.way)(f"{prompt} leaf")).output

    def create(self, request, context):
        del context
        return request if "leaf" in request.prompt else self


@each("way", WAYS)
@pytest.mark.slow
async def test_a_child_of_a_factory_that_calls_its_factory_s_agent(make, way):
    script = {"leaf": ["answer"], "root": [[task(f"own {number}") for number in range(5)], "done"]}
    caller = Caller(way)
    ways = caller.ways = toolbox(make, script, factory=caller)
    async with ways.agent as agent:
        events, _ = await asyncio.wait_for(read(agent.run("root")), LIMIT)
        check_family(events, 2)
        results = await asyncio.wait_for(agent.run_parallel(["own a", "own b"]), LIMIT)  # outside of any run
    assert [result.output for result in results] == ["answer", "answer"]


async def test_children_left_behind_end_with_their_agent_and_later_ones_are_refused(make):
    late, silent = [], asyncio.Event()
    script = {
        "leaf": ["x"],
        "never": [[silent]],
        "child": [call("never", "leave"), "done"],
        "root": [[task("child")], [silent, "done"]],
    }
    ways = toolbox(make, script, config={"mode": "full", "subagents": {"max_depth": 2, "max_concurrent": 2}})
    began = asyncio.Event()

    async def after_its_run(prompt):
        async def later():
            await began.wait()
            return await ways.agent.spawn(prompt)

        late.append(asyncio.create_task(later()))
        return await Ways.leave(ways, prompt)

    ways.leave = after_its_run
    async with ways.agent as agent:

        def on_event(event):
            if isinstance(event, AgentFinished) and event.depth == 1:
                began.set()
                late[0].add_done_callback(lambda _: silent.set())

        events, result = await asyncio.wait_for(read(agent.run("root"), on_event=on_event), LIMIT)
    assert result.status == "completed"
    assert [ways.left[0].status, (await ways.left[0].result()).status] == ["cancelled", "cancelled"]
    by_depth = [(event.depth, event.status) for event in of_kind(events, AgentFinished)]
    assert by_depth == [(2, "completed"), (2, "cancelled"), (1, "completed"), (0, "completed")]
    with pytest.raises(FreeactError, match="has ended"):
        await late[0]


@each("way", WAYS)
@each("steps", sample([0, 1, 2, 3, 5, 8, 13, 40], 4))
@pytest.mark.slow
async def test_a_cancel_at_any_moment_ends_all_and_gives_back_all_slots(make, way, steps):
    """Args: steps: turns of the event loop between the tool's start and the cancel."""
    silent = asyncio.Event()
    script = {"leaf": [[silent]], "child": [call("leaf", way), "done"], "root": [[task("child"), task("child")], "done"]}
    ways = toolbox(make, script)
    begun = asyncio.Event()
    original = getattr(ways, way)

    async def told(prompt):
        begun.set()
        return await original(prompt)

    setattr(ways, way, told)
    async with ways.agent as agent:
        run = agent.run("root")

        async def cancel():
            await begun.wait()
            await turns(steps)
            run.cancel(next(info.agent_id for info in agent.agents() if info.depth == 1))
            silent.set()

        cancelling = asyncio.create_task(cancel())
        events, result = await asyncio.wait_for(read(run), LIMIT)
        await cancelling
        assert agent.debug.free_slots == agent.config.subagents.max_concurrent
        assert not any(node.waits_for_child for node in agent.debug.agents.values())
    assert result.status == "completed"
    assert of_kind(events, AgentFinished)[-1].status == "completed"


async def test_a_tool_that_gives_up_waiting_ends_the_child_and_the_agent_goes_on(make):
    silent = asyncio.Event()
    script = {
        "leaf": [[silent]],
        "child": [call("leaf", "bounded"), "done"],
        "root": [[task("child", description="c")], "done"],
    }
    ways = toolbox(make, script)

    async def bounded(prompt):
        waiting = asyncio.create_task(ways.agent.spawn_and_run(ChildRequest(prompt=prompt, description="given up")))
        await eventually(lambda: any(info.depth == 2 and info.status == "running" for info in ways.agent.agents()))
        waiting.cancel()
        await asyncio.wait({waiting})
        return await ways.agent.spawn_and_run("x")

    ways.bounded = bounded
    async with ways.agent as agent:
        events, _ = await asyncio.wait_for(read(agent.run("root")), LIMIT)
    ends = finished(events)
    assert (ends["given up"].status, ends["c"].status) == ("cancelled", "completed")


async def test_waiting_for_ones_own_end_is_an_error(make):
    script = {"leaf": [call("", "own_end"), "done"], "root": [call("leaf", "spawn"), "done"]}
    ways = toolbox(make, script)
    handles = []

    async def spawn(prompt):
        handles.append(await ways.agent.spawn(prompt))
        return await handles[0].result()

    async def own_end(_):
        await eventually(lambda: handles)
        return await handles[0].result()

    ways.spawn, ways.own_end = spawn, own_end
    async with ways.agent as agent:
        events, _ = await asyncio.wait_for(read(agent.run("root")), LIMIT)
    assert any("cannot wait for the end of" in event.content for event in of_kind(events, ToolOutput) if event.depth == 1)
    check_family(events, 1)


async def test_an_agent_inside_a_tool_of_another_s_child_calls_back(make):
    """The innermost agent of the tree that is asked counts, whatever other trees are between."""
    script = {"leaf": ["x"], "child": [call("inner", "other"), "done"], "root": [[task("child"), task("child")], "done"]}
    ways = toolbox(make, script)

    async def other(prompt):
        inner = Ways()
        inner.agent = make({"inner": [call("leaf"), "done"]}, config=DEEP, toolsets=[ways.toolset()])
        async with inner.agent as agent:
            return await agent.run(prompt).result()

    ways.other = other
    async with ways.agent as agent:
        events, _ = await asyncio.wait_for(read(agent.run("root")), LIMIT)
    check_family(events, 2)


BROKEN = [
    ChildRequest(prompt="x", agent="none"),
    ChildRequest(prompt="x", model="none"),
    ChildRequest(prompt="x", branch_of="none"),
]


@each("request_", BROKEN)
async def test_a_child_that_cannot_be_made_costs_nothing_and_is_no_agent(make, request_):
    async with make({"root": ["done"]}, session="new") as agent:

        async def program():
            return await agent.run_parallel([request_, "root"])

        events, result = await read(agent.run_program(program, budget=Budget(children=1)))
        assert len(agent.agents()) == 2
    assert isinstance(result.output[0], Exception)
    assert result.output[1].status == "completed"
    assert len(of_kind(events, AgentStarted)) == 2
