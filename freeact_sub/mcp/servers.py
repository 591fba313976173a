"""`McpServers`: the MCP connections of one agent; `McpCatalogue`: the servers' offers, known to all agents of a tree.

Each agent has connections of its own, since servers keep state by connection. They are opened on first use: most children
use none. A child needs no connection to learn the tools: the first agent that asks lists them, for all. Its connection then
goes to the first agent that calls a tool, often a child: no second server is started beside an idle one. `Connections` holds
one agent's.
"""

import asyncio
import collections
import difflib
import json
import logging
import secrets
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias, TypeVar

from freeact_sub.config.schema import McpServerConfig
from freeact_sub.errors import McpError
from freeact_sub.mcp.connection import Ask, McpConnection, OnProgress
from freeact_sub.mcp.envelopes import strict_json
from freeact_sub.mcp.offers import (
    McpPrompt,
    McpResource,
    McpResult,
    McpTool,
    complete,
    failure,
    get_prompt,
    list_prompts,
    list_resources,
    read_resource,
)
from freeact_sub.mcp.transports import transport_for
from freeact_sub.system.closing import carry_out

if TYPE_CHECKING:
    import mcp

CLOSE_SECONDS: Final = 7.0
"""Time limit for closing: longer than a connection takes to kill its server."""

T = TypeVar("T")

logger = logging.getLogger(__name__)

SHOWN_NAMES: Final = 30
"""Maximum names in a sentence."""
ToolListing: TypeAlias = tuple[McpTool, ...] | McpError
"""The tools of a server, or the error that prevented listing them."""


class McpCatalogue:
    """The tools of all servers, shared by the agents of one tree, whose settings are the same. It holds no connection."""

    def __init__(self) -> None:
        self.listings: dict[str, ToolListing] = {}
        """Listings by server; a failure is kept too, so that not every child tries the server again."""
        self.versions: dict[str, str] = {}
        """Marks by server that distinguish its list of tools from earlier ones."""
        self.notes: dict[str, tuple[str, ...]] = {}
        """Unusable entries of each server's list of tools, in words that follow its name."""
        self.locks: collections.defaultdict[str, asyncio.Lock] = collections.defaultdict(asyncio.Lock)
        """Locks by server; held while its tools are listed."""
        self.listers: dict[str, Connections] = {}
        """Owners of servers' connections that have listed tools, done nothing else, and list none now."""
        self.shared: Connections | None = None
        """The root's connections: all agents use those to shared servers."""
        self.changed: dict[str, McpConnection] = {}
        """Servers' connections that have announced a new list of tools."""


