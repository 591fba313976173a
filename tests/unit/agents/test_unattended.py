"""A run in which nothing could be done because nobody was there to ask says so, and no other run does."""

from pydantic_ai.messages import ToolCallPart
from support.agents import cell, read, task
from support.tables import each

from freeact_sub import Agent, Config
from freeact_sub.events import AgentFinished, Decision
from freeact_sub.testing import FakeKernelProvider, ScriptedModel

RESET = ToolCallPart("reset_kernel", {})


def agent_of(script, tmp_path, **settings):
    return Agent(Config(workspace=tmp_path, **settings), model=ScriptedModel(script), kernel_provider=FakeKernelProvider())


@each(
    ("script", "settings", "unattended"),
    [
        ([cell("1"), "done"], {}, True),
        ([[cell("1"), task("x")], RESET, "done"], {}, True),
        ([cell("1"), "done"], {"headless": "deny"}, True),
        ([cell("1"), "done"], {"mode": "plan"}, True),
        ([cell("1"), "done"], {"mode": "auto"}, False),
        ([cell("1"), "done"], {"headless": "allow"}, False),
        ([cell("1")], {"on_denial": "end"}, True),
        ([RESET, "done"], {}, False),
        (["done"], {}, False),
    ],
)
async def test_nobody_was_there(tmp_path, script, settings, unattended):
    async with agent_of(script, tmp_path, **settings) as agent:
        result = await agent.run("p").result()
    assert result.unattended == unattended
    told = [text for text in result.warnings if "every action was denied because nobody was there to ask" in text]
    assert len(told) == unattended
    assert all('mode="auto"' in text and 'headless="allow"' in text and "--" not in text for text in told)


@each(
    ("answers", "unattended"),
    [
        ([Decision(allowed=False)], False),
        ([Decision(allowed=False, reason="nobody is there to answer")], False),
        ([None, Decision(allowed=False)], False),
        ([None, Decision(allowed=True)], False),
        ([Decision(allowed=True), None], False),
        ([None, None], True),
    ],
)
async def test_a_run_with_one_answer_of_a_person_is_attended(tmp_path, answers, unattended):
    left = list(answers)

    def rule(request):
        return left.pop(0) or request.if_nobody

    async with agent_of([*(cell(str(n)) for n in range(len(answers))), "done"], tmp_path) as agent:
        events, result = await read(agent.run("p"), rule)
    assert result.unattended == unattended
    [finished] = [event for event in events if isinstance(event, AgentFinished)]
    assert finished.warnings == result.warnings
    assert len(finished.warnings) == unattended


async def test_each_run_is_looked_at_by_itself(tmp_path):
    async with agent_of({"first": [cell("1"), "done"], "second": ["nothing to do"]}, tmp_path) as agent:
        assert (await agent.run("first").result()).unattended
        assert not (await agent.run("second").result()).unattended


async def test_a_child_tells_its_parent(tmp_path):
    asked = []

    def rule(request):
        asked.append(request.call)
        return Decision(allowed=True) if request.depth == 0 else request.if_nobody

    async with agent_of({"p": [task("child"), "done"], "child": [cell("1"), "could not"]}, tmp_path) as agent:
        events, result = await read(agent.run("p"), rule)
    assert len(asked) == 2
    assert [event.warnings != () for event in events if isinstance(event, AgentFinished)] == [True, False]
    assert not result.unattended
    assert "every action was denied" in str(agent.history)
