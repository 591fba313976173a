"""Kernels that outlive their child's answer, and branches without a model, in real kernels."""

import asyncio
import re

import pytest
from pydantic_ai.messages import ToolReturnPart, UserPromptPart
from support.agents import allow, cell, check_stream, of_kind, read, root_text, task
from support.waiting import WORKS_ON, eventually

from freeact_sub import Budget, ChildRequest, KernelError, KernelLostError, SpawnForbiddenError
from freeact_sub.events import AgentFinished, ApprovalRequest, Notice, ToolCallStarted, ToolOutput
from freeact_sub.testing import first_prompt

pytestmark = pytest.mark.kernel

LOAD = {"load": [[cell("import itertools\ntable = [1, 2]\nnumbers = itertools.count(5)")], "loaded"]}


async def test_a_kept_kernel_is_a_node_to_run_cells_in_to_branch_and_to_adopt(make):
    events = []

    async def program():
        loaded = await agent.spawn_and_run(ChildRequest(prompt="load", description="loader", keep=True))
        node = loaded.node
        assert node.node_id == loaded.agent_id
        assert (await node.execute("table.append(next(numbers)); print(table)")).text == "[1, 2, 5]"
        left, right = [await node.branch(name) for name in ("left", "right")]
        async with left, right:
            assert (await left.execute("table.append('left'); print(table, next(numbers))")).text == "[1, 2, 5, 'left'] 6"
            assert (await right.execute("1 / 0")).status == "error"
            assert (await right.execute("print(table, next(numbers))")).text == "[1, 2, 5] 6"
            deeper = await left.branch()
        assert not left.is_open
        assert (await deeper.execute("print(table)")).text == "[1, 2, 5, 'left']"
        await agent.adopt(deeper, ["table"])
        mine = await agent.branch()
        assert (await mine.execute("print(table, 'numbers' in globals())")).text == "[1, 2, 5, 'left'] False"
        with pytest.raises(KernelError, match="nothing"):
            await agent.adopt(deeper, ["nothing"])
        await agent.adopt(node)
        return (await (await agent.branch()).execute("print(table, next(numbers))")).text

    async with make(LOAD, mode="auto", taps=[events.append]) as agent:
        result = await agent.run_program(program).result()
        assert (result.output, result.error) == ("[1, 2, 5] 6", "")
        live = [info.status for info in agent.agents()]
        assert live == ["completed", "completed"]
    check_stream(events)
    assert len(of_kind(events, AgentFinished)) == 2
    cells = [event for event in of_kind(events, ToolCallStarted) if event.depth == 0]
    assert {event.tool_name for event in cells} == {"execute_ipython_cell"}


async def test_a_child_whose_time_is_up_keeps_no_kernel_and_nothing_is_said_of_keeping_it(make):
    script = {"wait": [[cell("import time; time.sleep(60)")], "done"]}
    events = []
    async with make(script, mode="auto", taps=[events.append]) as agent:
        request = ChildRequest(prompt="wait", keep=True, budget=Budget(seconds=3))
        ended = await agent.spawn_and_run(request)
    assert (ended.status, ended.node) == ("timeout", None)
    assert not [event.content for event in of_kind(events, Notice) if "kept" in event.content]


async def test_a_kept_kernel_stays_where_its_child_has_no_time_to_begin_again(make):
    async with make({**LOAD, "more": ["more"]}, mode="auto") as agent:
        loaded = await agent.spawn_and_run(ChildRequest(prompt="load", keep=True))
        request = ChildRequest(prompt="more", resume=loaded.agent_id, budget=Budget(seconds=1e-6))
        ended = await agent.spawn_and_run(request)
        assert ended.status == "timeout"
        assert ended.node is not None
        code = "print(table)"
        assert (await agent.run_program(lambda: ended.node.execute(code)).result()).output.text == "[1, 2]"


