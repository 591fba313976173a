"""Children started by code in a cell: failures, wrong arguments, cancels, and code that lies to its host."""

import asyncio

import pytest
from support.agents import cell, of_kind, read, root_text, task
from support.waiting import THERE, WORKS_ON

from freeact_sub.events import AgentFinished, ApprovalRequest, CodeExecutionOutput, Decision, ToolCallStarted, ToolOutput

pytestmark = pytest.mark.kernel

CELL_SECONDS = 8
"""How long cells may run whose clock stands still while they wait; what they do themselves takes far less."""


async def test_a_child_that_fails_raises_and_the_error_carries_what_there_was(make):
    code = """
try:
    await agent.task("child breaks", output=int)
except RuntimeError as error:
    print(type(error) is agent.TaskError, error)
    r = error.result
    print(r.status, r.error, r.text, r.usage.turns, r.files_written)
try:
    agent.task("child loops", max_turns=2)
except agent.TaskError as error:
    print(error.result.status, error.result.text)
try:
    agent.task("child dies")
except agent.TaskError as error:
    print(error.result.status)
"""
    kill = cell("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)")
    script = {
        "root": [[cell(code.replace("await agent", "agent"))], "done"],
        "child breaks": [["so far", cell("open('made.txt', 'w').close()")], RuntimeError("the provider broke")],
        "child loops": [[cell("1")]] * 2 + ["what I have"],
        "child dies": [[kill], [kill], [kill], [cell("1")], "unreachable"],
    }
    async with make(script) as agent:
        events, result = await read(agent.run("root"))
    lines = root_text(events).splitlines()
    assert lines[0].startswith("True the child agent-")
    assert lines[0].endswith("did not complete (failed): RuntimeError: the provider broke")
    assert lines[1] == "failed RuntimeError: the provider broke so far 1 ('made.txt',)"
    assert lines[2] == "limit what I have"
    assert lines[3] == "kernel_lost"
    assert result.status == "completed"


async def test_a_child_that_is_denied_or_forbidden_is_a_permission_error(make):
    code = """
for prompt in ("not this", "child"):
    try:
        print(agent.task(prompt).output)
    except PermissionError as error:
        print("denied:", error)
"""
    inner = "try:\n    agent.task('grandchild')\nexcept PermissionError as error:\n    print(error)"
    script = {"root": [[cell(code)], "done"], "child": [[cell(inner)], "asked"]}
    rule = lambda request: Decision(allowed="not this" not in str(request.call) or request.call.kind == "code", reason="no")
    async with make(script) as agent:
        events, _ = await read(agent.run("root"), rule)
    assert root_text(events) == "denied: denied: no\nasked"
    [text] = [event.text for event in of_kind(events, CodeExecutionOutput) if event.depth == 1]
    assert text.startswith("forbidden: this agent is at depth 1 and may not start children (setting `subagents.max_depth`")
    spawns = [event for event in of_kind(events, ApprovalRequest) if event.call.kind == "spawn"]
    assert [request.call.prompt for request in spawns] == ["not this", "child"]


BAD = {
    "agent.task('')": "ValueError agent.task: prompt: String should have at least 1 character",
    "agent.task(3)": "ValueError agent.task: prompt: Input should be a valid string",
    "agent.task('p', max_turns=0)": "ValueError agent.task: max_turns: Input should be greater than or equal to 1",
    "agent.task('p', mode='root')": "ValueError agent.task: mode: Input should be 'plan', 'ask', 'auto' or 'full'",
    "agent.task('p', budget={'tokens': -1})": "ValueError agent.task: budget.tokens: Input should be greater than or equal to 0",
    "agent.task('p', budget={'euros': 1})": "ValueError agent.task: budget.euros: Extra inputs are not permitted",
    "agent.task('p', budget={'turns': 1}, max_turns=1)": "ValueError agent.task: max_turns and budget['turns'] are the same",
    "agent.task('p', budget={1, 2})": "TypeError agent.task: its arguments, but for inputs and output, must be plain values",
    "agent.task('p', inputs=[1])": "TypeError inputs must be a dict of names and values, not list",
    "agent.task('p', inputs={'a b': 1})": "ValueError inputs: 'a b' is not the name of a variable",
    "agent.task('p', inputs={'class': 1})": "ValueError inputs: 'class' is not the name of a variable",
    "agent.task('p', inputs={'agent': 1})": "ValueError inputs: 'agent' is reserved in every kernel",
    "agent.task('p', inputs={'lock': threading.Lock()})": "TypeError 'lock' (lock) cannot be handed over: ",
    "agent.task('p', output=threading.Thread)": "TypeError output: <class 'threading.Thread'> has no JSON schema",
    "agent.task('p', output={'type': 'nothing'})": "TypeError output: it is not a JSON schema: 'nothing' is not valid",
    "agent.task('p', output=Node)": "ValueError output: Node contains itself",
    "agent.task('p', output=bomb)": "ValueError output: its JSON schema has more than 10,000 parts",
    "agent.task('p', output=remote)": "ValueError output: its JSON schema refers to 'http://",
    "agent.task('p', output=print)": "TypeError output: <built-in function print> has no JSON schema: give a",
    "agent.task('p', output=lambda answer: answer)": "TypeError output: <function <lambda>",
    "agent.task('p', inputs={'__builtins__': {}})": "ValueError inputs: '__builtins__' is reserved in every kernel",
    "agent.task('p', agent='nobody')": "ValueError there is no agent type 'nobody': there are none",
    "agent.ask('p', model='nobody')": "ValueError there is no model 'nobody': there are none (the setting `models`)",
    "agent.ask(5)": "ValueError agent.ask: prompt: Input should be a valid string",
    "agent.children.wait(seconds=-1)": "ValueError agent.children: seconds: Input should be greater than or equal to 0",
    "agent.task('p', nothing=1)": "TypeError AgentProxy.task() got an unexpected keyword argument 'nothing'",
}


