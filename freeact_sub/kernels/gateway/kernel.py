"""`GatewayKernel`: a kernel of a gateway, with what its guest needs to live far from its host.

Values pass through the host in pieces: several are on their way at once, so that nobody waits for the one before.
"""

import asyncio
import importlib.resources
import logging
import secrets
import tempfile
from collections import OrderedDict, deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Coroutine, Mapping
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

from freeact_sub.config.schema import GatewayConfig
from freeact_sub.errors import KernelError, KernelLostError
from freeact_sub.kernels.gateway.channels import GatewayChannels
from freeact_sub.kernels.gateway.launcher import GatewayLauncher
from freeact_sub.kernels.handover import FarKernel, move_file
from freeact_sub.kernels.jupyter import JupyterKernel
from freeact_sub.kernels.kernel import HostRequestHandler, KernelSpec
from freeact_sub.kernels.wire.output import CellClock

PIECE_BYTES: Final = 4 * 2**20
PIECES_AHEAD: Final = 4
"""Pieces that are requested or sent before the first is answered."""
T = TypeVar("T")

KNOWN_REQUESTS: Final = 10_000

logger = logging.getLogger(__name__)

INSTALL: Final = """
def _freeact_install():
    import asyncio, sys, types
    given = get_ipython().kernel.get_parent("shell")["content"]["given"]
    place = types.ModuleType("freeact_gateway")
    exec(compile(given["place"], "<freeact_gateway>", "exec"), place.__dict__)
    folder = place.settle(given["environment"], given["workspace"])
    exec(compile(given["guest"], "<freeact_guest>", "exec"), {})
    sys.modules["freeact_guest.skills"].install(given["skills"])
    hook = given["hook"]
    if hook is not None:
        hook["folders"].append(folder)
    install = sys.modules["freeact_guest.agent"].install
    requests = install(get_ipython(), given["servers"], asyncio.get_running_loop(), hook)
    place.attach(get_ipython().kernel, requests, folder, given["lease_seconds"])
_freeact_install()
del _freeact_install
"""