async def test_children_begin_in_a_node_with_its_conversation(make):
    script = {**LOAD, "go on": [[cell("print(table)")], "went on"], "anew": [[cell("print(len(table))")], "did"]}
    async with make(script, mode="auto") as agent:
        node = (await agent.spawn_and_run(ChildRequest(prompt="load", keep=True))).node
        assert node.is_open
        request = ChildRequest(prompt="go on", branch_of=node, history="all", keep=True)
        on = await agent.spawn_and_run(request)
        anew = await agent.spawn_and_run(ChildRequest(prompt="anew", branch_of=node.node_id))
        assert (on.status, anew.status, anew.node) == ("completed", "completed", None)
        prompts = [part.content for message in on.node.history for part in message.parts if part.part_kind == "user-prompt"]
        assert [text.splitlines()[0] for text in prompts] == ["load", "go on"]
        assert (await node.execute("table")).text == "[1, 2]"


async def test_people_are_asked_for_a_cell_of_a_node_and_a_narrower_node_stays_narrow(make, tmp_path):
    asked = []

    def rule(event):
        asked.append(event)
        return allow(event)

    async def program():
        node = (await agent.spawn_and_run(ChildRequest(prompt="load", mode="plan", keep=True))).node
        count = len(asked)
        assert (await node.execute("len(table)")).text == "2"  # the program's own code
        assert len(asked) == count
        text = (await node.execute_asked("open('new', 'w')")).text
        with pytest.raises(Exception, match="mode"):
            await agent.adopt(node, ["table"])
        return text

    async with make(LOAD, mode="ask") as agent:
        _, result = await read(agent.run_program(program), rule)
    assert "PermissionError" in result.output
    assert not (tmp_path / "new").exists()
    last = asked[-1]
    assert isinstance(last, ApprovalRequest)
    assert (last.call.kind, last.call.code, last.depth) == ("code", "open('new', 'w')", 0)
    assert re.fullmatch("node [0-9a-f]{4}.*", last.path[-1])


async def test_nodes_count_as_live_kernels_and_one_too_many_names_the_setting(make):
    async with make(LOAD, mode="auto", kernel={"max_live": 2}) as agent:
        first = await agent.branch("first")
        with pytest.raises(SpawnForbiddenError, match=r"kernel\.max_live"):
            await agent.branch()
        with pytest.raises(SpawnForbiddenError, match=r"kernel\.max_live"):
            await agent.spawn("load")
        await first.close()
        await first.close()
        again = await agent.branch()
        assert (await again.execute("print(1)")).text == "1"


async def test_code_that_waits_for_a_branch_is_refused_when_the_last_place_goes_to_a_kept_child(make):
    may_end = asyncio.Event()
    branch = "try:\n    await agent.branch()\nexcept Exception as error:\n    print(error)"

    def script(messages, info):
        del info
        if not first_prompt(messages).startswith("root"):
            return may_end if first_prompt(messages).startswith("work") else "kept"
        returned = [part for message in messages for part in message.parts if isinstance(part, ToolReturnPart)]
        return [[task("work", background=True)], [task("keep", background=True, keep=True)], [cell(branch)], "done"][
            len(returned)
        ]

    async with make(script, mode="auto", kernel={"max_live": 2}) as agent:
        run = asyncio.create_task(agent.run("root").result())
        await eventually(lambda: agent.debug.waiting_for_kernels == 2)
        may_end.set()
        result = await asyncio.wait_for(run, 60)
        assert (result.output, result.error) == ("done", "")
        told = [part.content for message in agent.history for part in message.parts if isinstance(part, ToolReturnPart)]
    assert "kernel.max_live" in str(told[-1])


async def test_a_node_whose_kernel_dies_says_so_and_a_cancel_leaves_the_node(make):
    async with make(LOAD, mode="auto") as agent:
        node = await agent.branch()
        busy = asyncio.create_task(node.execute(f"open('began', 'w').close()\n{WORKS_ON}"))
        await eventually(lambda: (agent.config.workspace / "began").exists())
        busy.cancel()
        with pytest.raises(asyncio.CancelledError):
            await busy
        assert (await node.execute("print(2)")).text == "2"
        assert "start a child with branch_of" in (await node.execute("agent.task('x')")).text
        with pytest.raises(KernelLostError):
            await node.execute("import os; os._exit(3)")
        with pytest.raises(KernelLostError):
            await node.execute("print(3)")


