"""Types of agents, one Markdown file each (`AgentTypesFeature`), and children of a program's own (`FactoryFeature`).

The head of a file (`.agents/agents/NAME.md`; docs/agents.md) has settings, its body is a prompt. A type narrows what an
agent may do or says who does it (model, prompt). It grants nothing beyond the parent's rights but MCP servers of its own. An
invalid file is left out, and a sentence names its line. Files become values here (`AgentType` in `agents/rights.py`), which
the feature hands to the root. A program's object (`Agent(factory=...)`) makes children without a model, kernel or tools.
"""

import logging
import os
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar, runtime_checkable

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from freeact_sub.agents.answers import schema_output_type
from freeact_sub.agents.feature import Feature, FeatureAgent, FeatureRoot, NewChild, RunPart
from freeact_sub.agents.life import TreeAgent, tree_agent
from freeact_sub.agents.rights import AgentType, only, unknown_tool
from freeact_sub.agents.shared import ExecutionContext
from freeact_sub.channel import Tap
from freeact_sub.config.budget import Budget
from freeact_sub.config.frontmatter import BadLineError, Document, read_document
from freeact_sub.config.hooks import FoundHooks, parse_hooks
from freeact_sub.config.parsing import text_of_file
from freeact_sub.config.schema import Config, McpServerConfig
from freeact_sub.errors import ConfigError, FreeactError, InvalidRequestError, SpawnForbiddenError, sentence
from freeact_sub.modes import INHERIT, CodeActions, Mode, Thinking
from freeact_sub.system.safe_files import files_in, read_file
from freeact_sub.text import counted, unknown_name
from freeact_sub.tools import TOOL_NAMES, ChildRequest

T = TypeVar("T")
logger = logging.getLogger(__name__)
FOREIGN: Final = frozenset({"name", "color", "permissionMode", "disallowedTools", "mcpServers", "maxTurns", "temperature"})
"""Keys in files of other programs. Only `name` may stand in ours too, if it is the file's own."""
SHOWN_FILES: Final = 3
"""Files of other programs in one sentence, at most."""
OTHER_FORM: Final = ("tools", "mcp_servers", "hooks")
"""Settings that a file writes otherwise than `AgentType` has them."""
NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


@runtime_checkable
class ChildAgent(Protocol):
    """A child implemented in Python, without a model, kernel or tools of its own."""

    async def run(self, prompt: str, context: ExecutionContext) -> Any:
        """Do the work and return the answer; an exception ends the child as `failed`.

        Args:
            prompt: The child's prompt.
            context: The child. Cancellation and timeout arrive as `asyncio.CancelledError`.
        """
        ...


class AgentFactory(Protocol):
    """A maker of children from requests; a user of the SDK may supply another.

    Every child passes through it, whether a model, code in a cell or a program starts it. It runs after the approval and
    before the bounds: in any case mode and budget are narrowed to the parent's, and the spawn is counted.
    """

    def create(self, request: ChildRequest, context: ExecutionContext) -> ChildRequest | ChildAgent:
        """Turn a request into a child.

        Args:
            request: The child as requested.
            context: The agent that starts it.

        Returns:
            The request, unchanged or changed by `request.replace`, to start an ordinary agent; or a `ChildAgent`.

        Raises:
            SpawnForbiddenError: The child must not start; the caller reads the reason.
        """
        ...


class FactoryFeature(Feature):
    """The factory of a program, asked about each child."""

    def __init__(self, factory: AgentFactory) -> None:
        self._factory = factory

    def run(self, agent: FeatureAgent) -> "FactoryPart":
        """Make the part for a run."""
        return FactoryPart(self._factory, tree_agent(agent))


class FactoryPart(RunPart):
    """The factory's part in one run."""

    def __init__(self, factory: AgentFactory, agent: TreeAgent) -> None:
        self._factory, self._agent = factory, agent

    async def child(self, child: NewChild, proceed: Callable[[NewChild], Awaitable[T]]) -> T:
        """Start the child that the factory makes of the request."""
        return await proceed(self._made(child))

    def _made(self, child: NewChild) -> NewChild:
        request = child.request
        try:
            made = self._factory.create(request, self._agent.context)
        except FreeactError:
            raise
        except Exception as error:  # border: code of the SDK's user
            logger.exception("the agent factory failed")
            raise SpawnForbiddenError(f"the agent factory failed: {type(error).__name__}: {error}") from error
        if isinstance(made, ChildRequest):
            if made.prompt != request.prompt and made.content == request.content:
                seen = (part for part in request.content if not isinstance(part, str))
                made = made.replace(content=(made.prompt, *seen) if request.content else ())
            return replace(child, request=made.replace(tool_call_id=request.tool_call_id))
        if not isinstance(made, ChildAgent):
            raise SpawnForbiddenError(
                f"the agent factory returned a {type(made).__name__}: it must return a ChildRequest, or an object with "
                "`async def run(prompt, context)`"
            )
        has_kernel = request.is_branch or request.branch_of is not None or request.keep or request.prepare is not None
        if has_kernel or request.resume:
            raise InvalidRequestError(
                "this child is Python code and has no kernel: leave out inputs, branch, keep and resume"
            )
        if request.check is not None or request.verify is not None:
            raise InvalidRequestError("this child is Python code, whose answer is not checked: leave out check")
        return replace(child, program=made.run)


