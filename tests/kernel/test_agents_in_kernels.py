"""Agents with real kernels: isolation, parallel children, and every way for a child to end."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from pydantic_ai.messages import ToolReturnPart
from support.agents import allow, cell, finished, of_kind, read, task
from support.waiting import LOADED_MACHINE_SECONDS, WORKS_ON, eventually, is_running, until_there, wait_until

from freeact_sub.events import (
    AgentStarted,
    ApprovalRequest,
    CodeExecutionOutput,
    CodeExecutionOutputChunk,
    Decision,
    KernelLost,
    ToolCallStarted,
    ToolOutput,
)
from freeact_sub.kernels.wire import client

pytestmark = pytest.mark.kernel


async def test_state_is_kept_between_cells_and_isolated_between_agents(make):
    script = {
        "root": [[cell("x = 'of the root'")], [task("child a"), task("child b")], [cell("print(x)")], "done"],
        "child": [[cell("print('x' in globals())")], [cell("x = 'of a child'\nprint(x)")], "ok"],
    }
    async with make(script) as agent:
        events, result = await read(agent.run("root"))
    texts = {
        depth: [event.text for event in of_kind(events, CodeExecutionOutput) if event.depth == depth] for depth in (0, 1)
    }
    assert texts[0][-1] == "of the root"
    assert sorted(texts[1]) == ["False", "False", "of a child", "of a child"]
    assert result.status == "completed"


async def test_five_of_twelve_children_work_at_once_each_in_a_kernel_of_its_own(make, tmp_path):
    working: set[str] = set()
    most = 0

    def on_event(event):
        nonlocal most
        if event.depth and isinstance(event, ToolCallStarted):
            working.add(event.agent_id)
        if type(event).__name__ == "AgentFinished":
            working.discard(event.agent_id)
        most = max(most, len(working))
        if most == 5:
            (tmp_path / "go").touch()

    code = f"{until_there('go')}\nprint(os.getpid())"
    script = {
        "root": [[task(f"child {number}", description=str(number)) for number in range(12)], "done"],
        "child": [[cell(code)], "ok"],
    }
    async with make(script, models={"quote_above": 12}) as agent:
        events, result = await read(agent.run("root"), on_event=on_event)
    assert result.status == "completed"
    assert most == 5
    assert len({event.text for event in of_kind(events, CodeExecutionOutput)}) == 12
    assert {end.status for end in finished(events).values()} == {"completed"}


async def test_each_child_ends_in_its_own_way_and_none_harms_another(make):
    names = ["fails", "limit", "killed", "denied", "works"]
    script = {
        "root": [[task(f"child {name}", description=name, max_turns=2) for name in names], "done"],
        "child fails": [[cell("1")], RuntimeError("the provider broke")],
        "child limit": [[cell("1")]] * 9,
        "child killed": [[cell("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)")], "I saw that it died"],
        "child denied": [[cell("'denied'")], "I was not allowed"],
        "child works": [[cell("print(6 * 7)")], "42"],
    }
    rule = lambda request: Decision(allowed="denied" not in str(request.call), reason="not that")
    async with make(script) as agent:
        events, result = await read(agent.run("root"), lambda r: allow(r) if r.depth == 0 else rule(r))
    ends = finished(events)
    assert {name: ends[name].status for name in names} == {
        "fails": "failed",
        "limit": "limit",
        "killed": "completed",
        "denied": "completed",
        "works": "completed",
    }
    assert "the provider broke" in ends["fails"].error
    assert "2 of 2" in ends["limit"].error
    assert ends["denied"].output == "I was not allowed"
    [lost] = of_kind(events, KernelLost)
    assert "signal 9" in lost.reason
    assert result.status == "completed"


WAITS = {
    "kernel start": [[cell("1")]],
    "silent model": None,
    # what is printed is out before the loop begins, which never lets go of the interpreter's lock
    "C loop": [["x", cell(f"print('on', flush=True)\n{until_there('heard')}\nsum(range(10**12))")]],
    "approval": [[cell("1")]],
    "sleep": [["x", cell(f"print('on', flush=True)\n{WORKS_ON}")]],
}


def in_the_loop(where, folder, cancel):
    """Let a loop in C begin, if there is one, and then cancel."""
    if where != "C loop":
        cancel()
        return
    (folder / "heard").touch()
    asyncio.get_running_loop().call_later(0.5, cancel)


@pytest.mark.parametrize("where", WAITS)
async def test_a_cancelled_child_ends_in_time_and_its_sibling_goes_on(make, where, monkeypatch, tmp_path):
    monkeypatch.setattr(client, "INTERRUPT_GRACE_SECONDS", 2.0)  # a loop in C does not heed the interrupt
    silent = asyncio.Event()
    turns = WAITS[where] or [["thinking", silent]]
    script = {
        "root": [[task("cancelled child", description="cancelled"), task("sibling", description="sibling")], "done"],
        "cancelled child": turns,
        "sibling": [[cell(f"{until_there('ended')}\nprint('fine')")], "fine"],
    }
    loop = asyncio.get_running_loop()
    times: dict[str, float] = {}
    child = ""

    def on_event(event):
        nonlocal child
        if isinstance(event, AgentStarted) and event.description == "cancelled":
            child = event.agent_id
        due = {
            "kernel start": ToolCallStarted,
            "silent model": type(event) if type(event).__name__ == "ResponseChunk" else None,
            "C loop": CodeExecutionOutputChunk,
            "approval": ApprovalRequest,
            "sleep": CodeExecutionOutputChunk,
        }[where]
        if child and event.agent_id == child and due and isinstance(event, due) and "cancel" not in times:
            times["cancel"] = loop.time()
            in_the_loop(where, tmp_path, lambda: run.cancel(child))
        if type(event).__name__ == "AgentFinished" and event.agent_id == child:
            times["end"] = loop.time()
            (tmp_path / "ended").touch()

    def rule(request):
        return None if where == "approval" and request.agent_id == child else Decision(allowed=True)

    async with make(script) as agent:
        run = agent.run("root")
        events, result = await read(run, rule, on_event)
    ends = finished(events)
    assert (ends["cancelled"].status, ends["sibling"].status, result.status) == ("cancelled", "completed", "completed")
    assert times["end"] - times["cancel"] < LOADED_MACHINE_SECONDS


@pytest.mark.parametrize("where", ["C loop", "sleep"])
async def test_the_root_is_cancelled_in_time_and_its_kernel_is_there_for_the_next_run(make, where, monkeypatch, tmp_path):
    if where == "C loop":
        monkeypatch.setattr(client, "INTERRUPT_GRACE_SECONDS", 2.0)
    is_lost = where == "C loop"  # the first cell of the next run is told of it
    first = [*WAITS[where], *[[cell("print('again')")]] * (1 + is_lost), "done"]
    loop = asyncio.get_running_loop()
    times = {}

    def on_event(event):
        if isinstance(event, CodeExecutionOutputChunk) and "cancel" not in times:
            times["cancel"] = loop.time()
            in_the_loop(where, tmp_path, run.cancel)

    async with make(first) as agent:
        run = agent.run("go")
        _, result = await read(run, on_event=on_event)
        assert loop.time() - times["cancel"] < LOADED_MACHINE_SECONDS
        assert result.status == "cancelled"
        events, after = await read(agent.run("go on"))
    assert after.status == "completed"
    *told, last = [event.text for event in of_kind(events, CodeExecutionOutput)]
    assert (len(told), last) == (is_lost, "again")


async def test_a_timeout_of_a_cell_is_told_to_the_model_and_the_kernel_lives(make):
    script = [[cell(f"x = 1\n{WORKS_ON}")], [cell("x")], "done"]
    async with make(script, kernel={"cell_timeout_seconds": 10}) as agent:
        events, _ = await read(agent.run("go"))
    first, second = of_kind(events, CodeExecutionOutput)
    assert first.status == "timeout"
    assert "longer than 10 s" in first.text
    assert second.text == "1"


async def test_a_picture_reaches_the_model_and_the_stream(make):
    code = "from IPython.display import Image, display\nimport base64\ndisplay(Image(base64.b64decode('%s')))" % PIXEL
    async with make([[cell(code)], "seen"]) as agent:
        events, _ = await read(agent.run("go"))
        returns = [part for message in agent.history for part in message.parts if isinstance(part, ToolReturnPart)]
    assert "image/png" in of_kind(events, CodeExecutionOutput)[0].displays[0]
    assert [file.media_type for file in returns[0].files] == ["image/png"]


PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


async def test_a_picture_that_no_model_could_read_is_kept_from_it(make):
    code = "from IPython.display import display\ndisplay({'image/png': 'AAAA', 'text/plain': 'x'}, raw=True)"
    async with make([[cell(code)], "seen"]) as agent:
        events, _ = await read(agent.run("go"))
        returns = [part for message in agent.history for part in message.parts if isinstance(part, ToolReturnPart)]
    assert of_kind(events, CodeExecutionOutput)[0].displays
    assert returns[0].files == []
    assert "1 of 1 pictures are not shown to you" in returns[0].model_response_str()


async def test_reset_kernel_forgets_and_needs_no_question(make):
    from pydantic_ai.messages import ToolCallPart

    script = [[cell("x = 1")], [ToolCallPart("reset_kernel", {})], [cell("'x' in globals()")], "done"]
    async with make(script) as agent:
        events, _ = await read(agent.run("go"))
    assert len(of_kind(events, ApprovalRequest)) == 2
    assert not of_kind(events, KernelLost)
    assert of_kind(events, CodeExecutionOutput)[-1].text == "False"


async def test_no_child_kernel_outlives_its_child(make):
    script = {"root": [[task("child")], [cell("1")], "done"], "child": [[cell("import os\nprint(os.getpid())")], "ok"]}
    pids: dict[int, int] = {}
    alive_at_end: list[bool] = []

    def on_event(event):
        if isinstance(event, CodeExecutionOutput) and event.depth:
            pids[event.depth] = int(event.text)
        if type(event).__name__ == "AgentFinished" and event.depth:
            alive_at_end.append(is_running(pids[1]))

    async with make(script) as agent:
        await read(agent.run("root"), on_event=on_event)
    assert alive_at_end == [False]


def bytes_in(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.iterdir())


@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_a_hundred_megabytes_and_a_reader_that_stops_are_not_kept_in_memory_and_lose_no_byte(make, tmp_path):
    code = "for i in range(20000): print('x' * 4999)"
    async with make([[cell(code)], "done"]) as agent:
        run = agent.run("go")
        stopped = False
        async for event in run:
            if isinstance(event, ApprovalRequest):
                event.approve()
            if isinstance(event, CodeExecutionOutputChunk) and not stopped:
                stopped = True
                files = Path(tmp_path, ".freeact/outputs", agent.agent_id)
                # the reader sleeps until the kernel is done: all of it has come and gone to the file meanwhile
                come = 0
                while come < 100_000_000:
                    come = await eventually(lambda least=come: (size := bytes_in(files)) > least and size)
            if isinstance(event, CodeExecutionOutput):
                end = event
    assert end.left_out_chars > 80_000_000
    assert Path(end.output_file).stat().st_size == 100_000_000
    assert len(end.text) < 12_000


SERVER = {"demo": {"command": sys.executable, "args": [str(Path(__file__).parents[1] / "support" / "sdk_mcp_server.py")]}}


@pytest.mark.mcp
async def test_ten_mcp_calls_from_code_are_asked_for_one_by_one_and_wait_side_by_side(make):
    code = "import asyncio\nr = await asyncio.gather(*(agent.mcp.demo.add(i, b=1) for i in range(10)))\nprint(sum(r))"
    open_requests: list[ApprovalRequest] = []

    def rule(request):
        if request.call.kind != "mcp":
            return Decision(allowed=True)
        open_requests.append(request)
        if len(open_requests) == 10:  # none was answered before all were asked: they wait side by side
            for waiting in reversed(open_requests):
                waiting.approve()
        return None

    async with make([[cell(code)], "done"], mcp_servers=SERVER) as agent:
        events, _ = await read(agent.run("go"), rule)
    assert [event.text for event in of_kind(events, CodeExecutionOutput)] == ["55"]
    assert sorted(request.call.args["a"] for request in open_requests) == list(range(10))
    outputs = [event for event in of_kind(events, ToolOutput) if event.tool_name == "demo.add"]
    assert len(outputs) == 10
    assert len({event.tool_call_id for event in events if event.tool_call_id}) == 1


@pytest.mark.mcp
async def test_mcp_from_code_without_await_with_signature_help_denial_and_errors(make):
    code = """
