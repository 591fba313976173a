"""Functions of the program in cells: with signature, approval and errors, run in the program."""

import os
from dataclasses import dataclass

import pandas as pd
import pytest
from pydantic import BaseModel
from pydantic_ai import ModelRetry, RunContext, Tool
from pydantic_ai.exceptions import ApprovalRequired
from pydantic_ai.messages import ToolCallPart
from support.agents import allow, cell, of_kind, read, root_text, task
from support.waiting import turns

from freeact_sub import Agent, Config, ConfigError, Decision
from freeact_sub.events import ApprovalRequest, ToolCallStarted, ToolOutput
from freeact_sub.testing import ScriptedModel, first_prompt

pytestmark = pytest.mark.kernel


@dataclass
class Shop:
    stock: dict


class Line(BaseModel):
    item: str
    count: int


def price(item: str, count: int = 1) -> float:
    """What some of an item cost.

    Args:
        item: Its name.
        count: How many.
    """
    return 2.5 * count


async def stock(ctx: RunContext[Shop], item: str) -> dict:
    """How many there are."""
    await turns()
    return {"item": item, "left": ctx.deps.stock[item], "pid": os.getpid()}


def lines(order: Line):
    """A frame."""
    return pd.DataFrame({order.item: range(order.count)})


def frame_of(n: int) -> pd.DataFrame:
    """A frame of a function that says so."""
    return pd.DataFrame({"n": range(n)})


def picky(n: int) -> int:
    if n < 5:
        raise ModelRetry("n must be 5 or more")
    raise ZeroDivisionError("no")


def leaves(at_once: bool = False) -> None:
    raise GeneratorExit("away") if at_once else SystemExit(3)


def careful(ctx: RunContext[Shop]) -> str:
    if not ctx.tool_call_approved:
        raise ApprovalRequired
    return "done"


TOOLS = [price, stock, Tool(lines, name="order_lines"), picky, leaves, careful, frame_of]


@pytest.fixture
def make(tmp_path):
    def make_agent(script, tools=TOOLS, **config):
        return Agent(
            Config(**{"workspace": tmp_path, **config}), model=ScriptedModel(script), tools=tools, deps=Shop({"pen": 7})
        )

    return make_agent


async def test_code_calls_functions_of_the_program(make):
    code = """
print(await agent.tools.price("pen", count=2))
print(agent.tools)
r = await agent.tools.stock(item="pen")
print(r["left"], r["pid"] == __import__("os").getpid())
df = await agent.tools.order_lines("pen", 3)
print(type(df).__name__, df.pen.tolist())
import asyncio
print(await asyncio.gather(*(agent.tools.price("pen", n) for n in range(3))))
help(agent.tools.price)
"""
    async with make([[cell(code), cell("print(agent.tools.price('ink'))")], "done"], mode="full") as agent:
        events, result = await read(agent.run("go"))
    assert (result.status, result.error) == ("completed", "")
    text = root_text(events)
    assert (
        "5.0\n<agent.tools: price, stock, order_lines, picky, leaves, careful, frame_of>\n7 False\nDataFrame [0, 1, 2]\n[0.0, 2.5, 5.0]\n"
        in text
    )
    assert "price(item: str, count: int = 1)" in text
    assert "What some of an item cost." in text
    assert "count: How many." in text
    assert text.endswith("2.5")
    calls = [event for event in of_kind(events, ToolCallStarted) if event.tool_name == "price"]
    assert len(calls) == 5
    assert {event.call_id for event in calls} <= {event.call_id for event in of_kind(events, ToolOutput)}
    assert result.usage.tool_calls == 9


