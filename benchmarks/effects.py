"""The trial of a cell: how long a person waits for its effects, and what a trial takes."""

import asyncio
import os
import tempfile
from pathlib import Path
from typing import Any

from pydantic_ai.messages import ToolCallPart

from benchmarks.common import Goal, OtherLoad, Row, Series, clock, memory, processes, report
from freeact_sub import Agent, ApprovalRequest, CodeExecutionOutput, Config, EffectsConfig
from freeact_sub.testing import ScriptedModel

SLEEP_MS = 50
CELL = f"import time; time.sleep({SLEEP_MS / 1000}); x = 1; open('made', 'w').write('made')"
EFFECTS_MS = 150
"""From the card to the effects of a cell that takes 50 ms."""
NEXT_MS = 30


def run(*, small: bool = False) -> dict[str, Any]:
    """All figures; small: once, with little data."""
    return asyncio.run(_run([1], 1) if small else _run([1, 1000], 7))


async def _run(datas: list[int], times: int) -> dict[str, Any]:
    load, series = OtherLoad(), Series()
    for megabytes in datas:
        await _measure(series, megabytes, times)
    return report("effects", [_row(series, name) for name in series.values], load)


def _row(series: Series, name: str) -> Row | None:
    if name.startswith("memory"):
        return series.row(name, "MB")
    return series.row(name, "ms", Goal(of="trial", at_most=EFFECTS_MS if name.startswith("card") else NEXT_MS))


async def _measure(series: Series, megabytes: int, times: int) -> None:
    cells = [f"data = bytearray(b'x') * {megabytes * 10**6}", *[CELL] * (times + 1)]
    script = [*(ToolCallPart("execute_ipython_cell", {"code": code}) for code in cells), "done"]
    with tempfile.TemporaryDirectory(prefix="fa-bench-") as folder:
        config = Config(workspace=Path(folder), effects=EffectsConfig(seconds=60))
        async with Agent(config, model=ScriptedModel(script)) as agent:
            asked, ended = 0, 0.0
            async for event in agent.run("go"):
                if isinstance(event, CodeExecutionOutput):
                    ended = clock()
                if not isinstance(event, ApprovalRequest):
                    continue
                if asked > times:  # the last one, alone, because to look at a process takes its time
                    series.add(f"memory of a trial, {megabytes} MB", "trial", await _memory_of_trial(event))
                elif asked:
                    if asked > 1:
                        series.add(f"end of the cell to the next card, {megabytes} MB", "trial", (clock() - ended) * 1000)
                    started = clock()
                    effects = await event.effects_ready()
                    if effects.status != "done":
                        raise RuntimeError(effects.reason)
                    series.add(f"card to effects, {megabytes} MB", "trial", (clock() - started) * 1000)
                asked += 1
                event.approve()


async def _memory_of_trial(event: ApprovalRequest) -> float:
    """The most memory, in MB, that a trial's processes share with no other process."""
    before, most = {*processes(os.getpid())}, 0.0
    trial = asyncio.ensure_future(event.effects_ready())
    while not trial.done():
        most = max(most, memory({*processes(os.getpid())} - before)[1])
        await asyncio.wait({trial}, timeout=0.005)
    return most


if __name__ == "__main__":
    from benchmarks.common import main

    main(run)
