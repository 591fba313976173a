"""`McpToolset`: the tools of all MCP servers of an agent, as direct calls named `SERVER_TOOL`.

`search_tools` finds those whose schemas would take too much of a model's window. The model reads their names with a line
each, in the description of this tool, and asks it for more. Its code calls them.
"""

import asyncio
import itertools
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, Protocol

from pydantic import BaseModel, Field
from pydantic_ai import RunContext, ToolDefinition
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.toolsets import ToolsetTool
from pydantic_core import SchemaValidator, core_schema

from freeact_sub.calls import MAX_NAME_CHARS, Call, McpCall, ToolCall, mcp_tool_name
from freeact_sub.errors import McpError
from freeact_sub.events import Answer
from freeact_sub.events.forms import PersonQuestion
from freeact_sub.kernels.guest.mcp import identifier
from freeact_sub.mcp import McpResult, McpServers, McpTool
from freeact_sub.text import one_line
from freeact_sub.tools import JudgedToolset, Outcome, ToolResult, load_definition, model_content
from freeact_sub.tools.tool import built_in_names, is_harmless
from freeact_sub.tools.toolset import MAX_RETRIES, validator_of

TAKEN_NAMES: Final = ("final_result", "hand_over")
"""Names of the tools by which a model hands over a typed answer."""
PLAIN_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")
"""Names of arguments that all model providers take."""
ANY_ARGUMENTS = SchemaValidator(core_schema.dict_schema(core_schema.str_schema(), core_schema.any_schema()))
"""A validator that takes all: the server validates its arguments itself, and names their faults."""
SEARCH: Final = "search_tools"
LINE_CHARS: Final = 100
MOST_LINES: Final = 300
"""Maximum lines of tools; a search alone finds the names of some beyond."""
MATCHES: Final = 8
SCHEMA_CHARS: Final = 4_000


class AskPerson(Protocol):
    """Asks a person."""

    async def __call__(self, asked: PersonQuestion, *, tool_call_id: str | None = None) -> Answer:
        """Return the answer; its text is None if there is none."""
        ...


class SearchArguments(BaseModel):
    """Arguments of `search_tools`; `tools/search_tools.json` describes them."""

    model_config = {"extra": "forbid", "defer_build": True}
    query: str = Field(min_length=1)


@dataclass(frozen=True)
class UnlistedTool:
    """A tool whose schema is not sent."""

    server: str
    tool: McpTool

    @property
    def place(self) -> str:
        """The expression by which code finds the tool."""
        return f"agent.mcp{_step(self.server, 'server')}{_step(self.tool.name, 'tool')}"

    def matches(self, words: Sequence[str]) -> int:
        """Return how well the tool fits: a word in its name counts more than one in its description."""
        name, text = f"{self.server} {self.tool.name}".casefold(), (self.tool.description or "").casefold()
        return sum(5 * (word in name) + (word in text) for word in words)


@dataclass(frozen=True)
class _Offered:
    """A tool of a server as a model sees it."""

    server: str
    tool: McpTool
    arguments: Mapping[str, str]
    """The server's names of arguments by those that the model uses."""
    definition: ToolDefinition


