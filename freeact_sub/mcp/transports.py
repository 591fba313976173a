"""Ways of messages to an MCP server: `StdioTransport` starts it, `HttpTransport` connects to it.

`TRANSPORTS` lists them: a new one is a class and its name there.

Both use the SDK's own clients. A stdio server is started through the process guard, so that it and everything it has started
end with us, even after a `kill -9`, and so that a line that is too long never reaches us. The SDK takes half a second to
import, so it is imported with the first server.
"""

import asyncio
import importlib
import json
import os
import shutil
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Final
from urllib.parse import urlsplit

import httpx2

from freeact_sub.config.network_variables import check_network_variables, proxy_for
from freeact_sub.config.schema import McpServerConfig, cache_folder
from freeact_sub.config.trust import CACHE_VARIABLE, SCRIPTS
from freeact_sub.errors import ConfigError, McpError
from freeact_sub.system.closing import carry_out
from freeact_sub.system.guard import GUARD_COMMAND
from freeact_sub.system.private_folders import VARIABLE, end_processes_of, make_folder, remove_soon
from freeact_sub.system.safe_files import beneath, is_folder
from freeact_sub.text import shortened

STREAMS: Final = "freeact_sub.mcp.streams"
"""The module that imports the SDK."""
CONNECT_SECONDS: Final = 30.0
"""Time limit for a TCP connection; the server's settings bound the wait for a response."""
LOG_BYTES: Final = 10_000_000
"""Size limit of the log of a server's standard error; when it is full, its older half is dropped."""
LOG_TAIL_BYTES: Final = 4096
REASON_CHARS: Final = 300
DATA_CHARS: Final = 2_000
"""Maximum characters of the data in a server's error."""


@dataclass(kw_only=True)
class Transport(ABC):
    """The way to one server, used once."""

    names: ClassVar[frozenset[str]]
    """Values of `type` in a server's settings."""
    server: str
    config: McpServerConfig
    log_file: Path
    """The file for the standard error of a server that we start."""
    log_root: Path
    """The root of the log's folder, as in `McpServers`."""
    auth: httpx2.Auth | None = None
    """Authentication at an HTTP server, instead of a person's sign-in."""

    @classmethod
    @abstractmethod
    def serves(cls, config: McpServerConfig) -> bool:
        """Whether the transport is for these settings."""

    @abstractmethod
    def open(self, on_begin: Callable[[], None], on_end: Callable[[], None]) -> AbstractAsyncContextManager[Any]:
        """Reach the server.

        Args:
            on_begin: Called when the wait for the server begins; a cancel is safe from then on.
            on_end: Called when the server ends the stream.

        Returns:
            A context manager of the streams from and to the server, as `mcp.Client` takes them.
        """

    @abstractmethod
    def start_failure(self, failure: BaseException | None, late_seconds: float | None) -> str:
        """Return why the server is not ready, in words that follow its name. Args: late_seconds: the passed limit."""

    @abstractmethod
    def loss(self, failure: BaseException | None) -> str:
        """Return how the server was lost during a request, in words that follow its name."""

    def can_be_asked(self) -> bool:
        """Whether the server can ask us, in the older era of the protocol, in the middle of a call."""
        return True

    def may_forget(self) -> bool:
        """Whether the server, which has refused a request, may no longer know our session."""
        return False

    def was_refused(self) -> bool:
        """Whether the last request was refused on its way, not by an answer of the protocol."""
        return False

    def refuses_era(self, failure: BaseException) -> bool:
        """Whether the server has refused the beginning of the older era."""
        import mcp  # noqa: PLC0415  # see the module's docstring
        from mcp_types import CONNECTION_CLOSED  # noqa: PLC0415

        return isinstance(failure, mcp.MCPError) and failure.code != CONNECTION_CLOSED and not self.refusal()

    def refusal(self) -> str:
        """Return why the last request was refused, if a person can mend it, in words that follow the server's name."""
        return ""


