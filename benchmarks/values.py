"""Values handed to a child: how long code in a cell waits until they are there.

`inputs` hands a frame of numbers from one kernel to another, as `agent.task(inputs=...)` does: written by the one, moved by
the host, mapped by the other. `stock` is what pandas itself offers, the same frame through a file, by the same kernels.
"""

import asyncio
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.cells import run_cell
from benchmarks.common import REFERENCE, Goal, OtherLoad, Series, clock, main, report
from freeact_sub.config.schema import KernelConfig
from freeact_sub.kernels import (
    AuditSettings,
    CellClock,
    ForkKernelProvider,
    KernelSpec,
    hand_over,
)

MAKE = "import numpy as np, pandas as pd\nbig = pd.DataFrame(np.random.rand({rows}, 10))"
NAME = "values-" + "0" * 32
GIVE = f"__import__('sys').modules['freeact_guest.values'].give({NAME!r}, {{'big': big}})"


def run(*, small: bool = False) -> dict[str, Any]:
    """All figures; small: one megabyte, once."""
    return asyncio.run(_run(megabytes=1 if small else 100, repetitions=1 if small else 5))


async def _run(*, megabytes: int, repetitions: int) -> dict[str, Any]:
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
        finally:
            await provider.aclose()
    rows = [series.row("frame", "ms", Goal(of="inputs", at_most=1000))]
    return report("values", rows, load, [f"the frame has {megabytes} MB"])


async def _no_host(method: str, params: Mapping[str, Any], clock: CellClock | None) -> None:
    del method, params, clock


if __name__ == "__main__":
    main(run)
