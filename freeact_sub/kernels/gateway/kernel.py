"""`GatewayKernel`: a kernel of a gateway, whose guest lives far from its host; and `check_gateway`, which finds its gaps.

Values pass through the host in pieces: several are on their way at once, so that none waits for the one before. Of several
gateways `GatewayKernelProvider` takes the one that has the fewest kernels of ours.

`check_gateway` starts a kernel. Each finding comes with the line that mends it. It tries the token, the start of a kernel,
much output at once (a server drops output over its limit), a large message to a kernel, and how soon the server reports the
death of a kernel.
"""

import asyncio
import contextlib
import importlib.resources
import logging
import os
import secrets
import tempfile
import time
from collections import OrderedDict, deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from freeact_sub.config.schema import GatewayConfig, KernelConfig, git_environment
from freeact_sub.errors import ConfigError, KernelBranchError, KernelError, KernelLostError, KernelStartError
from freeact_sub.kernels.forkserver.branches import Branches
from freeact_sub.kernels.gateway.channels import MAX_SENT_BYTES, GatewayChannels
from freeact_sub.kernels.gateway.server import GatewayServer, UnreachableError, live
from freeact_sub.kernels.handover import FarKernel, move_file
from freeact_sub.kernels.jupyter import JupyterKernel
from freeact_sub.kernels.kernel import AuditSettings, HostRequestHandler, KernelPlace, KernelSpec
from freeact_sub.kernels.launch import Launcher
from freeact_sub.kernels.wire.channels import KernelChannels
from freeact_sub.kernels.wire.output import CellClock, CellOutputBuffer
from freeact_sub.modes import Mode
from freeact_sub.system.process import chance

ANSWER_SECONDS: Final = 20.0
"""Seconds that the guest of a new kernel may take to answer."""
GUEST_END_SECONDS: Final = 1.0
"""Seconds that the guest may take to confirm its end; its thread does not run while code in C holds the interpreter."""
CELL_SECONDS: Final = 60.0
DEATH_SECONDS: Final = 30.0
PROMPT_DEATH_SECONDS: Final = 2.0

LIMIT_RATE: Final = "--ZMQChannelsWebsocketConnection.limit_rate=False"
RESTART_LIMIT: Final = "--AsyncIOLoopKernelRestarter.restart_limit=0"
TIME_TO_DEAD: Final = "--AsyncIOLoopKernelRestarter.time_to_dead=0.3"
MESSAGE_SIZE: Final = """--ServerApp.tornado_settings='{"websocket_max_message_size": 10485760}'"""

BURST: Final = "print('x' * 10_000_000, 'all sent')"
"""Code that prints more than a server's usual limit, a megabyte a second, whatever the machine is doing."""


