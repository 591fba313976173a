"""A child that has ended is resumed: it goes on as the agent that it was, under its parent's budget, depth, mode and approvals."""

import asyncio
from types import SimpleNamespace

import pytest
from pydantic_ai.messages import ModelRequest, ToolCallPart, ToolReturnPart, UserPromptPart
from support.agents import as_read, cell, of_kind, read, task
from support.waiting import eventually

from freeact_sub import Budget, ChildRequest
from freeact_sub.agents import life as histories
from freeact_sub.errors import FreeactError, InvalidRequestError
from freeact_sub.events import AgentFinished, AgentStarted, ApprovalRequest, CodeExecutionOutput, Decision, ToolOutput
from freeact_sub.testing import first_prompt, prompts

FULL = {"mode": "full"}
MORE = "notes = globals().get('notes', []) + ['b']; print(notes)"


def responses(messages):
    return sum(message.kind == "response" for message in messages)


def returns(messages):
    return [part.content for m in messages for part in m.parts if isinstance(part, ToolReturnPart)]


def message(agent_id, text):
    return ToolCallPart("subagents", {"action": "message", "agent_ids": [agent_id], "text": text})


def child_of(messages):
    """The id in the status line that a parent reads."""
    return next(text for text in returns(messages) if text.startswith("[agent-"))[1:15]


class Reviewer:
    """A root that has a child review, and resumes it; `seen` are the prompts that the child has read."""

    def __init__(self, *again, first=None, then="remembered"):
        self.again, self.first, self.then = again, first or [cell("notes = ['a']"), "reviewed"], then
        self.seen = []

    def __call__(self, messages, info):
        done = responses(messages)
        if first_prompt(messages).startswith("root"):
            if done == 0:
                return task("review", description="reviewer", **({"keep": True} if "keep" in first_prompt(messages) else {}))
            turns = [*self.again, "done"]
            turn = turns[min(done, len(turns)) - 1]
            return turn(child_of(messages)) if callable(turn) else turn
        self.seen = as_read(messages)
        if len(self.seen) == 1:
            return self.first[done]
        return cell(MORE) if isinstance(messages[-1].parts[-1], UserPromptPart) else self.then


def on(prompt="and now?", **arguments):
    return lambda agent_id: task(prompt, resume=agent_id, **arguments)


async def test_a_child_goes_on_with_its_conversation_as_the_agent_that_it_was(make):
    script = Reviewer(on())
    async with make(script, config=FULL) as agent:
        events, result = await read(agent.run("root"))
        assert result.status == "completed"
        assert len(agent.agents()) == 2
    first, second = [event for event in of_kind(events, AgentStarted) if event.depth]
    assert (second.agent_id, second.key, second.parent_id) == (first.agent_id, first.key, first.parent_id)
    assert second.description == "reviewer"
    assert script.seen[0] == "review"
    assert (
        script.seen[1] == "[Your kernel is new: the variables and imports of the conversation so far are gone.]\n\nand now?"
    )
    assert [event.output for event in of_kind(events, AgentFinished) if event.depth] == ["reviewed", "remembered"]
    assert result.tree_usage.turns == 3 + 2 + 2


async def test_a_kept_kernel_is_its_own_again_and_is_kept_again(make):
    script = Reviewer(on(), on("once more"))
    async with make(script, config=FULL) as agent:
        events, _ = await read(agent.run("root, keep it"))
    texts = [event.text for event in of_kind(events, CodeExecutionOutput) if event.depth and event.text]
    assert texts == ["['a', 'b']", "['a', 'b', 'b']"]
    assert script.seen == ["review", "and now?", "once more"]
    assert len(agent.provider.kernels) == 2  # the root's and the child's, which was never replaced


@pytest.mark.features("background")
async def test_a_message_to_a_child_that_has_ended_has_it_go_on_in_the_background(make):
    script = Reviewer(lambda agent_id: message(agent_id, "and now?"), ToolCallPart("subagents", {"action": "wait"}))
    async with make(script, config=FULL) as agent:
        events, _ = await read(agent.run("root"))
    outputs = [event.content for event in of_kind(events, ToolOutput) if event.tool_name == "subagents"]
    assert outputs[0].endswith(
        "(reviewer) had ended, and works on it in the background; you are told when it has ended again."
    )
    assert outputs[1].endswith("remembered")
    assert script.seen[-1].endswith("and now?")