@dataclass(kw_only=True)
class StdioTransport(Transport):
    """A program that is started, and spoken to over its standard input and output."""

    names = frozenset({"stdio"})
    _log_start: int = field(default=0, init=False)

    @classmethod
    def serves(cls, config: McpServerConfig) -> bool:
        return config.command is not None

    @asynccontextmanager
    async def open(self, on_begin: Callable[[], None], on_end: Callable[[], None]) -> AsyncIterator[Any]:
        config = self.config
        self._check_command()
        await asyncio.to_thread(importlib.import_module, STREAMS)
        from mcp.client.stdio import StdioServerParameters, stdio_client  # noqa: PLC0415  # see the module's docstring

        from freeact_sub.mcp import streams  # noqa: PLC0415

        async with _process_folder() as folder:
            bounds = ("--remove", str(folder), "--bound", str(config.max_message_bytes), str(LOG_BYTES))
            program, *guard = GUARD_COMMAND
            guarded = StdioServerParameters(
                command=program,
                args=[*guard, str(os.getpid()), *bounds, str(config.command), *config.args],
                env=_cache_of(config) | config.env | {VARIABLE: str(folder)},
                cwd=config.cwd,
                encoding_error_handler="replace",
            )
            with open(self.log_file, "a+", encoding="utf-8", opener=beneath(self.log_root)) as log:  # noqa: ASYNC230  # one small open on a local disk
                self._log_start = log.tell()
                async with stdio_client(guarded, errlog=log) as (incoming, outgoing):
                    on_begin()
                    requests, garbage = streams.OpenRequests(), streams.Garbage(self.server)
                    watched = streams.WatchedStream(incoming, requests, on_end=on_end, on_garbage=garbage.add)
                    yield watched, streams.RespondingStream(outgoing, requests)

    def start_failure(self, failure: BaseException | None, late_seconds: float | None) -> str:
        if late_seconds is not None:
            what = f"was not ready within {late_seconds:g} s"
        elif failure is not None and not _is_end(failure):
            return f"cannot be used: {said(failure)}; its log is {self.log_file}"
        else:
            what = "ended before it was ready"
        return f"{what}{self._last_words()}; its log is {self.log_file}"

    def loss(self, failure: BaseException | None) -> str:
        del failure
        return f"has ended{self._last_words()}; the next call starts it anew; its log is {self.log_file}"

    def _check_command(self) -> None:
        command, folder = str(self.config.command), Path(self.config.cwd or ".")
        if not is_folder(folder):
            raise self._error(f"cannot be started: its folder {folder} does not exist: correct `cwd`")
        path = str(folder / command) if "/" in command else command
        if shutil.which(path, path=self.config.env.get("PATH")) is None:
            raise self._error(f"cannot be started: the program {command!r} was not found: install it, or correct `command`")

    def _error(self, text: str) -> McpError:
        return McpError(f"MCP server {self.server!r} {text}", server=self.server)

    def _last_words(self) -> str:
        try:
            with open(self.log_file, "rb", opener=beneath(self.log_root)) as log:
                size = log.seek(0, os.SEEK_END)
                log.seek(max(self._log_start, size - LOG_TAIL_BYTES))
                lines = log.read().decode(errors="replace").split("\n")
        except OSError:
            return ""
        last = next((line.strip() for line in reversed(lines) if line.strip()), "")
        return f" ({last[:REASON_CHARS]})" if last else ""


@dataclass(kw_only=True)
class HttpTransport(Transport):
    """A connection to a URL by streamable HTTP."""

    names = frozenset({"http", "streamable-http"})
    _status: str = field(default="", init=False)
    """The status of the last response if it was a refusal."""
    _in_session: bool = field(default=False, init=False)
    """Whether the server has given us the name of a session."""
    _streams: bool = field(default=False, init=False)
    """Whether a response was a stream of messages."""
    _unauthorized: str = field(default="", init=False)
    """The status of the last response that asked for a sign-in, if no success came after it."""

    @classmethod
    def serves(cls, config: McpServerConfig) -> bool:
        return config.url is not None

    @asynccontextmanager
    async def open(self, on_begin: Callable[[], None], on_end: Callable[[], None]) -> AsyncIterator[Any]:
        del on_end
        await asyncio.to_thread(importlib.import_module, STREAMS)
        from mcp.client.streamable_http import streamable_http_client  # noqa: PLC0415  # as above

        from freeact_sub.mcp import streams  # noqa: PLC0415

        check_network_variables()
        client = httpx2.AsyncClient(
            # what is small on its way may fill the memory once it is unpacked
            headers={"Accept-Encoding": "identity", **self.config.headers},
            # a response that is late would end the whole transport: each request has a bound of its own
            timeout=httpx2.Timeout(CONNECT_SECONDS, read=None),
            event_hooks={"response": [self._note_status, self._bound]},
            auth=self._auth(),
        )
        on_begin()
        most = self.config.max_message_bytes
        connection = streamable_http_client(str(self.config.url), http_client=client, max_sse_event_size=most)
        async with client, connection as (incoming, outgoing):
            requests = streams.OpenRequests()
            yield streams.WatchedStream(incoming, requests), streams.RespondingStream(outgoing, requests)

    def start_failure(self, failure: BaseException | None, late_seconds: float | None) -> str:
        if refusal := self.refusal():
            return refusal
        reason = said(failure) if late_seconds is None else f"no response within {late_seconds:g} s"
        if proxy := proxy_for(str(self.config.url)):
            return (
                f"cannot be reached at {self._url} through the proxy {proxy} ({reason}); correct or unset the environment "
                "variable that names the proxy, add the host to NO_PROXY, or check the server's `url` and `headers`"
            )
        return f"cannot be reached at {self._url} ({reason}); check its `url` and `headers`"

    def loss(self, failure: BaseException | None) -> str:
        return f"at {self._url} was lost during the request ({reason_of(failure)}); the next call connects anew"

    def can_be_asked(self) -> bool:
        return self._in_session and self._streams  # a session, and responses that are streams

    def was_refused(self) -> bool:
        return bool(self._status)

    def may_forget(self) -> bool:
        return self._in_session and not self._status.startswith("429")  # who wants us to wait knows us

    def refusal(self) -> str:
        if self._has_key or not self._unauthorized:
            return ""
        why = "refuses what you have signed in for" if self._unauthorized.startswith("403") else "needs you to sign in"
        return f"at {self._url} {why} ({self._unauthorized}): run `freeact-sub mcp login {self.server}`"

    @property
    def _has_key(self) -> bool:
        """Whether the settings have a key that the server may want instead of a sign-in."""
        return any(name.lower() == "authorization" for name in self.config.headers)

    def _auth(self) -> httpx2.Auth | None:
        if self.auth is not None or self._has_key:
            return self.auth
        from freeact_sub.mcp.signed_in import SignedIn  # noqa: PLC0415  # as above

        return SignedIn(self.server, str(self.config.url))

    @property
    def _url(self) -> str:
        url = urlsplit(self.config.url or "")
        return f"{url.scheme}://{url.netloc.rpartition('@')[2]}{url.path}"

    async def _note_status(self, response: httpx2.Response) -> None:
        """Note the status of a refusal: it tells of a wrong key."""
        self._in_session = self._in_session or "mcp-session-id" in response.headers
        if response.request.method != "POST":
            return  # the stream of a server's own messages, which many do not have, and the end of a session
        self._streams = self._streams or response.headers.get("content-type", "").startswith("text/event-stream")
        self._status = f"{response.status_code} {response.reason_phrase}" if response.is_error else ""
        if self._status.startswith(("401", "403")) or not self._status:
            self._unauthorized = self._status

    async def _bound(self, response: httpx2.Response) -> None:
        """Bound the body of a response; a larger one ends the connection before it fills the memory."""
        encoding = response.headers.get("content-encoding", "identity")
        if encoding.strip().lower() not in ("", "identity"):
            raise httpx2.ReadError(f"the response is compressed ({encoding[:40]}), which was not requested")
        if isinstance(response.stream, httpx2.AsyncByteStream):
            from freeact_sub.mcp.streams import Body, RefusedBody  # noqa: PLC0415  # as above

            body = Body(response.stream, self.config.max_message_bytes)
            response.stream = body
            if response.is_error and response.request.method == "POST":
                response.stream = RefusedBody(body, response)
                response.headers["content-type"] = "application/json"
            response.encoding = "utf-8"