import inspect
print(inspect.signature(agent.mcp.demo.add), agent.mcp.demo.add.__doc__)
def plain(x):
    return agent.mcp.demo.add(x, 1)
print([plain(x) for x in (1, 2)], agent.mcp["demo"]["greet"](name="you"))
for wrong in (lambda: agent.mcp.demo.add(99, 1), lambda: agent.mcp.demo.fail(why="because"), lambda: agent.mcp.demo.nothing,
              lambda: agent.mcp.nobody, lambda: agent.mcp.demo.add(1, 2, 3)):
    try:
        wrong()
    except Exception as error:
        print(type(error).__name__, error)
"""
    rule = lambda request: Decision(allowed="99" not in str(getattr(request.call, "args", "")), reason="too big")
    async with make([[cell(code)], "done"], mcp_servers=SERVER) as agent:
        events, _ = await read(agent.run("go"), rule)
    outcomes = [event.outcome for event in of_kind(events, ToolOutput) if event.tool_name.startswith("demo.")]
    assert outcomes == ["success", "success", "success", "denied", "failed"]
    lines = of_kind(events, CodeExecutionOutput)[0].text.splitlines()
    text = "\n".join(lines)
    assert lines[0] == "(a: int, b: int) -> int Add two numbers."
    assert "[2, 3] hello you" in text
    assert "PermissionError denied: too big" in text
    assert "RuntimeError MCP tool demo.fail failed: " in text
    assert "because" in text
    assert "AttributeError agent.mcp.demo has no 'nothing'; it has: " in text
    assert "AttributeError agent.mcp has no 'nobody'; it has: demo" in text
    assert "TypeError too many positional arguments" in text


@pytest.mark.mcp
async def test_mcp_tools_are_direct_calls_and_a_server_that_does_not_start_is_one_notice(make):
    from pydantic_ai.messages import ToolCallPart

    servers = SERVER | {"broken": {"command": "/no/such/program"}}
    script = {
        "root": [[ToolCallPart("demo_add", {"a": 1, "b": 2})], [task("child")], "done"],
        "child": [[ToolCallPart("demo_add", {"a": 3, "b": 4})], "ok"],
    }
    async with make(script, mcp_servers=servers) as agent:
        events, result = await read(agent.run("root"))
    calls = [event.call for event in of_kind(events, ApprovalRequest) if event.call.kind == "mcp"]
    assert [(call.server, call.tool, call.args) for call in calls] == [
        ("demo", "add", {"a": 1, "b": 2}),
        ("demo", "add", {"a": 3, "b": 4}),
    ]
    assert [event.content for event in of_kind(events, ToolOutput) if event.tool_name == "demo_add"] == ["3", "7"]
    notices = [event.content for event in events if type(event).__name__ == "Notice" and event.depth == 0]
    assert len(notices) == 1
    assert "broken" in notices[0]
    assert "/no/such/program" in notices[0]
    assert result.status == "completed"


HOST = """
import asyncio, sys
from freeact_sub import Agent, Config
from freeact_sub.testing import ScriptedModel
from pydantic_ai.messages import ToolCallPart

