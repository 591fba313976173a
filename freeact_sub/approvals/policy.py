"""`decide`: what the rules say about a call. Pure: no question is asked here, and nothing is remembered."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

from freeact_sub.calls import Call, CodeAction, McpCall, SpawnCall, ToolCall

Verdict: TypeAlias = Literal["allow", "ask", "deny"]

HARMLESS_TOOLS = frozenset({"reset_kernel"})
"""Tools that only touch the agent's own kernel."""


@dataclass(frozen=True, kw_only=True)
class Rules:
    """What is decided without asking."""

    default: Verdict = "ask"
    allowed: frozenset[str] = frozenset()
    """Patterns, as `pattern_of` makes them, that are allowed for this session."""


def decide(call: Call, rules: Rules) -> Verdict:
    """What the rules say about a call."""
    if rules.default == "deny":
        return "deny"
    if pattern_of(call) in rules.allowed:
        return "allow"
    if isinstance(call, ToolCall) and call.tool_name in HARMLESS_TOOLS:
        return "allow"
    return rules.default


def pattern_of(call: Call) -> str:
    """What "always for this session" covers: all code, one MCP tool, all children, one other tool."""
    match call:
        case CodeAction():
            return "code"
        case McpCall(server=server, tool=tool):
            return f"mcp:{server}/{tool}"
        case SpawnCall():
            return "spawn"
        case ToolCall(tool_name=name):
            return f"tool:{name}"
