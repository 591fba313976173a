"""What an agent wants to do, as values that rules and people can judge.

Every action that may need approval is one of these. They are shown to people as they are, so they hold the real, filled-in
values and never a reference to something that could change after the answer.
"""

from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeAlias


@dataclass(frozen=True, kw_only=True)
class CodeAction:
    """Python code that is about to run in the agent's kernel."""

    kind: ClassVar[str] = "code"
    code: str

    @property
    def summary(self) -> str:
        """One line that says what is asked."""
        lines = self.code.strip().splitlines() or [""]
        more = f"  (+{len(lines) - 1} lines)" if len(lines) > 1 else ""
        return f"run code: {lines[0]}{more}"


@dataclass(frozen=True, kw_only=True)
class McpCall:
    """A tool of an MCP server, called by the model or by code in the kernel."""

    kind: ClassVar[str] = "mcp"
    server: str
    tool: str
    args: dict[str, Any] = field(default_factory=dict)

    @property
    def summary(self) -> str:
        """One line that says what is asked."""
        return f"MCP {self.server}.{self.tool}({_arguments(self.args)})"


@dataclass(frozen=True, kw_only=True)
class SpawnCall:
    """A child agent that is about to be started."""

    kind: ClassVar[str] = "spawn"
    prompt: str
    description: str = ""
    max_turns: int | None = None

    @property
    def summary(self) -> str:
        """One line that says what is asked."""
        return f"start a child agent: {self.description or self.prompt}"


@dataclass(frozen=True, kw_only=True)
class ToolCall:
    """Any other tool: those a user of the SDK adds, and ours that need no value of their own."""

    kind: ClassVar[str] = "tool"
    tool_name: str
    args: dict[str, Any] = field(default_factory=dict)

    @property
    def summary(self) -> str:
        """One line that says what is asked."""
        return f"{self.tool_name}({_arguments(self.args)})"


Call: TypeAlias = CodeAction | McpCall | SpawnCall | ToolCall
"""Any action that may need approval."""


def _arguments(args: dict[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in args.items())
