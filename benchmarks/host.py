"""What the host does for a turn, a child, an `ask`, an event and a piece of an answer: processor time, a scripted model.

`host` is the processor time of this process, `kernel` that of the processes below it (the root's kernel, and the server and
spares), `wall` the time by the clock; all of one item. The stages say where the host's time goes: the share of each package
among the functions that a profiler has seen, of the time that was measured without it.
"""

import asyncio
import cProfile
import os
import pstats
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from pydantic_ai.messages import ModelMessage, ToolCallPart

from benchmarks.cells import latest_prompt
from benchmarks.common import Goal, OtherLoad, Row, Series, clock, cpu_ms, main, processes, report
from freeact_sub.agent import Agent
from freeact_sub.config.schema import Config, KernelConfig
from freeact_sub.events import AgentFinished
from freeact_sub.kernels.forkserver.fork_provider import ForkKernelProvider
from freeact_sub.testing import ScriptedModel

CASES: Final = {
    "ask, one after the other": "cell for _ in range({n}): agent.ask('hi')",
    "ask, side by side": "cell import asyncio; await asyncio.gather(*(agent.ask('hi') for _ in range({n})))",
    "ask for a number": "cell for _ in range({n}): agent.ask('number', output=int)",
    "child without a cell": "cell for _ in range({n}): agent.task('hi')",
    "child with a cell": "cell for _ in range({n}): agent.task('cell x = 1')",
    "event": "cell for i in range({n}): display(i)",
    "delta": "letters {n}",
}
"""By name: the prompt; `{n}`: how often."""
ROOT: Final = "root turn with a cell"
COUNTS: Final = {"event": 2000, "delta": 2000, ROOT: 20, "child without a cell": 20, "child with a cell": 20}
_COLUMNS: Final = ("turn", "ask", "asks", "typed ask", "child", "child, cell", "event", "delta")
SHORT: Final = dict(zip((ROOT, *CASES), _COLUMNS, strict=True))
"""Names of the columns of stages."""
GOALS_MS: Final = {
    "ask, one after the other": 3.0,
    ROOT: 7.0,
    "child without a cell": 12.0,
    "child with a cell": 18.0,
    "event": 0.07,
}
"""Of the host."""
CALLS: Final = "function calls"
"""Of one item; they are the same on any machine, however busy."""
TURNS: Final = 5
"""So many turns of the root are one conversation: pydantic-ai looks at all of it in each."""
PACKAGES: Final = ("pydantic_ai", "pydantic_graph", "pydantic", "opentelemetry", "anyio", "asyncio", "zmq", "jupyter_client")


def run(*, small: bool = False) -> dict[str, Any]:
    """All figures; small: two of each, once."""
    return asyncio.run(_run(small=small))


async def _run(*, small: bool) -> dict[str, Any]:
    load, series, stages = OtherLoad(), Series(), Series()
    counts = {name: 2 if small else COUNTS.get(name, 40) for name in (ROOT, *CASES)}
    with tempfile.TemporaryDirectory(prefix="fa-bench-") as folder:
        bench = _Bench(Path(folder))
        try:
            for _ in range(1 if small else 5):
                for name, count in counts.items():
                    await bench.measure(name, count, series)
            rows = _rows(series)
            for name, count in counts.items():
                host = next(row.values["host ms"] for row in rows if row.figure == name) or 0.0
                await bench.profile(name, count, host, stages)
        finally:
            await bench.aclose()
    note = "stages: microseconds of the host for one item, by the package of the function that takes them"
    tables = [row for name in stages.values if (row := stages.row(name, "" if name == CALLS else "µs"))]
    return report("host", [*rows, *tables], load, [note])


