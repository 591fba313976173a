"""Children started by code in a cell, in real kernels: values in, values out, side by side, behind walls."""

import asyncio

import pytest
from pydantic_ai.messages import ModelResponse
from support.agents import cell, hand_over, of_kind, read, root_text, task
from support.waiting import until_there

from freeact_sub.events import AgentFinished, AgentStarted, ApprovalRequest, CodeExecutionOutput, ToolCallStarted, ToolOutput
from freeact_sub.testing import first_prompt

pytestmark = pytest.mark.kernel


async def test_values_go_in_and_a_typed_value_comes_back(make):
    code = """
import numpy as np, pandas as pd
frame = pd.DataFrame({"a": np.arange(1000), "b": np.arange(1000) * 0.5})
r = await agent.task("add them up", description="adder", inputs={"frame": frame, "n": 3, "names": ["x", "y"]}, output=float)
print(type(r.output).__name__, r.output, r.status, r.usage.turns, r.seconds > 0, r.agent_id, r.files_written)
print(frame.shape, r)
"""
    work = "frame.loc[0, 'a'] = 7\nopen('out.txt', 'w').write('x')\nprint(float(frame.b.sum()), n, names, frame.a[0])"
    script = {"root": [[cell(code)], "done"], "add them up": [[cell(work)], [hand_over(249750.0)]]}
    async with make(script) as agent:
        events, result = await read(agent.run("root"))
    text = root_text(events)
    child = next(event for event in of_kind(events, AgentStarted) if event.depth)
    [began] = [
        event for event in of_kind(events, ToolCallStarted) if event.tool_name == "execute_ipython_cell" and not event.depth
    ]
    assert child.tool_call_id == began.tool_call_id, "the cell that has started it"
    assert f"float 249750.0 completed 2 True {child.agent_id} ('out.txt',)" in text
    assert "(1000, 2) TaskResult(status='completed', output=249750.0, seconds=" in text
    assert [event.text for event in of_kind(events, CodeExecutionOutput) if event.depth] == ["249750.0 3 ['x', 'y'] 7"]
    assert result.status == "completed"


async def test_code_of_a_type_without_task_starts_no_child(make, tmp_path):
    (tmp_path / "alone.md").write_text("---\ndescription: x\ntools: {deny: [task]}\n---\n")
    code = """
for call in (lambda: agent.task("below"), lambda: agent.task("below", agent="alone"), lambda: agent.children.list()):
    try:
        print(call())
    except PermissionError as error:
        print("refused:", error)
"""
    script = {"root": [[task("work", agent="alone")], "done"], "work": [[cell(code)], "done"]}
    async with make(script, agent_folders=(tmp_path,), mode="full", subagents={"max_depth": 3}) as agent:
        events, _ = await read(agent.run("root"))
    assert len(of_kind(events, AgentStarted)) == 2
    [text] = [event.text for event in of_kind(events, CodeExecutionOutput)]
    assert text.count("refused: ") == 3
    assert "agents of type 'alone' do not have the tool task" in text


async def test_without_an_output_type_the_answer_is_text_and_without_await_it_is_there_at_once(make):
    code = "def plain():\n    return agent.task('say hello')\nr = plain()\nprint(r.output, r.output == r.text, type(r).__name__)"
    script = {"root": [[cell(code)], "done"], "say hello": ["hello"]}
    async with make(script) as agent:
        events, _ = await read(agent.run("root"))
    assert root_text(events) == "hello True TaskResult"
    [output] = [event for event in of_kind(events, ToolOutput) if event.tool_name == "task"]
    assert output.content.endswith("\nhello")
    assert output.depth == 0


TYPES = """
import dataclasses, datetime, enum
from typing import Literal, Optional, TypedDict
from pydantic import BaseModel, field_validator

class Point(BaseModel):
    x: int
    when: datetime.date
    @field_validator("x")
    @classmethod
    def even(cls, x):
        if x % 2: raise ValueError("x must be even")
        return x

@dataclasses.dataclass
class Line:
    points: list[Point]
    name: Optional[str] = None

class Row(TypedDict):
    key: str
    count: int

schema = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 3}}, "required": ["n"]}
"""


async def test_answers_become_values_of_every_kind_of_type(make):
    kinds = {
        "int": ("int", hand_over(3), "3"),
        "listed": ("list[str]", hand_over(["a"]), "['a']"),
        "model": (
            "Point",
            hand_over({"x": 2, "when": "2020-01-02"}, wrapped=False),
            "Point(x=2, when=datetime.date(2020, 1, 2))",
        ),
        "dataclass": (
            "Line",
            hand_over({"points": [{"x": 4, "when": "2020-01-02"}]}, wrapped=False),
            "Line(points=[Point(x=4, when=datetime.date(2020, 1, 2))], name=None)",
        ),
        "typed dict": ("list[Row]", hand_over([{"key": "k", "count": 1}]), "[{'key': 'k', 'count': 1}]"),
        "schema": ("schema", hand_over({"n": 5}, wrapped=False), "{'n': 5}"),
        "choice": ("Literal['yes', 'no']", hand_over("no"), "'no'"),
    }
    calls = "".join(
        f"print(repr((await agent.task({name!r}, output={kind})).output))\n" for name, (kind, _, _) in kinds.items()
    )
    script = {"root": [[cell(TYPES + calls)], "done"], **{name: [[answer]] for name, (_, answer, _) in kinds.items()}}
    async with make(script) as agent:
        events, _ = await read(agent.run("root"))
    assert root_text(events).splitlines() == [shown for _, _, shown in kinds.values()]