class McpToolset(JudgedToolset):
    """The tools of all servers. A server that does not start is reported once; the others work."""

    def __init__(
        self,
        servers: McpServers,
        *,
        on_error: Callable[[McpError], None],
        ask: AskPerson,
        on_progress: Callable[..., None],
        most_tokens: int,
    ) -> None:
        """Make it; no server is asked yet.

        Args:
            servers: The servers.
            on_error: Called once for each server that cannot be asked, and for unusable entries of a list.
            ask: Asks a person the questions of a server during a call.
            on_progress: Called with the tool's name, a `CallProgress` and the `tool_call_id`.
            most_tokens: Schemas of servers that would take more than this together are not sent; `search_tools` finds them.
        """
        self._servers = servers
        self._on_error = on_error
        self._ask = ask
        self._on_progress = on_progress
        self._most_tokens = most_tokens
        self._versions: dict[str, str] = {}
        """Versions of the lists of offered servers."""
        self._is_behind = False
        """Whether a list has changed within the run."""
        self._run_id: str | None = None
        self._told: set[str] = set()
        self._tools: dict[str, _Offered] = {}
        self._unlisted: dict[str, list[UnlistedTool]] = {}
        """Tools of each server that are too many to be offered."""

    @property
    def id(self) -> str:
        """The toolset's name."""
        return "freeact-sub-mcp"

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        """Return the tools for the model.

        They are the beginning of each request, which its provider keeps. So within a run tools are only added, at the end,
        as a server begins to offer them; other changes show in the next run.
        """
        servers = self._servers.names
        listings = await asyncio.gather(*map(self._list, servers))
        versions = {server: self._servers.version(server) for server in servers}
        is_new_run, self._run_id = ctx.run_id != self._run_id, ctx.run_id
        if is_new_run and (self._is_behind or versions != self._versions):
            self._tools, self._unlisted, self._versions, self._is_behind = {}, {}, {}, False
        for server, listed in zip(servers, listings, strict=True):  # in the order of the settings: names stay the same
            if versions[server] != self._versions.get(server):
                self._is_behind = self._is_behind or server in self._versions
                self._versions[server] = versions[server]
                self._offer(server, listed, ctx)
        tools = {name: self._tool(offered.definition, ANY_ARGUMENTS) for name, offered in self._tools.items()}
        if self._all_unlisted:
            tools[SEARCH] = self._tool(definition_of(self._all_unlisted), validator_of(SearchArguments))
        return tools

    def _tool(self, definition: ToolDefinition, validator: SchemaValidator) -> ToolsetTool[Any]:
        return ToolsetTool(toolset=self, tool_def=definition, max_retries=MAX_RETRIES, args_validator=validator)

    @property
    def _all_unlisted(self) -> list[UnlistedTool]:
        return [each for tools in self._unlisted.values() for each in tools]

    async def call_tool(self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]) -> Any:
        """Call the server; the model reads a failure as the result."""
        del tool
        if name == SEARCH:
            return model_content(search(self._all_unlisted, _arguments_of_search(tool_args).query))
        offered, ask = self._tools[name], partial(self._ask, tool_call_id=ctx.tool_call_id)
        hear, args = partial(self._on_progress, name, tool_call_id=ctx.tool_call_id), _own_names(offered, tool_args)
        try:
            result = await self._servers.call(offered.server, offered.tool.name, args, ask, hear)
        except McpError as error:
            return model_content(ToolResult(text=f"[ERROR] {error}", outcome="failed"))
        return model_content(tool_result(result))

    def call_of(self, name: str, tool_args: dict[str, Any]) -> Call | None:
        """Return the call of a tool, for the judgement of it."""
        if name == SEARCH:
            return ToolCall(tool_name=name, args=_arguments_of_search(tool_args).model_dump(), harmless=is_harmless(name))
        if name not in self._tools:
            return None
        offered = self._tools[name]
        tool = offered.tool
        return McpCall(server=offered.server, tool=tool.name, args=_own_names(offered, tool_args), read_only=tool.read_only)

    async def _list(self, server: str) -> tuple[McpTool, ...] | McpError:
        try:
            return await self._servers.tools(server)
        except McpError as error:
            return error

    def _offer(self, server: str, listed: tuple[McpTool, ...] | McpError, ctx: RunContext[Any]) -> None:
        if isinstance(listed, McpError):
            self._tell(str(listed), server)
            return
        for note in self._servers.notes(server):
            self._tell(note, server)
        taken = built_in_names().union(TAKEN_NAMES)
        known = {offered.tool.name for offered in self._tools.values() if offered.server == server}
        if server in self._unlisted or self._would_take(server, listed) > self._most_tokens:
            self._unlisted[server] = [UnlistedTool(server, tool) for tool in listed if tool.name not in known]
            return
        for tool in (tool for tool in listed if tool.name not in known):
            name = free_name(mcp_tool_name(server, tool.name), lambda name: name in taken or name in self._tools)
            schema, arguments = _with_plain_names(tool.parameters_json_schema)
            definition = ToolDefinition(name=name, description=tool.description, parameters_json_schema=schema)
            problem = _refusal(definition, ctx)
            if problem:
                definition = replace(definition, parameters_json_schema={"type": "object", "additionalProperties": True})
                self._tell(f"the input schema of MCP tool {server}.{tool.name} is left out: {problem}", server)
            self._tools[name] = _Offered(server, tool, {} if problem else arguments, definition)

    def _would_take(self, server: str, listed: tuple[McpTool, ...]) -> int:
        """Return the tokens of all schemas, with this server's."""
        offered = [each.tool for each in self._tools.values() if each.server != server]
        return sum(len(tool.description or "") + len(str(tool.parameters_json_schema)) for tool in (*offered, *listed)) // 4

    def _tell(self, text: str, server: str) -> None:
        if text not in self._told:
            self._told.add(text)
            self._on_error(McpError(text, server=server))


