"""`WithNodes`: the methods of `Agent` that work with nodes."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

from freeact_sub.agents.children.nodes import KernelNode
from freeact_sub.agents.children.owner import ChildOwner
from freeact_sub.kernels import Changes


class WithNodes(ABC):
    """The agent meant here is the one whose child `spawn` would start."""

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
        return await self._callers_children().nodes.branch(None, description, own_files=own_files)

    async def adopt(self, node: KernelNode, names: Sequence[str] | None = None) -> None:
        """Take variables of a node over into the agent's kernel. The node stays open.

        Args:
            node: One of the agent's nodes.
            names: The variables, which are pickled. None: the agent's kernel becomes a copy of the node's.

        Raises:
            KernelError: A variable is missing or cannot be pickled, or the node's kernel cannot be copied.
            FreeactError: The node may do less than the agent, or is closed; or the agent's run has not begun or is ending.
        """
        await self._callers_children().nodes.adopt(node, names)

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
        return await self._callers_children().nodes.promote(node)

    @abstractmethod
    def _callers_children(self) -> ChildOwner:
        """Those of the agent on whose behalf this is called."""