class McpServers:
    """One agent's connections. An async context manager that closes them at its end."""

    def __init__(
        self, servers: Mapping[str, McpServerConfig], *, catalogue: McpCatalogue, log_folder: Path, log_root: Path
    ) -> None:
        """Start no connection yet.

        Args:
            servers: Their settings by name.
            catalogue: Keeps the tools.
            log_folder: Gets a file `mcp-SERVER.log` for each stdio server that is started.
            log_root: The folder from which `log_folder` is reached without following a link.

        Raises:
            ConfigError: The `type` of a server is not known.
        """
        self._configs = {name: config for name, config in servers.items() if not config.disabled}
        for name, config in self._configs.items():
            transport_for(name, config)
        self.catalogue = catalogue
        self._own = Connections(log_folder=log_folder, log_root=log_root, on_change=catalogue.changed.__setitem__)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the servers that are not disabled."""
        return tuple(self._configs)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close all connections within a few seconds, even if the closing task is cancelled."""
        await self._own.aclose()

    def share(self) -> None:
        """Let all agents use these connections to shared servers."""
        self.catalogue.shared = self._own

    async def tools(self, server: str) -> tuple[McpTool, ...]:
        """Return the tools of a server: from the catalogue, else from the server.

        Raises:
            McpError: There is no such server, or it cannot be asked, or it could not when it was asked first.
        """
        self._check_server(server)
        return await self._listed(server, stale=None)

    async def call(
        self,
        server: str,
        tool: str,
        args: Mapping[str, Any],
        ask: Ask | None = None,
        on_progress: OnProgress | None = None,
    ) -> McpResult:
        """Call a tool. A tool that fails is a result too.

        A server that could not be started is tried again, and one whose connection was lost is connected to anew.

        Args:
            server: The server's name.
            tool: The tool's.
            args: Its arguments.
            ask: Asks a person the server's questions during the call. None: nobody is asked.
            on_progress: Called when the server tells how far the call is.

        Raises:
            McpError: There is no such server or tool, or the server cannot be reached, or does not respond in time.
        """
        self._check_server(server)
        await self._check_tool(server, tool)
        try:
            json.dumps(strict := strict_json(dict(args)))
        except (TypeError, ValueError) as error:
            return failure(f"the arguments of {server}.{tool} are not JSON data: {error}")
        self._take_over(server)
        return await (self._connection(server)).call(tool, strict, ask, on_progress)

    async def resources(self, server: str) -> tuple[McpResource, ...]:
        """Return the resources of a server, and templates of their addresses. Raises: McpError, as `tools`."""
        return await self._ask(server, list_resources, "its resources")

    async def prompts(self, server: str) -> tuple[McpPrompt, ...]:
        """Return the prompts of a server. Raises: McpError, as `tools`."""
        return await self._ask(server, list_prompts, "its prompts")

    async def read(self, server: str, uri: str, ask: Ask | None = None) -> McpResult:
        """Read a resource. Raises: McpError, as `tools`. Args: ask: as for `call`."""
        send, what = partial(read_resource, uri=uri), f"the resource {uri[:200]!r}"
        return await self._ask(server, send, what, ask, is_call=True)

    async def prompt(self, server: str, name: str, arguments: Mapping[str, str], ask: Ask | None = None) -> McpResult:
        """Get a prompt. Raises: McpError, as `tools`. Args: ask: as for `call`."""
        send = partial(get_prompt, name=name, arguments={each: str(value) for each, value in arguments.items()})
        return await self._ask(server, send, f"the prompt {name[:200]!r}", ask, is_call=True)

    async def complete(
        self, server: str, of: McpPrompt | McpResource, argument: str, given: Mapping[str, str]
    ) -> tuple[str, ...]:
        """Return a server's proposals for an argument of a prompt, or for a part of a template, as `offers.complete`.

        Raises:
            McpError: As `tools`.
        """
        return await self._ask(server, partial(complete, of=of, argument=argument, given=given), "a completion")

    async def _ask(
        self,
        server: str,
        send: Callable[["mcp.Client"], Awaitable[T]],
        what: str,
        ask: Ask | None = None,
        *,
        is_call: bool = False,
    ) -> T:
        self._check_server(server)
        self._take_over(server)
        connection = self._connection(server)
        with connection.asking(ask):
            return await connection.ask(send, what, is_call=is_call)

    def notes(self, server: str) -> tuple[str, ...]:
        """Return the unusable entries of the server's list of tools; none where it was not asked yet."""
        return tuple(f"MCP server {server!r}: {note}" for note in self.catalogue.notes.get(server, ()))

    def version(self, server: str) -> str:
        """Return a mark of the catalogue's list of a server's tools, which distinguishes it from earlier ones."""
        return self.catalogue.versions.get(server, "")

    def is_read_only(self, server: str, tool: str) -> bool:
        """Whether the server says that the tool changes nothing; False where it was not asked yet."""
        listing = self.catalogue.listings.get(server)
        return isinstance(listing, tuple) and any(known.name == tool and known.read_only for known in listing)

    def _check_server(self, server: str) -> None:
        if server not in self._configs:
            raise McpError(f"there is no MCP server {server!r}{_hint(server, self._configs)}", server=server)

    async def _check_tool(self, server: str, tool: str) -> None:
        listing = self.catalogue.listings.get(server)
        if isinstance(listing, tuple) and _has(listing, tool):
            return
        # the server may have been out of order, or may offer more than it did
        tools = await self._listed(server, stale=listing)
        if not _has(tools, tool):
            hint = _hint(tool, (known.name for known in tools))
            raise McpError(f"MCP server {server!r} has no tool {tool!r}{hint}", server=server)

    async def _listed(self, server: str, *, stale: ToolListing | None) -> tuple[McpTool, ...]:
        """Return the catalogue's listing; the server's if there is none, or only this stale one, or it has changed."""
        listings = self.catalogue.listings
        async with self.catalogue.locks[server]:
            known = listings.get(server)
            listing = known if known is not None and known is not stale else await self._list(server)
            if (teller := self.catalogue.changed.pop(server, None)) is not None and teller.usable:
                listing = await self._list_again(server, teller, listing)
            if listing != known:
                self.catalogue.versions[server] = secrets.token_hex(4)
            listings[server] = listing
        if isinstance(listing, McpError):
            raise McpError(str(listing), server=server)
        return listing

    async def _list_again(self, server: str, teller: McpConnection, listing: ToolListing) -> ToolListing:
        """Return the list that a server has now; the earlier one if it cannot be asked."""
        try:
            tools, self.catalogue.notes[server] = await teller.list_tools()
        except McpError as error:
            logger.warning("%s; what it offered before is kept", error)
            return listing
        return self._offered(server, tools)

    async def _list(self, server: str) -> ToolListing:
        self._take_over(server)
        try:
            connection = self._connection(server)
            tools, self.catalogue.notes[server] = await connection.list_tools()
        except McpError as error:
            if self._own.closed:  # which says nothing about the server
                raise
            return error
        if not connection.has_called and not self._configs[server].shared:
            self.catalogue.listers[server] = self._own
        return self._offered(server, tools)

    def _offered(self, server: str, tools: tuple[McpTool, ...]) -> tuple[McpTool, ...]:
        """Return the tools without those that the settings leave out."""
        return tuple(tool for tool in tools if self._configs[server].offers(tool.name))

    def _take_over(self, server: str) -> None:
        """Take over a connection that has only listed, if the agent has none. Called before a server is asked."""
        lister, own = self.catalogue.listers.get(server), self._own
        if lister is None or own.closed or (lister is not own and server in own):
            return
        del self.catalogue.listers[server]
        if lister is not own and (connection := lister.hand_over(server)) is not None:
            own.take(server, connection)

    def _connection(self, server: str) -> McpConnection:
        config, shared = self._configs[server], self.catalogue.shared
        if self._own.closed or not config.shared or shared is None:
            return self._own.opened(server, config)
        return shared.opened(server, config)


