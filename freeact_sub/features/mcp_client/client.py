"""`McpClientFeature`: agents use MCP servers.

Models call tools of servers directly (`toolset.py`), and read in the system prompt which servers code can reach. Code in a
cell calls tools, reads resources and gets prompts (`agent.mcp.SERVER`). The connections live with the kernel (`McpPart`) and
pass to a node with it, because its code may hold what a server keeps by connection.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Final

from freeact_sub.agents.feature import CallsOfCode, EndedCall, FeatureAgent, Handler, KernelFeature, KernelPart, UsedKernel
from freeact_sub.agents.life import tree_agent
from freeact_sub.agents.requests import new_call_id, tool_call_id_of
from freeact_sub.calls import McpCall
from freeact_sub.errors import McpError
from freeact_sub.events import Notice, ToolProgress
from freeact_sub.events.progress import CallProgress
from freeact_sub.kernels import CellClock, KernelSpec
from freeact_sub.kernels.guest.mcp import identifier
from freeact_sub.spans import span
from freeact_sub.tools import JudgedToolset, head_and_tail

if TYPE_CHECKING:  # most agents have no servers
    from freeact_sub.mcp import McpResult, McpServers
    from freeact_sub.mcp.connection import Ask

SERVERS: Final = (
    "- MCP servers, callable from code: await agent.mcp.SERVER.TOOL(...); help(agent.mcp.SERVER.TOOL) explains one: "
    "{servers}."
)
ERROR_CHARS: Final = 10_000
"""Maximum characters of an exception's message in the kernel."""
READ: Final = "resources/read"
"""The name of reading resources in rules about tools; it is the protocol's."""
GET: Final = "prompts/get"
"""The name of getting prompts in rules about tools."""
USUAL_WINDOW: Final = 128_000
"""Assumed tokens of a model's window, where it is unknown."""


class McpClientFeature(KernelFeature):
    """MCP servers of one tree of agents, from the settings and from types."""

    name = "MCP servers"

    _of_root: "McpPart"
    """The part in the root's kernel, which is made before all others."""

    @property
    def servers(self) -> "McpServers":
        """The root's connections, from its opening on."""
        return self._of_root.servers

    def kernel_part(self, agent: FeatureAgent, kernel: UsedKernel) -> KernelPart:
        """Make the connections of an agent or a node; each opens at its first use.

        Raises:
            ConfigError: The `type` of a server is not known.
        """
        del kernel
        is_root = agent is self.root.agent
        part = McpPart(agent, None if is_root else self._of_root)
        if is_root:
            self._of_root = part
        if tree_agent(agent).rights.servers:
            _ = part.servers
        return part

    def kernel(self, agent: FeatureAgent, spec: KernelSpec) -> KernelSpec:
        """Let code find the servers, and keep it from writing their programs, since the host starts them."""
        from freeact_sub.kernels.wall.sandbox import with_programs  # noqa: PLC0415  # only kernels need it

        sandbox = with_programs(spec.sandbox, tree_agent(agent).shared.servers)
        return replace(spec, mcp_servers=names_of(agent), sandbox=sandbox)

    def instructions(self, agent: FeatureAgent) -> str:
        """Tell the model which servers its code can reach."""
        servers = ", ".join(map(_told, names_of(agent)))
        return SERVERS.format(servers=servers) if servers else ""


def names_of(agent: FeatureAgent) -> tuple[str, ...]:
    """Return the names of the servers that an agent or a node may use."""
    return tuple(name for name, server in tree_agent(agent).rights.servers.items() if not server.disabled)


def _told(name: str) -> str:
    """Return a server's name, and how code reaches it where it is no Python name."""
    return name if identifier(name, "server") == name else f"{name} (as agent.mcp[{name!r}])"


class McpPart(KernelPart):
    """The connections beside one kernel."""

    def __init__(self, holder: FeatureAgent, of_root: "McpPart | None") -> None:
        """Args: of_root: has all that agents share. None: this is the root's."""
        self._holder, self._of_root = holder, of_root

    @cached_property
    def servers(self) -> "McpServers":
        """The connections. The root's know the servers' offers, for all agents, and all use them if a server is shared."""
        from freeact_sub.mcp import McpCatalogue, McpServers  # noqa: PLC0415  # most agents have no servers

        agent = tree_agent(self._holder)
        servers = McpServers(
            agent.rights.servers,
            catalogue=McpCatalogue() if self._of_root is None else self._of_root.servers.catalogue,
            log_folder=agent.output_folder,
            log_root=agent.config.workspace,
        )
        if self._of_root is None:
            servers.share()
        return servers

    def assign(self, holder: FeatureAgent) -> None:
        """Work for another agent or node."""
        self._holder = holder

    def requests(self, calls: CallsOfCode) -> Mapping[str, Handler]:
        """Let code use the servers, also in a node."""
        return McpRequests(calls, self).handlers

    def toolset(self) -> JudgedToolset | None:
        """Return the tools of all servers for the model, if there are any."""
        if not names_of(self._holder):
            return None
        from freeact_sub.features.mcp_client.toolset import McpToolset  # noqa: PLC0415  # most agents have no servers

        agent = tree_agent(self._holder)
        window = agent.window_tokens or USUAL_WINDOW
        return McpToolset(
            self.servers,
            on_error=lambda error: agent.emitter.put(Notice(content=str(error))),
            ask=agent.ask_person,
            on_progress=partial(tell_progress, agent),
            most_tokens=round(window * agent.config.context.mcp_tools),
        )

    async def aclose(self) -> None:
        """Close the connections, within a few seconds."""
        if "servers" in vars(self):
            await self.servers.aclose()


