"""`names_of`: what a call is called for hooks, and its arguments in the form that hooks of other agents read."""

from dataclasses import asdict, dataclass
from typing import Any

from freeact_sub.calls import (
    Call,
    CodeAction,
    FanOut,
    FileWrite,
    McpCall,
    NetworkConnect,
    SavedVariables,
    ShellCommand,
    SpawnCall,
    ToolCall,
)
from freeact_sub.cells import CELL_TOOL


@dataclass(frozen=True, kw_only=True)
class CallNames:
    """A call as hooks read it."""

    names: tuple[str, ...]
    """The names of its tool; a hook reads the first that its matcher names."""
    kind: str
    """Its kind, which a matcher may name as well."""
    tool_input: dict[str, Any]

    @property
    def all_names(self) -> tuple[str, ...]:
        """What a matcher may name."""
        return tuple(dict.fromkeys((*self.names, self.kind)))

    def name_for(self, matched: str) -> str:
        """The `tool_name` for a hook. Args: matched: what its matcher named."""
        return matched if matched in self.names else self.names[0]


def names_of(call: Call) -> CallNames:
    """A call as hooks read it."""
    names, tool_input = _names_and_input(call)
    return CallNames(names=names, kind=call.kind, tool_input=tool_input)


def _names_and_input(call: Call) -> tuple[tuple[str, ...], dict[str, Any]]:
    match call:
        case CodeAction():
            return (CELL_TOOL,), {"code": call.code} | _said(description=call.description)
        case ShellCommand():
            outside = {"outside_sandbox": True} if call.outside else {}
            return ("Bash",), {"command": call.command} | _said(description=call.purpose, cwd=call.cwd) | outside
        case FileWrite():
            return ("Write", "Edit"), {"file_path": call.path, "operation": call.operation} | _said(named=call.named)
        case NetworkConnect():
            scheme = {443: "https", 80: "http"}.get(call.port, "tcp")
            return ("WebFetch",), {"url": f"{scheme}://{call.address}/", "host": call.host, "port": call.port} | _said(
                ip=call.ip
            )
        case McpCall():
            return (f"mcp__{call.server}__{call.tool}",), call.args
        case SpawnCall():
            given = asdict(call)
            more = {name: given[name] for name in ("model", "thinking", "mode", "resume", "tools") if given[name]}
            said = _said(description=call.description, subagent_type=call.agent)
            return ("Task", "Agent", "task"), {"prompt": call.prompt, **said, "run_in_background": call.background, **more}
        case SavedVariables():
            return ("saved_variables",), {"variables": call.variables, "saved_in": call.saved_in}
        case FanOut():
            return ("fan_out",), {"what": call.what, "more": call.more, "figures": call.figures, "bound": call.bound}
        case ToolCall():
            return (call.tool_name,), call.args
        case _:
            return (call.kind,), {name: value for name, value in asdict(call).items() if name != "kind"}


def _said(**texts: str) -> dict[str, Any]:
    return {name: text for name, text in texts.items() if text}