def cell(code): return ToolCallPart("execute_ipython_cell", {"code": code})
script = {
    "root": [[ToolCallPart("task", {"prompt": f"child {i}"}) for i in range(2)]],
    "child": [[cell("import os, subprocess\\nsubprocess.Popen(['setsid', 'sleep', '1000'])\\nprint(os.getpid())")],
              [cell("import threading; threading.Event().wait()")]],
}

async def main():
    async with Agent(Config(workspace=sys.argv[1], mode="full"), model=ScriptedModel(script)) as agent:
        async for event in agent.stream("root"):
            if type(event).__name__ == "CodeExecutionOutput":
                print(event.text, flush=True)

asyncio.run(main())
"""


@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_host_leaves_no_kernel_and_nothing_that_its_cells_started(tmp_path, ending):
    with subprocess.Popen([sys.executable, "-c", HOST, str(tmp_path)], stdout=subprocess.PIPE, text=True) as host:
        kernels = [int(host.stdout.readline()) for _ in range(2)]
        below = [child.pid for child in psutil.Process(host.pid).children(recursive=True)]
        assert set(kernels) < set(below)
        assert len(below) >= 6
        os.kill(host.pid, ending)
        host.wait(120)
        wait_until(lambda: not any(map(is_running, below)))


async def test_output_of_tools_names_the_child_and_its_status(make):
    script = {"root": [[task("child")], "done"], "child": [[cell("1")], "the answer"]}
    async with make(script) as agent:
        events, _ = await read(agent.run("root"))
        [report] = [event.content for event in of_kind(events, ToolOutput) if event.tool_name == "task"]
    child = next(event.agent_id for event in events if event.depth)
    status, receipts, answer = report.split("\n", 2)
    assert (receipts, answer) == ('[RECEIPTS] cell 1: "1"', "the answer")
    assert status.startswith(f"[{child}: completed; turns 2, tool calls 1, tokens ")
