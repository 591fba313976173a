"""Children whose kernels start as copies of their parents', in real kernels."""

import asyncio

import pytest
from pydantic_ai.messages import ToolCallPart
from support.agents import cell, hand_over, of_kind, read, root_text, task

from freeact_sub.events import AgentFinished, CodeExecutionOutput

pytestmark = pytest.mark.kernel


def texts_of_children(events):
    return [event.text for event in of_kind(events, CodeExecutionOutput) if event.depth]


@pytest.mark.parametrize("mode", ["ask", "auto", "plan"])
async def test_code_starts_branches_that_have_its_variables_and_change_their_own_only(make, mode):
    code = """
import asyncio
data = list(range(1000))
def total(): return sum(data)
answers = await asyncio.gather(*(agent.task(f"branch {n}", output=int, branch=True) for n in range(3)))
print([a.output for a in answers], len(data))
"""
    script = {"root": [[cell(code)], "done"]} | {
        f"branch {n}": [[cell(f"data.append({n})\nprint(total())")], [hand_over(499500 + n)]] for n in range(3)
    }
    async with make(script, mode=mode) as agent:
        events, result = await read(agent.run("root"))
    assert root_text(events) == "[499500, 499501, 499502] 1000"
    assert sorted(texts_of_children(events)) == ["499500", "499501", "499502"]
    assert result.status == "completed"


async def test_the_tool_starts_a_branch_between_cells(make):
    branch = ToolCallPart("task", {"prompt": "look", "branch": True})
    script = {
        "root": [[cell("secret = 41")], [branch], [cell("print(secret)")], "done"],
        "look": [[cell("secret += 1\nprint(secret)")], [ToolCallPart("reset_kernel", {})], [cell("secret")], "42"],
    }
    async with make(script) as agent:
        events, _ = await read(agent.run("root"))
    first, second = texts_of_children(events)
    assert first == "42"
    assert "NameError" in second, "a kernel that replaces a branch starts empty"
    assert root_text(events).endswith("\n41")


async def test_what_cannot_be_branched_ends_the_child_before_it_costs_anything(make):
    code = """
import threading
stop = threading.Event()
threading.Thread(target=stop.wait, daemon=True).start()
try:
    await agent.task("look", branch=True)
except agent.TaskError as error:
    print(error.result.status, error.result.usage.turns, error)
stop.set()
"""
    async with make({"root": [[cell(code)], "done"], "look": ["never"]}) as agent:
        events, _ = await read(agent.run("root"))
    assert root_text(events).startswith("failed 0 the child")
    assert "thread" in root_text(events)


async def test_a_branch_in_another_mode_is_refused_with_the_reason(make):
    code = "try:\n    await agent.task('look', branch=True, mode='plan')\nexcept agent.TaskError as error:\n    print(error)"
    async with make({"root": [[cell(code)], "done"], "look": ["never"]}) as agent:
        events, _ = await read(agent.run("root"))
    assert "a branch must have the same mode" in root_text(events)


async def test_cancelling_the_root_ends_its_branches(make):
    script = {"root": [[cell("x = 1")], [cell("await agent.task('sleep', branch=True)")]], "sleep": [[cell("!sleep 1000")]]}
    async with make(script) as agent:
        run = agent.run("root")

        def on_event(event):
            if isinstance(event, CodeExecutionOutput) is False and type(event).__name__ == "ApprovalDecided" and event.depth:
                asyncio.get_running_loop().call_soon(run.cancel)

        events, result = await asyncio.wait_for(read(run, on_event=on_event), 120)
    assert result.status == "cancelled"
    assert [end.status for end in of_kind(events, AgentFinished)] == ["cancelled", "cancelled"]


async def test_a_branch_and_a_plain_child_side_by_side(make):
    both = [ToolCallPart("task", {"prompt": "branch", "branch": True}), task("plain")]
    look = [[cell("print('x' in globals())")], "ok"]
    async with make({"root": [[cell("x = 1")], both, "done"], "branch": look, "plain": look}) as agent:
        events, _ = await read(agent.run("root"))
    assert sorted(texts_of_children(events)) == ["False", "True"]
