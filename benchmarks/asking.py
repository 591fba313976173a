"""What the audit hook costs a cell that needs no question: thousands of files opened in the workspace.

Three kernels take turns: without the hook, with an empty one, which shows what no hook can do without, and with ours.
Counted is the processor time of the cell's thread, that of the system's calls included: it does not change with what
others do on the machine. Wall-clock time stands beside it.
"""

import asyncio
import tempfile
from collections import deque
from pathlib import Path
from typing import Any, Final

from benchmarks.cells import run_cell
from benchmarks.common import REFERENCE, Goal, OtherLoad, Row, Series, main, report
from freeact_sub.approvals import Policy, unasked_writes
from freeact_sub.config.schema import PROTECTED, KernelConfig
from freeact_sub.kernels import AuditSettings, Kernel, KernelSpec
from freeact_sub.kernels.provider import make_provider

AT_MOST: Final = 1.05
FIGURES: Final = {"read": "open and read", "write": "open, write a line, close", "touch": "open and write nothing"}
GOALS: Final = ("open and read", "open, write a line, close")
EMPTY: Final = "import sys; sys.addaudithook(lambda event, arguments: None)"
CELL: Final = """
import os, time
def measured(work, count):
    os.makedirs('files', exist_ok=True)
    paths = [f'files/part-{number % 2000}.csv' for number in range(count)]
    wall, cpu = time.perf_counter(), time.thread_time()
    for path in paths:
        work(path)
    print(time.perf_counter() - wall, time.thread_time() - cpu)
def read(path):
    with open(path) as file:
        file.read()
def write(path):
    with open(path, 'w') as file:
        file.write('a line\\n')
def touch(path):
    with open(path, 'a'):
        pass
measured(write, 2000)
"""


def run(*, small: bool = False) -> dict[str, Any]:
    """All figures; small: few files, once."""
    return asyncio.run(_run(files=200 if small else 4_000, rounds=1 if small else 20))


async def _run(files: int, rounds: int) -> dict[str, Any]:
    load, series = OtherLoad(), Series()
    provider = make_provider(KernelConfig(spares=0))
    with tempfile.TemporaryDirectory() as folder:
        kernels: dict[str, Kernel] = {}
        try:
            for name in (REFERENCE, "empty", "hook"):  # in one folder: what files cost differs from place to place
                kernels[name] = await provider.start(_spec(Path(folder), asks=name == "hook"), _no_question)
                await run_cell(kernels[name], CELL)
            await run_cell(kernels["empty"], EMPTY)
            for number in range(rounds):
                turns = deque(kernels.items())
                turns.rotate(number)  # who writes after another one pays for what the system still does for that
                for work, figure in FIGURES.items():
                    taken = {}
                    for name, kernel in turns:  # one right after another: they are compared with each other
                        wall, cpu = map(float, (await run_cell(kernel, f"measured({work}, {files})")).split())
                        taken[name] = cpu
                        series.add(figure, name, cpu / files * 1e6)
                        series.add(f"{figure}, wall clock", name, wall / files * 1e6)
                    for name, cpu in taken.items():
                        series.add(f"{figure}, times {REFERENCE}", name, cpu / taken[REFERENCE])
        finally:
            for kernel in kernels.values():
                await kernel.aclose()
            await provider.aclose()
    rows = [_row(series, figure) for figure in series.values]
    notes = [
        f"{files:,} files each, {rounds} rounds, with the shipped rules",
        f"times {REFERENCE}: the median of ratios within a round; the rest: the least of all rounds",
        f"`{REFERENCE}`: the same kernel without the hook; `empty`: with a hook that does nothing",
    ]
    return report("asking", rows, load, notes)


def _row(series: Series, figure: str) -> Row | None:
    """The median of what was compared in pairs; of times the least of all rounds: what disturbs only adds."""
    of, _, compared = figure.partition(", times ")
    if compared:
        return series.row(figure, "", *((Goal(of="hook", at_most=AT_MOST),) if of in GOALS else ()))
    return Row(figure=figure, unit="µs", values={name: min(measured) for name, measured in series.values[figure].items()})


def _spec(workspace: Path, *, asks: bool) -> KernelSpec:
    writable, asked = unasked_writes(Policy(workspace=workspace), (workspace / name for name in PROTECTED))
    return KernelSpec(
        owner_id="benchmark",
        python=KernelConfig().python,
        workspace=workspace,
        environment=KernelConfig().environment(),
        audit=AuditSettings(writable=writable, asked=asked) if asks else None,
    )


async def _no_question(method: str, params: Any, clock: Any) -> Any:
    if method == "files":  # which files the cell has used, told after it
        return None
    raise RuntimeError(f"nothing should have been asked: {method} {params} {clock}")


if __name__ == "__main__":
    main(run)