async def test_a_wrong_answer_is_asked_for_again_in_the_words_of_the_type_and_not_for_ever(make):
    code = f"""{TYPES}
r = await agent.task("even", output=Point)
print(r.output.x, r.usage.turns)
r = await agent.task("at least three", output=schema)
print(r.output, r.usage.turns)
try:
    await agent.task("never", output=Point, max_turns=50)
except agent.TaskError as error:
    print(error.result.status, error.result.usage.turns < 10, "hand_over" in str(error))
"""
    wrong, right = {"x": 1, "when": "2020-01-02"}, {"x": 2, "when": "2020-01-02"}
    script = {
        "root": [[cell(code)], "done"],
        "even": [[hand_over(wrong, wrapped=False)], [hand_over({"x": 2}, wrapped=False)], [hand_over(right, wrapped=False)]],
        "at least": [[hand_over({"n": 2}, wrapped=False)], "only text", [hand_over({"n": 3}, wrapped=False)]],
        "never": [[hand_over(wrong, wrapped=False)]] * 50,
    }
    seen = []

    def recorded(messages, info):
        seen.extend(str(part.content) for part in messages[-1].parts if getattr(part, "outcome", "") == "retried")
        turns = next(turns for prompt, turns in script.items() if prompt in first_prompt(messages))
        return turns[sum(isinstance(message, ModelResponse) for message in messages)]

    async with make(recorded) as agent:
        events, _ = await read(agent.run("root"))
    assert root_text(events).splitlines()[:2] == ["2 3", "{'n': 3} 3"]
    assert root_text(events).splitlines()[2].startswith("failed True")
    assert any("x must be even" in text for text in seen)
    assert any("when: Field required" in text for text in seen)
    assert any("2 is less than the minimum of 3" in text for text in seen)


async def test_what_a_cell_has_defined_goes_along(make):
    code = """
import dataclasses
import numpy as np
@dataclasses.dataclass
class Point:
    x: int
    def far(self, n): return Point(self.x + n)
step = 10
def walk(point): return point.far(step)
r = agent.task("walk", inputs={"walk": walk, "start": Point(1), "rows": [np.arange(3)]}, output=Point)
print(r.output, type(r.output) is Point)
"""
    script = {
        "root": [[cell(code)], "done"],
        "walk": [[cell("print(walk(start), rows)")], [hand_over({"x": 11}, wrapped=False)]],
    }
    async with make(script) as agent:
        events, _ = await read(agent.run("root"))
    assert root_text(events) == "Point(x=11) True"
    assert [event.text for event in of_kind(events, CodeExecutionOutput) if event.depth] == [
        "Point(x=11) [array([0, 1, 2])]"
    ]


async def test_a_function_that_uses_agent_asks_the_host_of_the_kernel_it_runs_in(make):
    code = """
def halves(a, b): return [agent.task(part).agent_id for part in (a, b)]
agent.task("split", inputs={"halves": halves, "me": agent})
"""
    script = {"root": [[cell(code)], "done"], "split": [[cell("halves('left', 'right')\nprint(me is agent)")], "done"]}
    async with make(script, subagents={"max_depth": 2}) as agent:
        events, _ = await read(agent.run("root"))
    assert [event.text for event in of_kind(events, CodeExecutionOutput) if event.depth == 1] == ["True"]
    root, split, left, right = of_kind(events, AgentStarted)
    assert (split.parent_id, left.parent_id, right.parent_id) == (root.agent_id, split.agent_id, split.agent_id)


async def test_gather_runs_children_side_by_side_within_the_bound_in_order(make, tmp_path):
    working: set[str] = set()
    most = 0

    def on_event(event):
        nonlocal most
        if event.depth and isinstance(event, AgentFinished):
            working.discard(event.agent_id)
        elif event.depth and not isinstance(event, AgentStarted):
            working.add(event.agent_id)
            most = max(most, len(working))
        if most == 3:
            (tmp_path / "go").touch()

    code = """
import asyncio
results = await asyncio.gather(*(agent.task(f"child {i}", inputs={"i": i}, output=int) for i in range(8)))
print([r.output for r in results])
"""
    script = {"root": [[cell(code)], "done"]}
    wait = cell(f"{until_there('go')}\nprint(i)")
    script |= {f"child {i}": [[wait], [hand_over(i * i)]] for i in range(8)}
    async with make(script, subagents={"max_concurrent": 3}) as agent:
        events, _ = await read(agent.run("root"), on_event=on_event)
    assert root_text(events) == str([i * i for i in range(8)])
    assert most == 3


