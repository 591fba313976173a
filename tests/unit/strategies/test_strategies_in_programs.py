"""Strategies in a program: on a real `Agent`, with a scripted model: its messages, events, budget and cancel."""

import asyncio

import pytest
from pydantic_ai import FunctionToolset
from pydantic_ai.messages import ModelResponse, ToolCallPart, ToolReturnPart, UserPromptPart
from support.agents import of_kind, read, task

from freeact_sub import ChildRequest
from freeact_sub.config.budget import Budget
from freeact_sub.errors import FreeactError, InvalidRequestError, TaskError
from freeact_sub.events import AgentFinished, AgentStarted, StrategyProgress, ToolCallStarted, ToolOutput
from freeact_sub.show.wording import strategy_text
from freeact_sub.strategies import Member, agent_function, debate, parallel, plan_and_execute, vote
from freeact_sub.testing import first_prompt


def conversation(messages):
    """What the model reads, as texts in turn."""
    texts = []
    for message in messages:
        if isinstance(message, ModelResponse):
            texts.append(message.text)
        else:
            texts += [part.content for part in message.parts if isinstance(part, UserPromptPart)]
    return texts


def typed(info, value):
    [tool] = info.output_tools
    return ToolCallPart(tool.name, value)


async def test_a_debate_is_a_conversation_of_each_debater(make):
    seen = []

    def script(messages, info):
        assert not info.function_tools
        texts = conversation(messages)
        seen.append(texts)
        return "first" if len(texts) == 1 else "second"

    async with make(script) as agent:
        events, result = await read(agent.run_program(lambda: debate(agent, "Why?", 2)))
    assert result.output.answer == "second"
    assert seen[:2] == [["Why?"]] * 2
    for texts in seen[2:]:
        assert texts[:2] == ["Why?", "first"]
        assert texts[2].startswith("These are the solutions to the problem from other agents:")
    assert result.usage.turns == 4, "requests are the agent's own"
    asked = of_kind(events, ToolCallStarted)
    assert [event.tool_name for event in asked] == ["ask"] * 4
    assert asked[2].args["history"] == ["Why?", "first"]
    assert [event.content for event in of_kind(events, ToolOutput)] == ["first", "first", "second", "second"]
    steps = of_kind(events, StrategyProgress)
    assert [(event.strategy, event.step, event.of, event.done) for event in steps] == [
        *(("debate", step, 4, False) for step in range(5)),
        ("debate", 4, 4, True),
    ]
    assert len({event.strategy_id for event in steps}) == 1


async def test_a_step_of_a_strategy_of_ones_own_is_an_event_and_what_is_wrong_in_it_is_named(make):
    async def program():
        await agent.progress(strategy="mine" * 1000, step=1, node={"node_id": "0", "action": "x" * 1000})
        wild = {"node_id": "0\n\x1b[2J", "score": float("nan"), "value": 1e300, "visits": 10**4000}
        await agent.progress(strategy="mine", step=-(10**4000), of=10**4000, node=wild)
        await agent.progress(strategy="mine", step="many")

    async with make(["x"]) as agent:
        await agent.progress(strategy="nobody reads", step=1)
        events, result = await read(agent.run_program(program))
    step, wild = of_kind(events, StrategyProgress)
    assert (len(step.strategy), len(step.node.action), step.agent_id) == (500, 500, agent.agent_id)
    assert (wild.node.score, wild.node.value, wild.node.visits, wild.step, wild.of) == (0.0, 1.0, 10**9, 0, 10**9)
    assert strategy_text(wild) == "mine: 0 of 1,000,000,000 · 0 0.00", "a terminal obeys nothing in it"
    assert "agent.progress: step: " in result.error


async def test_a_typed_vote(make):
    answers = iter([3, 4, 4])
    async with make(lambda _, info: typed(info, {"value": next(answers)})) as agent:
        result = await agent.run_program(lambda: vote(agent, "?", 3, output=int)).result()
    assert (result.output.answer, result.output.votes) == (4, 2)


