"""`NodeCode`: who acts where code runs in a node, in which no agent works."""

from dataclasses import dataclass, field
from pathlib import Path

from freeact_sub.agents.runs.present_run import PresentRun
from freeact_sub.agents.tree import AgentNode
from freeact_sub.approvals import Policy
from freeact_sub.channel import Emitter


@dataclass(frozen=True, kw_only=True, eq=False)
class NodeCode(AgentNode):
    """Stands for the code in a node; its parent is the node's owner."""

    owner: AgentNode
    folders: list[Path] = field(default_factory=list)
    """Those of its kernel."""

    @property
    def principal(self) -> AgentNode:
        """See `AgentNode`."""
        return self.owner.principal

    @property
    def run(self) -> PresentRun:
        """Its owner's."""
        return self.owner.run

    @property
    def emitter(self) -> Emitter:
        """Its owner's."""
        return self.owner.emitter

    @property
    def output_folder(self) -> Path:
        """Its owner's."""
        return self.owner.output_folder

    @property
    def label(self) -> str:
        """The node, as people see it."""
        return f"node {super().label}"

    @property
    def present_policy(self) -> Policy:
        """See `AgentNode`."""
        return self.policy.with_scratch(self.folders)

    def use_kernel(self, folders: tuple[Path, ...]) -> None:
        """See `AgentNode`."""
        self.folders[:] = folders
