"""`GatewayServer`: one Jupyter gateway or server, by its REST interface; it also opens the WebSockets to kernels."""

import asyncio
import logging
import ssl
import uuid
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote, urlsplit

import httpx2
from websockets.asyncio.client import connect
from websockets.typing import Subprotocol

from freeact_sub.config.schema import GatewayConfig
from freeact_sub.errors import ConfigError, KernelStartError
from freeact_sub.system.closing import end_task

MAX_FRAME_BYTES: Final = 256 * 2**20
"""Bytes above which a frame ends the connection. Messages have a smaller bound (`read_message`)."""
REQUEST_SECONDS: Final = 15.0
"""Seconds for requests that wait for no kernel."""
END_SECONDS: Final = 5.0
"""Seconds that a server may take to end a kernel: a busy one ends it later."""
UNWANTED_SECONDS: Final = 20.0
"""Seconds that a server may take to start a kernel that is not wanted any more, so that it can be ended."""
LOOK_SECONDS: Final = 0.25
HANG_SECONDS: Final = 5.0
"""Seconds that a server may be silent after it accepts a connection."""
HANGS: Final = "the gateway {url} hangs: it accepts connections and does not respond"
CLOSE_SECONDS: Final = 1.0
AGAIN_SECONDS: Final = 10.0
"""Seconds for which a server that could not be reached is asked last."""
FORBIDDEN: Final = (401, 403)
NOT_FOUND: Final = 404
ERROR_CHARS: Final = 300

live: Final[Counter[str]] = Counter()
"""The number of this process's kernels at each server, by URL, starting ones included."""

logger = logging.getLogger(__name__)


class UnreachableError(KernelStartError):
    """The server does not respond; another one may."""


