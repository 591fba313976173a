"""A thousand children of one root, and questions and children again and again: what is at work at once, and what stays.

Each child runs one cell, in a kernel of its own; a request to the model takes 200 ms. Fails (exit status 1) if an ending is
missing, or if the rounds that follow leave tasks or descriptors, or let memory grow.
"""

import asyncio
import os
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any, Final

import psutil
from pydantic_ai.messages import ModelMessage, ModelResponse, ToolCallPart
from pydantic_ai.models.function import AgentInfo

from benchmarks.common import Goal, OtherLoad, Row, clock, main, memory, report
from freeact_sub.agent import Agent
from freeact_sub.config.budget import Budget
from freeact_sub.config.schema import Config, KernelConfig, ModelsConfig, SubagentsConfig
from freeact_sub.events import AgentFinished
from freeact_sub.kernels.forkserver.fork_provider import ForkKernelProvider
from freeact_sub.testing import ScriptedModel, first_prompt

MODEL_SECONDS: Final = 0.2
AT_ONCE: Final = 100
"""The most that the setting allows."""
CHILDREN: Final = """
import asyncio
answers = await asyncio.gather(*(agent.task("cell x = 6 * 7") for _ in range({count})))
print(sum(answer.output == "done" for answer in answers))
"""
ROUND: Final = """
import asyncio
await asyncio.gather(*(agent.ask("hi") for _ in range({count})))
await asyncio.gather(*(agent.task("cell x = 6 * 7") for _ in range({count} // 10)))
"""
ROUNDS: Final = 10
LOOK_EVERY: Final = 25
"""Events, to count who is at work."""
GROWTH_MB: Final = 20.0
"""Of host or server in all rounds but the first three; a leak of a few kB for each question is found."""


class _Model(ScriptedModel):
    """Takes its time."""

    async def _parts(self, messages: list[ModelMessage], info: AgentInfo) -> Any:
        if first_prompt(messages).startswith("cell x"):
            await asyncio.sleep(MODEL_SECONDS)
        async for part in super()._parts(messages, info):
            yield part


def run(*, small: bool = False, minutes: float = 0) -> dict[str, Any]:
    """A thousand children, and ten rounds of 200 questions and 20 children; small: three, and one round of ten.

    Args:
        small: See above.
        minutes: A soak: three children, and rounds for so long.
    """
    count = 3 if small or minutes else 1000
    return asyncio.run(
        _run(count=count, questions=10 if small else 200, rounds=4 if small else ROUNDS, seconds=minutes * 60)
    )


async def _run(*, count: int, questions: int, rounds: int, seconds: float) -> dict[str, Any]:
    load = OtherLoad()
    with tempfile.TemporaryDirectory(prefix="fa-bench-") as folder:
        config = Config(
            workspace=Path(folder),
            mode="full",
            kernel=KernelConfig(cell_timeout_seconds=None, max_live=AT_ONCE + 1),
            subagents=SubagentsConfig(max_concurrent=AT_ONCE),
            budget=Budget(children=count + 10, requests=10 * count + 1000),
            models=ModelsConfig(max_concurrent=AT_ONCE),
        )
        provider = ForkKernelProvider()
        try:
            async with Agent(config, model=_Model(_script, chunk_chars=1000), kernel_provider=provider) as agent:
                await _read(agent, CHILDREN.format(count=2))
                agent.history.clear()
                values, failed = await _crowd(agent, provider, count)
            again, left = await _rounds(config, provider, questions, rounds, seconds)
        finally:
            await provider.aclose()
    goals = {"at work at once": Goal(of="fork", at_least=100), "wall": Goal(of="fork", at_most=60)} if count == 1000 else {}
    rows = [
        Row(figure=name, unit=unit, values={"fork": value}, goals=tuple(goals[key] for key in [name] if key in goals))
        for (name, unit), value in {**values, **again}.items()
    ]
    return report("crowd", rows, load, failed + left or ["no answer, ending or task was lost or left"]) | {
        "failed": failed + left
    }


async def _crowd(agent: Agent, provider: ForkKernelProvider, count: int) -> tuple[dict[tuple[str, str], float], list[str]]:
    here = psutil.Process()
    memory_before, host, began = _memory(), time.process_time(), clock()
    most, seen = 0, 0
    endings: Counter[str] = Counter()
    async for event in agent.stream(f"cell {CHILDREN.format(count=count)}"):
        if event.depth == 1 and isinstance(event, AgentFinished):
            endings[event.status] += 1
        if event.depth == 1:
            seen += 1
            if seen % LOOK_EVERY == 0:
                most = max(most, sum(info.status in ("running", "waiting") for info in agent.agents()[1:]))
    await provider.refilled()
    values = {
        ("children", ""): float(count),
        ("at work at once", ""): float(most),
        ("wall", "s"): clock() - began,
        ("host CPU", "s"): time.process_time() - host,
        ("host and server growth", "MB"): _memory() - memory_before,
        ("descriptors afterwards", ""): float(here.num_fds()),
    }
    return values, [] if endings == {"completed": count} else [f"of {count} children, these ended: {dict(endings)}"]


async def _rounds(
    config: Config, provider: ForkKernelProvider, questions: int, rounds: int, seconds: float
) -> tuple[dict[tuple[str, str], float], list[str]]:
    """Each round is a run of a new root. Growth is from the third round on: until then caches fill."""
    here, census, began = psutil.Process(), [], clock()
    while len(census) < rounds or clock() - began < seconds:
        async with Agent(config, model=_Model(_script, chunk_chars=1000), kernel_provider=provider) as agent:
            await _read(agent, ROUND.format(count=questions))
        await provider.refilled()
        census.append((_memory(), here.num_fds(), len(asyncio.all_tasks())))
    first, last = census[min(2, rounds - 2)], census[-1]
    values = {("rounds", ""): float(len(census)), ("rounds: questions", ""): float(len(census) * questions)}
    growth = {
        ("rounds: memory growth", "MB"): last[0] - first[0],
        ("rounds: descriptors", ""): float(last[1] - first[1]),
        ("rounds: tasks", ""): float(last[2] - first[2]),
    }
    bounds = (GROWTH_MB, 0, 0)
    return values | growth, [
        f"{name} grew by {value:g}"
        for ((name, _), value), bound in zip(growth.items(), bounds, strict=True)
        if value > bound
    ]


async def _read(agent: Agent, code: str) -> None:
    result = await agent.run(f"cell {code}").result()
    if result.status != "completed":
        raise RuntimeError(f"{result.status}: {result.error}")


def _memory() -> float:
    """MB of the host and the fork servers alone."""
    servers = [child.pid for child in psutil.Process().children(recursive=True) if _has_children(child)]
    return memory([os.getpid(), *servers])[1]


def _has_children(process: psutil.Process) -> bool:
    try:
        return bool(process.children())
    except psutil.NoSuchProcess:
        return False


def _script(messages: list[ModelMessage], _: Any) -> Any:
    """`cell CODE` runs a cell; all else is answered."""
    verb, _, code = first_prompt(messages).partition(" ")
    asked = any(isinstance(message, ModelResponse) for message in messages)
    return ToolCallPart("execute_ipython_cell", {"code": code}) if verb == "cell" and not asked else "done"


if __name__ == "__main__":
    main(run)