async def test_a_tool_that_uses_a_strategy_acts_for_the_agent_that_runs_it(make):
    tools = FunctionToolset()

    @tools.tool_plain
    async def poll(question: str) -> str:
        """Ask several times."""
        return (await vote(agent, question, 2)).answer

    def script(messages, info):
        if not info.function_tools:
            return f"to {conversation(messages)[0]}"
        prompt = first_prompt(messages).splitlines()[0]
        returned = [part for message in messages for part in message.parts if isinstance(part, ToolReturnPart)]
        steps = [ToolCallPart("poll", {"question": f"{prompt}?"}), *([task("child")] if prompt == "root" else [])]
        return [*steps, f"{prompt} is told: {returned[0].content}" if returned else ""][len(returned)]

    async with make(script, config={"mode": "auto"}, toolsets=[tools]) as agent:
        events, result = await read(agent.run("root"))
    assert (result.status, result.output) == ("completed", "root is told: to root?")
    child = next(event.agent_id for event in events if event.depth)
    assert [event.agent_id for event in of_kind(events, StrategyProgress)] == [result.agent_id] * 4 + [child] * 4


async def test_a_plan_is_carried_out_by_children(make):
    def script(messages, info):
        prompt = first_prompt(messages)
        if prompt.startswith("count"):
            return "7 rows"
        if len(messages) == 1:
            return typed(info, {"value": [{"task": "count the rows"}]})
        return typed(info, {"answer": "seven", "steps": []})

    async with make(script, config={"mode": "auto"}) as agent:
        events, result = await read(agent.run_program(lambda: plan_and_execute(agent, "How many?")))
    assert result.output.answer == "seven"
    [child] = [event for event in of_kind(events, AgentStarted) if event.depth == 1]
    assert child.prompt.startswith("count the rows\n\nThis is step 0 of a plan")


async def test_the_budget_of_the_run_bounds_all_that_a_strategy_asks(make):
    async with make(lambda *_: "x") as agent:
        result = await agent.run_program(lambda: vote(agent, "?", 5), budget=Budget(requests=3)).result()
        assert agent.scripted.requests == 3
    assert result.output.votes == 3
    assert len(result.output.failures) == 2
    assert all("requests" in str(error) for error in result.output.failures)


async def test_a_cancelled_run_ends_what_a_strategy_has_open(make):
    async with make(lambda *_: asyncio.Event()) as agent:
        run = agent.run_program(lambda: vote(agent, "?", [Member(), Member(acts=True)]))

        def cancel(event):
            if isinstance(event, AgentStarted) and event.depth:
                run.cancel()

        events, result = await asyncio.wait_for(read(run, on_event=cancel), 120)
        assert result.status == "cancelled"
        assert [event.status for event in of_kind(events, AgentFinished)] == ["cancelled", "cancelled"]


async def test_ask_and_task_say_what_is_wrong(make):
    async with make({"fails": [ValueError("no")], "one": ["fine"]}) as agent:
        with pytest.raises(FreeactError, match="must be called within a run"):
            await agent.ask("?")

        async def program():
            assert (await agent.task("one", description="a child")).output == "fine"
            return await parallel(
                [
                    lambda: agent.ask("?", history=["a prompt without an answer"]),
                    lambda: agent.task("fails"),
                    lambda: agent.task("one", colour="red"),
                    lambda: agent.task("one", budget={"turn": 1}),
                    lambda: agent.task("one", inputs={"x": 1}),
                ]
            )

        result = await agent.run_program(program).result()
    history, fails, option, budget, inputs = result.output
    assert isinstance(history, InvalidRequestError)
    assert "prompts and answers must alternate" in str(history)
    assert isinstance(fails, TaskError)
    assert fails.result.status == "failed"
    assert "unknown option 'colour'" in str(option)
    assert "budget: turn" in str(budget)
    assert "this kernel exchanges no values" in str(inputs), "a fake kernel has none"


