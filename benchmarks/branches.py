"""Branches of a kernel that holds data, beside what else one can do: start a kernel and load the data there from a file."""

import asyncio
import importlib.util
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.cells import run_cell
from benchmarks.common import Goal, OtherLoad, Row, Series, clock, main, memory, report
from freeact_sub.config.schema import KernelConfig
from freeact_sub.kernels import CellClock, KernelSpec
from freeact_sub.kernels.forkserver.fork_provider import ForkKernelProvider

NUMPY = "numpy" if importlib.util.find_spec("numpy") is not None else ""
MAKE = {
    "": "data = bytearray(b'x') * {bytes}; open('data', 'wb').write(data)",
    "numpy": "import numpy as np; data = np.full({bytes}, 120, 'u1'); data.tofile('data')",
}
"""A `bytearray` takes a page of 4 KB for each 4 KB, the most that a fork can have to do; numpy asks for large pages."""
LOAD = {
    "": "data = bytearray(open('data', 'rb').read())",
    "numpy": "import numpy as np; data = np.fromfile('data', 'u1')",
}
BRANCHES_AT_ONCE = 3
READY_MS = 300
USS_MB = 32


def run(*, small: bool = False) -> dict[str, Any]:
    """All figures; small: once, with little data."""
    return asyncio.run(_run([(1, "")], 1) if small else _run([(1, ""), (100, ""), (1000, ""), (1000, NUMPY)], 7))


async def _run(datas: list[tuple[int, str]], times: int) -> dict[str, Any]:
    load, series = OtherLoad(), Series()
    provider = ForkKernelProvider(spares=0)
    with tempfile.TemporaryDirectory(prefix="fa-bench-") as folder:
        environment = KernelConfig().environment()
        spec = KernelSpec(owner_id="benchmark", python=sys.executable, workspace=Path(folder), environment=environment)
        try:
            for megabytes, kind in dict.fromkeys(datas):
                await _measure(provider, spec, series, megabytes, kind, times)
        finally:
            await provider.aclose()
    return report("branches", [_row(series, name) for name in series.values], load)


def _row(series: Series, name: str) -> Row | None:
    if name.startswith("uss"):
        return series.row(name, "MB", Goal(of="branch", at_most=USS_MB))
    return series.row(name, "ms", Goal(of="branch", at_most=READY_MS if name.startswith("ready") else 3 * READY_MS))


async def _measure(
    provider: ForkKernelProvider, spec: KernelSpec, series: Series, megabytes: int, kind: str, times: int
) -> None:
    label = f"{megabytes} MB {kind}".strip()
    origin = await provider.start(spec, _no_host)
    try:
        await run_cell(origin, MAKE[kind].format(bytes=megabytes * 10**6))
        for _ in range(times):
            for name in ("branch", "load"):
                started = clock()
                kernel = await (origin.branch(spec, _no_host) if name == "branch" else provider.start(spec, _no_host))
                await run_cell(kernel, "assert data[-1] == 120" if name == "branch" else LOAD[kind])
                series.add(f"ready {label}", name, (clock() - started) * 1000)
                series.add(f"uss {label}", name, memory([kernel.pid or 0])[1])
                await kernel.aclose()
            started = clock()
            branches = await asyncio.gather(*(origin.branch(spec, _no_host) for _ in range(BRANCHES_AT_ONCE)))
            series.add(f"three {label}", "branch", (clock() - started) * 1000)
            await asyncio.gather(*(kernel.aclose() for kernel in branches))
    finally:
        await origin.aclose()


async def _no_host(method: str, params: Mapping[str, Any], clock: CellClock | None) -> Any:
    del params, clock
    if method != "files":  # which tells, and asks nothing
        raise RuntimeError(f"a cell of the benchmark asked for {method}")


if __name__ == "__main__":
    main(run)
