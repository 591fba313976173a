"""Kernels side by side in one run, taking turns: start, burst, memory, CPU, shutdown, one small cell, 100 MB of output."""

import asyncio
import contextlib
import importlib.util
import os
import statistics
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import psutil

from benchmarks.common import Goal, OtherLoad, Row, Series, clock, cpu_ms, main, memory, report, resident
from benchmarks.contenders import Contender, Spawned, Stock, fork, plain, walled

DATA_STACK = "import numpy, pandas, matplotlib.pyplot"
SAMPLE_SECONDS = 0.02


@dataclass(frozen=True, kw_only=True)
class _Sizes:
    singles: int = 9
    walls: int = 25
    """Pairs of kernels with and without a wall."""
    bursts: int = 3
    burst: int = 20
    cells: int = 200
    series: int = 3
    """Of so many cells each."""
    outputs: int = 1
    megabytes: int = 100
    look_away_seconds: float = 3.0
    """Longer than the cell with all its output takes: it is put out while nobody reads."""
    data_stack: int = 5


_SMALL = _Sizes(
    singles=1, walls=3, bursts=1, burst=2, cells=5, series=1, outputs=1, megabytes=1, look_away_seconds=0.3, data_stack=0
)


def run(*, small: bool = False) -> dict[str, Any]:
    """All figures of kernels; small: one of each, without the data stack."""
    return asyncio.run(_run(_SMALL if small else _Sizes()))


async def _run(sizes: _Sizes) -> dict[str, Any]:
    load, series = OtherLoad(), Series()
    async with Stock() as stock, plain() as local, fork() as forked:
        contenders: tuple[Contender, ...] = (stock, local, forked)
        async with fork(spares=1) as spare:
            await _in_turns(sizes.singles, (*contenders, spare), lambda contender: _single(contender, series))
        async with fork(spares=sizes.burst) as spares:
            await _in_turns(sizes.bursts, (*contenders, spares), lambda contender: _burst(contender, series, sizes.burst))
        async with walled() as behind:
            await _warm_up(behind)
            for number in range(sizes.walls):
                await _wall(forked, behind, series, wall_first=number % 2 == 1)
        await _in_turns(sizes.series, contenders, lambda contender: _small_cells(contender, series, sizes.cells))
        for look_away in (0.0, sizes.look_away_seconds):
            measure = partial(_output, series=series, megabytes=sizes.megabytes, look_away=look_away)
            await _in_turns(sizes.outputs, contenders, measure)
    missing = [name for name in ("numpy", "pandas", "matplotlib") if importlib.util.find_spec(name) is None]
    notes = [f"no rows of the data stack: {', '.join(missing)} not installed"] if missing else []
    if sizes.data_stack and not missing:
        async with Stock() as stock, plain() as local, fork("data") as forked:
            await _in_turns(sizes.data_stack, (stock, local, forked), lambda contender: _data_stack(contender, series))
    return report("kernels", _rows(series), load, notes)


async def _in_turns(
    repetitions: int, contenders: tuple[Contender, ...], measure: Callable[[Contender], Awaitable[None]]
) -> None:
    """Measure all contenders again and again, so that what happens on the machine meanwhile hits all of them."""
    for contender in contenders:
        await _warm_up(contender)
    for _ in range(repetitions):
        for contender in contenders:
            await measure(contender)


async def _warm_up(contender: Contender) -> None:
    """The first kernel starts the fork server and fills the file cache."""
    kernel = await contender.spawn()
    await kernel.run("1 + 1")
    await kernel.close()
    await contender.settle()


async def _single(contender: Contender, series: Series) -> None:
    await contender.settle()
    server = _server_of(contender)
    server_before, started = cpu_ms(server), clock()
    kernel = await contender.spawn()
    await kernel.run("1 + 1")
    series.add("first", contender.name, (clock() - started) * 1000)
    await contender.settle()
    if contender.name != "spare":  # a spare's CPU time was spent before, and was the same
        server_after = cpu_ms(_server_of(contender)) if server else 0.0
        series.add("cpu", contender.name, cpu_ms(kernel.pids) + server_after - server_before)
    pss, uss = memory(kernel.pids)
    series.add("pss", contender.name, pss)
    series.add("uss", contender.name, uss)
    series.add("processes", contender.name, len(kernel.pids))
    started = clock()
    await kernel.close()
    series.add("shutdown", contender.name, (clock() - started) * 1000)


async def _wall(without: Contender, behind: Contender, series: Series, *, wall_first: bool) -> None:
    """What the wall adds to a start, also in processor time: both kinds, one right after the other."""
    times, cpu = {}, {}
    for contender in (behind, without) if wall_first else (without, behind):
        await contender.settle()
        started, used = clock(), time.process_time()
        kernel = await contender.spawn()
        times[contender], cpu[contender] = clock() - started, time.process_time() - used + cpu_ms(kernel.pids) / 1000
        await kernel.close()
    series.add("wall", "fork", (times[behind] - times[without]) * 1000)
    series.add("wall cpu", "fork", (cpu[behind] - cpu[without]) * 1000)