class GatewayServer:
    """One server. Its methods raise `KernelStartError` with one sentence that names it."""

    def __init__(self, url: str, settings: GatewayConfig) -> None:
        """Args: url: of the server, with the path under which it has `/api`."""
        self.url = url.rstrip("/")
        self._headers = dict(settings.headers)
        if settings.token:
            self._headers.setdefault("Authorization", f"token {settings.token}")
        self._tls = _tls(settings) if urlsplit(url).scheme == "https" else None
        self._client = self._new_client(httpx2.Timeout(REQUEST_SECONDS))
        self.asked_last_until = 0.0
        """The time from which it may be chosen as any other again; it could not be reached."""
        self._ending: set[asyncio.Task[None]] = set()
        """The tasks that end kernels whose start was given up."""

    def _new_client(self, timeout: httpx2.Timeout) -> httpx2.AsyncClient:
        # the environment's proxies are for what is far away
        return httpx2.AsyncClient(
            base_url=self.url, headers=self._headers, verify=self._tls or False, timeout=timeout, trust_env=False
        )

    async def hangs(self, seconds: float) -> bool:
        """Return whether the server takes a connection and says nothing for so long. False where it cannot be reached."""
        # over its own connection: on one that was there, nothing tells a server that hangs from a cable that is out
        async with self._new_client(httpx2.Timeout(REQUEST_SECONDS, read=seconds)) as client:
            try:
                await client.get("/api")
            except httpx2.ReadTimeout:
                return True
            except httpx2.HTTPError:
                return False
        return False

    def ask_last(self) -> None:
        """Ask other servers first for a while: this one could not be reached."""
        self.asked_last_until = asyncio.get_running_loop().time() + AGAIN_SECONDS

    async def start_kernel(self, name: str, timeout_seconds: float) -> str:
        """Start a kernel; it need not be ready.

        Args:
            name: The name of its kernelspec; empty: the server's usual one.
            timeout_seconds: Seconds that the server may take.

        Returns:
            The kernel's id.

        Raises:
            UnreachableError: The server does not respond.
            KernelStartError: It starts no kernel; the message says why.
        """
        if self.asked_last_until and await self.hangs(HANG_SECONDS):  # else the start would wait for as long as one may take
            raise UnreachableError(HANGS.format(url=self.url))
        wanted = str(uuid.uuid4())
        starting = asyncio.create_task(self._start(name, wanted, timeout_seconds), name=f"start kernel {wanted}")
        try:
            return await asyncio.shield(starting)
        except (asyncio.CancelledError, UnreachableError):
            # the server may start the kernel all the same, and does not know it before
            self._ending.add(ending := asyncio.create_task(self._end_started(starting, wanted), name=f"end kernel {wanted}"))
            ending.add_done_callback(self._ending.discard)
            raise

    async def _start(self, name: str, wanted: str, timeout_seconds: float) -> str:
        # no `env`: a gateway may give what one start names to the kernels that others start at the same time
        body = {"kernel_id": wanted, **({"name": name} if name else {})}
        try:
            response = await self._client.post("/api/kernels", json=body, timeout=timeout_seconds)
        except httpx2.HTTPError as error:
            raise self._unreachable(error) from error
        if not response.is_success:
            may_be_unknown = name and response.is_server_error
            unknown = f": is there a kernelspec {name!r} (kernel.gateway.kernel)?" if may_be_unknown else ""
            raise KernelStartError(f"the gateway {self.url} did not start a kernel: {self._refusal(response)}{unknown}")
        try:
            return str(response.json()["id"])
        except (ValueError, KeyError, TypeError) as error:
            raise KernelStartError(f"{self.url} does not respond like a Jupyter server: is it one?") from error

    async def _end_started(self, starting: asyncio.Task[str], wanted: str) -> None:
        """End a kernel that is not wanted any more, as soon as its server has started it."""
        try:
            await self.end_kernel(await starting)
        except UnreachableError as error:
            if isinstance(error.__cause__, httpx2.ConnectError | httpx2.ConnectTimeout):
                return  # the server does not know it
            for _ in range(int(UNWANTED_SECONDS / LOOK_SECONDS)):
                if await self.end_kernel(wanted) != NOT_FOUND:
                    return
                await asyncio.sleep(LOOK_SECONDS)
        except KernelStartError:
            return

    async def interrupt(self, kernel_id: str) -> None:
        """Interrupt a kernel."""
        try:
            await self._client.post(f"/api/kernels/{quote(kernel_id)}/interrupt")
        except httpx2.HTTPError as error:
            logger.warning("the kernel %s at %s could not be interrupted: %s", kernel_id, self.url, error)

    async def end_kernel(self, kernel_id: str) -> int:
        """End a kernel.

        Returns:
            The status of the server's response. 0: none; the kernel ends by itself when its lease has run out.
        """
        try:
            return (await self._client.delete(f"/api/kernels/{quote(kernel_id)}", timeout=END_SECONDS)).status_code
        except httpx2.HTTPError as error:
            logger.info("the kernel %s at %s could not be ended: %s", kernel_id, self.url, error)
            return 0

    async def get(self, path: str) -> httpx2.Response:
        """Return the response to a GET request, whatever its status.

        Raises:
            UnreachableError: There is none.
        """
        try:
            return await self._client.get(path)
        except httpx2.HTTPError as error:
            raise self._unreachable(error) from error

    def connection(
        self, kernel_id: str, session_id: str, *, open_seconds: float | None, protocols: tuple[str, ...]
    ) -> connect:
        """Return a WebSocket to a kernel; to await it, or to enter it, opens it.

        Args:
            kernel_id: The kernel's id.
            session_id: The id under which the server keeps what it cannot send without a connection.
            open_seconds: Seconds that the server may take; it waits for a kernel that starts. None: no limit.
            protocols: `V1` or none.
        """
        address = f"ws{self.url.removeprefix('http')}/api/kernels/{quote(kernel_id)}/channels?session_id={session_id}"
        return connect(
            address,
            ssl=self._tls,
            subprotocols=[Subprotocol(name) for name in protocols] or None,
            additional_headers=self._headers,
            max_size=MAX_FRAME_BYTES,
            compression=None,
            proxy=None,
            open_timeout=open_seconds,
            ping_interval=None,
            close_timeout=CLOSE_SECONDS,
        )

    async def aclose(self) -> None:
        """Close the connections for requests, when the unwanted kernels have ended, or it takes too long."""
        if self._ending:
            await asyncio.wait(self._ending, timeout=UNWANTED_SECONDS)
        for ending in tuple(self._ending):
            await end_task(ending)
        await self._client.aclose()

    def _unreachable(self, error: Exception) -> UnreachableError:
        return UnreachableError(f"the gateway {self.url} cannot be reached ({type(error).__name__}: {error})")

    def _refusal(self, response: httpx2.Response) -> str:
        if response.status_code in FORBIDDEN and not _message(response):
            return f"status {response.status_code}: set kernel.gateway.token (FREEACT_KERNEL__GATEWAY__TOKEN) to its token"
        return f"{_message(response) or response.reason_phrase} ({response.status_code})"


def refused_connection(server: GatewayServer, status: int) -> str:
    """Return why no WebSocket is opened, as a sentence."""
    if status == NOT_FOUND:
        return f"the gateway {server.url} does not have the kernel any more"
    return f"the gateway {server.url} refuses the connection to its kernel ({status}): is kernel.gateway.token right?"


def _message(response: httpx2.Response) -> str:
    """Return the server's reason, if it gave one."""
    try:
        said: Mapping[str, Any] = response.json()
        text = str(said.get("message") or said.get("reason") or "")
    except (ValueError, AttributeError):
        text = ""
    return "" if text in ("Forbidden", "Unauthorized") else " ".join(text.split())[:ERROR_CHARS]


def _tls(settings: GatewayConfig) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=settings.ca_file)
        if settings.certificate_file is not None:
            context.load_cert_chain(settings.certificate_file)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"kernel.gateway: ca_file and certificate_file cannot be used: {error}") from error
    return context