def _arguments_of_search(args: Any) -> SearchArguments:
    return args if isinstance(args, SearchArguments) else SearchArguments.model_validate(args)


def free_name(wanted: str, is_taken: Callable[[str], bool]) -> str:
    """Return the name, with a number behind it if it is taken."""
    name, numbers = wanted[:MAX_NAME_CHARS], itertools.count(2)
    while is_taken(name):
        ending = f"_{next(numbers)}"
        name = f"{wanted[: MAX_NAME_CHARS - len(ending)]}{ending}"
    return name


def _with_plain_names(schema: dict[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the schema with names of arguments that all providers take, and the server's names by them."""
    own = schema.get("properties", {})
    names: dict[str, str] = {name: name for name in own if PLAIN_NAME.fullmatch(name)}
    for name in own:
        if name not in names.values():
            names[free_name(re.sub(r"[^A-Za-z0-9_.-]", "_", name) or "_", names.__contains__)] = name
    if all(name == own_name for name, own_name in names.items()):
        return schema, names
    plain = {own_name: name for name, own_name in names.items()}
    properties = {plain[name]: _about(item, name, plain[name]) for name, item in own.items()}
    required = {"required": [plain.get(name, name) for name in schema["required"]]} if "required" in schema else {}
    return {**schema, "properties": properties, **required}, names


def _about(schema: Any, own_name: str, name: str) -> Any:
    if name == own_name or not isinstance(schema, dict):
        return schema
    return schema | {"description": f"{schema.get('description', '')} (the server calls it {own_name!r})".strip()}


def _own_names(offered: _Offered, args: Mapping[str, Any]) -> dict[str, Any]:
    return {offered.arguments.get(name, name): value for name, value in args.items()}


def _refusal(definition: ToolDefinition, ctx: RunContext[Any]) -> str:
    """Return why the model's own reader refuses the schema of a tool, as one that refers to itself without end."""
    if not isinstance(ctx.model, Model):
        return ""
    try:
        ctx.model.customize_request_parameters(ModelRequestParameters(function_tools=[definition]))
    except Exception as error:  # noqa: BLE001  # the border to pydantic-ai: one tool must not end every run
        return str(error)[:300] or type(error).__name__
    return ""


def tool_result(result: McpResult) -> ToolResult:
    """Turn a server's answer into a tool result."""
    text = f"[ERROR] {result.text}" if result.is_error else result.text
    outcome: Outcome = "failed" if result.is_error else "success"
    return ToolResult(text=text, images=result.images, outcome=outcome, sections=result.sections)


def definition_of(unlisted: Sequence[UnlistedTool]) -> ToolDefinition:
    """Return the definition of `search_tools`, which names all that it finds, as far as there is room."""
    definition, server = load_definition(SEARCH), ""
    lines = [f"{definition.description}\n\nThe tools, by server:"]
    for each in unlisted[:MOST_LINES]:
        if each.server != server:
            server = each.server
            lines.append(f"{server}:")
        about = one_line(each.tool.description or "", LINE_CHARS)
        lines.append(f"- {each.tool.name}: {about}" if about else f"- {each.tool.name}")
    if len(unlisted) > MOST_LINES:
        lines.append(f"and {len(unlisted) - MOST_LINES:,} more")
    return replace(definition, description="\n".join(lines))


def search(unlisted: Sequence[UnlistedTool], query: str) -> ToolResult:
    """Describe the tools that fit best."""
    words = re.findall(r"\w+", query.casefold())
    ranked = sorted(((each.matches(words), each) for each in unlisted), key=lambda found: -found[0])
    found = [each for fit, each in ranked if fit][:MATCHES]
    if not found:
        return ToolResult(text="No tool fits these words. The description of search_tools names them.", outcome="failed")
    sections = tuple(map(_described, found))
    return ToolResult(text="\n\n".join(sections), sections=sections)


def _described(each: UnlistedTool) -> str:
    schema = json.dumps(each.tool.parameters_json_schema, ensure_ascii=False)
    if len(schema) > SCHEMA_CHARS:
        schema = f"{schema[:SCHEMA_CHARS]}… (all of it: help({each.place}))"
    return "\n".join(
        filter(None, [f"await {each.place}(...)", (each.tool.description or "").strip(), f"Arguments: {schema}"])
    )


def _step(name: str, kind: str) -> str:
    return f".{name}" if identifier(name, kind) == name else f"[{name!r}]"
