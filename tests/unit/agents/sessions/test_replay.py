"""A session's cells are run again in a new kernel instead of reading its variables. Kernels are fakes but in the last test."""

import pytest
from pydantic_ai.messages import ToolCallPart, UserPromptPart
from support.agents import cell, of_kind, read

from freeact_sub import Agent, Config
from freeact_sub.events import ApprovalRequest, CodeExecutionOutput, Decision, Notice
from freeact_sub.testing import ScriptedModel, first_prompt

FULL = {"mode": "full"}


def runs(code):
    """A model that runs a cell, and then is done."""
    return lambda messages, info: cell(code) if isinstance(messages[-1].parts[-1], UserPromptPart) else "done"


def last_prompt(agent):
    return [part.content for m in agent.history for part in m.parts if isinstance(part, UserPromptPart)][-1]


async def test_cells_run_again_in_their_order_and_what_fails_is_said_in_two_lines(make, store, tmp_path):
    (tmp_path / "once").touch()
    script = [cell("x = [1]"), cell(f"__import__('os').unlink({str(tmp_path / 'once')!r})"), cell("x.append(2)"), "done"]
    async with make(script, config=FULL, session="new") as agent:
        await read(agent.run("root"))
    for _ in range(2):  # what was run again is not run twice the next time
        async with make(runs("print(x)"), config=FULL, session=agent.session_id, replay=True) as again:
            events, _ = await read(again.run("go on"))
            prompt = last_prompt(again)
        assert of_kind(events, CodeExecutionOutput)[-1].text == "[1, 2]"
        (told,) = [event.content for event in of_kind(events, Notice) if "run again" in event.content]
        first, second = told.split("\n")
        assert first.endswith("cells of the session were run again")
        assert second.startswith("1 failed: cell 2 (__import__('os').unlink(")
        assert "FileNotFoundError" in second
        assert prompt.startswith("[Your kernel is new, and ")
        assert "These failed: cell 2" in prompt
    async with make(runs("print(x)"), config=FULL, session=agent.session_id) as again:
        events, _ = await read(again.run("go on"))
        assert of_kind(events, CodeExecutionOutput)[-1].text == "[1, 2]"  # the variables were saved after the replay


async def test_each_is_asked_by_the_rules_and_one_that_is_denied_is_told(make, store):
    async with make([cell("x = 1"), cell("y = 2"), "done"], config=FULL, session="new") as agent:
        await read(agent.run("root"))

    def decide(request):
        return Decision(allowed="y =" not in request.call.code, reason="not y")

    async with make(runs("print(x)"), config={"mode": "ask"}, session=agent.session_id, replay=True) as again:
        events, _ = await read(again.run("go on"), decide)
        assert [event.call.code for event in of_kind(events, ApprovalRequest)] == ["x = 1", "y = 2", "print(x)"]
        assert "1 of 2 cells of the session were run again" in last_prompt(again)
        assert "not y" in last_prompt(again)
        assert of_kind(events, CodeExecutionOutput)[-1].text == "1"


async def test_only_what_made_the_present_state_runs(make, store):
    script = [cell("a = 1"), ToolCallPart("reset_kernel", {}), "done", cell("b = 1"), "done", cell("c = 1"), "done"]
    async with make(script, config=FULL, session="new") as agent:
        agent.keep_undo()
        for prompt in ("first", "second", "third"):
            await read(agent.run(prompt))
        await agent.undo(2)
        await agent.redo()
    show = "print([name for name in 'abc' if name in globals()])"
    async with make(runs(show), config=FULL, session=agent.session_id, replay=True) as again:
        events, _ = await read(again.run("go on"))
    assert of_kind(events, CodeExecutionOutput)[-1].text == "['b']"
    with store.reader(agent.session_id) as reader:
        assert [run.undone for run in reader.runs()] == [False, False, True, False]


async def test_cells_of_nodes_do_not_run_in_the_kernel_of_their_owner(make, store):
    async with make([cell("x = 1"), "done"], config=FULL, session="new") as agent:
        await read(agent.run("root"))

        async def program():
            async with await agent.branch() as node:
                await node.execute("x = 2")

        await read(agent.run_program(program))
    async with make(runs("print(x)"), config=FULL, session=agent.session_id, replay=True) as again:
        events, _ = await read(again.run("go on"))
    assert of_kind(events, CodeExecutionOutput)[-1].text == "1"
    assert "1 of 1 cells of the session were run again" in last_prompt(again)


@pytest.mark.kernel
async def test_one_that_its_run_has_cut_off_is_told_as_that(make, store):
    async with make([cell("x = 1"), cell("y = 2"), "done"], config=FULL, session="new") as agent:
        await read(agent.run("root"))
    async with make(["done"], config={"mode": "ask"}, session=agent.session_id, replay=True) as again:
        run = again.run("go on")
        async for event in run:
            if isinstance(event, ApprovalRequest):
                run.cancel()
        await read(again.run("go on"), lambda _: Decision(allowed=True))
        assert "1 of 2 cells of the session were run again" in last_prompt(again)
        assert "These failed: cell 1 (x = 1): cut off with its run" in last_prompt(again)


async def test_asks_and_children_of_the_cells_answer_from_the_session(store, tmp_path):
    asked = []

    def script(messages, info):
        prompt = first_prompt(messages)
        if prompt != "root":
            asked.append(prompt)
            return f"answer to {prompt}"
        text = str(messages[-1].parts)
        if "again" in text:
            return cell("print(found)")
        code = "found = [await agent.ask('one'), (await agent.task('two')).output]"
        return cell(code) if len(messages) == 1 else "done"

    config = Config(workspace=tmp_path, mode="full")
    async with Agent(config, model=ScriptedModel(script), session="new") as agent:
        await read(agent.run("root"))
    assert sorted(asked) == ["one", "two"]
    async with Agent(config, model=ScriptedModel(script), session=agent.session_id, replay=True) as again:
        events, _ = await read(again.run("again"))
    assert of_kind(events, CodeExecutionOutput)[-1].text == "['answer to one', 'answer to two']"
    assert sorted(asked) == ["one", "two"]
