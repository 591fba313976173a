"""`NodeCode`: stands in for an agent where code runs in a node."""

from dataclasses import dataclass, field
from pathlib import Path

from freeact_sub.agents.runs.present_run import PresentRun
from freeact_sub.agents.tree import AgentNode
from freeact_sub.approvals import Policy
from freeact_sub.channel import Emitter


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class NodeCode(AgentNode):
    """The code in a node; its parent is the node's owner."""

    owner: AgentNode
    folders: list[Path] = field(default_factory=list)
    """Its kernel's folders."""

    @property
    def principal(self) -> AgentNode:
        """See `AgentNode`."""
        return self.owner.principal

    @property
    def run(self) -> PresentRun:
        """See `AgentNode`; the owner's."""
        return self.owner.run

    @property
    def emitter(self) -> Emitter:
        """See `AgentNode`; the owner's."""
        return self.owner.emitter

    @property
    def output_folder(self) -> Path:
        """See `AgentNode`; the owner's."""
        return self.owner.output_folder

    @property
    def label(self) -> str:
        """See `AgentNode`."""
        return f"node {super().label}"

    @property
    def name(self) -> str:
        """See `AgentNode`."""
        return f"node {super().name}"

    @property
    def present_policy(self) -> Policy:
        """See `AgentNode`."""
        return self.policy.with_scratch(self.folders)

    def use_kernel(self, folders: tuple[Path, ...]) -> None:
        """See `AgentNode`."""
        self.folders[:] = folders
