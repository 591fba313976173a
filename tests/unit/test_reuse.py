"""`subagents.cache`: the same request is answered once in a session. Kernels are fakes."""

import pytest
from pydantic_ai.messages import ModelResponse
from support.agents import cell, hand_over, of_kind, read, task

from freeact_sub import SpawnRequest
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
    assert f"that of {first.agent_id}" not in shown[0]
    assert f"that of {first.agent_id}" in shown[1]


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


async def test_the_answer_of_a_child_that_has_written_files_is_not_kept(make):
    def script(messages, info):
        done = sum(isinstance(message, ModelResponse) for message in messages)
        return [cell("1 + 1")] if not done else f"{len(messages)}"

    async with make(script, config={**CACHE, "mode": "full"}) as agent:
        child = await agent.spawn("write")
        agent._tree.nodes[child.agent_id].files.written["out.txt"] = None  # as the kernel's hook reports it
        first = await child.result()
        second = await agent.spawn_and_run("write")
        third = await agent.spawn_and_run("write")
    assert first.files_written == ("out.txt",)
    assert (second.reused_from, third.reused_from) == ("", second.agent_id)