async def test_models_and_code_keep_kernels_and_start_children_in_them(make):
    code = """
loaded = await agent.task("load", keep=True)
looked = await agent.task("look", branch_of=loaded.node)
print(loaded.node.node_id == loaded.agent_id, looked.node, looked.output)
try:
    await agent.task("look", branch_of="agent-none")
except ValueError as error:
    print(error)
"""
    steps = {
        **LOAD,
        "root": [[cell(code)], [task("load", keep=True)], branch_again, "done"],
        "look": [[cell("table.append(3); print(table)")], "[1, 2, 3]"],
    }

    def script(messages, info):
        results = [part for message in messages for part in message.parts if isinstance(part, ToolReturnPart)]
        step = steps[first_prompt(messages).splitlines()[0]][len(results)]
        return step(str(results[-1].content)) if callable(step) else step

    async with make(script, mode="auto") as agent:
        events, result = await read(agent.run("root"))
    assert (result.status, result.output, result.error) == ("completed", "done", "")
    told = root_text(events)
    assert told.startswith("True None [1, 2, 3]\n")
    assert "no node 'agent-none'" in told
    outputs = [event.content for event in of_kind(events, ToolOutput) if event.tool_name == "task" and event.depth == 0]
    assert "its kernel stays as node agent-" in outputs[-2]
    assert outputs[-1].endswith("[1, 2, 3]")


IN_A_CELL = """
import os
steps, count = (n for n in range(9)), 1
next(steps)
async with await agent.branch("try", own_files=True) as node:
    ran = await node.execute("count += 41; next(steps); open('found', 'w').write('here'); print(count)")
    print(ran.status, ran.text.strip(), count, os.path.exists("found"))
    failed = await node.execute("1 / 0")
    print(failed.status, "ZeroDivisionError" in failed.text)
    async with await node.branch() as deeper:
        print((await deeper.execute("print(next(steps), open('found').read())")).text.strip())
    try:
        await agent.adopt(node, ["missing"])
    except RuntimeError as error:
        print(error)
    await agent.adopt(node, "count")
    print(count, (await node.diff()).added, (await agent.promote(node)).added, open("found").read())
await node.close()
try:
    await node.execute("1")
except ValueError as error:
    print(str(error).partition(":")[0] == f"there is no node '{node.node_id}'")
"""
PLAIN = """
def plain():
    with agent.branch() as node:
        print(node.execute("print(count)").text.strip(), node.branch().execute("agent.branch()").text.splitlines()[-1])
    loaded = agent.task("load", keep=True).node
    agent.adopt(loaded, ["table"])
    print(table, agent.task("look", branch_of=loaded, own_files=True, history="all").output)
plain()
"""


async def test_code_in_a_cell_works_with_nodes_as_a_program_does(make):
    steps = {**LOAD, "root": [[cell(IN_A_CELL)], [cell(PLAIN)], "done"]}

    def script(messages, info):
        del info
        if any("look" in str(part.content) for part in messages[-1].parts if isinstance(part, UserPromptPart)):
            return f"looked after {len(messages)} messages"
        results = [part for message in messages for part in message.parts if isinstance(part, ToolReturnPart)]
        return steps[first_prompt(messages).splitlines()[0]][len(results)]

    async with make(script, mode="auto") as agent:
        events, result = await read(agent.run("root"))
    assert (result.status, result.error) == ("completed", "")
    returned = [part for message in agent.history for part in message.parts if isinstance(part, ToolReturnPart)]
    told = "\n".join(str(part.content) for part in returned)
    assert told.splitlines()[:6] == [
        "ok 42 1 False",
        "error True",
        "2 here",
        "NameError: name 'missing' is not defined",
        "42 ('found',) ('found',) here",
        "True",
    ]
    assert "42 RuntimeError: code in a node cannot call" in told
    assert "[1, 2] looked after 5 messages" in told, "with the conversation of the child that has loaded it"
    cells = [event for event in of_kind(events, ToolCallStarted) if event.tool_name == "execute_ipython_cell"]
    assert len([event for event in cells if event.depth == 0]) == 2 + 5, "those of nodes are cells of the agent"


def branch_again(told):
    """The model starts a child in the kernel that it was told of."""
    return [task("look", branch_of=told.partition("stays as node ")[2].partition("]")[0])]