class _Bench:
    """Agents that do what their prompt says."""

    def __init__(self, folder: Path) -> None:
        self._provider = ForkKernelProvider()
        self._config = Config(workspace=folder, mode="full", kernel=KernelConfig(cell_timeout_seconds=None))

    async def aclose(self) -> None:
        """End the kernels' server."""
        await self._provider.aclose()

    @asynccontextmanager
    async def ready(self) -> AsyncIterator[Agent]:
        """A new agent, whose conversation is short, and which has done a little of everything."""
        model = ScriptedModel(_script, chunk_chars=1000)
        async with Agent(self._config, model=model, kernel_provider=self._provider) as agent:
            await _run_prompt(agent, "cell agent.ask('hi'); agent.ask('number', output=int); agent.task('cell x = 1')")
            await self._provider.refilled()
            yield agent
        await self._provider.refilled()

    async def measure(self, name: str, count: int, series: Series) -> None:
        """Note what one of so many takes."""
        async with self.ready() as agent:
            below = processes(os.getpid())[1:]
            kernels, host, began = cpu_ms(below), time.process_time(), clock()
            await _do(agent, name, count)
            wall, used = clock() - began, time.process_time() - host
            series.add(name, "host ms", used * 1000 / count)
            if not name.startswith("child"):  # children's kernels have ended, and their time with them
                series.add(name, "kernel ms", (cpu_ms(below) - kernels) / count)
            series.add(name, "wall ms", wall * 1000 / count)

    async def profile(self, name: str, count: int, host_ms: float, stages: Series) -> None:
        """Divide what one takes among the packages."""
        profiler = cProfile.Profile(time.process_time)
        async with self.ready() as agent:
            profiler.enable()
            try:
                await _do(agent, name, count)
            finally:
                profiler.disable()
        if folder := os.environ.get("PROFILES"):
            profiler.dump_stats(Path(folder) / f"{name}.prof")
        stats = pstats.Stats(profiler)
        stages.add(CALLS, SHORT[name], stats.total_calls / count)  # type: ignore[attr-defined]
        for package, share in _shares(stats).items():
            stages.add(package, SHORT[name], share * host_ms * 1000)


async def _do(agent: Agent, name: str, count: int) -> None:
    if name != ROOT:
        await _run_prompt(agent, CASES[name].format(n=count))
        return
    for number in range(count):
        if not number % TURNS:
            agent.history.clear()
        await _run_prompt(agent, "cell x = 1")


async def _run_prompt(agent: Agent, prompt: str) -> None:
    async for event in agent.stream(prompt):
        if isinstance(event, AgentFinished) and event.status != "completed":
            raise RuntimeError(f"{prompt}: {event.status}: {event.error}")


def _shares(stats: pstats.Stats) -> dict[str, float]:
    """The share of each package in all time; what is built in counts for who calls it."""
    own: dict[str, float] = {}
    for function, (_, _, seconds, _, callers) in stats.stats.items():  # type: ignore[attr-defined]
        if function[0] != "~" or not callers:
            own[_package(function[0])] = own.get(_package(function[0]), 0.0) + seconds
            continue
        for caller, (_, _, part, _) in callers.items():
            own[_package(caller[0])] = own.get(_package(caller[0]), 0.0) + part
    whole = sum(own.values())
    return {name: seconds / whole for name, seconds in sorted(own.items(), key=lambda item: -item[1])}


def _package(path: str) -> str:
    parts = Path(path).parts
    if "freeact_sub" in parts:
        below = parts[len(parts) - parts[::-1].index("freeact_sub") :]
        return "freeact_sub.kernels" if below[0] == "kernels" else "freeact_sub"
    return next((name for name in PACKAGES if name in parts), "other")


def _rows(series: Series) -> list[Row]:
    goals = {name: [Goal(of="host ms", at_most=most)] for name, most in GOALS_MS.items()}
    return [row for name in series.values if (row := series.row(name, "", *goals.get(name, ())))]


def _script(messages: list[ModelMessage], info: Any) -> Any:
    """`cell CODE` runs a cell; `number` hands over one; `letters N` are so many deltas; all else is answered."""
    prompt, answers = latest_prompt(messages)
    verb, _, code = prompt.partition(" ")
    if verb == "number":
        return ToolCallPart(info.output_tools[0].name, {"value": 7})
    if verb == "letters":
        return ["x"] * int(code)
    return ToolCallPart("execute_ipython_cell", {"code": code}) if verb == "cell" and not answers else "done"


if __name__ == "__main__":
    main(run)
