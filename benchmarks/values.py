"""Values handed to a child, and those that a program puts into a kernel and gets back.

`inputs` hands a frame of numbers from one kernel to another, as `agent.task(inputs=...)` does: written by the one, moved by
the host, mapped by the other. `agent` is a frame of this program into a kernel, as `agent.put` does, and a tenth of it back,
as `agent.get` does, which unpickles nothing. `stock` is what pandas itself offers: the same frame as a pickle in a file.
Memory is what this process has at most beyond what it had before.
"""

import asyncio
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import psutil

from benchmarks.cells import run_cell
from benchmarks.common import REFERENCE, Goal, OtherLoad, Series, clock, main, report
from freeact_sub.config.schema import KernelConfig
from freeact_sub.kernels import AuditSettings, CellClock, KernelSpec, hand_over, put_values, take_value
from freeact_sub.kernels.forkserver.fork_provider import ForkKernelProvider

MAKE = "import numpy as np, pandas as pd\nbig = pd.DataFrame(np.random.rand({rows}, 10))"
NAME = "values-" + "0" * 32
TENTH = "back = big.iloc[: len(big) // 10].copy()"
SAMPLE_SECONDS = 0.002
GIVE = f"__import__('sys').modules['freeact_guest.values'].give({NAME!r}, {{'big': big}})"


def run(*, small: bool = False) -> dict[str, Any]:
    """All figures; small: one megabyte, once."""
    return asyncio.run(_run(megabytes=1 if small else 100, root=100 if small else 1000, repetitions=1 if small else 5))


async def _run(*, megabytes: int, root: int, repetitions: int) -> dict[str, Any]:
    load, series = OtherLoad(), Series()
    provider = ForkKernelProvider(preload=("data",), spares=0)
    with tempfile.TemporaryDirectory(prefix="fa-bench-") as folder:
        spec = KernelSpec(
            owner_id="bench",
            python=sys.executable,
            workspace=Path(folder),
            environment=KernelConfig().environment(),
            audit=AuditSettings(writable=(Path(folder),)),
        )
        try:
            parent = await provider.start(spec, _no_host)
            await run_cell(parent, MAKE.format(rows=megabytes * 12_500))
            for _ in range(repetitions):
                child = await provider.start(spec, _no_host)
                started = clock()
                await run_cell(parent, GIVE)
                await hand_over(NAME, parent, child)
                series.add("frame", "inputs", (clock() - started) * 1000)
                started = clock()
                await run_cell(parent, "big.to_pickle('big.pickle')")
                await run_cell(child, "__import__('pandas').read_pickle('big.pickle').shape")
                series.add("frame", REFERENCE, (clock() - started) * 1000)
                await child.aclose()
            await parent.aclose()
            await _in_and_out(provider, spec, series, root, min(repetitions, 2))
        finally:
            await provider.aclose()
    rows = [
        series.row("frame", "ms", Goal(of="inputs", at_most=1000)),
        series.row("in", "ms"),
        series.row("in, memory", "MB"),
        series.row("back", "ms"),
        series.row("back, memory", "MB"),
    ]
    return report("values", rows, load, [f"the frame has {megabytes} MB; in: {root} MB, back: {root // 10} MB"])


async def _in_and_out(
    provider: ForkKernelProvider, spec: KernelSpec, series: Series, megabytes: int, repetitions: int
) -> None:
    """A frame of this program in a kernel, and a tenth of it back."""
    frame = pd.DataFrame(np.random.default_rng(0).random((megabytes * 12_500, 10)))
    path = spec.workspace / "frame.pickle"
    for _ in range(repetitions):
        kernel = await provider.start(spec, _no_host)
        with _measured(series, "in", "agent"):
            await put_values({"big": frame}, kernel)
        await run_cell(kernel, TENTH)
        with _measured(series, "back", "agent"):
            back = await take_value("back", kernel, output=pd.DataFrame, trust=False, seconds=300)
        if len(back) != len(frame) // 10:
            raise RuntimeError("the frame has not come back")
        await kernel.aclose()
        del back
        kernel = await provider.start(spec, _no_host)
        with _measured(series, "in", REFERENCE):
            frame.to_pickle(path)
            await run_cell(kernel, f"big = __import__('pandas').read_pickle({str(path)!r})")
        await run_cell(kernel, TENTH)
        with _measured(series, "back", REFERENCE):
            await run_cell(kernel, f"back.to_pickle({str(path)!r})")
            pd.read_pickle(path)  # that is the contender
        await kernel.aclose()
        path.unlink()


@contextmanager
def _measured(series: Series, row: str, contender: str) -> Iterator[None]:
    """Notes the time of the block, and how much more memory this process had meanwhile."""
    process, done = psutil.Process(), threading.Event()
    before = most = process.memory_info().rss

    def watch() -> None:
        nonlocal most
        while not done.wait(SAMPLE_SECONDS):
            most = max(most, process.memory_info().rss)

    watcher = threading.Thread(target=watch)
    watcher.start()
    started = clock()
    try:
        yield
    finally:
        series.add(row, contender, (clock() - started) * 1000)
        done.set()
        watcher.join()
    series.add(f"{row}, memory", contender, (most - before) / 2**20)


async def _no_host(method: str, params: Mapping[str, Any], clock: CellClock | None) -> None:
    del method, params, clock


if __name__ == "__main__":
    main(run)
