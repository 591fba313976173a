"""The kernels that are measured side by side, behind one small interface.

`stock` is jupyter_client as it comes: `AsyncKernelManager`, tcp, `wait_for_ready`. `plain` is our provider of subprocesses,
`fork` our fork server on demand, `spare` the same with kernels kept ready.
"""

import asyncio
import contextlib
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol, Self

from jupyter_client.manager import AsyncKernelManager

from benchmarks.common import processes
from freeact_sub.config.schema import KernelConfig
from freeact_sub.kernels import CellClock, CellOutputBuffer, KernelProvider, KernelSpec
from freeact_sub.kernels.forkserver.fork_provider import ForkKernelProvider
from freeact_sub.kernels.local import LocalKernelProvider
from freeact_sub.kernels.wall.sandbox import policy_for
from freeact_sub.modes import Mode

SILENCE_SECONDS = 5.0
"""A cell whose idle status has not come after this much silence has lost it."""


class Cell:
    """What came of a cell."""

    def __init__(self) -> None:
        self.chars = 0
        self.idle = False


class Spawned(Protocol):
    """A kernel that runs cells."""

    pids: list[int]
    """The kernel's process and what stands with it."""

    async def run(self, code: str, *, look_away_seconds: float = 0) -> Cell:
        """Run a cell to reply and idle; with a number, read its first output, then nothing for that long, then the rest."""
        ...

    async def close(self) -> None:
        """End it by force, with its files."""
        ...


class Contender(Protocol):
    """Starts kernels of one kind."""

    name: str

    async def __aenter__(self) -> Self: ...

    async def __aexit__(self, *error: object) -> None: ...

    async def spawn(self) -> Spawned:
        """A kernel that is ready."""
        ...

    async def settle(self) -> None:
        """Wait until nothing goes on in the background."""
        ...


class StockKernel:
    """A kernel of plain jupyter_client."""

    def __init__(self) -> None:
        self._manager = AsyncKernelManager(kernel_name="python3")
        self._client: Any = None
        self.pids: list[int] = []

    async def open(self) -> Self:
        """Start it as the documentation of jupyter_client does."""
        await self._manager.start_kernel(stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # it warns of tcp
        self._client = self._manager.client()
        self._client.start_channels()
        await self._client.wait_for_ready(timeout=120)
        provisioner: Any = self._manager.provisioner
        self.pids = processes(provisioner.pid)
        return self

    async def run(self, code: str, *, look_away_seconds: float = 0) -> Cell:
        """See `Spawned`."""
        cell, request_id = Cell(), self._client.execute(code)
        reading = asyncio.create_task(self._read(cell, request_id, look_away_seconds))
        while (await self._client.get_shell_msg())["parent_header"].get("msg_id") != request_id:
            pass
        seen = -1
        while not reading.done() and seen != cell.chars:  # the deadline is for silence, not for the whole
            seen = cell.chars
            await asyncio.wait({reading}, timeout=look_away_seconds + SILENCE_SECONDS)
        reading.cancel()
        await asyncio.wait({reading})
        return cell

    async def _read(self, cell: Cell, request_id: str, look_away_seconds: float) -> None:
        while not cell.idle:
            message = await self._client.get_iopub_msg()
            kind, content = message["msg_type"], message["content"]
            if message["parent_header"].get("msg_id") != request_id:
                continue
            if kind == "stream":
                if not cell.chars and look_away_seconds:
                    await asyncio.sleep(look_away_seconds)
                cell.chars += len(content["text"])
            elif kind == "status":
                cell.idle = content["execution_state"] == "idle"

    async def close(self) -> None:
        """See `Spawned`."""
        self._client.stop_channels()
        await self._manager.shutdown_kernel(now=True)


class Stock:
    """Plain jupyter_client and ipykernel."""

    name = "stock"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        """Nothing is kept."""

    async def spawn(self) -> Spawned:
        """See `Contender`."""
        return await StockKernel().open()

    async def settle(self) -> None:
        """See `Contender`."""


class OurKernel:
    """A kernel of one of our providers."""

    def __init__(self, kernel: Any, folder: Path) -> None:
        self._kernel = kernel
        self._file = folder / f"{kernel.pid}.txt"
        self.pids = processes(kernel.pid)

    async def run(self, code: str, *, look_away_seconds: float = 0) -> Cell:
        """See `Spawned`; the output goes through the same buffer, with its file, as an agent's."""
        cell, buffer = Cell(), CellOutputBuffer(file=self._file)
        async with self._kernel.execute(code, buffer, CellClock(None)) as running:
            async for _ in running:
                if look_away_seconds:
                    await asyncio.sleep(look_away_seconds)
                    look_away_seconds = 0
            cell.idle = (await running.reply()).status == "ok"
        cell.chars = buffer.total_chars
        self._file.unlink(missing_ok=True)
        return cell

    async def close(self) -> None:
        """See `Spawned`."""
        await self._kernel.aclose()


class Ours:
    """One of our providers, with a workspace of its own."""

    def __init__(
        self, name: str, provider: KernelProvider, *, environment: Mapping[str, str] | None = None, mode: Mode | None = None
    ) -> None:
        """Args: environment: of kernels. Default: what an agent's kernels get. mode: of their wall; None: they have none."""
        self.name = name
        self.provider = provider
        self._environment = KernelConfig().environment() if environment is None else environment
        self._mode = mode
        self._resources = contextlib.ExitStack()
        self._folder = Path()

    async def __aenter__(self) -> Self:
        self._folder = Path(self._resources.enter_context(tempfile.TemporaryDirectory(prefix="fa-bench-")))
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.provider.aclose()
        self._resources.close()

    async def spawn(self) -> OurKernel:
        """See `Contender`."""
        spec = KernelSpec(
            owner_id="benchmark",
            python=sys.executable,
            workspace=self._folder,
            environment=self._environment,
            sandbox=None if self._mode is None else policy_for(self._mode, KernelConfig(), self._folder),
        )
        return OurKernel(await self.provider.start(spec, _no_host), self._folder)

    async def settle(self) -> None:
        """See `Contender`."""
        if isinstance(self.provider, ForkKernelProvider):
            await self.provider.refilled()


def plain() -> Ours:
    """Our subprocesses."""
    return Ours("plain", LocalKernelProvider())


def fork(*preload: str, spares: int = 0) -> Ours:
    """Our fork server; with spares, its name is `spare`."""
    return Ours("spare" if spares else "fork", ForkKernelProvider(preload=preload, spares=spares))


def walled() -> Ours:
    """Our fork server, with the wall of mode `auto`."""
    return Ours("walled", ForkKernelProvider(spares=0), mode="auto")


async def _no_host(method: str, params: Any, cell_clock: CellClock | None) -> Any:
    del params, cell_clock
    raise RuntimeError(f"no cell of the benchmark asks for {method}")