def meeting_of(count, code):
    """A script of a root with this cell, and of children of whom the first `count` hand over when all of them are there."""
    meeting = [asyncio.Event() for _ in range(count)]

    def script(messages, info):
        del info
        prompt = messages[0].parts[-1].content
        if "child" not in prompt:
            return [cell(code)] if len(messages) == 1 else "done"
        i = int(prompt.split()[1])
        if i < count:
            meeting[i].set()
        return [*meeting, hand_over(i)]

    return script


async def test_calls_that_are_made_first_and_awaited_later_run_side_by_side(make):
    code = """
import asyncio
calls = [agent.task(f"child {i}", output=int) for i in range(3)]
task = asyncio.create_task(agent.task("child 3", output=int))
print([r.output for r in await asyncio.gather(*calls)], (await task).output)
def plain(): return agent.task("child 4", output=int).output
print(plain())
"""
    async with make(meeting_of(4, code)) as agent:
        events, _ = await read(agent.run("root"))
    assert root_text(events) == "[0, 1, 2] 3\n4"


async def test_threads_run_children_side_by_side_too(make):
    code = """
from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor(5) as pool:
    print([r.output for r in pool.map(lambda i: agent.task(f"child {i}", inputs={"i": i}, output=int), range(5))])
"""
    async with make(meeting_of(5, code), kernel={"cell_timeout_seconds": 60}) as agent:
        events, _ = await read(agent.run("root"))
    assert root_text(events) == "[0, 1, 2, 3, 4]"
    ids = {event.tool_call_id for event in of_kind(events, ToolOutput) if event.tool_name == "task"}
    assert len(ids) == 1
    assert ids != {None}


async def test_grandchildren_hand_values_up_two_levels(make):
    code = "print((await agent.task('middle', inputs={'x': [1, 2]}, output=list[int])).output)"
    inner = "y = (await agent.task('leaf', inputs={'x': x + [3]}, output=list[int])).output\nprint(y)"
    script = {
        "root": [[cell(code)], "done"],
        "middle": [[cell(inner)], [hand_over([1, 2, 3, 4])]],
        "leaf": [[cell("print(x)")], [hand_over([1, 2, 3, 4])]],
    }
    async with make(script, subagents={"max_depth": 2, "max_concurrent": 1}) as agent:
        events, _ = await read(agent.run("root"))
    texts = {event.depth: event.text for event in of_kind(events, CodeExecutionOutput)}
    assert texts == {2: "[1, 2, 3]", 1: "[1, 2, 3, 4]", 0: "[1, 2, 3, 4]"}


@pytest.mark.parametrize("mode", ["plan", "ask", "auto", "full"])
async def test_values_pass_the_walls_and_no_sibling_reads_them(make, mode, tmp_path):
    code = """
import asyncio
async def one(i):
    return (await agent.task(f"child {i}", inputs={"secret": f"secret {i}"}, output=str | int)).output
print(await asyncio.gather(one(0), one(1)))
"""
    look = """
import glob, os
folder = os.environ["FA_FOLDER"] + "/tmp"
print(secret, [name for name in os.listdir(folder) if name.startswith("values")])
try:
    print(len([path for path in glob.glob(os.path.join(folder, "..", "..", "*", "tmp", "values-*"))]))
except OSError as error:
    print("0")
"""
    script = {"root": [[cell(code)], "done"]}
    script |= {f"child {i}": [[cell(look)], [hand_over(f"seen {i}")]] for i in range(2)}
    async with make(script, mode=mode) as agent:
        events, result = await read(agent.run("root"))
    assert root_text(events) == "['seen 0', 'seen 1']"
    assert result.status == "completed"
    texts = sorted(event.text for event in of_kind(events, CodeExecutionOutput) if event.depth)
    assert [text.splitlines()[0] for text in texts] == ["secret 0 []", "secret 1 []"]
    if mode in ("plan", "auto"):  # in the others no file is kept from anybody
        assert [text.splitlines()[1] for text in texts] == ["0", "0"]


async def test_a_frame_of_a_hundred_megabytes_is_there_unread_and_the_child_changes_its_own(make):
    code = """
import numpy as np, pandas as pd
big = pd.DataFrame(np.zeros((1_250_000, 10)))
r = agent.task("look", inputs={"big": big}, output=float)
print(r.output, float(big.to_numpy().sum()))
"""
    work = "big.iloc[0, 0] = 5.0\nprint(big.shape, float(big.to_numpy().sum()))"
    script = {"root": [[cell(code)], "done"], "look": [[cell(work)], [hand_over(5.0)]]}
    async with make(script) as agent:
        events, _ = await read(agent.run("root"))
    assert root_text(events) == "5.0 0.0"
    [text] = [event.text for event in of_kind(events, CodeExecutionOutput) if event.depth]
    assert text == "(1250000, 10) 5.0"
    [request] = [event for event in of_kind(events, ApprovalRequest) if event.call.kind == "spawn"]
    assert request.call.prompt.endswith("- big: pandas.DataFrame, shape (1250000, 10)")