TRANSPORTS: Final[tuple[type[Transport], ...]] = (StdioTransport, HttpTransport)
"""All transports; the first that serves a server's settings is used."""


def transport_for(server: str, config: McpServerConfig) -> type[Transport]:
    """Return the transport of a server with these settings.

    Raises:
        ConfigError: Their `type` names none.
    """
    names = sorted(name for transport in TRANSPORTS for name in transport.names)
    if config.type is not None and config.type not in names:
        known = ", ".join(map(repr, names))
        raise ConfigError(f"`type` of MCP server {server!r} is {config.type!r}: write one of {known}, or leave it out")
    return next(transport for transport in TRANSPORTS if transport.serves(config))


def reason_of(error: BaseException | None) -> str:
    """Return the text of an error, cut, or its type."""
    return (str(error) or type(error).__name__)[:REASON_CHARS]


def said(error: BaseException | None) -> str:
    """Return a server's words in an error, and its `data` if that tells more; cut."""
    import mcp  # noqa: PLC0415  # see the module's docstring

    if not isinstance(error, mcp.MCPError) or all(str(value) in error.message for value in _values(error.data)):
        return reason_of(error)
    data = error.data if isinstance(error.data, str) else json.dumps(error.data, ensure_ascii=False)
    return f"{reason_of(error)}: {shortened(data, DATA_CHARS)}"


def _values(data: Any) -> list[Any]:
    items = data.values() if isinstance(data, dict) else data if isinstance(data, list) else None
    return ([] if data is None else [data]) if items is None else [value for item in items for value in _values(item)]


def _is_end(failure: BaseException) -> bool:
    """Whether a server has said nothing: it has ended, or its program."""
    import mcp  # noqa: PLC0415  # see the module's docstring
    from mcp_types import CONNECTION_CLOSED  # noqa: PLC0415

    return failure.code == CONNECTION_CLOSED if isinstance(failure, mcp.MCPError) else isinstance(failure, OSError)


def _cache_of(config: McpServerConfig) -> dict[str, str]:
    """Return where the Python of a script puts its compiled code: not beside the script, where nobody has looked at it."""
    if any(Path(word).suffix in SCRIPTS for word in (config.command or "", *config.args)):
        return {CACHE_VARIABLE: str(cache_folder())}
    return {}


@asynccontextmanager
async def _process_folder() -> AsyncIterator[Path]:
    """Yield a folder whose name marks a server and its descendants, to find daemons even if the guard was killed."""
    folder = make_folder()
    try:
        yield folder
    finally:
        await carry_out(asyncio.to_thread(_end_all_of, folder))


def _end_all_of(folder: Path) -> None:
    end_processes_of(folder)
    remove_soon(folder)