def _has(tools: Iterable[McpTool], name: str) -> bool:
    return any(tool.name == name for tool in tools)


def _hint(name: str, known: Iterable[str]) -> str:
    """Suggest the name that may have been meant."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=1)
    if near:
        return f": did you mean {near[0]!r}?"
    more = f" and {len(names) - SHOWN_NAMES:,} more" if len(names) > SHOWN_NAMES else ""
    return f"; it is one of: {', '.join(names[:SHOWN_NAMES])}{more}" if names else ": there are none"


class Connections:
    """Connections that are opened on first use, and anew when they were lost."""

    def __init__(self, *, log_folder: Path, log_root: Path, on_change: Callable[[str, McpConnection], None]) -> None:
        """Open none yet.

        Args:
            log_folder: Gets a file `mcp-SERVER.log` for each stdio server that is started.
            log_root: The folder from which `log_folder` is reached without following a link.
            on_change: Called with a server and the connection on which it has announced new tools.
        """
        self._log_folder, self._log_root, self._on_change = log_folder, log_root, on_change
        self._current: dict[str, McpConnection] = {}
        self._all: list[McpConnection] = []
        self.closed = False

    def __contains__(self, server: str) -> bool:
        return server in self._current

    def opened(self, server: str, config: McpServerConfig) -> McpConnection:
        """Return the present connection, or a new one. Raises: McpError: `aclose` was called."""
        if self.closed:
            raise McpError(f"the connection to MCP server {server!r} is closed: its agent has ended", server=server)
        connection = self._current.get(server)
        if connection is None or not connection.usable:
            connection = McpConnection(
                server,
                config,
                log_file=self._log_folder / f"mcp-{server}.log",
                log_root=self._log_root,
                on_change=lambda changed: self._on_change(server, changed),
            )
            self._all = [other for other in self._all if not other.done]
            self.take(server, connection)
        return connection

    def take(self, server: str, connection: McpConnection) -> None:
        """Have a connection to a server from now on."""
        self._current[server] = connection
        self._all.append(connection)

    def hand_over(self, server: str) -> McpConnection | None:
        """Leave the connection to a server to another agent. None: there is none, or it has ended, or is being closed."""
        connection = None if self.closed else self._current.get(server)
        if connection is None or not connection.usable:
            return None
        del self._current[server]
        self._all.remove(connection)
        return connection

    async def aclose(self) -> None:
        """Close all within a few seconds, even if the closing task is cancelled."""
        self.closed = True
        await carry_out(self._close(), timeout_seconds=CLOSE_SECONDS)

    async def _close(self) -> None:
        await asyncio.gather(*(connection.aclose() for connection in self._all))
