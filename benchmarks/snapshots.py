"""Variables saved into files and brought back: what the kernel pays, and when they are there.

`first` writes everything, `again` is the next snapshot of the same variables, of which nothing has changed.
"""

import asyncio
import importlib.util
import json
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.cells import run_cell
from benchmarks.common import Goal, OtherLoad, Row, Series, clock, main, report
from freeact_sub.config.schema import KernelConfig
from freeact_sub.kernels import CellClock, Kernel, KernelSpec
from freeact_sub.kernels.forkserver.fork_provider import ForkKernelProvider

NUMPY = "numpy" if importlib.util.find_spec("numpy") is not None else ""
MAKE = {
    "": "data = bytearray(b'x') * {bytes}\ndef rewrite():\n    for i in range(0, len(data), 4096): data[i] = 1",
    "numpy": "import numpy as np\ndata = np.full({bytes}, 120, 'u1')\ndef rewrite(): data[:] = 1",
    "objects": "data = [[str(i)] for i in range({bytes} // 100)]\ndef rewrite():\n    for item in data: item[0] = 'x'",
}
"""`objects` are lists with a text each, at 100 bytes a list and text."""
MEASURE = """
import json, resource, time
before, started = resource.getrusage(resource.RUSAGE_SELF), time.process_time()
rewrite()
after = resource.getrusage(resource.RUSAGE_SELF)
print(json.dumps([(time.process_time() - started) * 1000, after.ru_minflt - before.ru_minflt]))
"""
IS_FORKED = "import os; print(bool(open(f'/proc/self/task/{os.getpid()}/children').read()))"
CHILDREN = "import resource; print(sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2]))"
PAUSE_MS, RESUME_MS = 20, 1500


def run(*, small: bool = False) -> dict[str, Any]:
    """All figures; small: once, with little data."""
    datas = [(1, "")] if small else [(100, NUMPY), (100, ""), (100, "objects"), (1000, NUMPY)]
    return asyncio.run(_run(datas, 1 if small else 3))


async def _run(datas: list[tuple[int, str]], times: int) -> dict[str, Any]:
    load, series = OtherLoad(), Series()
    provider = ForkKernelProvider(spares=0, preload=(NUMPY,) if NUMPY else ())
    with tempfile.TemporaryDirectory(prefix="fa-bench-") as folder:
        environment = KernelConfig().environment()
        spec = KernelSpec(owner_id="benchmark", python=sys.executable, workspace=Path(folder), environment=environment)
        try:
            for megabytes, kind in dict.fromkeys(datas):
                for number in range(times):
                    store = Path(folder, f"{megabytes}-{kind}-{number}")
                    await _measure(
                        provider, spec, series, f"{megabytes} MB {kind}".strip(), MAKE[kind], megabytes * 10**6, store
                    )
        finally:
            await provider.aclose()
    return report("snapshots", [_row(series, name) for name in series.values], load)


def _row(series: Series, name: str) -> Row | None:
    if name.startswith("pause"):
        return series.row(name, "ms", Goal(of="first", at_most=PAUSE_MS), Goal(of="again", at_most=PAUSE_MS))
    if name.startswith("new kernel, 100 MB"):
        return series.row(name, "ms", Goal(of="restored", at_most=RESUME_MS))
    return series.row(name, "faults" if name.startswith("page faults") else "ms")


async def _measure(
    provider: ForkKernelProvider, spec: KernelSpec, series: Series, label: str, make: str, size: int, store: Path
) -> None:
    kernel = await provider.start(spec, _no_host)
    try:
        await run_cell(kernel, make.format(bytes=size))
        for name in ("first", "again"):
            cpu, started = float(await run_cell(kernel, CHILDREN)), clock()
            snapshot = await kernel.snapshot(store)
            series.add(f"pause, {label}", name, snapshot.pause_seconds * 1000)
            series.add(f"until saved, {label}", name, (clock() - started) * 1000)
            series.add(f"cpu of the fork, {label}", name, (float(await run_cell(kernel, CHILDREN)) - cpu) * 1000)
        await run_cell(kernel, "rewrite()")  # the forks before have made all pages read-only
        await _next_cell(kernel, series, label, "alone")
        saving = asyncio.create_task(kernel.snapshot(store))
        while not saving.done() and (await run_cell(kernel, IS_FORKED)).strip() == "False":
            pass
        await _next_cell(kernel, series, label, "meanwhile")
        await saving
    finally:
        await kernel.aclose()
    started = clock()
    new = await provider.start(spec, _no_host)
    try:
        began = clock()
        await new.restore(store)
        series.add(f"restore, {label}", "restored", (clock() - began) * 1000)
        series.add(f"new kernel, {label}", "restored", (clock() - started) * 1000)
        await run_cell(new, "assert len(data)")
    finally:
        await new.aclose()


async def _next_cell(kernel: Kernel, series: Series, label: str, name: str) -> None:
    milliseconds, faults = json.loads(await run_cell(kernel, MEASURE))
    series.add(f"cpu of a cell that rewrites all, {label}", name, milliseconds)
    series.add(f"page faults of it, {label}", name, faults)


async def _no_host(method: str, params: Mapping[str, Any], clock: CellClock | None) -> Any:
    del params, clock
    raise RuntimeError(f"a cell of the benchmark asked for {method}")


if __name__ == "__main__":
    main(run)
