"""The resources of one agent: its kernel, and what features keep in it. They are always closed."""

import asyncio
import logging
from dataclasses import replace
from functools import partial

from freeact_sub.agents.agent_kernel import AgentKernel
from freeact_sub.agents.feature import Handler
from freeact_sub.agents.life import TreeAgent
from freeact_sub.agents.requests import (
    ActionRequests,
    CodeCalls,
    HostRequests,
    InputRequests,
    OwnToolRequests,
    ShellRequests,
)
from freeact_sub.tools import KernelAccess

logger = logging.getLogger(__name__)


class AgentResources:
    """The kernel of one agent, and the parts of features in it."""

    def __init__(self, agent: TreeAgent, branch_of: KernelAccess | None = None, *, own_files: bool = False) -> None:
        """Nothing is opened yet.

        Args:
            agent: The agent.
            branch_of: The kernel starts as a copy of this one. None: it starts empty.
            own_files: The branch works in a copy of the workspace.
        """
        self._agent = agent
        self.requests = HostRequests(agent)
        self.kernel = AgentKernel(agent, self.requests, branch_of, own_files=own_files)
        self.parts = agent.shared.features.kernel_parts(agent, self.kernel)
        """Those of features."""
        self._serve(agent)
        agent.kernel = self.kernel

    def assign(self, holder: TreeAgent) -> None:
        """Make an agent or a node the holder of all this, and of the place for a live kernel.

        Nowhere else does a kernel change hands. Nothing in it waits, so no kernel is ever seen with two holders or none;
        who must know that the kernel is alive awaits `AgentKernel.live` before.
        """
        before, self._agent = self._agent, holder
        before.kernel, holder.kernel = None, self.kernel
        holder.shared.kernel_places.pass_on(before, holder)
        self.kernel.assign(holder)
        for part in self.parts:
            part.assign(holder)
        self._serve(holder)

    def use_mode(self) -> None:
        """Bring the root into the mode that was chosen for it last, before a run of it begins."""
        agent, mode = self._agent, self._agent.shared.gate.mode
        if mode is not None and mode != agent.policy.mode:
            agent.policy = agent.shared.policy = replace(agent.policy, mode=mode)
            self.kernel.use_mode()

    def branch(self, agent: TreeAgent, *, own_files: bool) -> "AgentResources":
        """Make the resources of a node whose kernel starts as a copy of this one."""
        return AgentResources(agent, self.kernel, own_files=own_files)

    def _serve(self, agent: TreeAgent) -> None:
        """Answer requests of code in the kernel on behalf of this agent."""
        self.calls = CodeCalls(agent)
        self.requests.serve(agent, partial(self._handlers, agent))

    def _handlers(self, agent: TreeAgent) -> dict[str, Handler]:
        return {
            **agent.shared.features.requests(agent),
            **{name: handler for part in self.parts for name, handler in part.requests(self.calls).items()},
            **OwnToolRequests(self.calls, self.kernel.get).handlers,
            **ActionRequests(self.calls).handlers,
            **InputRequests(agent).handlers,
            **ShellRequests(self.calls, agent.output_folder).handlers,
        }

    async def aclose(self) -> None:
        """Close the kernel, and what features keep in it; a failure of one does not prevent the others."""
        self._agent.kernel = None
        parts = [part.aclose() for part in self.parts]
        results = await asyncio.gather(self.kernel.aclose(), *parts, return_exceptions=True)
        for error in results:
            if isinstance(error, BaseException):
                logger.error("closing an agent's resources failed", exc_info=error)
