"""`McpConnection`: one connection to one MCP server, owned by its own task.

It uses `mcp.Client` of the MCP SDK and not pydantic-ai's `MCPToolset`: the SDK imports in a third of the time, has one
layer less between us and the server's process (`MCPToolset` keeps the process alive by default, behind two classes), and
its shutdown is shielded and bounded at every step. The price is its rule that a client is left by the task that entered
it. Hence the owner task: it enters, hands the client out, waits, and leaves. Requests come from any task.

A stdio server is started through the process guard, so that it and everything it has started end with us, even after a
`kill -9`. A connection is used once: when it fails or is lost, the next use makes another.

This module alone imports the SDK (0.8 s), so it is imported when the first connection is made.
"""

import asyncio
import logging
import math
import os
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

import anyio
import httpx2
import mcp
from mcp.client.stdio import get_default_environment
from mcp.client.streamable_http import streamable_http_client
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS

from freeact_sub.config.schema import McpServerConfig
from freeact_sub.errors import McpError
from freeact_sub.mcp.results import McpResult, McpTool, failure, needs_task, read_result, read_tool
from freeact_sub.mcp.streams import AnsweringStream, BoundedStream, Garbage, OpenRequests, WatchedStream
from freeact_sub.system.closing import carry_out
from freeact_sub.system.guard import GUARD_COMMAND
from freeact_sub.system.private_folders import VARIABLE, end_processes_of, make_folder, remove_soon
from freeact_sub.system.safe_files import beneath, is_folder

logger = logging.getLogger(__name__)

T = TypeVar("T")

CLOSE_SECONDS: Final = 5.0
"""The bound on closing a connection: the server is asked to end, then terminated, then killed."""
CONNECT_SECONDS: Final = 30.0
"""For a TCP connection; the server's settings bound the wait for an answer."""
LOG_BYTES: Final = 10_000_000
"""Bound on the log of a server's standard error; when it is full, its older half is dropped."""
LOG_TAIL_BYTES: Final = 4096
REASON_CHARS: Final = 300
MAX_TOOLS: Final = 10_000
"""Tools of one server that are read."""