async def test_an_agent_function_tells_its_child_what_it_is(fake):
    agent = fake(lambda *_: [2])

    @agent_function(agent, budget={"turns": 3})
    async def outliers(values: list[float], limit: float = 3.0) -> list[int]:
        """The positions of values that lie far from the mean."""

    @agent_function(agent)
    async def name() -> str:
        """A name for a ship."""

    assert await outliers([1.0, 2.0, 90.0]) == [2]
    [task] = agent.tasks
    assert "def outliers(values: list[float], limit: float = 3.0) -> list[int]:" in task["prompt"]
    assert '    """The positions of values that lie far from the mean."""' in task["prompt"]
    assert task["inputs"] == {"values": [1.0, 2.0, 90.0], "limit": 3.0}
    assert (task["output"], task["budget"], task["description"]) == (list[int], {"turns": 3}, "outliers")
    await name()
    assert agent.tasks[1]["prompt"].endswith("It has no arguments.")
    assert "output" not in agent.tasks[1]
    assert outliers.__doc__ == "The positions of values that lie far from the mean."
    with pytest.raises(TypeError, match="values"):
        await outliers()


def test_a_function_that_is_none_is_refused(fake):
    def plain() -> int:
        """Something."""

    async def silent() -> int: ...

    with pytest.raises(TypeError, match="plain must be an `async def`"):
        agent_function(fake(None))(plain)
    with pytest.raises(TypeError, match="silent needs a docstring"):
        agent_function(fake(None))(silent)


async def test_a_typed_answer_that_is_wrong_is_asked_for_again_and_a_type_that_is_none_is_refused(make):
    def script(messages, info):
        return typed(info, {"value": "many" if len(messages) == 3 else 3})

    async with make(script) as agent:
        history = ["How many are there?", "Several."]
        result = await agent.run_program(lambda: agent.ask("Say it.", output=int, history=history)).result()
        assert result.output == 3
        assert agent.scripted.requests == 2
        failed = await agent.run_program(lambda: agent.ask("?", output=object())).result()
    assert "agent.ask: output is a type" in failed.error


async def test_a_program_may_return_what_holds_itself(make):
    async def program():
        found = {"name": "a ring"}
        found["next"] = found
        return found

    async with make(["x"]) as agent:
        events, result = await read(agent.run_program(program))
    assert result.status == "completed"
    assert result.output["next"] is result.output
    assert of_kind(events, AgentFinished)[-1].output == "{'name': 'a ring', 'next': {...}}"


async def test_a_child_is_given_a_share_of_what_is_left(make):
    async def program():
        context = agent.execution_context
        await agent.ask("?")
        child = await agent.spawn(ChildRequest(prompt="x", budget=context.budget_left.share(0.5)))
        budget = next(info.budget for info in agent.agents() if info.agent_id == child.agent_id)
        await child.result()
        return context, context.budget_left, budget

    async with make(lambda *_: "x") as agent:
        run = agent.run_program(program, budget=Budget(requests=11, children=5, seconds=60_000))
        context, left, budget = (await run.result()).output
        assert (context.agent_id, context.parent_id, context.depth) == (agent.agent_id, None, 0)
    assert (budget.requests, budget.children) == (5, 2), "half of the ten requests and five children that were left"
    assert left.requests == 9
    assert budget.seconds > 30_000, "its time is what is left, not half of it"


def test_the_share_of_a_budget():
    whole = Budget(turns=9, tokens=1000, cost_usd="0.5", children=1, seconds=60, depth=2)
    assert whole.share(0.5) == Budget(turns=4, tokens=500, cost_usd="0.25", children=1, seconds=60, depth=2)
    assert whole.share(1) == whole
    for wrong in (0, 1.1, -1):
        with pytest.raises(ValueError, match="above 0 and at most 1"):
            whole.share(wrong)