@pytest.mark.parametrize(
    ("code", "what"),
    [
        ("await agent.tools.nothing()", "AttributeError: agent.tools has no 'nothing'; it has: price, stock"),
        (
            "await agent.tools.price(itm='pen')",
            "TypeError: there is no argument 'itm'; it takes: item, count (may be left out)",
        ),
        (
            "await agent.tools.price('pen', count='many')",
            "ValueError: agent.tools.price: count: Input should be a valid integer",
        ),
        ("await agent.tools.picky(1)", "ValueError: agent.tools.picky: n must be 5 or more"),
        ("await agent.tools.picky(9)", "RuntimeError: the tool picky failed: ZeroDivisionError: no"),
        ("await agent.tools.leaves(at_once=True)", "RuntimeError: the tool leaves failed: GeneratorExit: away"),
        ("await agent.tools.leaves()", "RuntimeError: the tool leaves failed: SystemExit: 3"),
        (
            "await agent._requests.ask_async('own_call', tool='price', args=7)",
            "ValueError: agent.tools.price: item: Field required",
        ),
        (
            "await agent._requests.ask_async('own_call', tool='execute_ipython_cell', args={})",
            "ValueError: agent.tools has no 'execute",
        ),
    ],
)
async def test_what_goes_wrong_is_said_in_the_cell_and_the_agent_goes_on(make, code, what):
    async with make([[cell(code)], [cell("print('on')")], "done"], mode="full") as agent:
        events, result = await read(agent.run("go"))
    assert result.status == "completed"
    assert what in root_text(events)
    assert root_text(events).endswith("on")


async def test_a_call_from_code_is_asked_about_like_the_models_own(make):
    asked = []

    def rule(event):
        asked.append((event.call.kind, getattr(event.call, "tool_name", ""), getattr(event.call, "args", {})))
        return Decision(allowed=False, reason="too dear") if len(asked) == 3 else allow(event)

    script = [[ToolCallPart("price", {"item": "pen"})], [cell("print(await agent.tools.price('pen'))")], "done"]
    async with make(script, mode="ask") as agent:
        events, result = await read(agent.run("go"), rule)
    assert result.status == "completed"
    assert asked == [
        ("tool", "price", {"item": "pen", "count": 1}),
        ("code", "", {}),
        ("tool", "price", {"item": "pen", "count": 1}),
    ]
    assert "PermissionError: denied: too dear" in root_text(events)


async def test_a_tool_that_asks_for_a_person_gets_one_in_every_mode(make):
    async with make([[cell("print(await agent.tools.careful())")], "done"], mode="full") as agent:
        events, _ = await read(agent.run("go"))
    assert root_text(events) == "done"
    assert [event.call.requires_approval for event in of_kind(events, ApprovalRequest)] == [True]


async def test_children_have_them_unless_their_type_says_otherwise(make, tmp_path):
    folder = tmp_path / "types"
    folder.mkdir()
    (folder / "bare.md").write_text("---\ndescription: has none\ntools: {deny: [price]}\n---\n")

    def script(messages, info):
        names = {tool.name for tool in info.function_tools}
        last = messages[-1].parts[-1]
        match first_prompt(messages), last.part_kind:
            case "go", "user-prompt":
                return [task("child", agent="bare"), task("child", description="plain")]
            case "child", "user-prompt":
                return cell("print(agent.tools)\nprint(await agent.tools.price('pen'))")
            case "child", _:
                return f"{'price' in names} {last.content}"
            case _:
                return "###".join(str(part.content) for part in messages[-1].parts)

    async with make(script, mode="full", agent_folders=(folder,)) as agent:
        result = await agent.run("go").result()
    bare, plain = result.output.split("###")
    assert "False <agent.tools: stock, " in bare
    assert "has no 'price'" in bare
    assert "True <agent.tools: price, stock" in plain
    assert "2.5" in plain


async def test_a_function_cannot_use_the_kernel_that_waits_for_it(tmp_path):
    async def peek() -> str:
        return await agent.get("x")

    agent = Agent(
        Config(workspace=tmp_path, mode="full"),
        model=ScriptedModel([[cell("x = 1\nprint(await agent.tools.peek())")], [ToolCallPart("peek", {})], "done"]),
        tools=[peek],
    )
    async with agent:
        events, result = await read(agent.run("go"))
    assert result.status == "completed"
    assert "the kernel is busy: a cell in it waits" in root_text(events)
    assert [event.content for event in of_kind(events, ToolOutput) if event.tool_name == "peek"][-1] == "1", (
        "the model's call may"
    )


def test_what_cannot_be_a_tool_is_said_when_the_agent_is_made(make):
    def task() -> None: ...

    def odd(frame: pd.DataFrame) -> None: ...

    for tool, what in [
        (task, "'task' is the name of a built-in tool"),
        (odd, "'odd' cannot be a tool"),
        (7, "neither a function"),
    ]:
        with pytest.raises(ConfigError, match=what):
            make([], tools=[tool])
    with pytest.raises(ConfigError, match="'price' cannot be a tool"):
        make([], tools=[price, price])