class McpRequests:
    """Handler of `mcp_tools`, `mcp_call`, `mcp_offers`, `mcp_read` and `mcp_prompt`."""

    def __init__(self, calls: CallsOfCode, part: McpPart) -> None:
        self._calls, self._part = calls, part
        self.handlers = {
            "mcp_tools": self._tools,
            "mcp_call": self._call,
            "mcp_offers": self._offers,
            "mcp_read": self._read,
            "mcp_prompt": self._prompt,
        }

    @property
    def _servers(self) -> "McpServers":
        return self._part.servers

    async def _tools(self, params: Mapping[str, Any], _clock: CellClock | None) -> dict[str, Any]:
        server = str(params.get("server"))
        listed = await self._servers.tools(server)
        version = self._servers.version(server)
        if version == params.get("known"):
            return {"version": version}
        tools = [
            {
                "name": tool.name,
                "description": tool.description,
                "parameters_json_schema": tool.parameters_json_schema,
                "output_json_schema": tool.output_json_schema,
            }
            for tool in listed
        ]
        return {"version": version, "tools": tools}

    async def _offers(self, params: Mapping[str, Any], _clock: CellClock | None) -> list[dict[str, Any]]:
        server = str(params.get("server"))
        if params.get("kind") == "prompts":
            return [asdict(prompt) for prompt in await self._servers.prompts(server)]
        return [asdict(resource) for resource in await self._servers.resources(server)]

    async def _call(self, params: Mapping[str, Any], clock: CellClock | None) -> Any:
        server, tool, args = str(params.get("server")), str(params.get("tool")), _object(params.get("args"))
        read_only = self._servers.is_read_only(server, tool)
        call = McpCall(server=server, tool=tool, args=args, read_only=read_only)
        name, call_id = f"{server}.{tool}", new_call_id()
        hear = partial(tell_progress, self._calls.agent, name, call_id=call_id, tool_call_id=tool_call_id_of(clock))
        work = partial(self._servers.call, server, tool, args, on_progress=hear)
        return await self._carry_out(name, call, clock, work, call_id)

    async def _read(self, params: Mapping[str, Any], clock: CellClock | None) -> Any:
        server, uri = str(params.get("server")), str(params.get("uri"))
        call = McpCall(server=server, tool=READ, args={"uri": uri}, read_only=True)
        return await self._carry_out(f"{server}.read", call, clock, lambda ask: self._servers.read(server, uri, ask))

    async def _prompt(self, params: Mapping[str, Any], clock: CellClock | None) -> Any:
        server, name = str(params.get("server")), str(params.get("name"))
        given = {argument: str(value) for argument, value in _object(params.get("args")).items()}
        call = McpCall(server=server, tool=GET, args={"name": name, "arguments": given}, read_only=True)
        work = partial(self._servers.prompt, server, name, given)
        return await self._carry_out(f"{server}.prompt", call, clock, work)

    async def _carry_out(
        self,
        name: str,
        call: McpCall,
        clock: CellClock | None,
        run: "Callable[[Ask], Awaitable[McpResult]]",
        call_id: str = "",
    ) -> Any:
        ask = partial(self._calls.agent.ask_person, tool_call_id=tool_call_id_of(clock), clock=clock)

        async def work() -> "EndedCall[McpResult]":
            with span("MCP call", server=call.server, tool=call.tool):
                result = await run(ask)
            return EndedCall(value=result, text=result.text, outcome="failed" if result.is_error else "success")

        result = await self._calls.carry_out(name, call, call.args, clock, work, call_id)
        if result.is_error:
            raise McpError(f"MCP tool {name} failed: {head_and_tail(result.text, ERROR_CHARS)}", server=call.server)
        return {"blocks": result.value} if result.has_blocks else {"value": result.value}


def _object(value: Any) -> dict[str, Any]:
    return dict(value) if isinstance(value, Mapping) else {}


def tell_progress(
    agent: FeatureAgent, name: str, progress: CallProgress, *, call_id: str = "", tool_call_id: str | None
) -> None:
    """Put a server's report on a call on the stream of an agent."""
    event = ToolProgress(tool_name=name, call_id=call_id, **vars(progress))
    agent.emitter.put(event, tool_call_id=tool_call_id)
