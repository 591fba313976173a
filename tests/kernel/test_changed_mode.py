"""The mode of an open agent is changed: between runs its kernel gets another wall and keeps its variables."""

import asyncio
from contextlib import suppress

import pytest
from support.agents import cell, of_kind, read
from support.waiting import THERE, eventually_async

from freeact_sub import Agent, Config
from freeact_sub.errors import ConfigError
from freeact_sub.events import AgentStarted, ApprovalDecided, ApprovalRequest, Notice, ToolOutput
from freeact_sub.features.effects import CellTrial
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


async def test_during_a_run_calls_are_judged_by_it_at_once_and_the_wall_comes_with_the_next_prompt(tmp_path, monkeypatch):
    tried, run_trial = [], CellTrial.run
    monkeypatch.setattr(CellTrial, "run", lambda trial, code: [tried.append(code), run_trial(trial, code)][1])
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
        assert "2" not in tried
        started = [event.mode for event in (await read(agent.run("again")))[0] if isinstance(event, AgentStarted)]
        assert started == ["auto"]
        with pytest.raises(ConfigError, match="one of plan, ask, auto, full"):
            agent.mode = "fast"
        assert agent.mode == "auto"


SHOW = "print(globals().get('x'))"
WALL = """
import ctypes
print('written' if ctypes.CDLL(None).open(b'note.txt', 0o101, 0o644) >= 0 else 'refused', globals().get('x'))
"""


async def after_two_changes(agent):
    await agent.execute("x = 41")
    agent.mode = "ask"
    await agent.execute("0")  # what it has of the kernel before is untold when the mode changes again
    agent.mode = "plan"


async def after_its_variables_were_read(agent):
    await agent.variables()
    agent.mode = "ask"
    await agent.execute("x = 41")
    agent.mode = "auto"


async def after_values_were_put(agent):
    await agent.put(x=41)
    for mode in ("ask", "plan", "ask"):
        agent.mode = mode
        assert await agent.get("x") == 41


async def after_calls_that_were_cancelled(agent):
    await agent.execute("x = 41")
    agent.mode = "ask"
    for seconds in (0.001, 0.01, 0.05, 0.1, 0.2, 0.4):
        with suppress(TimeoutError):
            await asyncio.wait_for(agent.variables(), seconds)
        agent.mode = {"ask": "plan", "plan": "ask"}[agent.mode]


async def after_calls_side_by_side(agent):
    await agent.execute("x = 41")
    agent.mode = "ask"
    got = await asyncio.gather(agent.get("x"), agent.execute(SHOW), agent.variables())
    assert (got[0], got[1].text.strip(), got[2]) == (41, "41", {"x": "x = 41"})


async def after_a_task_of_a_cell_has_gone_on(agent):
    await agent.execute(
        f"{THERE}async def later():\n    global x\n    await there('go')\n    x = 41\n    open('ready', 'w').close()\n"
        "x = 0\ntask = asyncio.create_task(later())"
    )
    await agent.execute("open('go', 'w').close()")

    async def is_ready():
        return "ready" in (await agent.execute("print(os.listdir())")).text

    await eventually_async(is_ready)
    agent.mode = "plan"


async def after_branches(agent):
    await agent.execute("x = 41")
    agent.mode = "ask"
    node = await agent.branch()
    await node.execute("x = 42")
    agent.mode = "plan"
    await agent.execute("0")
    agent.mode = "ask"
    await agent.adopt(await agent.branch())


async def after_a_child_that_branches(agent):
    await agent.execute("x = 41")
    agent.mode = "ask"

    async def program():
        return (await agent.task("go on", branch=True)).status

    assert (await agent.run_program(program).result()).output == "completed"


async def after_a_no(agent, answers):
    """The kernel of mode `ask` is not given them; that of the mode in which they were saved is."""
    await agent.execute("x = 41")
    agent.mode = "full"
    answers["allow"] = False
    assert (await agent.execute(SHOW)).text.strip() == "None"
    agent.mode = "plan"


ORDERS = (
    after_two_changes,
    after_its_variables_were_read,
    after_values_were_put,
    after_calls_that_were_cancelled,
    after_calls_side_by_side,
    after_a_task_of_a_cell_has_gone_on,
    after_branches,
    after_a_child_that_branches,
    after_a_no,
)


@pytest.mark.parametrize("session", [None, "new"])
async def test_no_order_of_calls_and_modes_loses_variables(tmp_path, monkeypatch, session):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    wrong = {}
    for number, order in enumerate(ORDERS):
        workspace = tmp_path / str(number)
        workspace.mkdir()
        answers = {"allow": True}
        mode = "ask" if order is after_a_task_of_a_cell_has_gone_on else "plan"
        agent = Agent(
            Config(workspace=workspace, mode=mode),
            model=ScriptedModel(["done"] * 5),
            session=session,
            approve=lambda _, answers=answers: answers["allow"],
        )
        async with agent:
            await (order(agent, answers) if order is after_a_no else order(agent))
            text = (await agent.execute(SHOW)).text.strip()
            if text != "41":
                wrong[order.__name__] = text
    assert not wrong


@pytest.mark.parametrize("steps", ["mode, undo", "mode, cell, undo", "undo, mode", "mode, cell, undo, redo"])
async def test_what_is_undone_comes_back_behind_the_wall_of_the_present_mode(tmp_path, steps):
    async with Agent(Config(workspace=tmp_path, mode="full"), model=ScriptedModel(["done"] * 5)) as agent:
        agent.keep_undo()
        await agent.execute("x = 1")
        await read(agent.run("go"))
        await agent.execute("x = 2")
        for step in steps.split(", "):
            match step:
                case "mode":
                    agent.mode = "plan"
                case "cell":
                    assert (await agent.execute(WALL)).text.strip() == "refused 2"
                case "undo":
                    assert (await agent.undo()).variables_problem == ""
                case "redo":
                    await agent.redo()
        x = 2 if "redo" in steps else 1
        assert (await agent.execute(WALL)).text.strip() == f"refused {x}"
