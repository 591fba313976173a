"""Many users in one program: memory and processes of root agents, each with a workspace and a kernel of its own.

`shared` is what agents do by default: one fork server for all. `own` gives each agent a kernel provider of its own.
"""

import asyncio
import os
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from pydantic_ai.messages import ModelMessage, ModelResponse, ToolCallPart

from benchmarks.common import Goal, OtherLoad, Series, main, memory, processes, report
from freeact_sub import Agent, Config
from freeact_sub.kernels import ForkKernelProvider
from freeact_sub.testing import ScriptedModel


def run(*, small: bool = False) -> dict[str, Any]:
    """All figures; small: two agents."""
    return asyncio.run(_run(agents=2 if small else 10))


async def _run(*, agents: int) -> dict[str, Any]:
    load, series = OtherLoad(), Series()
    for contender in ("own", "shared"):
        await _measure(contender, agents, series)
    rows = [
        series.row("memory", "MB", Goal(of="shared", at_most=180 if agents == 10 else None)),
        series.row("processes", ""),
    ]
    return report(
        "agents", rows, load, [f"{agents} agents, each with its own workspace, after one cell; the host is not counted"]
    )


async def _measure(contender: str, agents: int, series: Series) -> None:
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fa-bench-")))
        for number in range(agents):
            workspace = folder / str(number)
            workspace.mkdir()
            provider = ForkKernelProvider() if contender == "own" else None
            if provider is not None:
                stack.push_async_callback(provider.aclose)
            config = Config(workspace=workspace, mode="auto")
            agent = Agent(config, model=ScriptedModel(_script), kernel_provider=provider)
            await stack.enter_async_context(agent)
            result = await agent.run("begin").result()
            if result.output != "done":
                raise RuntimeError(f"{result}")
        await asyncio.sleep(2)  # spares are made
        below = processes(os.getpid())[1:]
        series.add("memory", contender, memory(below)[0])
        series.add("processes", contender, len(below))


def _script(messages: list[ModelMessage], _: Any) -> Any:
    asked = any(isinstance(message, ModelResponse) for message in messages)
    return "done" if asked else ToolCallPart("execute_ipython_cell", {"code": "x = 1"})


if __name__ == "__main__":
    main(run)