async def test_a_wrong_argument_is_an_error_that_names_it_and_nothing_is_left_of_it(make):
    code = f"""
import os, threading
from pydantic import BaseModel
class Node(BaseModel):
    below: list["Node"]
bomb = {{"type": "object", "properties": {{"a": {{"$ref": "#/$defs/a0"}}}}, "$defs": {{
    f"a{{i}}": {{"type": "object", "properties": {{n: {{"$ref": f"#/$defs/a{{i + 1}}"}} for n in "xyz"}}}} for i in range(12)
}} | {{"a12": {{"type": "string"}}}}}}
remote = {{"$ref": "http://127.0.0.1:1/schema.json"}}
for text in {list(BAD)!r}:
    try:
        print("no error:", eval(text))
    except Exception as error:
        print(type(error).__name__, str(error).replace(chr(10), " "))
print([name for name in os.listdir(os.environ["FA_FOLDER"] + "/tmp") if name.startswith("values-")])
"""
    async with make([[cell(code)], "done"]) as agent:
        events, _ = await read(agent.run("root"))
        assert agent.debug.open_tasks == 0
    *lines, left = root_text(events).splitlines()
    for text, line, expected in zip(BAD, lines, BAD.values(), strict=True):
        assert line.startswith(expected), text
    assert left == "[]"
    assert len({event.agent_id for event in events}) == 1


async def test_what_a_cell_defines_is_refused_by_name_where_there_is_no_cloudpickle(make):
    code = """
import sys
sys.modules["cloudpickle"] = None
def double(x): return 2 * x
class Point: pass
for value in (double, Point(), {"deep": [Point]}):
    try:
        agent.task("p", inputs={"value": value})
    except TypeError as error:
        print(error)
"""
    async with make([[cell(code)], "done"]) as agent:
        events, _ = await read(agent.run("root"))
    lines = root_text(events).splitlines()
    assert "'value' (function) cannot be handed over: double is defined in a cell" in lines[0]
    assert all("install it, or define it in a module" in line for line in lines)
    assert ["Point is defined" in line for line in lines] == [False, True, True]


async def test_values_handed_over_together_share_what_they_shared(make):
    give = """
import numpy as np
rows, numbers = [1], np.arange(1000)
agent.task("p", inputs={"rows": rows, "twice": [rows, rows], "numbers": numbers, "held": {"numbers": numbers}})
"""
    look = "print(twice[0] is twice[1] is rows, held['numbers'] is numbers)"
    async with make({"root": [[cell(give)], "done"], "p": [[cell(look)], "done"]}) as agent:
        events, _ = await read(agent.run("root"))
    assert "True True" in "".join(event.text for event in of_kind(events, CodeExecutionOutput))


async def test_a_value_that_the_child_cannot_read_ends_it_with_the_reason(make):
    code = """
class Once:
    def __reduce__(self): return (eval, ("1 / 0",))
try:
    agent.task("p", inputs={"good": 1, "bad": Once()})
except agent.TaskError as error:
    print(error)
"""
    async with make([[cell(code)], "done"]) as agent:
        events, _ = await read(agent.run("root"))
    assert "(failed): TypeError: 'bad' cannot be read here: ZeroDivisionError" in root_text(events)


WAITS = {
    "task": [[cell(f"r = agent.task('slow')\nprint(r.output)\n{WORKS_ON}\nprint('over')")]],
    "ask": [[cell("print(agent.ask('slow'))")]],
    "subagents": [[task("slow", background=True)], [cell("[child] = agent.children.wait()\nprint(child.output)")]],
}
"""What a cell may wait for, by the name of the tool; the first one's own time runs afterwards, and is up."""


