"""The server as a whole, on standard streams or over HTTP."""

import asyncio
import difflib
import hmac
import os
import secrets
import select
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final, NoReturn

import uvicorn
from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.request_state import RequestStateSecurity
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS, CallToolResult, InputRequiredResult
from pydantic import ValidationError
from starlette.datastructures import Headers
from starlette.responses import Response

from freeact_sub import __version__
from freeact_sub.config.schema import Config, token_folder
from freeact_sub.errors import ConfigError
from freeact_sub.mcp_server.pending import PendingCalls, WithLeaving
from freeact_sub.mcp_server.reports import Resources
from freeact_sub.mcp_server.served import ServedAgents
from freeact_sub.mcp_server.tools import AgentTools, KernelTools
from freeact_sub.system.safe_files import put_file, read_file
from freeact_sub.text import one_line, wrong_fields

LOOPBACK: Final = "127.0.0.1"
FILE_OF_OWN: Final = "of-mcp-server"
CLOSE_SECONDS: Final = 3.0
"""Seconds for closing everything once the client has gone; then the process ends, and its guards end the rest."""
INSTRUCTIONS: Final = """\
Live Python kernels in one workspace, behind a wall, and agents that work with them.
- `execute` runs code; name the kernel_id that it returns to keep the variables.
- `branch` copies a kernel with its variables and files. Try something in the copy, look at `diff`, then `promote` its \
files, `adopt` its variables, or `close` it.
- `run` has an agent do a whole task."""


class KernelServer(MCPServer[Any]):
    """A server that names the fault of a request in one sentence.

    The SDK passes over arguments that a tool does not have, so that a mistyped one does something else, unseen; of others it
    sends pydantic's text.
    """

    async def call_tool(
        self, name: str, arguments: dict[str, Any], context: Context[Any, Any] | None = None
    ) -> CallToolResult | InputRequiredResult:
        """Call a tool. Raises: ToolError: Arguments are unknown, missing or wrong. Args: see the SDK."""
        tool = next((tool for tool in await self.list_tools() if tool.name == name), None)
        if tool is not None and (problem := _wrong_names(arguments, tool.input_schema)):
            raise ToolError(f"{name}: {problem}")
        try:
            return await super().call_tool(name, arguments, context)
        except ToolError as error:
            if isinstance(error.__cause__, ValidationError):
                raise ToolError(f"{name}: {wrong_fields(error.__cause__.errors())}") from error
            raise

    async def get_prompt(
        self,
        name: str,
        arguments: dict[str, Any] | None = None,  # noqa: ARG002  # the signature is the SDK's
        context: Context[Any, Any] | None = None,  # noqa: ARG002  # as above
    ) -> NoReturn:
        """Refuse: there are no prompts. Raises: MCPError. Args: see the SDK."""
        raise MCPError(INVALID_PARAMS, f"there is no prompt {name!r}: this server has none")


def _wrong_names(arguments: dict[str, Any], schema: dict[str, Any]) -> str:
    """Return the problem with the names of arguments."""
    known, needed = list(schema.get("properties", {})), schema.get("required", [])
    for name in arguments:
        if name not in known:
            there = [each for each in known if each not in arguments] or known
            near = difflib.get_close_matches(name, there, n=1, cutoff=0.4)
            meant = f"did you mean {near[0]!r}?" if near else f"it takes {', '.join(map(repr, known)) or 'none'}"
            return f"there is no argument {one_line(name)!r}: {meant}"
    missing = [name for name in needed if name not in arguments]
    return f"the argument {missing[0]!r} is missing" if missing else ""


def make_server(served: ServedAgents, pending: PendingCalls) -> MCPServer[Any]:
    """Make the server with all its tools."""
    server = KernelServer(
        "freeact-sub",
        title="freeact-sub",
        version=__version__,
        instructions=INSTRUCTIONS,
        log_level="WARNING",
        request_state_security=RequestStateSecurity.ephemeral(ttl=pending.away_seconds),
    )
    AgentTools(served, pending).add_to(server)
    KernelTools(served, pending).add_to(server)
    Resources(served.config).add_to(server)
    return server


