"""`TreeAgent`: who an agent is, what it may, and how its run is reached."""

import itertools
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from pydantic_ai.models import Model

from freeact_sub.agent_names import depth_of, short_id
from freeact_sub.agents.ports import UsedKernel
from freeact_sub.agents.present_run import PresentRun
from freeact_sub.agents.requested_call import FeatureAgent
from freeact_sub.agents.results import ACTIVE, AgentInfo
from freeact_sub.agents.rights import Rights
from freeact_sub.agents.shared import ExecutionContext, Shared
from freeact_sub.approvals import Policy
from freeact_sub.calls import NO_CHOICES, ChildChoices
from freeact_sub.channel import Emitter
from freeact_sub.config.schema import Config
from freeact_sub.events import Answer
from freeact_sub.events.forms import PersonQuestion
from freeact_sub.kernels import CellClock

OUTPUT_FOLDER: Final = Path(".freeact") / "outputs"
"""The folder in the workspace for long outputs and answers."""


@dataclass(kw_only=True, eq=False, repr=False)
class TreeAgent:
    """An agent, or a node: a live kernel without an agent, whose code is a part of its owner's run.

    What it is stays as it was made. Its run, its kernel and the policy change; features complete the rights of the root.
    """

    shared: Shared
    agent_id: str
    key: str
    """The only source of the agent's depth."""
    parent: "TreeAgent | None"
    choices: ChildChoices = NO_CHOICES
    """The choices for it, as the factory, its type and its parent completed them. The root has none."""
    policy: Policy
    """Decides on its calls at this moment; includes the folders of its kernel."""
    model: Model
    rights: Rights = field(default_factory=Rights)
    tool_call_id: str | None = None
    """The parent's call that started it. None: a program did."""
    in_background: bool = False
    """Its parent continues while it works; the two can exchange messages."""
    detached: bool = False
    """It may outlive its parent's run."""
    continues: bool = False
    """It reads its parent's whole conversation, and what it may differs in nothing that its model is told in front of it."""
    owner: "TreeAgent | None" = None
    """It is a node, and this is the agent that keeps it. None: it is an agent."""
    kernel: UsedKernel | None = None
    """The kernel that it holds. None: it has none, or somebody else has taken it over."""
    own_run: PresentRun = field(init=False)
    """Its present or last run. A node has none."""

    @property
    def run(self) -> PresentRun:
        """Its present or last run; a node's is its owner's."""
        return self.principal.own_run

    @property
    def description(self) -> str:
        """The label of its work. Empty: it has none."""
        return self.choices.description

    @property
    def keeps_kernel(self) -> bool:
        """Whether its kernel outlives its run as a node."""
        return self.choices.keep

    @property
    def config(self) -> Config:
        """The settings of its root."""
        return self.shared.config

    @property
    def principal(self) -> "TreeAgent":
        """The agent whose run its code belongs to: itself, or the one above a node."""
        return self if self.owner is None else self.owner.principal

    @property
    def present_policy(self) -> Policy:
        """The policy in effect at this moment, as features know it."""
        return self.policy

    def use_kernel(self, folders: tuple[Path, ...]) -> None:
        """Note a new kernel. Args: folders: its own folders besides the workspace."""
        self.policy = self.policy.with_scratch(folders)

    async def ask_person(
        self, asked: PersonQuestion, *, tool_call_id: str | None = None, clock: CellClock | None = None
    ) -> Answer:
        """Ask a person; an answer without a text is none. Meanwhile the clocks of run and cell stand still."""
        with self.run.clocks_paused(), clock.paused() if clock is not None else nullcontext():
            return await self.shared.questions.ask(asked, self.emitter, path=self.path, tool_call_id=tool_call_id)

    @property
    def waits_for_child(self) -> bool:
        """Whether its run cannot end before a child's."""
        return self.run.waits_for_child

    @property
    def depth(self) -> int:
        """Distance from the root."""
        return depth_of(self.key)

    @property
    def parent_id(self) -> str | None:
        """None for the root."""
        return self.parent.agent_id if self.parent else None

    @property
    def may_spawn(self) -> bool:
        """Whether this agent gets the spawning tools."""
        has_levels = bool(self.run.account.budget.depth) and self.shared.config.subagents.enabled
        return has_levels and self.rights.denied_by("task") is None

    @property
    def begins_as(self) -> "TreeAgent":
        """The agent with whose tools and system prompt its requests begin: itself, or the one that it continues."""
        return self.parent.begins_as if self.continues and self.parent is not None else self

    @property
    def window_tokens(self) -> int | None:
        """The size of the window of its model. None: nobody knows it."""
        return self.shared.config.context.window_tokens or self.model.context_window

    @property
    def output_folder(self) -> Path:
        """The folder for the agent's long outputs and its long answer."""
        return self.shared.config.workspace / OUTPUT_FOLDER / self.principal.agent_id

    @property
    def emitter(self) -> Emitter:
        """Writes its events to the root's present stream."""
        channel, of = self.shared.stream.channel, self.principal
        return Emitter(channel=channel, agent_id=of.agent_id, parent_id=of.parent_id, depth=of.depth)

    @property
    def label(self) -> str:
        """The agent's name for models, which name it by its whole id."""
        return self._named(self.agent_id)

    @property
    def name(self) -> str:
        """The agent's name for people."""
        return self._named(short_id(self.agent_id))

    def _named(self, agent_id: str) -> str:
        named = f"{agent_id} ({self.description})" if self.description else agent_id
        return named if self.owner is None else f"node {named}"

    @property
    def path(self) -> tuple[str, ...]:
        """The names for people from the root to this agent."""
        return (*(self.parent.path if self.parent else ()), self.name)

    @property
    def info(self) -> AgentInfo:
        """The agent as a front end lists it."""
        return AgentInfo(
            agent_id=self.agent_id,
            parent_id=self.parent_id,
            depth=self.depth,
            description=self.description,
            status=self.run.status,
            usage=self.run.account.own_usage,
            seconds=self.run.seconds,
            key=self.key,
            budget=self.run.account.budget,
            action=self.shared.activities.of(self.agent_id) if self.run.status in ACTIVE else "",
            fan_out=self.run.fan_out,
        )

    @property
    def context(self) -> ExecutionContext:
        """The agent as its factory and children see it."""
        return ExecutionContext(
            agent_id=self.agent_id,
            parent_id=self.parent_id,
            depth=self.depth,
            _left=lambda: self.run.left,
            _cancelled=lambda: self.run.is_cancelled,
        )

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.label}>"

    def ancestors(self) -> Iterator["TreeAgent"]:
        """The agent itself, its parent, and so on up to the root."""
        agent: TreeAgent | None = self
        while agent is not None:
            yield agent
            agent = agent.parent

    def outlives(self, above: "TreeAgent") -> bool:
        """Whether it may continue after the run of this ancestor has ended."""
        return any(agent.detached for agent in itertools.takewhile(lambda agent: agent is not above, self.ancestors()))


def tree_agent(agent: FeatureAgent) -> TreeAgent:
    """Return an agent or a node with all that it has, for the core and the features of this package."""
    if not isinstance(agent, TreeAgent):
        raise TypeError(f"{agent!r} is no agent of a tree")
    return agent