class GatewayLauncher:
    """A launcher of a kernel at the server that has the fewest of ours."""

    has_guest = greets = False
    scratch = None
    own_files = None

    def __init__(
        self,
        spec: KernelSpec,
        choose: Callable[[], list[GatewayServer]],
        kernel_name: str,
        make_channels: Callable[..., GatewayChannels],
    ) -> None:
        """Prepare a start.

        Args:
            spec: The settings of the kernel.
            choose: Returns the servers, in the order in which they are to be asked.
            kernel_name: The name of the kernelspec there.
            make_channels: Called with the server, the kernel's id and `on_lost`.
        """
        self._spec = spec
        self._choose = choose
        self._kernel_name = kernel_name
        self._make_channels = make_channels
        self.exited: asyncio.Future[str] | None = None
        self.server: GatewayServer | None = None
        self.kernel_id = ""
        self.channels: GatewayChannels | None = None
        self.gateway_is_gone = False
        self._killed = self._has_guest = False

    @property
    def restarted(self) -> bool:
        """Whether the server has replaced this kernel, which died."""
        return self.channels is not None and self.channels.restarted

    async def launch(self) -> KernelChannels:
        """Start the kernel at the first server that takes it, and connect."""
        servers = self._choose()
        for server in servers:
            live[server.url] += 1
            self.server = server
            try:
                self.kernel_id = await server.start_kernel(self._kernel_name, self._spec.start_timeout_seconds)
                break
            except BaseException as error:
                live[server.url] -= 1
                self.server = None
                if not isinstance(error, UnreachableError):
                    raise
                server.ask_last()
                if server is servers[-1]:
                    raise
        if self.server is None:
            raise KernelStartError("no gateway is named: set kernel.gateway.url")
        self.exited = asyncio.get_running_loop().create_future()
        self.channels = self._make_channels(self.server, self.kernel_id, on_lost=self._on_lost)
        await self.channels.open()
        return self.channels

    async def settle(self) -> None:
        """Check that the host's messages reach the guest, and its replies the host."""
        self._has_guest = True
        try:
            if self.channels is not None:
                async with asyncio.timeout(ANSWER_SECONDS):
                    await self.channels.ask("freeact_values", {"op": "ping"})
        except TimeoutError as error:
            raise KernelStartError(
                "the gateway blocks messages of freeact_sub: start it without MappingKernelManager.allowed_message_types"
            ) from error

    async def interrupt(self) -> None:
        """Interrupt the kernel."""
        if self.server is not None and self.kernel_id:
            await self.server.interrupt(self.kernel_id)

    async def kill(self) -> None:
        """End the kernel and everything it has started."""
        if self.server is None or not self.kernel_id or self._killed:
            return
        if not self.gateway_is_gone:
            self._killed = True
            if self.channels is not None and self._has_guest:
                # the server asks a busy kernel to end and waits for seconds, and it leaves the kernel's daemons
                with contextlib.suppress(KernelLostError, TimeoutError):
                    async with asyncio.timeout(GUEST_END_SECONDS):
                        await self.channels.ask("freeact_end", {})
            await self.server.end_kernel(self.kernel_id)
        self._on_lost("it was ended", self.gateway_is_gone)

    async def aclose(self, *, lost: bool) -> None:
        """Close the channels."""
        del lost
        server, self.server = self.server, None
        try:
            if self.channels is not None:
                await self.channels.aclose()
        finally:
            if server is not None:
                live[server.url] -= 1

    def log_tail(self) -> str:
        """Return nothing: the log stays at the server."""
        return ""

    def branch(self, spec: KernelSpec, branches: Branches) -> Launcher:
        """Raise KernelBranchError: a kernel of a gateway cannot be branched."""
        del spec, branches
        raise KernelBranchError("a kernel of a gateway cannot be branched (kernel.provider = 'gateway')")

    def _on_lost(self, reason: str, gone: bool) -> None:
        self.gateway_is_gone = self.gateway_is_gone or gone
        if gone and self.server is not None:
            self.server.ask_last()
        if self.exited is not None and not self.exited.done():
            self.exited.set_result(reason)


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
    """A kernel of a gateway."""

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
        """Whether the run goes on with a new kernel when this one is lost; without its gateway only if `retry` is set."""
        return self._settings.retry or not self.launcher.gateway_is_gone

    def on_request(self, content: dict[str, Any], clock: CellClock | None) -> None:
        """Pass a request on, once: the guest asks again while it is unanswered, and may have been heard all the same."""
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
            Whether the file was moved; if not, it is still here.
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
        """Yield the path of the scratch folder, and the name of an empty file in it that nobody can guess."""
        mark = f"mark-{secrets.token_hex(16)}"
        try:
            reply, _ = await self.ask_of_values(op="mark", name=mark)
            yield str(reply.get("folder", "")), mark
        finally:
            await self.ask_of_values(op="remove", name=mark)

    async def read_values(self, name: str) -> AsyncGenerator[bytes]:
        """Yield the content of a file in its scratch folder, in pieces; the file is gone afterwards.

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
        """Return the guest's answer about a file of its scratch folder.

        Args:
            buffers: The content to write.
            content: The operation; see `on_values` of the guest.

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
    """Return whether values could be moved that way."""
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
    """Yield the results of coroutines in their order; a few run at once, and none when this has ended.

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


ELSEWHERE: Final = (
    "Its working directory is a folder of its own, empty at first and gone with the kernel: no file of the user is there, "
    "and nobody finds files that you write. A child gets files as values (`inputs` of agent.task) and gives them back as "
    "its answer; what the user is to have stands in your own answer. `agent.shell` runs on the user's machine."
)


class GatewayKernelProvider:
    """A provider of kernels at the servers that the settings name."""

    def __init__(self, settings: KernelConfig, *, on_notice: Callable[[str], None] | None = None) -> None:
        """Args: on_notice: called once with the gaps of kernels there. None: they are logged.

        Raises:
            ConfigError: The settings name no server, or certificates that cannot be read.
        """
        self._settings = settings.gateway
        if not self._settings.url:
            raise ConfigError("kernel.provider = 'gateway' needs kernel.gateway.url, such as http://127.0.0.1:8888")
        self._on_notice = on_notice or logger.warning
        self._has_noticed = False
        self._servers = [GatewayServer(url, self._settings) for url in self._settings.url]

    def place(self, mode: Mode, settings: KernelConfig, workspace: Path) -> KernelPlace:
        """Describe the place of kernels. No wall of ours is there, and nothing of this machine's environment."""
        if settings.sandbox == "required":
            raise ConfigError(
                "kernel.sandbox = 'required' needs a wall, which a gateway's kernels do not have: set 'auto' or 'off'"
            )
        if mode in ("plan", "auto") and not self._settings.trusted:
            raise ConfigError(
                f"mode {mode} needs a wall around the kernel, which a gateway's kernels do not have: choose mode ask or "
                "full, or set kernel.gateway.trusted = true if the gateway's machines confine the code themselves"
            )
        shared = self._settings.workspace == "shared"
        if not self._has_noticed:
            self._has_noticed = True
            files = "" if shared else f", and the files of {workspace} are not there"
            self._on_notice(
                f"kernels run at {', '.join(self._settings.url)}: no wall of ours is around them, they cannot be branched"
                f"{files}"
            )
        environment = {**git_environment(), **settings.env}
        files = f"Its working directory is {workspace}." if shared else ELSEWHERE
        return KernelPlace(wall=None, environment=environment, description=f"It is on another machine. {files}")

    def hook(self, settings: AuditSettings) -> AuditSettings | None:
        """Return the actions that the audit hook lets pass; folders count only where kernels share this machine's."""
        return settings if self._settings.workspace == "shared" else AuditSettings(no_network=settings.no_network)

    async def start(self, spec: KernelSpec, handler: HostRequestHandler) -> GatewayKernel:
        """Start a kernel at one of the servers."""
        settings = self._settings
        channels = partial(GatewayChannels, lease_seconds=settings.lease_seconds, on_notice=self._on_notice)
        launcher = GatewayLauncher(spec, self._by_load, settings.kernel, channels)
        kernel = GatewayKernel(
            spec,
            launcher,
            handler,
            settings=settings,
        )
        return await kernel.open()

    async def aclose(self) -> None:
        """Close the connections to the servers."""
        for server in self._servers:
            await server.aclose()

    def _by_load(self) -> list[GatewayServer]:
        """Return the servers in the order in which they are asked: servers that could not be reached lately come last."""
        now = asyncio.get_running_loop().time()
        shuffled = chance.sample(self._servers, len(self._servers))
        return sorted(shuffled, key=lambda server: (server.asked_last_until > now, live[server.url]))


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
