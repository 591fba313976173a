"""What an agent wants to do, as values that rules and people can judge.

Every action that may need approval is one of these. They are shown to people as they are, so they hold the real, filled-in
values and never a reference to something that could change after the answer.
"""

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, TypeAlias

from freeact_sub.modes import Mode

FileOperation: TypeAlias = Literal["write", "append", "create", "rename", "remove", "link", "change"]
"""`change`: of permissions, owner or times. A rename is two writes: of the old name and of the new one."""


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
class ShellCommand:
    """A program that is about to be started, by code in a cell or by the host for the agent."""

    kind: ClassVar[str] = "shell"
    command: str
    """As a shell would read it; what is started without a shell is quoted to mean the same."""
    cwd: str = ""
    """The directory in which it starts. Empty: the workspace."""
    outside: bool = False
    """The host runs it, where no sandbox is around it; a person is asked in every mode."""
    purpose: str = ""
    """What it is for, in the words of who asks; where it runs outside the sandbox."""

    @property
    def summary(self) -> str:
        """One line that says what is asked."""
        lines = self.command.strip().splitlines() or [""]
        more = f"  (+{len(lines) - 1} lines)" if len(lines) > 1 else ""
        where = f" (in {self.cwd})" if self.cwd else ""
        return f"run{' outside the sandbox' if self.outside else ''}: {lines[0]}{more}{where}"


@dataclass(frozen=True, kw_only=True)
class FileWrite:
    """A file that is about to be written, renamed, removed or otherwise changed."""

    kind: ClassVar[str] = "write"
    path: str
    """Absolute, or relative to the workspace."""
    operation: FileOperation = "write"
    named: str = ""
    """How the code names it, where that is through a symbolic link. Empty: as `path`."""

    @property
    def summary(self) -> str:
        """One line that says what is asked."""
        return f"{self.operation} {self.path}" + (f" (named {self.named})" if self.named else "")


@dataclass(frozen=True, kw_only=True)
class NetworkConnect:
    """A connection that is about to be made."""

    kind: ClassVar[str] = "connect"
    host: str
    port: int
    ip: str = ""
    """The address that was found for the host. Empty: not known, or the host itself."""
    others: tuple[str, ...] = ()
    """Further addresses that were found for it: an answer holds for them too."""

    @property
    def summary(self) -> str:
        """One line that says what is asked."""
        return f"connect to {self.address}" + (f" ({self.ip})" if self.ip else "")

    @property
    def address(self) -> str:
        """`host:port`, with an IPv6 address in brackets."""
        return _address(self.host, self.port)

    @property
    def addresses(self) -> tuple[str, ...]:
        """The same of the host and, where it is known, of its address."""
        return (self.address, _address(self.ip, self.port)) if self.ip else (self.address,)


@dataclass(frozen=True, kw_only=True)
class McpCall:
    """A tool of an MCP server, called by the model or by code in the kernel."""

    kind: ClassVar[str] = "mcp"
    server: str
    tool: str
    args: dict[str, Any] = field(default_factory=dict)
    read_only: bool = False
    """The server says that the tool changes nothing."""

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
    mode: Mode | None = None
    """The mode that is asked for. None: the parent's."""
    agent: str = ""
    """The named type that is asked for. Empty: an agent like its parent."""
    background: bool = False
    """Its parent does not wait for it."""

    @property
    def child(self) -> str:
        """What kind of child it is, in words."""
        kind = f" of type {self.agent}" if self.agent else ""
        mode = f" in mode {self.mode}" if self.mode is not None else ""
        return f"a child agent{kind}{mode}{' in the background' if self.background else ''}"

    @property
    def summary(self) -> str:
        """One line that says what is asked."""
        return f"start {self.child}: {self.description or self.prompt}"


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


Call: TypeAlias = CodeAction | ShellCommand | FileWrite | NetworkConnect | McpCall | SpawnCall | ToolCall
"""Any action that may need approval."""


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _arguments(args: dict[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in args.items())