@pytest.mark.features("background")
async def test_resuming_a_child_needs_approval_like_a_new_child(make):
    asked = []

    def rule(request: ApprovalRequest):
        asked.append(request.call)
        return Decision(allowed=request.call.kind != "spawn" or not request.call.resume)

    for turn in (on(), lambda agent_id: message(agent_id, "and now?")):
        script = Reviewer(turn)
        async with make(script, config={"mode": "ask"}) as agent:
            events, result = await read(agent.run("root"), rule)
        assert asked[-1].resume == of_kind(events, AgentStarted)[1].agent_id
        assert result.status == "completed"
        assert len([event for event in of_kind(events, AgentStarted) if event.depth]) == 1
        assert len(script.seen) == 1
    assert asked[-1].summary == f"ask {asked[-1].resume} on: and now?"
    assert asked[-1].background


async def test_a_child_that_cannot_be_resumed_is_said_in_a_sentence(make):
    silent = asyncio.Event()

    def script(messages, info):
        return silent if first_prompt(messages) == "works" else "answer"

    async with make(script, config=FULL) as agent:
        for wrong, sentence in {
            "agent-0": "'agent-0' is not a child of yours, nor of one of your children",
            agent.agent_id: f"'{agent.agent_id}' is not a child of yours, nor of one of your children",
        }.items():
            with pytest.raises(InvalidRequestError) as error:
                await agent.task("x", resume=wrong)
            assert str(error.value) == sentence
        ended = await agent.spawn_and_run("first")
        for option in ({"agent": "x"}, {"branch": True}, {"branch": True, "history": "all"}):
            with pytest.raises(InvalidRequestError, match="keeps its type, its tools, its conversation and its kernel"):
                await agent.task("x", resume=ended.agent_id, **option)
        works = await agent.spawn("works")
        with pytest.raises(
            InvalidRequestError, match=f"{works.agent_id} is at work: wait for its end, or send it a message"
        ):
            await agent.task("x", resume=works.agent_id)
        works.cancel()
        await works.result()


async def test_the_second_of_two_callers_is_told_that_the_child_is_at_work(make):
    async with make(lambda messages, info: f"answer {responses(messages)}", config=FULL) as agent:
        child = await agent.spawn_and_run("first")
        both = await agent.run_parallel([ChildRequest(prompt=name, resume=child.agent_id) for name in ("a", "b")])
        assert both[0].output == "answer 1"
        assert str(both[1]).startswith(f"{child.agent_id} is at work")
        assert (await agent.task("c", resume=child.agent_id)).output == "answer 2"


async def test_only_an_agent_above_it_may_ask_a_child_on(make):
    """Two children; the second has a child of its own, which the root may resume, and the first may not."""
    known = {}

    def script(messages, info):
        prompt, done = first_prompt(messages), responses(messages)
        if prompt == "has one":
            return task("grandchild") if done == 0 else "done"
        if prompt == "stranger":
            return task("x", resume=known["grandchild"]) if done == 0 else returns(messages)[-1]
        return f"answer {len(prompts(messages))}"

    async with make(script, config={**FULL, "subagents": {"max_depth": 3}}) as agent:
        await agent.spawn_and_run("has one")
        known["grandchild"] = agent.agents()[-1].agent_id
        stranger = await agent.spawn_and_run("stranger")
        assert stranger.output == f"[ERROR] {known['grandchild']!r} is not a child of yours, nor of one of your children"
        again = await agent.task("on", resume=known["grandchild"])
        assert again.output == "answer 2"
        info = next(info for info in agent.agents() if info.agent_id == known["grandchild"])
        assert (info.depth, info.budget.depth) == (2, 1)
        assert info.parent_id != agent.agent_id


async def test_a_resumed_child_runs_under_its_parents_remaining_budget(make):
    async with make(lambda messages, info: "answer", config=FULL) as agent:

        async def program():
            child = await agent.task("first")
            return await agent.task("again", resume=child.agent_id)

        result = await agent.run_program(program, budget=Budget(requests=1)).result()
        assert result.status == "failed"
        assert "`budget.requests`" in result.error
        result = await agent.run_program(program, budget=Budget(children=1)).result()
        assert "`budget.children`" in result.error


