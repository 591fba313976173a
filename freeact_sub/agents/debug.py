"""`DebugState`: what the agents of a root hold at one moment, for tests and for whoever looks for what is left."""

from collections.abc import Mapping
from dataclasses import dataclass

from freeact_sub.agents.runs.loop import AgentLoop
from freeact_sub.agents.tree import AgentNode, Tree


@dataclass(frozen=True, kw_only=True)
class DebugState:
    """A snapshot. Its names and fields may change with any version."""

    agents: Mapping[str, AgentNode]
    """By id, in order of start; the root is the first."""
    at_work: tuple[str, ...]
    """The ids of the agents whose run has begun and not ended."""
    free_slots: int
    kernel_holders: tuple[str, ...]
    """The ids of the agents and nodes that have a place for a kernel, in alphabetical order."""
    waiting_for_kernels: int
    """How many agents wait for a place."""
    waiting_for_budget: int
    """How many requests wait for others to end."""
    untold: tuple[str, ...]
    """What the root's model reads before its next prompt."""
    open_tasks: int
    """How many children code in the root's kernel has asked for and not taken the answer of."""

    @property
    def root(self) -> AgentNode:
        """The agent without a parent."""
        return next(iter(self.agents.values()))


def debug_state(tree: Tree, loop: AgentLoop | None) -> DebugState:
    """Take the snapshot. Args: loop: runs the root. None: it is not open."""
    shared = tree.shared
    return DebugState(
        agents=dict(tree.nodes),
        at_work=tuple(tree.at_work),
        free_slots=shared.slots.free,
        kernel_holders=tuple(sorted(holder.agent_id for holder in shared.kernel_places.holders)),
        waiting_for_kernels=shared.kernel_places.waiting,
        waiting_for_budget=shared.ledger.waiting,
        untold=tuple(tree.between_runs.messages),
        open_tasks=0 if loop is None else loop.tasks.open_tasks,
    )
