"""What tests of kernels share."""

import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from freeact_sub.cells import CellOutput, ExecuteReply
from freeact_sub.config.schema import KernelConfig
from freeact_sub.kernels import CellClock, CellOutputBuffer, Kernel, KernelProvider, KernelSpec
from freeact_sub.kernels.forkserver.fork_provider import ForkKernelProvider
from freeact_sub.kernels.local import LocalKernelProvider

PROVIDERS: dict[str, Callable[[], KernelProvider]] = {
    "local": LocalKernelProvider,
    "fork": lambda: ForkKernelProvider(spares=0),
    "fork with a spare": lambda: ForkKernelProvider(spares=1),
}
"""Every way to get real kernels; what holds for a kernel holds for each."""


async def no_host(method: str, params: Any, clock: CellClock | None) -> Any:
    """A host that answers with what it was asked."""
    del clock
    return {"method": method, "params": dict(params)}


def spec(workspace: Path, **kwargs: Any) -> KernelSpec:
    """A kernel of the Python that runs the tests."""
    values = {"owner_id": "agent-test", "python": sys.executable, "environment": KernelConfig().environment()} | kwargs
    return KernelSpec(workspace=workspace, **values)


@asynccontextmanager
async def open_kernel(
    provider: KernelProvider, workspace: Path, handler: Any = no_host, **kwargs: Any
) -> AsyncIterator[Kernel]:
    """A kernel for the time of a test."""
    kernel = await provider.start(spec(workspace, **kwargs), handler)
    try:
        yield kernel
    finally:
        await kernel.aclose()


@dataclass(kw_only=True)
class Ran:
    """A cell that has ended."""

    reply: ExecuteReply
    outputs: list[CellOutput]
    text: str
    buffer: CellOutputBuffer
    seconds: float

    @property
    def status(self) -> str:
        """How it ended."""
        return self.reply.status


async def run_cell(kernel: Kernel, code: str, *, limit: float | None = 240, **buffer_options: Any) -> Ran:
    """Run a cell to its end."""
    buffer, started = CellOutputBuffer(**buffer_options), time.monotonic()
    async with kernel.execute(code, buffer, CellClock(limit)) as cell:
        outputs = [output async for output in cell]
        reply = await cell.reply()
    return Ran(reply=reply, outputs=outputs, text=buffer.text, buffer=buffer, seconds=time.monotonic() - started)
