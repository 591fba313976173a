"""`check_gateway`: starts a kernel to find the gaps of a gateway.

Each finding comes with the line that mends it. It tries the token, the start of a kernel, much output at once (a server
drops output over its limit), a large message to a kernel, and how soon the server reports the death of a kernel.
"""

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from freeact_sub.config.schema import GatewayConfig, KernelConfig
from freeact_sub.errors import KernelError
from freeact_sub.kernels.gateway.channels import MAX_SENT_BYTES
from freeact_sub.kernels.gateway.kernel import GatewayKernel, GatewayKernelProvider
from freeact_sub.kernels.kernel import KernelSpec
from freeact_sub.kernels.wire.output import CellClock, CellOutputBuffer

CELL_SECONDS: Final = 60.0
DEATH_SECONDS: Final = 30.0
PROMPT_DEATH_SECONDS: Final = 2.0

LIMIT_RATE: Final = "--ZMQChannelsWebsocketConnection.limit_rate=False"
RESTART_LIMIT: Final = "--AsyncIOLoopKernelRestarter.restart_limit=0"
TIME_TO_DEAD: Final = "--AsyncIOLoopKernelRestarter.time_to_dead=0.3"
MESSAGE_SIZE: Final = """--ServerApp.tornado_settings='{"websocket_max_message_size": 10485760}'"""

BURST: Final = "print('x' * 10_000_000, 'all sent')"
"""Code that prints more than a server's usual limit, a megabyte a second, whatever the machine is doing."""


@dataclass(kw_only=True)
class Lack:
    """Something that a gateway lacks."""

    text: str
    """One sentence about it."""
    line: str
    """The option of its command that mends it, if any."""


@dataclass(kw_only=True)
class Checked:
    """The results of checking a gateway."""

    url: str
    lacks: list[Lack] = field(default_factory=list)
    start_seconds: float = 0.0
    death_seconds: float | None = None


async def check_gateway(settings: GatewayConfig) -> Checked:
    """Look at the first gateway that the settings name.

    Raises:
        KernelStartError: No kernel starts there; the message says why.
    """
    checked = Checked(url=settings.url[0])
    config = KernelConfig(provider="gateway", gateway=settings.model_copy(update={"url": settings.url[:1]}))
    provider = GatewayKernelProvider(config, on_notice=lambda _: None)
    try:
        began = time.monotonic()
        async with _kernel(provider) as kernel:
            checked.start_seconds = time.monotonic() - began
            await _look(kernel, checked)
    finally:
        await provider.aclose()
    return checked


async def _look(kernel: GatewayKernel, checked: Checked) -> None:
    """Try one thing after the other; the kernel is dead afterwards."""
    shown = await _run(kernel, BURST)
    if "all sent" not in shown:
        text = "it drops output of kernels that put out much, and requests of code with it"
        checked.lacks.append(Lack(text=text, line=LIMIT_RATE))
    await _run(kernel, "pass")
    if kernel.launcher.channels is not None:
        try:
            async with asyncio.timeout(CELL_SECONDS):
                await kernel.launcher.channels.ask("freeact_values", {"op": "ping"}, buffers=[bytes(MAX_SENT_BYTES)])
        except (KernelError, TimeoutError):
            text = "it takes no message of 8 MB, as values and answers for code are"
            checked.lacks.append(Lack(text=text, line=MESSAGE_SIZE))
            return  # the kernel is lost by that
    began = time.monotonic()
    dying = asyncio.create_task(_run(kernel, "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"))
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(DEATH_SECONDS):
            await kernel.wait_lost()
            checked.death_seconds = time.monotonic() - began
    dying.cancel()
    await asyncio.wait({dying})
    if checked.death_seconds is None:
        text = "it does not tell that a kernel has died"
        checked.lacks.append(Lack(text=text, line="--KernelManager.autorestart=True"))
    if checked.death_seconds is None or checked.death_seconds > PROMPT_DEATH_SECONDS:
        checked.lacks.append(Lack(text="it tells late that a kernel has died", line=TIME_TO_DEAD))
    if kernel.launcher.restarted:
        text = "in the place of a kernel that has died it puts an empty one, which nobody uses"
        checked.lacks.append(Lack(text=text, line=RESTART_LIMIT))


@asynccontextmanager
async def _kernel(provider: GatewayKernelProvider) -> AsyncIterator[GatewayKernel]:
    async def answer(method: str, params: Any, clock: CellClock | None) -> str:
        del method, params, clock
        return "answered"

    spec = KernelSpec(owner_id="check", python="", workspace=Path(os.sep))
    kernel = await provider.start(spec, answer)
    try:
        yield kernel
    finally:
        await kernel.aclose()


async def _run(kernel: GatewayKernel, code: str) -> str:
    buffer = CellOutputBuffer()
    async with kernel.execute(code, buffer, CellClock(CELL_SECONDS)) as cell:
        await cell.reply()
    return buffer.text
