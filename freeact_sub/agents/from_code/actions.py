"""Answers `check`: a kernel's hook asks before code in a cell starts a program, changes a file or connects.

An action that rules and mode allow leaves no event; one that needs a person appears like any other question. The kernel
wrote the parameters: what cannot be read as an action is denied.
"""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, get_args

from freeact_sub.agents.from_code.base import CodeCalls
from freeact_sub.calls import Call, FileOperation, FileWrite, NetworkConnect, ShellCommand
from freeact_sub.errors import ApprovalDeniedError
from freeact_sub.kernels import CellClock

MAX_COMMAND_CHARS: Final = 100_000
"""Nobody could judge a longer one."""
MAX_NAME_CHARS: Final = 8_000
MAX_ADDRESSES: Final = 1_000
"""Addresses that one host name may have."""
OPERATIONS: Final[tuple[FileOperation, ...]] = get_args(FileOperation)

logger = logging.getLogger(__name__)


class ActionRequests:
    """Answers `check`; returning means that the action may happen."""

    def __init__(self, calls: CodeCalls) -> None:
        self._calls = calls
        self.handlers = {"check": self._check}

    async def _check(self, params: Mapping[str, Any], clock: CellClock | None) -> None:
        agent = self._calls.agent
        call = action_of(params, agent.shared.config.workspace)
        await self._calls.check(call, clock)
        logger.debug("%s may %s", agent.agent_id, call.summary)


def action_of(params: Mapping[str, Any], workspace: Path) -> Call:
    """Return the action that a request describes.

    Raises:
        ApprovalDeniedError: It describes none.
    """
    match params.get("kind"):
        case "shell":
            command = _text(params, "command", MAX_COMMAND_CHARS)
            cwd = _path(params, "cwd")
            return ShellCommand(command=command, cwd="" if cwd == str(workspace) else cwd)
        case "write":
            path, named = _path(params, "path"), _path(params, "named")
            operation = next((known for known in OPERATIONS if known == params.get("operation")), None)
            if operation is None:
                raise _denied("operation")
            return FileWrite(path=path, operation=operation, named="" if named == path else named)
        case "connect":
            port = params.get("port")
            if type(port) is not int or not 0 <= port <= 65535:
                raise _denied("port")
            host, ip = _text(params, "host", MAX_NAME_CHARS), params.get("ip") and _text(params, "ip", MAX_NAME_CHARS)
            return NetworkConnect(host=host, port=port, ip="" if not ip or ip == host else ip, others=_others(params))
        case _:
            raise _denied("kind")


def _text(params: Mapping[str, Any], name: str, limit: int) -> str:
    value = params.get(name)
    if not isinstance(value, str) or not 0 < len(value) <= limit:
        raise _denied(name)
    return value


def _others(params: Mapping[str, Any]) -> tuple[str, ...]:
    others = params.get("others", [])
    if not isinstance(others, list) or len(others) > MAX_ADDRESSES:
        raise _denied("others")
    return tuple(_text({"others": ip}, "others", MAX_NAME_CHARS) for ip in others)


def _path(params: Mapping[str, Any], name: str) -> str:
    path = _text(params, name, MAX_NAME_CHARS)
    if not path.startswith("/"):
        raise _denied(name)
    return path


def _denied(name: str) -> ApprovalDeniedError:
    return ApprovalDeniedError(f"what is to be done could not be read: its `{name}` is missing, wrong or too long")