async def test_a_resumed_child_never_exceeds_its_own_mode_or_its_parents(make):
    async with make(lambda messages, info: "answer", config=FULL) as agent:
        planner = await agent.task("first", mode="plan")
        events, _ = await read(agent.run_program(lambda: agent.task("on", resume=planner.agent_id, mode="full")))
        assert [event.mode for event in of_kind(events, AgentStarted) if event.depth] == ["plan"]
        kept = await agent.task("keeps", keep=True)
        with pytest.raises(
            InvalidRequestError, match="is in mode full, and its child would be in mode plan: close the node"
        ):
            await agent.task("on", resume=kept.agent_id, mode="plan")
        await kept.node.close()
        assert (await agent.task("on", resume=kept.agent_id, mode="plan")).output == "answer"


async def test_without_a_session_only_the_last_conversations_are_kept(make, monkeypatch):
    monkeypatch.setattr(histories, "MAX_HISTORIES", 2)
    async with make(lambda messages, info: f"answer {responses(messages)}", config=FULL) as agent:
        children = [await agent.spawn_and_run("first") for _ in range(3)]
        with pytest.raises(InvalidRequestError, match=f"the conversation of {children[0].agent_id} is not available"):
            await agent.task("on", resume=children[0].agent_id)
        assert (await agent.task("on", resume=children[1].agent_id)).output == "answer 1"
        monkeypatch.setattr(histories, "MAX_BYTES", 10)
        await agent.spawn_and_run("first")
        with pytest.raises(InvalidRequestError, match="is not available"):
            await agent.task("on", resume=children[2].agent_id)


async def test_a_cancelled_child_can_be_resumed_and_a_cancelled_parent_ends_it_again(make):
    silent = asyncio.Event()

    def script(messages, info):
        return silent if prompts(messages)[-1].endswith("hang") else f"answer {len(prompts(messages))}"

    async with make(script, config=FULL) as agent:
        child = await agent.spawn("hang")
        await eventually(lambda: agent.scripted.requests)
        child.cancel()
        ended = await child.result()
        assert ended.status == "cancelled"
        await eventually(lambda: agent.present_run is None)
        async with agent.run_program(lambda: agent.task("hang", resume=ended.agent_id)) as run:
            async for event in run:
                if isinstance(event, AgentStarted) and event.depth:
                    run.cancel()
        assert (await run.result()).status == "cancelled"
        assert (await agent.task("on", resume=ended.agent_id)).output.startswith("answer")
        assert child.status == "cancelled"  # the first run's


async def test_an_agent_that_is_opened_again_still_has_them(make):
    agent = make(lambda messages, info: f"answer {responses(messages)}", config=FULL)
    async with agent:
        child = await agent.spawn_and_run("first")
    async with agent:
        assert (await agent.task("on", resume=child.agent_id)).output == "answer 1"


async def test_a_node_in_which_code_is_at_work_is_not_taken_from_it(make):
    async with make(lambda messages, info: f"answer {responses(messages)}", config=FULL) as agent:
        kept = await agent.task("keeps", keep=True)

        async def program():
            work = asyncio.create_task(kept.node.execute("!sleep 100"))
            await eventually(lambda: agent.provider.kernels[-1].cells)
            with pytest.raises(FreeactError, match="is at work: wait for its end"):
                await agent.task("on", resume=kept.agent_id)
            work.cancel()
            await asyncio.wait({work})
            return await agent.task("on", resume=kept.agent_id)

        result = await agent.run_program(program).result()
        assert result.status == "completed", result
        assert (result.output.agent_id, result.output.output) == (kept.agent_id, "answer 1")
        assert not kept.node.is_open
        assert result.output.node.is_open


def test_a_child_that_was_given_an_answer_takes_no_place_among_the_conversations(monkeypatch):
    monkeypatch.setattr(histories, "MAX_HISTORIES", 1)

    def ended(agent_id, history):
        run = SimpleNamespace(is_live=False, record=SimpleNamespace(history=history))
        tree.agents[agent_id] = SimpleNamespace(agent_id=agent_id, run=run)
        return tree.agents[agent_id]

    tree = histories.Tree(shared=None)
    child = ended("agent-1", [ModelRequest(parts=[UserPromptPart("go")])])
    tree.keep_history(child, "")
    tree.keep_history(ended("agent-2", []), "agent-0")
    assert child.run.record.history
    assert tree.answered_by == {"agent-2": "agent-0"}
