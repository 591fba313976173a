"""`WithNodes`: what an agent does with nodes, for programs (`Agent`)."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

from freeact_sub.agents.children.nodes import KernelNode
from freeact_sub.agents.children.owner import ChildOwner
from freeact_sub.kernels import Changes


class WithNodes(ABC):
    """Nodes of the agent that `spawn` would start a child of."""

    async def branch(self, description: str = "", *, own_files: bool = False) -> KernelNode:
        """Make a node of a copy of the kernel of the agent that `spawn` would start a child of. No model works in it.

        It counts in `kernel.max_live`, and is closed with that agent, or by `KernelNode.close`.

        Args:
            description: A label.
            own_files: It works in a copy of the workspace: nobody else sees what it writes there. Its branches do so too.

        Raises:
            KernelBranchError: The kernel cannot be copied; the text says why.
            SpawnForbiddenError: All kernels belong to nodes and to agents that wait.
            FreeactError: The agent is not open; or its run has not begun, or ends.
        """
        return await self._callers_children().nodes.branch(None, description, own_files=own_files)

    async def adopt(self, node: KernelNode, names: Sequence[str] | None = None) -> None:
        """Take what a node has found into the kernel of the agent that `spawn` would start a child of. The node stays open.

        Args:
            node: A node of that agent's.
            names: Variables, which are pickled. None: all of the kernel, which becomes a copy of the node's.

        Raises:
            KernelError: A variable is not there, or cannot be handed over; or the node's kernel cannot be copied.
            FreeactError: The node may do less than the agent, or is closed; or the agent's run has not begun, or ends.
        """
        await self._callers_children().nodes.adopt(node, names)

    async def promote(self, node: KernelNode) -> Changes:
        """Take over into the workspace what a node has changed in its copy of it (`KernelNode.diff`): all of it or nothing.

        Each path is decided on as a write of the agent's own. A cancel comes when it is done.

        Returns:
            What was taken over. What freeact or git obeys never is, and is named in `left_out`.

        Raises:
            WorkspaceConflictError: The workspace has changed in the same places; nothing was written.
            ApprovalDeniedError: A path is not to be written; nothing was.
            OSError: It could not be written; the workspace is as it was.
            FreeactError: The node is closed; or the agent's run has not begun, or ends.
        """
        return await self._callers_children().nodes.promote(node)

    @abstractmethod
    def _callers_children(self) -> ChildOwner:
        """Of the agent in whose name this is called."""
