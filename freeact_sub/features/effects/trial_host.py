"""`TrialHost`: answers what code in a trial asks of its host, and ends the trial at what must not happen unasked."""

import asyncio
import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from freeact_sub.agents.children.type_effects import check_has_tool
from freeact_sub.agents.from_code.actions import action_of
from freeact_sub.agents.requested_call import Asker
from freeact_sub.agents.tree_agent import TreeAgent
from freeact_sub.approvals import Policy
from freeact_sub.calls import NetworkConnect
from freeact_sub.errors import ApprovalDeniedError
from freeact_sub.kernels import WALLED, CellClock
from freeact_sub.text import one_line, visible

WORDS: Final = {
    "ask": "ask a model",
    "ask_user": "ask you something",
    "children": "reach its children",
    "node": "make or use a node",
    "own_call": "call a function of the program",
    "own_tools": "call a function of the program",
    "progress": "show the progress of a strategy",
    "question": "read what you type",
    "shell": "run outside the sandbox",
    "skill": "load a skill",
    "task": "start a child",
}
"""The words for each request, by its method."""
NAMES: Final = ("command", "server", "tool", "description", "prompt", "name")
"""Parameters that say more."""
CHARS: Final = 120
LOOK_SECONDS: Final = 20.0
"""The most that looking at a trial's files may take."""


class TrialHost:
    """Handles the requests of one trial."""

    def __init__(self, agent: TreeAgent) -> None:
        """Args: agent: whose cell is tried; its policy decides."""
        self._agent = agent
        self.folders: tuple[Path, ...] = ()
        """The trial's own."""
        self.stopped: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        """The action that the trial must not do, once it wants to do one."""
        self.looked = asyncio.Event()
        """Set when its files have been looked at. Until then the code that was stopped gets no reply, so it waits."""

    async def reply(self, method: str, params: Mapping[str, Any], clock: CellClock | None) -> str | None:
        """Reply to a request that needs nobody; at any other request the trial ends."""
        del clock
        if method == "files":  # what a cell has used is counted when it runs for its agent
            return None
        wanted = await self._wanted(params) if method == "check" else _request(method, params)
        if not wanted or wanted == WALLED:
            return wanted or None
        if not self.stopped.done():
            self.stopped.set_result(wanted)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.looked.wait(), LOOK_SECONDS)
        raise asyncio.CancelledError  # where the code waits for the reply, it is interrupted

    async def _wanted(self, params: Mapping[str, Any]) -> str:
        """Words for an action that must not happen. Empty: it may; `WALLED`: behind the wall for programs that only read.

        Raises:
            ApprovalDeniedError: A rule denies it.
        """
        if params.get("kind") == "network":
            host = str(params.get("host") or "")
            return f"connect to {_short(host)}" if host else "use the network"
        call = action_of(params, self._agent.shared.config.workspace)
        check_has_tool(self._agent, call)
        if isinstance(call, NetworkConnect) or any(adviser.hears(call) for adviser in self._asker.advisers):
            return _short(call.summary)
        ruling = await self._agent.shared.gate.ruling(call, self._policy)
        if ruling.verdict == "deny":
            raise ApprovalDeniedError(ruling.reason)
        if ruling.verdict == "allow":
            return WALLED if ruling.walled else ""
        return _short(call.summary)

    @property
    def _asker(self) -> Asker:
        return Asker(agent=self._agent, by="code")

    @property
    def _policy(self) -> Policy:
        return self._agent.present_policy.with_scratch(self.folders)


def _request(method: str, params: Mapping[str, Any]) -> str:
    words = WORDS.get(method) or ("call an MCP server" if method.startswith("mcp_") else f"ask its host for {method}")
    more = ".".join(text for name in NAMES if isinstance(text := params.get(name), str) and text)
    return _short(f"{words}: {more}" if more else words)


def _short(text: str) -> str:
    return one_line(visible(text), CHARS)
