"""The mode of an open agent is changed: between runs its kernel gets another wall and keeps its variables."""

import pytest
from support.agents import cell, of_kind, read

from freeact_sub import Agent, Config
from freeact_sub.errors import ConfigError
from freeact_sub.events import AgentStarted, ApprovalDecided, ApprovalRequest, Notice, ToolOutput
from freeact_sub.testing import ScriptedModel, prompts

pytestmark = pytest.mark.kernel

WRITE = """
try:
    open('note.txt', 'w').close()
except Exception as error:
    print('refused')
else:
    print('written')
print(x)
"""


def script(messages, _info):
    """One cell for each prompt."""
    if messages[-1].parts[-1].part_kind == "tool-return":
        return "done"
    return cell(WRITE if "write" in prompts(messages)[-1] else "x = 41")


@pytest.mark.parametrize("session", [None, "new"])
async def test_between_runs_the_kernel_gets_the_wall_of_the_mode_and_keeps_its_variables(tmp_path, monkeypatch, session):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    workspace = tmp_path / "w"
    workspace.mkdir()
    config = Config(workspace=workspace, mode="auto")
    said = {}
    async with Agent(config, model=ScriptedModel(script), session=session) as agent:
        await read(agent.run("begin"))
        for mode in ("plan", "full", "auto"):
            agent.mode = "ask"
            agent.mode = mode
            assert agent.mode == mode
            events, result = await read(agent.run("write"))
            assert result.status == "completed"
            assert of_kind(events, AgentStarted)[0].mode == mode
            said[mode] = of_kind(events, ToolOutput)[0].content.split(), len(of_kind(events, ApprovalRequest))
        agent.mode = "plan"
        assert await agent.get("x") == 41
        assert (await agent.execute("open('other.txt', 'w')")).status == "error"
    (plan, asked), (full, of_old), (auto, _) = (said[mode] for mode in ("plan", "full", "auto"))
    assert plan == ["refused", "41"]
    assert asked >= 1, "cells are asked about in mode plan"
    assert full == ["written", "41"]
    assert of_old == 1, "a kernel that may do more gets variables of one that could do less only if a person agrees"
    assert auto == ["written", "41"]
    assert not (workspace / "other.txt").exists()


async def test_during_a_run_calls_are_judged_by_it_at_once_and_the_wall_comes_with_the_next_prompt(tmp_path):
    script = {"root": [cell("1"), cell("2"), cell("3"), "done"], "again": ["done"]}
    events = []
    async with Agent(Config(workspace=tmp_path), model=ScriptedModel(lambda m, i: next(turns))) as agent:
        turns = iter([*script["root"], *script["again"]])
        async with agent.run("root") as run:
            async for event in run:
                events.append(event)
                match event:
                    case ApprovalRequest():
                        modes = {"1": "full", "2": "full", "3": "auto"}
                        agent.mode = modes[event.call.code]
                        if event.call.code == "3":
                            event.deny("asked")
                    case ToolOutput(content="2"):
                        agent.mode = "auto"
            assert (await run.result()).status == "completed"
        asked = [event.call.code for event in events if isinstance(event, ApprovalRequest)]
        assert asked == ["1", "3"], (
            "2 is not asked about in mode full, and 3 is in auto: the kernel does not have its wall yet"
        )
        assert [event.allowed for event in events if isinstance(event, ApprovalDecided)] == [True, False]
        assert any("wall" in event.content for event in events if isinstance(event, Notice))
        started = [event.mode for event in (await read(agent.run("again")))[0] if isinstance(event, AgentStarted)]
        assert started == ["auto"]
        with pytest.raises(ConfigError, match="one of plan, ask, auto, full"):
            agent.mode = "fast"
        assert agent.mode == "auto"
