"""`freeact-sub permissions`: what would be decided about a call, and by which rule; and all rules there are."""

import json
import sys
from typing import Final

from freeact_sub.approvals import Policy, Verdict, decide, load_rules
from freeact_sub.calls import Call, CodeAction, FileWrite, McpCall, NetworkConnect, ShellCommand, SpawnCall, ToolCall
from freeact_sub.config import Config
from freeact_sub.errors import ConfigError
from freeact_sub.text import visible

EXIT_STATUS: Final[dict[Verdict, int]] = {"allow": 0, "deny": 1, "ask": 3}
CALL_KINDS: Final = ("shell", "write", "connect", "mcp", "tool", "spawn", "code")


def check(config: Config, kind: str, text: str) -> int:
    """Print the decision about a call; returns the exit status that stands for it.

    Raises:
        ConfigError: The text is not what the kind needs, or a file with rules is wrong.
    """
    ruling = decide(call_of(kind, text), policy_of(config))
    _print(visible(f"{ruling.verdict}: {ruling.reason}"))
    return EXIT_STATUS[ruling.verdict]


def list_rules(config: Config) -> int:
    """Print all rules, the most specific file first; each file's in the form in which it is written."""
    for level in policy_of(config).rules.levels:
        if level:
            _print(f"# {level[0].source}")
        for verdict in ("deny", "ask", "allow"):
            patterns = [str(rule.pattern) for rule in level if rule.verdict == verdict]
            if patterns:
                _print(
                    "\n".join(
                        [f"{verdict} = [", *(f"    {json.dumps(item, ensure_ascii=False)}," for item in patterns), "]"]
                    )
                )
    return 0


def policy_of(config: Config) -> Policy:
    """What would decide about the calls of an agent with these settings."""
    return Policy(workspace=config.workspace, mode=config.mode, rules=load_rules(config.permission_files))


def call_of(kind: str, text: str) -> Call:
    """The call that a text stands for: a command, a path, HOST:PORT, SERVER/TOOL, a tool's name, a prompt, code."""
    match kind:
        case "shell":
            return ShellCommand(command=text)
        case "write":
            return FileWrite(path=text)
        case "connect":
            host, _, port = text.rpartition(":")
            if not host or not port.isdecimal():
                raise ConfigError(f"{text!r} is no host with a port: write HOST:PORT, such as example.org:443")
            return NetworkConnect(host=host.strip("[]"), port=int(port))
        case "mcp":
            server, _, tool = text.partition("/")
            if not tool:
                raise ConfigError(f"{text!r} is no tool of a server: write SERVER/TOOL")
            return McpCall(server=server, tool=tool)
        case "tool":
            return ToolCall(tool_name=text)
        case "spawn":
            return SpawnCall(prompt=text)
        case _:
            return CodeAction(code=text)


def _print(text: str) -> None:
    encoding = sys.stdout.encoding or "utf-8"
    sys.stdout.write(text.encode(encoding, errors="backslashreplace").decode(encoding) + "\n")
