"""`Tree`: all agents of one root, and which of them are working."""

import itertools
import secrets
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from pydantic_ai.messages import ModelMessage
from pydantic_ai.models import Model

from freeact_sub.agent_names import PREFIX, child_key, root_key, short_id
from freeact_sub.agents.life import AtWork, KeptAgent, PresentRun, RunRecord, TreeAgent
from freeact_sub.agents.money import Account, Ledger, size_of
from freeact_sub.agents.results import NO_BOUNDS
from freeact_sub.agents.rights import AgentType, Rights
from freeact_sub.agents.shared import Shared
from freeact_sub.approvals import narrowed
from freeact_sub.calls import ChildChoices
from freeact_sub.config.budget import Budget
from freeact_sub.events import Notice
from freeact_sub.tools import ChildRequest

MAX_ENDED: Final = 200
"""Children that have ended and are still listed; each takes about 30 kB."""
MAX_HISTORIES: Final = 100
MAX_BYTES: Final = 64 * 2**20
"""Bytes of the conversations of all children that have ended, as text."""
MAX_TRIES: Final = 10_000
"""After so many, an id may share its short id with another agent: there are 65,536 of them."""


@dataclass(kw_only=True)
class Tree:
    """All agents of one root."""

    shared: Shared
    agents: dict[str, TreeAgent] = field(default_factory=dict)
    """By id, oldest first, so the root comes first."""
    at_work: dict[str, AtWork] = field(default_factory=dict)
    """By agent id, oldest first."""
    outliving: set[Callable[[], Awaitable[None]]] = field(default_factory=set)
    """Each closes what has outlived an agent's run; called when the root is closed."""
    ledger: Ledger = field(default_factory=Ledger)
    answered_by: dict[str, str] = field(default_factory=dict)
    """By the id of a child that was given the answer of another one: that one."""
    _histories: dict[str, int] = field(default_factory=dict)
    """The bytes of conversations of children that have ended, oldest first."""
    _short_ids: set[str] = field(default_factory=set)
    """Those of all agents of the tree and its session. None is given twice, even if its agent is forgotten."""

    @property
    def root(self) -> TreeAgent:
        """The agent without a parent."""
        return next(iter(self.agents.values()))

    def notice(self, text: str) -> None:
        """Show a notice in the root's stream, or in its next one if no run is live."""
        if not self.agents or self.root.agent_id not in self.at_work:  # a stream starts with AgentStarted
            self.shared.stream.notice_later(text)
        else:
            self.root.emitter.put(Notice(content=text))

    def add_root(self, history: list[ModelMessage], agent_id: str | None = None) -> TreeAgent:
        """Make the root. Args: history: the conversation to continue. agent_id: its id in the resumed session."""
        shared, agent_id = self.shared, agent_id or self._new_id()
        root = TreeAgent(
            shared=shared,
            agent_id=agent_id,
            key=root_key(agent_id),
            parent=None,
            policy=shared.policy,
            model=shared.model,
            rights=Rights(servers=shared.config.mcp_servers),
        )
        shared.kernel_places.take_now(root)
        self.agents[agent_id] = root
        run = self._make_run(root, self.ledger.open(agent_id, self._root_budget(NO_BOUNDS)), None)
        run.record.history = history
        return root

    def begin_root(self, budget: Budget) -> None:
        """Begin a run of the root. Args: budget: overrides the configured one."""
        root, last = self.root, self.root.run
        self._forget_ended()
        account = self.ledger.open(root.agent_id, self._root_budget(budget))
        run = self._make_run(root, account, None)
        run.record.history, run.parameters = last.record.history, last.parameters
        run.begin()

    def add_child(
        self,
        parent: TreeAgent,
        request: ChildRequest,
        *,
        agent_type: AgentType | None,
        model: Model | None,
        in_background: bool,
        earlier: Sequence[KeptAgent] = (),
        payer: Account | None = None,
    ) -> TreeAgent:
        """Make a child and begin its run. `check_spawn` must have passed, without an `await` in between.

        Args:
            parent: Starts it.
            request: Its budget is cut to what the parent has left, and its mode to the parent's.
            agent_type: None: it has that of the agent above it.
            model: None: its parent's.
            in_background: The parent does not wait for it.
            earlier: The child is resumed: the agents between the parent and it, then the child itself.
            payer: An account below that of the parent's run, which pays. None: the run's.
        """
        config, policy = self.shared.config.subagents, parent.policy
        choices = request.choices.model_copy(update={"thinking": request.thinking or parent.choices.thinking})
        same_kind = agent_type is parent.rights.agent_type and model is None
        above = parent
        for between in earlier[:-1]:
            above = self.agents.get(between.agent_id) or self._add_ended(between, above)
        agent = TreeAgent(
            shared=self.shared,
            agent_id=earlier[-1].agent_id if earlier else self._new_id(),
            key=earlier[-1].key if earlier else child_key(parent.key),
            parent=above,
            choices=choices,
            policy=policy if request.mode is None else narrowed(policy, request.mode),
            model=model or parent.model,
            rights=above.rights.for_child(agent_type, choices.tools),
            tool_call_id=request.tool_call_id,
            in_background=in_background,
            detached=in_background and config.detach,
            continues=request.continues_all and not in_background and same_kind,
        )
        budget = request.budget.over(config.budget).cut(parent.run.left)
        if budget.depth is not None:  # a child resumed by an agent further above has fewer levels below it
            budget = budget.model_copy(update={"depth": max(0, budget.depth - (agent.depth - parent.depth - 1))})
        if payer is not None:
            budget = budget.cut(payer.remaining())
        account = self.ledger.open(agent.agent_id, budget, payer or parent.run.account)
        self.agents[agent.agent_id] = agent
        self._make_run(agent, account, parent.run).begin()
        return agent

    def _forget_ended(self) -> None:
        """Forget the children that ended first, but those that hold a kernel or stand above an agent at work."""
        at_work = {above.agent_id for agent_id in self.at_work for above in self.agents[agent_id].ancestors()}
        needed = at_work | {holder.agent_id for holder in self.shared.kernel_places.holders} | {self.root.agent_id}
        ended = [agent_id for agent_id in self.agents if agent_id not in needed]
        for agent_id in ended[:-MAX_ENDED]:
            del self.agents[agent_id]

    def keep_history(self, agent: TreeAgent, reused_from: str) -> None:
        """Keep the conversation of a child that ends, so that it can be resumed; the oldest make room.

        Args:
            agent: The child.
            reused_from: The agent whose answer it was given. Empty: it has answered itself.
        """
        kept, messages = self._histories, agent.run.record.history
        kept.pop(agent.agent_id, None)
        if reused_from:  # it has no conversation of its own that could take a place
            self.answered_by[agent.agent_id] = reused_from
            return
        kept[agent.agent_id] = sum(size_of(part) for message in messages for part in message.parts)
        while len(kept) > MAX_HISTORIES or sum(kept.values()) > MAX_BYTES:
            oldest = next(iter(kept))
            del kept[oldest]
            if (other := self.agents.get(oldest)) is not None and (other is agent or not other.run.is_live):
                other.run.record.history = []

    def withdraw(self, agent: TreeAgent, before: TreeAgent | None = None) -> None:
        """Undo `add_child` for a child that cannot begin, including the spawn counted for its parent.

        Args:
            agent: The child.
            before: Its earlier entry, if it was resumed. None: it had none.
        """
        agent.run.account.withdraw()
        del self.agents[agent.agent_id]
        if before is not None:
            self.agents[agent.agent_id] = before

    def _add_ended(self, kept: KeptAgent, parent: TreeAgent) -> TreeAgent:
        """Add an agent of an earlier program as the ancestor of a resumed child; it does not run."""
        choices = ChildChoices(description=kept.description, **kept.choices)
        kind = self.shared.types[kept.agent_type] if kept.agent_type else None
        agent = TreeAgent(
            shared=self.shared,
            agent_id=kept.agent_id,
            key=kept.key,
            parent=parent,
            choices=choices,
            policy=narrowed(parent.policy, kept.mode),
            model=parent.model,
            rights=parent.rights.for_child(kind, choices.tools),
        )
        self.agents[agent.agent_id] = agent
        self._make_run(agent, self.ledger.open(agent.agent_id, NO_BOUNDS), None)
        return agent

    def _make_run(self, agent: TreeAgent, account: Account, parent: PresentRun | None) -> PresentRun:
        shared = self.shared
        run = PresentRun(
            record=RunRecord(),
            account=account,
            parent=parent,
            slots=shared.slots,
            kernel_places=shared.kernel_places,
            holder=agent,
        )
        agent.own_run = run
        run.features = shared.features.run(agent)
        return run

    def _new_id(self) -> str:
        """Return an id whose short id, too, is new to the tree and its session."""
        known = self.shared.recorded.runs
        if not self._short_ids:
            self._short_ids.update(map(short_id, [*self.agents, *known]))
        for tries in itertools.count():
            agent_id = f"{PREFIX}{secrets.token_hex(4)}"
            is_new = agent_id not in self.agents and agent_id not in known
            if is_new and (short_id(agent_id) not in self._short_ids or tries > MAX_TRIES):
                break
        self._short_ids.add(short_id(agent_id))
        return agent_id

    def _root_budget(self, asked: Budget) -> Budget:
        config = self.shared.config
        return asked.over(config.budget).over(Budget(depth=config.subagents.max_depth))