@pytest.mark.parametrize("tool", WAITS)
async def test_the_clock_of_the_cell_stands_still_while_it_waits_for_a_child_or_a_model(make, tool):
    answer = asyncio.Event()
    script = {"root": [*WAITS[tool], "done"], "slow": [[answer, "slow answer"]]}

    def on_event(event):
        if isinstance(event, ToolCallStarted) and event.tool_name == tool and "background" not in event.args:
            asyncio.get_running_loop().call_later(CELL_SECONDS + 1, answer.set)

    async with make(script, kernel={"cell_timeout_seconds": CELL_SECONDS}) as agent:
        events, _ = await read(agent.run("root"), on_event=on_event)
    assert [event.status for event in of_kind(events, CodeExecutionOutput) if event.depth == 0] == [
        "timeout" if tool == "task" else "ok"
    ]
    assert "slow answer" in root_text(events)


async def test_a_cancelled_run_ends_the_children_of_its_cell(make):
    code = "import asyncio\nawait asyncio.gather(*(agent.task(f'child {i}', output=int) for i in range(3)))"
    started: list[str] = []

    def on_event(event):
        if isinstance(event, CodeExecutionOutput):
            return
        if event.depth and type(event).__name__ == "CodeExecutionOutputChunk":
            started.append(event.agent_id)
            if len(started) == 3:
                run.cancel()

    script = {"root": [[cell(code)], "done"], "child": [[cell(f"print('on', flush=True)\n{WORKS_ON}")]]}
    async with make(script) as agent:
        run = agent.run("root")
        events, result = await read(run, on_event=on_event)
        assert agent.debug.open_tasks == 0
    assert result.status == "cancelled"
    assert [event.status for event in of_kind(events, AgentFinished)] == ["cancelled"] * 4


async def test_code_that_waits_no_more_cancels_its_child_and_a_run_that_ends_cancels_what_it_left(make, tmp_path):
    code = f"""{THERE}
waits = asyncio.create_task(agent.task("child waits"))
await there("one")
waits.cancel()
try:
    await waits
except asyncio.CancelledError:
    print("gave up")
await there("ended")
left = asyncio.create_task(agent.task("other one", description="left"))
await there("two")
"""
    wait = "open({!r}, 'w').close(); " + WORKS_ON
    script = {"root": [[cell(code)], "done"], "child": [[cell(wait.format("one"))]], "other": [[cell(wait.format("two"))]]}

    def note(event):
        if isinstance(event, AgentFinished) and event.depth:
            (tmp_path / "ended").touch()

    async with make(script, taps=[note]) as agent:
        events, result = await read(agent.run("root"))
    assert root_text(events) == "gave up"
    assert (result.status, result.output) == ("completed", "done")
    assert [event.status for event in of_kind(events, AgentFinished) if event.depth] == ["cancelled", "cancelled"]
    output = next(event.seq for event in of_kind(events, CodeExecutionOutput) if event.depth == 0)
    ends = [event.seq for event in of_kind(events, AgentFinished) if event.depth]
    assert ends[0] < output < ends[1]
    outputs = [event for event in of_kind(events, ToolOutput) if event.tool_name == "task"]
    assert [(event.outcome, event.content) for event in outputs] == [("failed", "cancelled")] * 2


async def test_a_kernel_that_lies_to_its_host_gets_nothing_by_it(make, tmp_path):
    code = """
import os
requests = agent._requests
def ask(method, **params):
    try:
        print(requests.ask(method, **params))
    except Exception as error:
        print(type(error).__name__, error)
ask("files", since="x", programs=-1, code=5, read=["../outside", 7], written=["../outside", "/etc/passwd", 3, "x" * 9999, "in/../inside.txt"])
ask("task", task_id="../../x", prompt="p")
ask("task", task_id="0" * 32, prompt="p", inputs=["x: int"])
os.symlink("/etc/passwd", os.path.join(os.environ["FA_FOLDER"], "tmp", "values-" + "1" * 32))
ask("task", task_id="1" * 32, prompt="p", inputs=["x: int"])
os.mkdir(os.path.join(os.environ["FA_FOLDER"], "tmp", "values-" + "2" * 32))
ask("task", task_id="2" * 32, prompt="p", inputs=["x: int"], depth=0)
ask("task", task_id="2" * 32, prompt="p", inputs=["x: int"])
ask("task_check", task_id="3" * 32, problem="p")
ask("task_cancel", task_id=None)
"""
    async with make([[cell(code)], "done"]) as agent:
        events, result = await read(agent.run("root"))
    text = root_text(events)
    assert "task_id: String should match pattern" in text
    assert text.count("inputs are no longer there") == 1
    assert text.count("inputs: the kernel wrote something that is not a file") == 2
    assert "depth: Extra inputs are not permitted" in text
    assert "the child has ended" in text
    assert result.files_written == ("inside.txt",)
