"""Children through the real `Agent`, with a scripted model: from the `task` call to the first event, output and result.

`plain`, `fork` and `spare` name where kernels come from, as in `benchmarks.kernels`; `spare` keeps one kernel ready, which
is the default, and `spares` twenty.
"""

import asyncio
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
from pydantic_ai.messages import ModelMessage, ToolCallPart

from benchmarks.cells import latest_prompt
from benchmarks.common import Goal, OtherLoad, Row, Series, clock, main, memory, report
from freeact_sub.agent import Agent
from freeact_sub.channel import Emitter, EventChannel
from freeact_sub.config.schema import Config, SubagentsConfig
from freeact_sub.events import AgentStarted, CodeExecutionOutputChunk, ResponseChunk, ToolCallStarted, ToolOutput
from freeact_sub.kernels import KernelProvider
from freeact_sub.kernels.forkserver.fork_provider import ForkKernelProvider
from freeact_sub.kernels.local import LocalKernelProvider
from freeact_sub.testing import ScriptedModel

WAIT = """
import os, time
print(1, flush=True)
for _ in range(1200):
    if os.path.exists({file!r}):
        break
    time.sleep(0.05)
"""
"""A child that is to be measured while it lives waits for a file, for a minute at most."""


def run(*, small: bool = False) -> dict[str, Any]:
    """All figures of children; small: one and two of them, once."""
    return asyncio.run(_run(small=small))


async def _run(*, small: bool) -> dict[str, Any]:
    load, series = OtherLoad(), Series()
    sizes, repetitions, events = ((1, 2), 1, 20) if small else ((1, 5, 20), 7, 5000)
    providers: dict[str, Callable[[], KernelProvider]] = {
        "plain": LocalKernelProvider,
        "fork": lambda: ForkKernelProvider(spares=0),
        "spare": lambda: ForkKernelProvider(spares=1),
        "spares": lambda: ForkKernelProvider(spares=max(sizes)),
    }
    with tempfile.TemporaryDirectory(prefix="fa-bench-") as folder:
        benches = {name: _Bench(make(), Path(folder)) for name, make in providers.items()}
        for bench in benches.values():
            await bench.open()
        try:
            for size in sizes:
                for _ in range(repetitions if size == 1 else min(repetitions, 3)):
                    for name, bench in benches.items():
                        await bench.spawn(size, name, series)
            for name in ("plain", "fork"):
                await benches[name].measure_memory(max(sizes), name, series)
            await benches["fork"].measure_events(events, series)
        finally:
            for bench in benches.values():
                await bench.aclose()
    await _channel_alone(series, events * 4)
    return report("subagents", _rows(series, sizes), load)