async def serve_http(config: Config, port: int) -> None:
    """Serve any number of clients over HTTP on loopback, until Ctrl-C or SIGTERM. A client with the token acts for the user.

    Args:
        config: The settings.
        port: The port; 0: any free one.

    Raises:
        ConfigError: The port is taken.
    """
    try:
        listener = socket.create_server((LOOPBACK, port))
    except OSError as error:
        raise ConfigError(f"port {port} cannot be used: {error.strerror}") from error
    with listener:
        address, token = f"http://{LOOPBACK}:{listener.getsockname()[1]}/mcp", own_token()
        async with ServedAgents(config) as served:
            server = make_server(served, PendingCalls(config.approval_timeout_seconds))
            app = WithToken(WithLeaving(server.streamable_http_app(host=LOOPBACK)), token)
            settings = uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=1)
            sys.stdout.write(f"{address}\nAuthorization: Bearer {token}\n")
            sys.stdout.flush()
            await uvicorn.Server(settings).serve([listener])


async def serve_stdio(config: Config) -> NoReturn:
    """Serve one client on standard input and output, until it closes them or is gone, or a signal ends the server.

    Then the process ends at once: a client waits for that, and Python takes its time to take itself apart.
    """
    async with ServedAgents(config) as served:
        leaves = _Leaving(served)
        leaves.when_client_has_left()
        for end in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(end, leaves.soon)
        with suppress_broken_pipe():
            await make_server(served, PendingCalls(config.approval_timeout_seconds)).run_stdio_async()
    os._exit(0)


class _Leaving:
    """The end of the process, a bounded time after its client has left, even if work goes on."""

    def __init__(self, served: ServedAgents) -> None:
        self._served = served
        self._loop = asyncio.get_running_loop()
        self._closing: asyncio.Task[None] | None = None

    def when_client_has_left(self) -> None:
        """Note that standard input is at its end, even while nobody reads it."""
        waiting = threading.Thread(target=self._wait, args=(os.dup(0),), name="waits for the client to leave", daemon=True)
        waiting.start()

    def _wait(self, standard_input: int) -> None:
        poll = select.poll()
        poll.register(standard_input, 0)  # its end is told unasked
        poll.poll()
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._loop.call_later, CLOSE_SECONDS, os._exit, 0)

    def soon(self) -> None:
        """Close everything and end the process; reading from standard input cannot be interrupted."""
        self._loop.call_later(CLOSE_SECONDS, os._exit, 0)
        self._closing = self._loop.create_task(self._close(), name="closes the server")

    async def _close(self) -> None:
        await self._served.aclose()
        os._exit(0)


@contextmanager
def suppress_broken_pipe() -> Iterator[None]:
    """Ignore that the client is gone while it is written to."""
    try:
        yield
    except* BrokenPipeError:
        pass


def own_token() -> str:
    """Return the user's token; the first call makes it, so that clients keep their settings over restarts.

    Raises:
        ConfigError: It cannot be kept.
    """
    file = token_folder() / FILE_OF_OWN
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not file.exists():
            put_file(file, secrets.token_urlsafe().encode(), mode=0o600)
        return read_file(file).decode()
    except (OSError, ValueError) as error:
        raise ConfigError(f"the token of the server cannot be kept in {file}: {error}") from error


class WithToken:
    """An ASGI app that answers only requests with the token."""

    def __init__(self, app: Any, token: str) -> None:
        self._app = app
        self._expected = f"Bearer {token}".encode()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer a request of ASGI."""
        if scope["type"] != "lifespan":
            given = Headers(scope=scope).get("authorization", "").encode("utf-8", errors="replace")
            if scope["type"] != "http" or not hmac.compare_digest(given, self._expected):
                refused = Response("the server's token is missing", 401, headers={"WWW-Authenticate": "Bearer"})
                await refused(scope, receive, send)
                return
        await self._app(scope, receive, send)