def _server_of(contender: Contender) -> list[int]:
    """The fork servers below this process: those children of guards that are not kernels."""
    if contender.name != "fork":
        return []
    guards = psutil.Process().children()
    found = [child.pid for guard in guards for child in guard.children() if "server.py" in " ".join(child.cmdline())]
    return [pid for pid in found if psutil.Process(pid).ppid() != os.getpid()]


async def _small_cells(contender: Contender, series: Series, count: int) -> None:
    kernel = await contender.spawn()
    times = []
    for _ in range(count + 5):
        started = clock()
        await kernel.run("1+1")
        times.append((clock() - started) * 1000)
    series.add("cell", contender.name, statistics.median(times[5:]))
    await kernel.close()


async def _output(contender: Contender, series: Series, megabytes: int, look_away: float) -> None:
    """200 flushed prints of 5000 bytes a megabyte; a reader that looks away reads the rest afterwards."""
    kernel = await contender.spawn()
    code = f"for _ in range({megabytes * 200}): print('x' * 4999, flush=True)"
    started = clock()
    with _most_memory() as most:
        cell = await kernel.run(code, look_away_seconds=look_away)
    name = "slow" if look_away else "prints"
    series.add(f"{name} seconds", contender.name, clock() - started)
    series.add(f"{name} arrived", contender.name, 100 * cell.chars / (megabytes * 1e6))
    series.add(f"{name} idle", contender.name, 100.0 * cell.idle)
    series.add(f"{name} growth", contender.name, most())
    await kernel.close()


@contextlib.contextmanager
def _most_memory() -> Iterator[Callable[[], float]]:
    """How much this process has grown at most, in MB, by samples."""
    before = most = resident(os.getpid())

    async def sample() -> None:
        nonlocal most
        while True:
            most = max(most, resident(os.getpid()))
            await asyncio.sleep(SAMPLE_SECONDS)

    sampling = asyncio.create_task(sample())
    try:
        yield lambda: most - before
    finally:
        sampling.cancel()


async def _burst(contender: Contender, series: Series, size: int) -> None:
    async def one() -> Spawned:
        kernel = await contender.spawn()
        await kernel.run("1 + 1")
        return kernel

    await contender.settle()
    started = clock()
    kernels = await asyncio.gather(*(one() for _ in range(size)))
    series.add("burst", contender.name, (clock() - started) * 1000)
    await contender.settle()
    pss, uss = memory(pid for kernel in kernels for pid in kernel.pids)
    series.add("burst pss", contender.name, pss / size)
    series.add("burst uss", contender.name, uss / size)
    started = clock()
    await asyncio.gather(*(kernel.close() for kernel in kernels))
    series.add("burst shutdown", contender.name, (clock() - started) * 1000)


async def _data_stack(contender: Contender, series: Series) -> None:
    kernel = await contender.spawn()
    await kernel.run("1 + 1")
    started = clock()
    await kernel.run(DATA_STACK)
    series.add("data import", contender.name, (clock() - started) * 1000)
    pss, uss = memory(kernel.pids)
    series.add("data pss", contender.name, pss)
    series.add("data uss", contender.name, uss)
    await kernel.close()


def _rows(series: Series) -> list[Row | None]:
    row, both = series.row, ("plain", "fork")
    everything = [Goal(of=name, at_least=100) for name in both]
    bounded = [Goal(of=name, at_most=64) for name in both]
    return [
        row("first", "ms", Goal(of="fork", at_most=50, ratio=10), Goal(of="spare", at_most=25, ratio=20)),
        row("wall", "ms", Goal(of="fork", at_most=10)),
        row("wall cpu", "ms"),
        row("burst", "ms", Goal(of="fork", at_most=600, ratio=8)),
        row("cpu", "ms", Goal(of="fork", ratio=10)),
        row("pss", "MB"),
        row("uss", "MB", Goal(of="fork", at_most=14)),
        row("burst pss", "MB"),
        row("burst uss", "MB", Goal(of="fork", at_most=14)),
        row("processes", ""),
        row("data import", "ms", Goal(of="fork", ratio=50)),
        row("data pss", "MB"),
        row("data uss", "MB", Goal(of="fork", at_most=40)),
        row("shutdown", "ms", Goal(of="fork", at_most=20)),
        row("burst shutdown", "ms"),
        row("cell", "ms", Goal(of="fork", ratio=1), Goal(of="plain", ratio=1)),
        row("prints seconds", "s", *(Goal(of=name, ratio=1) for name in both)),
        row("prints arrived", "%", *everything),
        row("prints idle", "%", *everything),
        row("prints growth", "MB", *bounded),
        row("slow seconds", "s"),
        row("slow arrived", "%", *everything),
        row("slow idle", "%", *everything),
        row("slow growth", "MB", *bounded),
    ]


if __name__ == "__main__":
    main(run)
