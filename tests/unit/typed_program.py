"""A user's program, which type checkers read; `test_types.py` runs them over it, and nobody runs it."""

import contextlib
from collections.abc import AsyncIterator
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal, assert_type

from pydantic import BaseModel

from freeact_sub import (
    Agent,
    AgentFinished,
    ApprovalRequest,
    Budget,
    Child,
    Config,
    Event,
    KernelConfig,
    KernelNode,
    McpServerConfig,
    Run,
    RunResult,
    SpawnRequest,
    SubagentsConfig,
    Usage,
    load_config,
)


class Report(BaseModel):
    title: str


CONFIGS = [
    Config(workspace="."),
    Config(workspace=Path()),
    Config(kernel={"sandbox": "required", "preload": ["data"]}),
    Config(kernel=KernelConfig(python=Path("/usr/bin/python3"), readable=["/data"], preload=["data"])),
    Config(budget={"requests": 50}),
    Config(budget=Budget(requests=50, cost_usd=0.5)),
    Config(mcp_servers={"a": {"command": "server", "args": ["--quiet"]}}),
    Config(mcp_servers={"a": McpServerConfig(url="http://127.0.0.1:8000/mcp")}),
    Config(fallback_models=["small"], models={"small": "openai-chat:small"}),
    Config(subagents={"max_depth": 2}, permission_files=["rules.toml"], instruction_files=[Path("NOTES.md")]),
    Config(subagents=SubagentsConfig(budget={"turns": 3}, allow_agents=["reader"])),
    Config(mode="auto", headless="deny", model_settings={"temperature": 0.1}),
]
BUDGETS = [Budget(cost_usd="0.50"), Budget(cost_usd=1), Budget(cost_usd=Decimal(1)), Budget(seconds=3, depth=1)]


async def answers() -> None:
    async with Agent(load_config()) as agent:
        assert_type(agent, Agent[str])
        assert_type(agent.run("go"), Run[str])
        result = await agent.run("go").result()
        assert_type(result, RunResult[str])
        assert_type(result.output, str)
        assert_type(result.usage, Usage)
    async with Agent(Config(), output_type=Report) as reporter:
        assert_type(reporter, Agent[Report])
        assert_type((await reporter.run("go").result()).output.title, str)
        async with reporter.run("go") as run:
            assert_type(run, Run[Report])
            async for event in run:
                assert_type(event, Event)
    both = Agent[Report | str](Config(), output_type=[Report, str])
    assert_type((await both.run("go").result()).output, Report | str)
    assert_type(Agent(output_type=int).run_sync("go").output, int)


async def streams(agent: Agent) -> None:
    events: AsyncIterator[Event] = agent.stream("go")
    async for event in events:
        if isinstance(event, ApprovalRequest):
            event.approve()
        elif isinstance(event, AgentFinished):
            assert_type(event.output, str)
    async with contextlib.aclosing(agent.stream("go")) as stream:
        async for event in stream:
            assert_type(event, Event)


async def children(agent: Agent[Report]) -> None:
    assert_type(await agent.task("go"), RunResult[str])
    assert_type(await agent.task("go", output=int, max_turns=3), RunResult[int])
    assert_type((await agent.task("go", output=Report, budget={"turns": 2})).output, Report)
    assert_type((await agent.task("go", output=list[int])).output, list[int])
    assert_type((await agent.task("go", output=Literal["yes", "no"])).output, Any)
    assert_type(await agent.spawn("go"), Child)
    node: KernelNode | None = (await agent.spawn_and_run(SpawnRequest(prompt="go", keep=True))).node
    if node is not None:
        await agent.adopt(node)

    async def program() -> list[int]:
        assert_type(await agent.ask("go"), str)
        assert_type(await agent.ask("go", output=Report), Report)
        return [await agent.ask("go", output=int, history=["one", "two"])]

    assert_type((await agent.run_program(program).result()).output, list[int])


async def values_in_and_out(agent: Agent, frame: object) -> None:
    assert_type(agent.run("go", inputs={"frame": frame}), Run[str])
    assert_type(agent.run("go", output=Report), Run[Report])
    assert_type(agent.run(["what is it?", Path("a.png")]), Run[str])
    assert_type((await agent.run("go", output=list[int]).result()).output, list[int])
    assert_type(await agent.get("n", output=int), int)
    await agent.put(frame=frame, n=1)
    assert_type((await agent.execute("n")).text, str)


def price(item: str) -> float:
    return len(item)


OWN_TOOLS = [Agent(tools=[price], deps=3, models={"small": "openai-chat:small"})]