class GatewayKernel(JupyterKernel):
    """A kernel of a gateway. See `Kernel`."""

    _install_code = INSTALL

    def __init__(
        self,
        spec: KernelSpec,
        launcher: GatewayLauncher,
        handler: HostRequestHandler,
        *,
        settings: GatewayConfig,
    ) -> None:
        super().__init__(spec, launcher, handler)
        self.launcher = launcher
        self._settings = settings
        self._known: OrderedDict[int, None] = OrderedDict()

    @property
    def may_be_replaced(self) -> bool:
        """See `Kernel`."""
        return self._settings.retry or not self.launcher.gateway_is_gone

    def on_request(self, content: dict[str, Any], clock: CellClock | None) -> None:
        """See `KernelOwner`. The guest asks again what is not answered; it may have been heard all the same."""
        if isinstance(request_id := content.get("id"), str):
            known = hash(request_id)  # a kernel may send ids of any length
            if known in self._known:
                return
            self._known[known] = None
            if len(self._known) > KNOWN_REQUESTS:
                self._known.popitem(last=False)
        super().on_request(content, clock)

    async def move_values(self, name: str, target: FarKernel) -> bool:
        """Move a file from its scratch folder into another kernel's, if one of the kernels or the host sees both folders.

        A path proves nothing, for another machine may have the same; a random name in the folder does.

        Returns:
            Whether it is there now; else it is still here.
        """
        if not isinstance(target, GatewayKernel):
            return False
        async with target._marked() as there:  # noqa: SLF001  # another one of ours
            if await _done(self.ask_of_values(op="move", name=name, folder=there[0], mark=there[1])):
                return True
            async with self._marked() as here:
                return await _done(asyncio.to_thread(_move_here, name, here, there))

    @asynccontextmanager
    async def _marked(self) -> AsyncIterator[tuple[str, str]]:
        """The path of the scratch folder, and the name of an empty file that is in it meanwhile; nobody can guess it."""
        mark = f"mark-{secrets.token_hex(16)}"
        try:
            reply, _ = await self.ask_of_values(op="mark", name=mark)
            yield str(reply.get("folder", "")), mark
        finally:
            await self.ask_of_values(op="remove", name=mark)

    async def read_values(self, name: str) -> AsyncGenerator[bytes]:
        """The content of a file in its scratch folder, in pieces; the file is gone afterwards.

        Raises:
            KernelError: It cannot be read.
        """
        reply, _ = await self.ask_of_values(op="read", name=name, offset=0, size=0)
        size = int(reply.get("size", 0))

        async def asked() -> AsyncIterator[Coroutine[Any, Any, bytes]]:
            for start in range(0, size, PIECE_BYTES):
                yield self._read_piece(name, start, min(PIECE_BYTES, size - start))

        async with aclosing(in_order(asked())) as pieces:
            async for piece in pieces:
                yield piece
        await self.ask_of_values(op="remove", name=name)

    async def write_values(self, name: str, pieces: AsyncIterator[bytes]) -> None:
        """Write a file into its scratch folder.

        Raises:
            KernelError: It cannot be written.
        """

        async def sent() -> AsyncIterator[Coroutine[Any, Any, Any]]:
            offset = 0
            async for piece in pieces:
                for start in range(0, len(piece), PIECE_BYTES):
                    part = piece[start : start + PIECE_BYTES]
                    yield self.ask_of_values([part], op="write", name=name, offset=offset)
                    offset += len(part)

        async with aclosing(in_order(sent())) as replies:
            async for _ in replies:
                pass

    async def _read_piece(self, name: str, offset: int, size: int) -> bytes:
        _, buffers = await self.ask_of_values(op="read", name=name, offset=offset, size=size)
        piece = b"".join(buffers)
        if len(piece) != size:
            raise KernelError("inputs: the file that the kernel wrote has become shorter")
        return piece

    def _given(self) -> dict[str, Any]:
        """What `_install_code` is given."""
        place = importlib.resources.files("freeact_sub.kernels.gateway").joinpath("guest.py")
        return {
            **super()._given(),
            "place": place.read_text(encoding="utf-8"),
            "environment": dict(self.spec.environment),
            "workspace": str(self.spec.workspace) if self._settings.workspace == "shared" else None,
            "lease_seconds": self._settings.lease_seconds,
        }

    async def ask_of_values(
        self, buffers: list[bytes] | None = None, **content: Any
    ) -> tuple[Mapping[str, Any], list[bytes]]:
        """What the guest answers about a file of its scratch folder.

        Args:
            buffers: What is written.
            content: What is to be done; see `on_values` of the guest.

        Raises:
            KernelError: It cannot be done.
        """
        channels = self.launcher.channels
        if not isinstance(channels, GatewayChannels):
            raise KernelError("inputs: the kernel has ended")
        reply, received = await channels.ask("freeact_values", content, buffers=buffers or ())
        if "error" in reply:
            raise KernelError(f"inputs: {reply['error']}")
        return reply, received


async def _done(move: Awaitable[object]) -> bool:
    """Whether values could be moved that way."""
    try:
        await move
    except KernelLostError:
        raise
    except KernelError as error:
        logger.debug("values are not moved: %s", error)
        return False
    return True


def _move_here(name: str, *marked: tuple[str, str]) -> None:
    """Move a file between folders that kernels name, if they are here; elsewhere than among temporary files nobody looks."""
    source, target = (Path(folder) for folder, _ in marked)
    for path in (source, target):
        if ".." in path.parts or not path.is_relative_to(tempfile.gettempdir()):
            raise KernelError(f"{path} is not among the temporary files of this machine")
    move_file(name, source, target, marks=(marked[0][1], marked[1][1]))


async def in_order(works: AsyncIterator[Coroutine[Any, Any, T]]) -> AsyncGenerator[T]:
    """The results of coroutines in their order, a few of which run at once. None runs any more when this has ended.

    Args:
        works: The coroutines; the next one is taken when there is room for it.
    """
    running: deque[asyncio.Task[T]] = deque()
    try:
        async for work in works:
            running.append(asyncio.create_task(work))
            if len(running) == PIECES_AHEAD:
                yield await running.popleft()
        while running:
            yield await running.popleft()
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
