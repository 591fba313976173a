"""`WithChildren`: the methods of `Agent` that start children and work with nodes."""

import asyncio
from collections.abc import Iterable, Sequence

from freeact_sub.agents.agent_base import AgentBase
from freeact_sub.agents.children.child import Child
from freeact_sub.agents.children.nodes import owned
from freeact_sub.agents.ports import KernelNode
from freeact_sub.agents.runs.results import RunResult
from freeact_sub.errors import FreeactError
from freeact_sub.kernels import Changes
from freeact_sub.tools import SpawnRequest


class WithChildren(AgentBase):
    """See above. The agent of a node is the one whose child `spawn` would start."""

    async def spawn(self, request: SpawnRequest | str) -> Child:
        """Start a child without waiting for it.

        When a tool, a `ChildAgent` or any other code that an agent runs calls this, the child belongs to that agent: it is
        bound by its depth, mode and budget, and is cancelled when that agent's run ends. Otherwise it belongs to the root
        and its present run. If no run is live, one begins (see `present_run`) and lasts until no child is working; its
        events reach the taps only, and its approval requests get the answer for unattended runs.

        Args:
            request: The child to start; a string is its prompt.

        Raises:
            SpawnForbiddenError: No child, or none of this type, may be started now.
            FreeactError: It cannot be started, the agent is not open, or its run has not begun or is ending.
        """
        if isinstance(request, str):
            request = SpawnRequest(prompt=request)
        children = self._callers_loop.children
        if children.begin_run is not None:
            await children.begin_run()
        return await children.spawn(request)

    async def spawn_and_run(self, request: SpawnRequest | str) -> RunResult:
        """Start a child (see `spawn`) and wait until it ends, however it ends. Cancelling the wait cancels the child.

        An agent whose tool waits here lends its slot to other agents meanwhile.

        Raises:
            SpawnForbiddenError: No child, or none of this type, may be started now.
            FreeactError: It cannot be started, the agent is not open, or its run has not begun or is ending.
        """
        child = await self.spawn(request)
        try:
            result = await child.result()
        except (asyncio.CancelledError, FreeactError):
            child.cancel()
            raise
        await self._settle()
        return result

    async def run_parallel(self, requests: Iterable[SpawnRequest | str]) -> list[RunResult | Exception]:
        """Start children (see `spawn`) side by side, within `subagents.max_concurrent`, and wait for all.

        Returns:
            One item per request, in order: the result, whatever its status, or the exception for a child that could not be
            started.
        """

        async def one(request: SpawnRequest | str) -> RunResult | Exception:
            try:
                return await self.spawn_and_run(request)
            except Exception as error:  # noqa: BLE001  # border: a child that cannot be started must not affect the others
                return error

        return await asyncio.gather(*(one(request) for request in requests))

    async def branch(self, description: str = "", *, own_files: bool = False) -> KernelNode:
        """Make a node by copying the agent's kernel. No model works in it.

        It counts towards `kernel.max_live` and is closed with the agent or by `KernelNode.close`.

        Args:
            description: A label.
            own_files: It and its branches work in copies of the workspace; nobody else sees what they write there.

        Raises:
            KernelBranchError: The kernel cannot be copied; the message says why.
            SpawnForbiddenError: All kernels belong to nodes and to waiting agents.
            FreeactError: The agent is not open, or its run has not begun or is ending.
        """
        return await self._callers_loop.children.nodes.branch(None, description, own_files=own_files)

    async def adopt(self, node: KernelNode, names: Sequence[str] | None = None) -> None:
        """Take variables of a node over into the agent's kernel. The node stays open.

        Args:
            node: One of the agent's nodes.
            names: The variables, which are pickled. None: the agent's kernel becomes a copy of the node's.

        Raises:
            KernelError: A variable is missing or cannot be pickled, or the node's kernel cannot be copied.
            FreeactError: The node may do less than the agent, or is closed; or the agent's run has not begun or is ending.
        """
        await self._callers_loop.children.nodes.adopt(owned(node), names)

    async def promote(self, node: KernelNode) -> Changes:
        """Take over a node's changes to its copy of the workspace (`KernelNode.diff`): all of them or none.

        Each path needs approval like a write of the agent's own. A cancellation takes effect afterwards.

        Returns:
            What was taken over. Files that freeact or git obey never are; `left_out` names them.

        Raises:
            WorkspaceConflictError: The workspace has changed in the same places; nothing was written.
            ApprovalDeniedError: A path was denied; nothing was written.
            OSError: Writing failed; the workspace is unchanged.
            FreeactError: The node is closed, or the agent's run has not begun or is ending.
        """
        return await self._callers_loop.children.nodes.promote(owned(node))