class _TypeSection(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


class _ToolNames(_TypeSection):
    allow: tuple[str, ...] | None = None
    deny: tuple[str, ...] = ()


class ForeignTypeError(BadLineError):
    """The file is a type in the form of another program, whose tools have other names."""


class _TypeHead(_TypeSection):
    """The settings in a file, as `AgentType` has them, but for `OTHER_FORM`."""

    description: str = Field(min_length=1)
    tools: _ToolNames = _ToolNames()
    """The names of `allow` and `deny`."""
    mcp: tuple[str, ...] | None = None
    mcp_servers: dict[str, Any] = {}
    """The `servers`, as in `mcp.json`."""
    skills: tuple[str, ...] | None = None
    allow_agents: tuple[str, ...] | None = None
    mode: Mode | None = None
    model: str | None = Field(default=None, min_length=1)
    fallback_models: tuple[str, ...] | None = None
    thinking: Thinking | None = None
    own_files: bool = False
    code_actions: CodeActions | None = None
    budget: Budget = Budget()
    max_depth: int | None = Field(default=None, ge=0, le=10)
    output: dict[str, Any] | None = None
    hooks: dict[str, Any] = {}
    """The hooks, as in a hooks file; `Stop` is the `SubagentStop` of the type's agents."""


class AgentTypesFeature(Feature):
    """The types of a person: children that agents may start, and MCP servers for them."""

    name = "agent_types"

    def attach(self, root: FeatureRoot) -> Sequence[Tap]:
        """Read the types, and let the root start them."""
        agent = tree_agent(root.agent)
        shared, config = agent.shared, agent.config
        other_tools = bool(shared.own_tools.names or shared.toolsets or shared.capabilities)
        found = load_agent_types(config, other_tools=other_tools)
        for problem in found.problems:
            root.notice(problem)
        shared.types, shared.servers = found.types, {**shared.servers, **found.servers}
        agent.rights = replace(agent.rights, startable=only(found.types, config.subagents.allow_agents))
        return ()


@dataclass(frozen=True, kw_only=True)
class AgentTypes:
    """The types that were found."""

    types: Mapping[str, AgentType] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    """Sentences on the invalid files, one each, with file and line."""

    @property
    def servers(self) -> dict[str, McpServerConfig]:
        """The MCP servers of all types."""
        return {name: server for agent_type in self.types.values() for name, server in agent_type.servers.items()}


def load_agent_types(config: Config, *, other_tools: bool = False) -> AgentTypes:
    """Read the types in all folders; of two with the same name, the one in the earlier folder counts.

    Args:
        config: The settings with the folders and the MCP servers.
        other_tools: Whether the user has tools of their own, which an unknown name may be.
    """
    types: dict[str, AgentType] = {}
    problems: list[str] = []
    of_hooks: dict[str, tuple[str, ...]] = {}
    foreign: list[Path] = []
    for folder in config.agent_folders:
        for path in files_in(folder, ".md"):
            try:
                agent_type, left_out = read_agent_type(path, config, other_tools=other_tools)
            except ForeignTypeError:
                foreign.append(path)
            except BadLineError as error:
                problems.append(sentence(f"{path}, line {error.line}: {error}; this agent type is left out"))
            except ConfigError as error:
                problems.append(sentence(f"{path}: {error}; this agent type is left out"))
            else:
                if twice := _named_twice(agent_type, types):
                    problems.append(f"{path}: {twice}; this agent type is left out")
                elif agent_type.name not in types:
                    types[agent_type.name], of_hooks[agent_type.name] = agent_type, left_out
    problems += _left_out(foreign)
    for agent_type in types.values():
        problems += of_hooks[agent_type.name]
        unknown = [unknown_name("agent type", name, types) for name in agent_type.allow_agents or () if name not in types]
        problems += [f"{agent_type.file}: `allow_agents` names {problem}" for problem in unknown]
    return AgentTypes(types=types, problems=tuple(problems))


def _left_out(foreign: Sequence[Path]) -> list[str]:
    if not foreign:
        return []
    more = f" and {len(foreign) - SHOWN_FILES} more" if len(foreign) > SHOWN_FILES else ""
    which = f"{', '.join(map(str, foreign[:SHOWN_FILES]))}{more}"
    why = "their tools and models have other names: docs/agents.md tells the form"
    return [f"{counted(len(foreign), 'agent type')} of other programs left out ({why}): {which}"]


def _named_twice(agent_type: AgentType, types: Mapping[str, AgentType]) -> str:
    """Return the conflict of its MCP servers with another type that has one of the names for another server."""
    for other in types.values() if agent_type.name not in types else ():
        for name, server in agent_type.servers.items():
            if other.servers.get(name, server) != server:
                return f"`mcp_servers`: the type {other.name!r} has another server {name!r}: rename one of them"
    return ""


def read_agent_type(path: Path, config: Config, *, other_tools: bool = False) -> tuple[AgentType, tuple[str, ...]]:
    """Read one file. Return the type, and a sentence for each of its hooks that was left out.

    Raises:
        BadLineError: A line is invalid.
        ConfigError: The file cannot be read, or its name is invalid.
    """
    if not NAME.fullmatch(path.stem):
        raise ConfigError(f"the file name may contain only letters, digits, `-` and `_`: rename {path.stem!r}")
    try:
        text = text_of_file(read_file(path))
    except OSError as error:
        raise ConfigError(f"it cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ConfigError(f"it cannot be read: {error}") from error
    return parse_agent_type(text, path.stem, config, file=str(path), other_tools=other_tools)


def parse_agent_type(
    text: str, name: str, config: Config, *, file: str = "", other_tools: bool = False
) -> tuple[AgentType, tuple[str, ...]]:
    """Parse a file's text; return what `read_agent_type` does.

    Raises:
        BadLineError: A line is invalid.
    """
    document = read_document(text)
    given = {key: value for key, value in document.head.items() if key != "name" or value != name}
    is_foreign = isinstance(given.get("tools"), str | list) or not FOREIGN.isdisjoint(document.head)
    try:
        head = _TypeHead.model_validate(given)
    except ValidationError as error:
        if is_foreign:
            raise ForeignTypeError("it is a type of another program", line=1) from error
        raise _problem(document, error) from error
    if is_foreign and head.model is not None and ":" not in head.model and head.model not in (INHERIT, *config.models.names):
        raise ForeignTypeError("its model is one of another program", line=1)
    found_servers = _servers(head, document, config, file or name)
    if not other_tools:
        _check_tools(head, document, {**config.mcp_servers, **found_servers})
    _check_names(head, document, config)
    if head.output is not None:
        try:
            schema_output_type(head.output)
        except ConfigError as error:
            raise BadLineError(f"`output`: {error}", line=document.line_of(("output",))) from error
    found = _hooks(head, document, config, file or name)
    agent_type = AgentType(
        name=name,
        prompt=document.body,
        file=file,
        allow=head.tools.allow,
        deny=head.tools.deny,
        servers=found_servers,
        hooks=tuple(replace(hook, event="SubagentStop") if hook.event == "Stop" else hook for hook in found.hooks),
        **{setting: value for setting, value in head if setting not in OTHER_FORM},
    )
    return agent_type, found.problems


def _check_tools(head: _TypeHead, document: Document, servers: Mapping[str, McpServerConfig]) -> None:
    names = [name for name, server in servers.items() if not server.disabled]
    for way in ("allow", "deny"):
        for index, tool in enumerate(getattr(head.tools, way) or ()):
            if problem := unknown_tool(tool, TOOL_NAMES, names):
                raise BadLineError(f"`tools.{way}`: {problem}", line=document.line_of(("tools", way, index)))


def _hooks(head: _TypeHead, document: Document, config: Config, source: str) -> FoundHooks:
    try:
        return parse_hooks(head.hooks, source, config.workspace)
    except ConfigError as error:
        raise BadLineError(str(error), line=document.line_of(("hooks",))) from error


def _servers(head: _TypeHead, document: Document, config: Config, source: str) -> dict[str, McpServerConfig]:
    line = document.line_of(("mcp_servers",))
    for name in head.mcp_servers:
        if name in config.mcp_servers:
            raise BadLineError(f"`mcp_servers`: there is a server {name!r} already: list it in `mcp`", line=line)
    try:
        from freeact_sub.config.load import servers_in  # noqa: PLC0415  # few types have servers

        servers = servers_in(head.mcp_servers, Path(source), os.environ)
        return Config(mcp_servers=servers, workspace=config.workspace).mcp_servers
    except ConfigError as error:
        raise BadLineError(f"`mcp_servers`: {error}", line=line) from error


def _check_names(head: _TypeHead, document: Document, config: Config) -> None:
    if head.fallback_models is not None and head.model is None:
        raise BadLineError(
            "`fallback_models` stand in for `model`: name that too", line=document.line_of(("fallback_models",))
        )
    for index, server in enumerate(head.mcp or ()):
        if server not in config.mcp_servers:
            message = f"`mcp`: {unknown_name('MCP server', server, config.mcp_servers)}"
            raise BadLineError(message, line=document.line_of(("mcp", index)))


def _problem(document: Document, error: ValidationError) -> BadLineError:
    """Return the first problem, as a sentence with its line."""
    problem = error.errors()[0]
    path: tuple[int | str, ...] = problem["loc"]
    name, line = ".".join(map(str, path)), document.line_of(path)
    if problem["type"] == "extra_forbidden":
        sections: dict[str, type[BaseModel]] = {"tools": _ToolNames, "budget": Budget}
        section = sections.get(str(path[0]), _TypeHead) if path[1:] else _TypeHead
        return BadLineError(f"`{name}`: {unknown_name('setting', str(path[-1]), section.model_fields)}", line=line)
    if problem["type"] == "missing":
        return BadLineError(f"`{name}` is missing", line=line)
    return BadLineError(f"`{name}`: {problem['msg'].removeprefix('Value error, ')}", line=line)
