"""`McpConnection`: one open connection to one MCP server, owned by a task of its own.

It uses `mcp.Client` of the MCP SDK and not pydantic-ai's `MCPToolset`: the SDK imports in a third of the time, has one layer
less between us and the server's process (`MCPToolset` keeps the process alive by default, behind two classes), and its
shutdown is shielded and bounded at every step. The price is its rule that a client is left by the task that entered it.
Hence the owner task: it enters, hands the client out, waits, and leaves. Calls come from any task.

A stdio server is started through the process guard, so that it and all that it has started end with us, even after a
`kill -9`. A connection is used once: when it is lost, another is made.
"""

import asyncio
import contextlib
import logging
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import anyio

import freeact_sub.guard
from freeact_sub.config import McpServerConfig
from freeact_sub.errors import McpError

if TYPE_CHECKING:
    import mcp

logger = logging.getLogger(__name__)

GUARD_COMMAND: Final = (sys.executable, "-I", "-S", str(Path(freeact_sub.guard.__file__)))
CLOSE_SECONDS: Final = 5.0
"""Within this time a connection is closed: the server is asked to end, told to, and killed."""
HTTP_CONNECT_SECONDS: Final = 30.0
LOG_TAIL_BYTES: Final = 4096
MAX_REASON_CHARS: Final = 300


class McpConnection:
    """Opens when made, in the background; `client` waits for it."""

    def __init__(self, server: str, config: McpServerConfig, *, log_file: Path) -> None:
        """Args: log_file: what a stdio server writes to standard error is added to it."""
        self.server = server
        self._config = config
        self._log_file = log_file
        self._refusal = ""
        self._stop = asyncio.Event()
        self._scope = anyio.CancelScope()
        self._ready: asyncio.Future[mcp.Client] = asyncio.get_running_loop().create_future()
        self._ready.add_done_callback(lambda ready: ready.cancelled() or ready.exception())  # it may have no reader
        self._failure: BaseException | None = None
        self._owner = asyncio.create_task(self._own(), name=f"MCP server {server}")

    @property
    def ended(self) -> bool:
        """It failed, was lost or was closed: of no use any more."""
        return self._owner.done() or self._stop.is_set()

    async def client(self) -> "mcp.Client":
        """The open client.

        Raises:
            McpError: The server does not start or cannot be reached.
        """
        return await asyncio.shield(self._ready)

    async def lost(self) -> McpError:
        """Why the connection was lost, for the call that noticed it."""
        self._stop.set()
        await asyncio.wait({self._owner}, timeout=CLOSE_SECONDS)
        return McpError(f"{self._described(self._failure, 'was lost')}; the next call connects anew", server=self.server)

    async def aclose(self) -> None:
        """Close it, whatever state it is in, within `CLOSE_SECONDS`."""
        self._stop.set()
        if not self._ready.done():
            self._scope.cancel()
        await asyncio.wait({self._owner}, timeout=CLOSE_SECONDS)
        if not self._owner.done():
            logger.error("MCP server %s did not end within %g s: abandoned", self.server, CLOSE_SECONDS)
            self._owner.cancel()
            await asyncio.wait({self._owner}, timeout=1)

    async def _own(self) -> None:
        self._scope.deadline = anyio.current_time() + self._config.init_timeout_seconds
        try:
            with self._scope:
                if not self._stop.is_set():
                    await self._serve()
        except Exception as error:  # the border to the MCP library: whatever ends a connection becomes an `McpError`
            self._failure = _first_leaf(error)
        finally:
            if not self._ready.done():
                self._ready.set_exception(self._start_error())

    async def _serve(self) -> None:
        import mcp

        async with contextlib.AsyncExitStack() as stack:
            transport = self._stdio() if self._config.command is not None else self._http()
            client = await stack.enter_async_context(mcp.Client(await stack.enter_async_context(transport)))
            self._scope.deadline = math.inf
            self._ready.set_result(client)
            await self._stop.wait()
            self._scope.deadline = anyio.current_time() + CLOSE_SECONDS