class McpConnection:
    """Connects in the background as soon as it is made; the first request waits for the connection."""

    def __init__(self, server: str, config: McpServerConfig, *, log_file: Path, log_root: Path) -> None:
        """Args: log_file: takes the standard error of a stdio server. log_root: see `McpServers`."""
        self._server = server
        self._config = config
        self._log_file = log_file
        self._log_opener = beneath(log_root)
        self._log_start = 0
        self._http_status = ""
        self._garbage = Garbage(server)
        self._failure: BaseException | None = None
        self._closing = False
        self._may_be_cancelled = False
        self._requests: set[asyncio.Future[Any]] = set()
        self._stop = asyncio.Event()
        self._scope = anyio.CancelScope()
        self._ready: asyncio.Future[mcp.Client] = asyncio.get_running_loop().create_future()
        self._ready.add_done_callback(lambda ready: ready.cancelled() or ready.exception())  # it may have no reader
        self._owner = asyncio.create_task(self._own(), name=f"MCP server {server}")

    @property
    def usable(self) -> bool:
        """Whether the connection is open, or will be unless the server fails."""
        return not (self._stop.is_set() or self._owner.done())

    @property
    def done(self) -> bool:
        """Whether the connection and its server have ended."""
        return self._owner.done()

    async def list_tools(self) -> tuple[McpTool, ...]:
        """Ask the server for its tools.

        Raises:
            McpError: The server cannot be reached, does not answer in time, or answers with an error.
        """
        what, seconds = f"MCP server {self._server!r}, asked for its tools,", self._config.init_timeout_seconds
        try:
            return await self._request(_list_tools, what=what, setting="init_timeout_seconds", seconds=seconds)
        except McpError:
            raise
        except Exception as error:  # the border to the SDK, whose errors for what it cannot read are of many types
            raise McpError(f"{what} answered with an error: {_reason(error)}", server=self._server) from error

    async def call(self, tool: str, args: dict[str, Any]) -> McpResult:
        """Call a tool; one that fails, or that the server refuses to call, is a result.

        Raises:
            McpError: The server cannot be reached, or does not answer in time.
        """
        what, seconds = f"MCP tool {self._server}.{tool}", self._config.call_timeout_seconds
        try:
            result = await self._request(
                lambda client: client.call_tool(tool, args), what=what, setting="call_timeout_seconds", seconds=seconds
            )
        except mcp.MCPError as error:
            return failure(error.message)  # for example for its arguments
        except McpError:
            raise
        except Exception as error:  # noqa: BLE001  # the border to the SDK, as above
            # the answer does not keep to the protocol, or to the tool's own output schema
            return failure(f"the answer of {what} cannot be used: {error}")
        return read_result(result)

    async def aclose(self) -> None:
        """Closes the connection in any state, within `CLOSE_SECONDS`."""
        self._closing = True
        self._stop.set()
        if not self._ready.done() and self._may_be_cancelled:
            self._scope.cancel()
        await asyncio.wait({self._owner, *self._requests}, timeout=CLOSE_SECONDS)
        if not self._owner.done():
            logger.error("MCP server %s did not end within %g s: abandoned", self._server, CLOSE_SECONDS)
            self._owner.cancel()
            await asyncio.wait({self._owner}, timeout=1)

    async def _request(self, send: Callable[[mcp.Client], Awaitable[T]], *, what: str, setting: str, seconds: float) -> T:
        client = await asyncio.shield(self._ready)
        # A task of its own, since the SDK may take seconds to give a request up: it tells the server, and waits until
        # the server reads. Nor does the SDK's own timeout run while the server reads nothing.
        request = asyncio.ensure_future(send(client))
        self._requests.add(request)
        request.add_done_callback(self._forget)
        try:
            await asyncio.wait({request}, timeout=seconds)
        finally:
            request.cancel()
        if not request.done():
            hint = f"if it needs longer, raise its `{setting}`"
            raise McpError(f"{what} did not answer within {seconds:g} s; {hint}", server=self._server)
        try:
            return request.result()
        except Exception as error:
            if self._http_status.startswith("404") and client.protocol_version in HANDSHAKE_PROTOCOL_VERSIONS:
                self._stop.set()  # the server has forgotten the session
            if self.usable:
                raise
            raise await self._loss(error) from error

    def _forget(self, request: asyncio.Future[Any]) -> None:
        self._requests.discard(request)
        if not request.cancelled():
            request.exception()  # one that was given up has no reader

    async def _own(self) -> None:
        try:
            with self._scope:
                if not self._closing:
                    await self._serve()
        except Exception as error:  # noqa: BLE001  # the border to the SDK: whatever ends it becomes an `McpError`
            self._failure = _leaf(error)
        finally:
            if not self._ready.done():
                self._ready.set_exception(self._start_error())

    async def _serve(self) -> None:
        async with AsyncExitStack() as stack:
            if self._config.url is not None:
                transport = self._http(self._config.url)
            else:
                transport = self._stdio(await stack.enter_async_context(_process_folder()))
            await self._use(mcp.Client(transport))

    async def _use(self, opening: mcp.Client) -> None:
        async with opening as client:
            self._scope.deadline = math.inf
            self._ready.set_result(client)
            try:
                await self._stop.wait()
            finally:  # a transport that fails cancels us, before the requests that are under way hear of it
                self._stop.set()
            self._scope.deadline = anyio.current_time() + CLOSE_SECONDS

    @asynccontextmanager
    async def _stdio(self, folder: Path) -> AsyncIterator[Any]:
        config = self._config
        environment = get_default_environment() | config.env
        self._check_command(environment)
        bounds = ("--remove", str(folder), "--bound", str(config.max_answer_bytes), str(LOG_BYTES))
        parameters = mcp.StdioServerParameters(
            command=GUARD_COMMAND[0],
            args=[*GUARD_COMMAND[1:], str(os.getpid()), *bounds, str(config.command), *config.args],
            env=environment | {VARIABLE: str(folder)},
            cwd=config.cwd,
            encoding_error_handler="replace",  # else one wrong byte would end all reading without a word
        )
        with open(self._log_file, "a+", encoding="utf-8", opener=self._log_opener) as log:  # noqa: ASYNC230  # one small open on a local disk
            self._log_start = log.tell()
            async with mcp.stdio_client(parameters, errlog=log) as (incoming, outgoing):
                self._limit_start()
                requests = OpenRequests()
                watched = WatchedStream(incoming, requests, on_end=self._stop.set, on_garbage=self._garbage.add)
                yield watched, AnsweringStream(outgoing, requests)

    @asynccontextmanager
    async def _http(self, url: str) -> AsyncIterator[Any]:
        client = httpx2.AsyncClient(
            # what is small on its way may fill the memory once it is unpacked
            headers={"Accept-Encoding": "identity", **self._config.headers},
            # an answer that is late would end the whole transport: each request has a bound of its own
            timeout=httpx2.Timeout(CONNECT_SECONDS, read=None),
            event_hooks={"response": [self._note_status, self._bound]},
        )
        self._limit_start()
        async with client, streamable_http_client(url, http_client=client) as streams:
            requests = OpenRequests()
            yield WatchedStream(streams[0], requests), AnsweringStream(streams[1], requests)

    def _limit_start(self) -> None:
        """Starts the clock of the start. Not while a process is made: a cancel then would lose its pipes in asyncio."""
        self._may_be_cancelled = True
        self._scope.deadline = anyio.current_time() + self._config.init_timeout_seconds
        if self._closing:
            self._scope.cancel()

    async def _note_status(self, response: httpx2.Response) -> None:
        """Notes the status of a refusal, which the SDK drops: it tells of a wrong key."""
        self._http_status = f"{response.status_code} {response.reason_phrase}" if response.is_error else ""

    async def _bound(self, response: httpx2.Response) -> None:
        """Bounds the body of an answer; a larger one ends the connection before it fills the memory."""
        encoding = response.headers.get("content-encoding", "identity")
        if encoding.strip().lower() not in ("", "identity"):
            raise httpx2.ReadError(f"the answer is packed ({encoding[:40]}), which was not asked for")
        if isinstance(response.stream, httpx2.AsyncByteStream):
            response.stream = BoundedStream(response.stream, self._config.max_answer_bytes)

    def _check_command(self, environment: dict[str, str]) -> None:
        """Raises if the program is missing: that is clearer than the failure of its process."""
        command, folder = str(self._config.command), Path(self._config.cwd or ".")
        if not is_folder(folder):
            raise self._error(f"cannot be started: its folder {folder} is not there; correct `cwd`")
        path = str(folder / command) if "/" in command else command
        if shutil.which(path, path=environment.get("PATH")) is None:
            raise self._error(f"cannot be started: there is no program {command!r}; install it, or correct `command`")

    def _start_error(self) -> McpError:
        if isinstance(self._failure, McpError):
            return self._failure
        if self._closing:
            return self._error("was closed before it was ready")
        late = self._scope.cancel_called
        seconds = f"{self._config.init_timeout_seconds:g} s"
        if self._config.url is not None:
            reason = f"no answer within {seconds}" if late else self._http_status or _reason(self._failure)
            return self._error(f"cannot be reached at {self._url} ({reason}); check its `url` and `headers`")
        what = f"was not ready within {seconds}" if late else "ended before it was ready"
        return self._error(f"{what}{self._last_words()}; its log is {self._log_file}")

    async def _loss(self, error: Exception) -> McpError:
        await asyncio.wait({self._owner}, timeout=CLOSE_SECONDS)
        if self._closing:
            return self._error("was closed during the request")
        if self._config.url is None:
            return self._error(f"has ended{self._last_words()}; the next call starts it anew; its log is {self._log_file}")
        reason = _reason(self._failure or error)
        return self._error(f"at {self._url} was lost during the request ({reason}); the next call connects anew")

    def _error(self, text: str) -> McpError:
        return McpError(f"MCP server {self._server!r} {text}", server=self._server)

    @property
    def _url(self) -> str:
        """The URL without its secret parts."""
        url = urlsplit(self._config.url or "")
        return f"{url.scheme}://{url.netloc.rpartition('@')[2]}{url.path}"

    def _last_words(self) -> str:
        """The last line of the server's log since its start."""
        try:
            with open(self._log_file, "rb", opener=self._log_opener) as log:
                size = log.seek(0, os.SEEK_END)
                log.seek(max(self._log_start, size - LOG_TAIL_BYTES))
                lines = log.read().decode(errors="replace").split("\n")
        except OSError:
            return ""
        last = next((line.strip() for line in reversed(lines) if line.strip()), "")
        return f" ({last[:REASON_CHARS]})" if last else ""


@asynccontextmanager
async def _process_folder() -> AsyncIterator[Path]:
    """A folder whose name marks a server and its descendants, so that daemons are found even if the guard was killed."""
    folder = make_folder()
    try:
        yield folder
    finally:
        await carry_out(asyncio.to_thread(_end_all_of, folder))


def _end_all_of(folder: Path) -> None:
    end_processes_of(folder)
    remove_soon(folder)


async def _list_tools(client: mcp.Client) -> tuple[McpTool, ...]:
    if client.server_capabilities.tools is None:
        return ()
    tools: list[McpTool] = []
    cursor: str | None = None
    while True:
        page = await client.list_tools(cursor=cursor, cache_mode="refresh")
        tools += [read_tool(tool) for tool in page.tools if not needs_task(tool)]
        if len(tools) > MAX_TOOLS:
            raise ValueError(f"it has more than {MAX_TOOLS:,} tools")
        if page.next_cursor is None or page.next_cursor == cursor:
            return tuple(tools)
        cursor = page.next_cursor


def _reason(error: BaseException | None) -> str:
    return (str(error) or type(error).__name__)[:REASON_CHARS]


def _leaf(error: BaseException) -> BaseException:
    """The first error inside the groups that task groups raise."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
