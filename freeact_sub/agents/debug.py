"""`DebugState`: what the agents of a root hold at one moment, for tests and for tracking down leaks."""

from collections.abc import Mapping
from dataclasses import dataclass

from freeact_sub.agents.life import TreeAgent
from freeact_sub.agents.loop import AgentLoop
from freeact_sub.agents.tree import Tree


@dataclass(frozen=True, kw_only=True)
class DebugState:
    """A snapshot. Its fields may change in any version."""

    agents: Mapping[str, TreeAgent]
    """By id, in the order in which they started; the root comes first."""
    at_work: tuple[str, ...]
    """The ids of the agents with a live run."""
    free_slots: int
    kernel_holders: tuple[str, ...]
    """The ids of the agents and nodes that hold a place for a kernel, sorted."""
    waiting_for_kernels: int
    """Agents that wait for a place."""
    waiting_for_budget: int
    """Model requests that wait until others return budget."""
    waiting_messages: tuple[str, ...]
    """Messages that the root's model reads before its next prompt."""
    open_tasks: int
    """Calls of `agent.task` by code in the root's kernel that have not returned."""

    @property
    def root(self) -> TreeAgent:
        """The agent without a parent."""
        return next(iter(self.agents.values()))


def debug_state(tree: Tree, loop: AgentLoop | None) -> DebugState:
    """Take a snapshot. Args: loop: the root's. None: the agent is not open."""
    shared = tree.shared
    return DebugState(
        agents=dict(tree.agents),
        at_work=tuple(tree.at_work),
        free_slots=shared.slots.value,
        kernel_holders=tuple(sorted(holder.agent_id for holder in shared.kernel_places.holders)),
        waiting_for_kernels=shared.kernel_places.waiting,
        waiting_for_budget=tree.ledger.waiting,
        waiting_messages=tuple(shared.stream.messages),
        open_tasks=0 if loop is None else loop.requests.tasks.open_tasks,
    )