class _Bench:
    """An agent whose model does what its prompt says."""

    def __init__(self, provider: KernelProvider, folder: Path) -> None:
        self._provider = provider
        self._release = folder / "release"
        config = Config(workspace=folder, mode="full", subagents=SubagentsConfig(max_concurrent=20))
        self._agent = Agent(config, model=ScriptedModel(self._script, chunk_chars=1000), kernel_provider=provider)

    async def open(self) -> None:
        """Start the agent and let everything run once."""
        await self._agent.__aenter__()
        for prompt in ("cell 1", "spawn 2 print(1)"):
            await self._agent.run(prompt).result()

    async def aclose(self) -> None:
        """End the agent."""
        await self._agent.aclose()
        await self._provider.aclose()

    async def spawn(self, size: int, name: str, series: Series) -> None:
        """Let the agent start children, and note when what of them arrives."""
        await self._settle()
        called: dict[str, float] = {}
        child_of: dict[str | None, str] = {}  # by tool call, and by agent
        times: dict[str, dict[str, float]] = {"event": {}, "output": {}, "result": {}}
        async for event in self._agent.stream(f"spawn {size} print(1)"):
            now = time.time()
            match event:
                case ToolCallStarted(tool_name="task"):
                    called[event.args["description"]] = event.time
                    child_of[event.tool_call_id] = event.args["description"]
                case AgentStarted(depth=1):
                    child_of[event.agent_id] = event.description
                    times["event"][event.description] = now
                case CodeExecutionOutputChunk(depth=1):
                    times["output"].setdefault(child_of[event.agent_id], now)
                case ToolOutput(tool_name="task", outcome="success"):
                    times["result"][child_of[event.tool_call_id]] = now
        await self._settle()  # spares that are made would take part in the next measurement
        for what, by_child in times.items():
            if set(by_child) != set(called):
                raise RuntimeError(f"{len(called)} children were called, and {len(by_child)} had their {what}")
            spans = [(by_child[child] - called[child]) * 1000 for child in called]
            series.add(f"{size} {what}", name, statistics.median(spans))
            series.add(f"{size} all {what}", name, (max(by_child.values()) - min(called.values())) * 1000)

    async def measure_memory(self, size: int, name: str, series: Series) -> None:
        """Memory and processes of children that are all at work, as what they add."""
        await self._settle()
        here = psutil.Process()
        before, outputs = {child.pid for child in here.children(recursive=True)}, 0
        own = memory([here.pid])[1]
        self._release.unlink(missing_ok=True)
        code = WAIT.format(file=str(self._release))
        async for event in self._agent.stream(f"spawn {size} {code}"):
            if isinstance(event, CodeExecutionOutputChunk) and event.depth == 1:
                outputs += 1
                if outputs == size:
                    added = {child.pid for child in here.children(recursive=True)} - before
                    pss, uss = memory(added)
                    series.add("child pss", name, pss / size)
                    series.add("child uss", name, uss / size)
                    series.add("child processes", name, len(added) / size)
                    series.add("host uss", name, (memory([here.pid])[1] - own) / size)
                    self._release.touch()

    async def measure_events(self, count: int, series: Series) -> None:
        """What one event costs on its whole way from a kernel to the reader."""
        seen, started, used = 0, clock(), time.process_time()
        async for event in self._agent.stream(f"cell for i in range({count}): display(i)"):
            seen += isinstance(event, CodeExecutionOutputChunk)
        if seen != count:
            raise RuntimeError(f"{count} outputs were made, and {seen} arrived")
        series.add("event wall", "fork", (clock() - started) / count * 1e6)
        series.add("event host", "fork", (time.process_time() - used) / count * 1e6)

    async def _settle(self) -> None:
        if isinstance(self._provider, ForkKernelProvider):
            await self._provider.refilled()

    def _script(self, messages: list[ModelMessage], _: Any) -> Any:
        """`cell CODE` runs a cell; `spawn N CODE` starts children that each run one; `child NAME CODE` is such a child."""
        prompt, answers = latest_prompt(messages)
        verb, _, rest = prompt.partition(" ")
        if answers:
            return f"{rest.split()[0]} is done"
        if verb == "cell":
            return ToolCallPart("execute_ipython_cell", {"code": rest})
        name, _, code = rest.partition(" ")
        if verb == "child":
            return ToolCallPart("execute_ipython_cell", {"code": code})
        return [
            ToolCallPart("task", {"prompt": f"child c{number} {code}", "description": f"c{number}"})
            for number in range(int(name))
        ]


async def _channel_alone(series: Series, count: int) -> None:
    """Events per second from one writer to one reader, with nothing else."""
    channel = EventChannel()
    emitter = Emitter(channel=channel, agent_id="agent-benchmark")

    async def write() -> None:
        for _ in range(count):
            await emitter.emit(ResponseChunk(content="x"))
        channel.finish()

    started, seen = clock(), 0
    async with asyncio.TaskGroup() as group:
        group.create_task(write())
        while await channel.receive() is not None:
            seen += 1
    if seen != count:
        raise RuntimeError(f"{count} events were sent, and {seen} arrived")
    series.add("channel", "channel", count / (clock() - started))


def _rows(series: Series, sizes: tuple[int, ...]) -> list[Row | None]:
    goals = {
        "1 output": (Goal(of="fork", at_most=60), Goal(of="spare", at_most=35)),
        "20 all result": (Goal(of="fork", at_most=1200), Goal(of="spare", at_most=1200)),
    }
    names = ["1 event", "1 output", "1 result"]
    names += [f"{size} all {what}" for size in sizes[1:] for what in ("event", "output", "result")]
    return [
        *(series.row(name, "ms", *goals.get(name, ())) for name in names),
        series.row("child pss", "MB"),
        series.row("child uss", "MB"),
        series.row("host uss", "MB"),
        series.row("child processes", ""),
        series.row("event wall", "us"),
        series.row("event host", "us"),
        series.row("channel", "/s"),
    ]


if __name__ == "__main__":
    main(run)
