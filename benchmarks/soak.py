"""A thousand forks, single and in bursts, with kernels killed at random: nothing hangs, fails or is left.

Fails (exit status 1) if a kernel that was not killed did not start or answer, if anything took longer than its bound, or if
processes, descriptors, files, or the memory of the host or the server have grown.
"""

import asyncio
import contextlib
import os
import random
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

import psutil

from benchmarks.common import OtherLoad, Row, clock, main, memory, report
from freeact_sub.config.schema import KernelConfig
from freeact_sub.errors import KernelStartError
from freeact_sub.kernels import CellClock, CellOutputBuffer, KernelSpec
from freeact_sub.kernels.forkserver.fork_provider import ForkKernelProvider

BURST = 20
KILLED_SHARE = 0.25
STEP_SECONDS = 30.0
"""Bound of the start, the cell and the end of one kernel; a hang is what takes longer."""
GROWTH_MB = 20.0
"""Of the host or the server, after the first hundred kernels: a leak of 20 kB a kernel is found."""


def run(*, small: bool = False) -> dict[str, Any]:
    """A thousand kernels; small: twenty."""
    return asyncio.run(_run(20 if small else 1000))


async def _run(count: int) -> dict[str, Any]:
    load, started = OtherLoad(), clock()
    processes = len(psutil.Process().children(recursive=True))
    with tempfile.TemporaryDirectory(prefix="fa-soak-") as workspace:
        provider = ForkKernelProvider(spares=0)
        spec = KernelSpec(
            owner_id="soak", python=sys.executable, workspace=Path(workspace), environment=KernelConfig().environment()
        )
        soak = _Soak(provider, spec)
        try:
            first = await provider.start(spec, _no_host)
            server, folder = psutil.Process(first.pid).parent(), first.connection_file.parent.parent
            await first.aclose()
            await soak.forks(max(BURST, count // 10))
            before = _Census(server, folder)
            await soak.forks(count - soak.started)
            after = _Census(server, folder)
        finally:
            await provider.aclose()
    growth = {name: after.values[name] - before.values[name] for name in after.values}
    left = {
        "processes at the end": len(psutil.Process().children(recursive=True)) - processes,
        "folders at the end": int(folder.exists()),
    }
    failed = soak.problems + [
        f"{name} grew by {value:g}" for name, value in {**growth, **left}.items() if _is_leak(name, value)
    ]
    counts = {"kernels": soak.started, "killed": soak.killed, "seconds": clock() - started, **growth, **left}
    rows = [Row(figure=name, unit=_unit(name), values={"fork": value}) for name, value in counts.items()]
    return report("soak", rows, load, failed or ["nothing hung, failed or was left"]) | {"failed": failed}


class _Census:
    """What there is, at one moment."""

    def __init__(self, server: psutil.Process, folder: Path) -> None:
        here = psutil.Process()
        self.values: dict[str, float] = {
            "processes": len(here.children(recursive=True)),
            "descriptors": here.num_fds(),
            "files": sum(1 for _ in folder.rglob("*")),
            "host memory": memory([here.pid])[1],
            "server memory": memory([server.pid])[1],
            "server descriptors": server.num_fds(),
        }


class _Soak:
    """Starts kernels, kills some, and notes what goes wrong."""

    def __init__(self, provider: ForkKernelProvider, spec: KernelSpec) -> None:
        self._provider = provider
        self._spec = spec
        self._random = random.Random(20261121)
        self.started = 0
        self.killed = 0
        self.problems: list[str] = []

    async def forks(self, count: int) -> None:
        """So many kernels, by turns single and in bursts."""
        while count > 0:
            size = min(count, self._random.choice((1, 1, 1, BURST)))
            await asyncio.gather(*(self._one(self.started + number) for number in range(size)))
            self.started += size
            count -= size

    async def _one(self, number: int) -> None:
        victim = self._random.random() < KILLED_SHARE
        delay = self._random.random() * 0.1
        try:
            async with asyncio.timeout(STEP_SECONDS):
                kernel = await self._provider.start(self._spec, _no_host)
                try:
                    if victim:
                        self.killed += 1
                        asyncio.get_running_loop().call_later(delay, _kill, kernel.pid)
                    buffer = CellOutputBuffer()
                    code = f"import time; time.sleep({STEP_SECONDS}); print({number})" if victim else f"print({number})"
                    async with kernel.execute(code, buffer, CellClock(None)) as cell:
                        status = (await cell.reply()).status
                    if not victim and (status, buffer.text) != ("ok", f"{number}\n"):
                        self.problems.append(f"kernel {number}: {status} {buffer.text!r}")
                    if victim and status != "kernel_lost":
                        self.problems.append(f"kernel {number} was killed, and its cell ended as {status}")
                finally:
                    await kernel.aclose()
        except TimeoutError:
            self.problems.append(f"kernel {number} hung")
        except KernelStartError as error:
            self.problems.append(f"kernel {number} did not start: {error}")


def _kill(pid: int | None) -> None:
    if pid is not None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _is_leak(name: str, value: float) -> bool:
    return value > (GROWTH_MB if "memory" in name else 0)


def _unit(name: str) -> str:
    return "MB" if "memory" in name else "s" if name == "seconds" else ""


async def _no_host(method: str, params: Any, cell_clock: CellClock | None) -> Any:
    del params, cell_clock
    raise RuntimeError(f"no cell of the soak asks for {method}")


if __name__ == "__main__":
    main(run)
