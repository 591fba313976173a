"""Tools, servers, skills and types that an agent may use (`Rights`), and named types that narrow them (`AgentType`).

The root may use what the settings name. A child may use what its parent may use, but for what its type and its list of tools
take away. A child without a type has its parent's. What a type forbids (`deny`, `mcp`, `skills`, `allow_agents`) also
holds for all descendants; what it selects (`allow`) applies to its own agents only, so that a coordinator may start workers.
The mode is no part of it: rules, not lists, say what a mode allows (`approvals/`).
"""

import fnmatch
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

from freeact_sub.calls import Call, CodeAction, McpCall, SpawnCall, ToolCall, mcp_tool_name
from freeact_sub.cells import CELL_TOOL
from freeact_sub.config.budget import Budget
from freeact_sub.config.schema import McpServerConfig
from freeact_sub.errors import ApprovalDeniedError, ConfigError
from freeact_sub.modes import CodeActions, Mode, Thinking
from freeact_sub.text import unknown_name

if TYPE_CHECKING:
    from freeact_sub.config.hooks import CommandHook

T = TypeVar("T")

SPAWNING: Final = ("task", "delegate", "subagents")
"""The tools that start and manage children. Denying `task` denies them all."""


@dataclass(frozen=True, kw_only=True)
class AgentType:
    """A named type of agents."""

    name: str
    description: str
    """The purpose, by which the model chooses."""
    file: str = ""
    """The path of the type's file."""
    prompt: str = ""
    """A text added to the system prompt of its agents."""

    allow: tuple[str, ...] | None = None
    """The only tools of its agents, by name; `*` matches any characters. None: all."""
    deny: tuple[str, ...] = ()
    """Tools that its agents and their descendants do not have. Overrides `allow`."""
    mcp: tuple[str, ...] | None = None
    """MCP servers, out of the parent's. None: all of them."""
    servers: Mapping[str, McpServerConfig] = field(default_factory=dict)
    """Further servers of its agents and their descendants."""
    skills: tuple[str, ...] | None = None
    """Skills, out of the parent's. None: all of them."""
    allow_agents: tuple[str, ...] | None = None
    """The types that its agents may start. None: all."""

    mode: Mode | None = None
    """The mode, never more than the parent's. None: the parent's."""
    model: str | None = None
    """A name in `config.models`, or `PROVIDER:NAME`. None: the parent's model."""
    fallback_models: tuple[str, ...] | None = None
    """The models that stand in for `model`. None: the setting of this name."""
    thinking: Thinking | None = None
    """The amount of thinking. None: the parent's."""
    own_files: bool = False
    """Whether its agents work in copies of the workspace."""
    code_actions: CodeActions | None = None
    """The form in which its model submits code. None: the parent's."""
    budget: Budget = Budget()
    """The budget. Overrides the defaults; a call may override it in turn."""
    max_depth: int | None = None
    """The depth down to which its agents may start others. None: the setting."""
    output: dict[str, Any] | None = None
    """The JSON schema of the answer. None: text."""
    hooks: "tuple[CommandHook, ...]" = ()
    """Hooks of a person for its agents and their descendants. The core only carries them."""


@dataclass(frozen=True, kw_only=True)
class Rights:
    """The tools, servers, skills and types that an agent may use."""

    types: tuple[AgentType, ...] = ()
    """The agent's type, then the ancestors' from below, each once."""
    lists: tuple[tuple[str, ...], ...] = ()
    """Lists of tools of the agent and its ancestors; only tools that stand in all of them are allowed."""
    servers: Mapping[str, McpServerConfig] = field(default_factory=dict)
    """MCP servers, by name."""
    skills: frozenset[str] | None = None
    """Names of skills. None: all."""
    startable: Mapping[str, AgentType] = field(default_factory=dict)
    """Types that its children may have, by name."""

    def for_child(self, agent_type: AgentType | None = None, tools: tuple[str, ...] | None = None) -> "Rights":
        """Return the rights of a child.

        Args:
            agent_type: The child's type. None: the parent's.
            tools: The only tools for it and its descendants. None: all.
        """
        lists = self.lists if tools is None or tools in self.lists else (*self.lists, tools)
        if agent_type is None or agent_type is self.agent_type:
            return self if lists is self.lists else replace(self, lists=lists)
        skills = self.skills
        if agent_type.skills is not None:
            skills = frozenset(agent_type.skills) if skills is None else skills.intersection(agent_type.skills)
        return Rights(
            types=(agent_type, *(above for above in self.types if above is not agent_type)),
            lists=lists,
            servers={**only(self.servers, agent_type.mcp), **agent_type.servers},
            skills=skills,
            startable=only(self.startable, agent_type.allow_agents),
        )

    @property
    def agent_type(self) -> AgentType | None:
        """The agent's type, if it has one."""
        return self.types[0] if self.types else None

    @property
    def type_name(self) -> str | None:
        """The name of the agent's type, if it has one."""
        return self.types[0].name if self.types else None

    @property
    def prompt(self) -> str:
        """The text that the type adds to the system prompt."""
        return self.types[0].prompt if self.types else ""

    def denied_by(self, tool: str) -> AgentType | None:
        """Return the type, its own or an ancestor's, that denies a tool, if one does."""
        return next((each for each in self.types if _matches(tool, each.deny)), None)

    def has_tool(self, name: str) -> bool:
        """Return whether the agent has a tool."""
        if self.denied_by(name) or (name in SPAWNING and self.denied_by("task")):
            return False
        allowed = self.types[0].allow if self.types else None
        return all(_matches(name, names) for names in (*self.lists, *([] if allowed is None else [allowed])))

    def check(self, call: Call) -> None:
        """Refuse a request of code in a cell if the agent does not have the tool.

        Raises:
            ApprovalDeniedError: The agent does not have the tool.
        """
        name = _tool_of(call)
        if name is not None and not self.has_tool(name):
            who = f"agents of type {self.types[0].name!r} do" if self.types else "this agent does"
            raise ApprovalDeniedError(f"{who} not have the tool {name}")

    def check_names(self, known: Collection[str], servers: Iterable[str]) -> None:
        """Refuse a type with an unknown tool. Args: known: all tools. servers: all MCP servers.

        Raises:
            ConfigError: The agent's type names such a tool.
        """
        for agent_type in self.types[:1]:
            for name in (*(agent_type.allow or ()), *agent_type.deny):
                if problem := unknown_tool(name, known, servers):
                    raise ConfigError(f"agent type {agent_type.name!r} ({agent_type.file}): {problem}")


def only(found: Mapping[str, T], names: Collection[str] | None) -> Mapping[str, T]:
    """Return the items with these names. Args: names: None: all."""
    return found if names is None else {name: each for name, each in found.items() if name in names}


def unknown_tool(name: str, known: Collection[str], servers: Iterable[str]) -> str | None:
    """Return what is wrong with a tool's name or pattern; None if such a tool exists or may exist."""
    if _is_of_a_server(name, servers) or fnmatch.filter(known, name):
        return None
    return unknown_name("tool", name, known)


def _is_of_a_server(name: str, servers: Iterable[str]) -> bool:
    """Return whether this may be an MCP tool, `SERVER_TOOL`; a server's tools are known only once it runs."""
    return any(name.startswith(f"{server}_") or fnmatch.fnmatchcase(f"{server}_", name) for server in servers)


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def _tool_of(call: Call) -> str | None:
    match call:
        case McpCall():
            return mcp_tool_name(call.server, call.tool)
        case SpawnCall():
            return "task"
        case ToolCall():
            return call.tool_name
        case CodeAction():
            return CELL_TOOL
        case _:  # what a running cell does
            return None
