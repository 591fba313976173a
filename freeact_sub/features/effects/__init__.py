"""`EffectsFeature`: tries a cell while a person is asked whether it may run, and tells what it did (docs/effects.md).

`trial.py` runs trials, and ends them with their run; it answers the requests of their code, and ends them at what must not
happen unasked; `diffs.py` compares its copy of the workspace with the workspace. The kernel's side is
`kernels/guest/trial.py`, its wall `wall/of_trials.py` and `layer.seal`.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import ClassVar, Final, TypeVar

from freeact_sub.agents.feature import Feature, RunPart
from freeact_sub.agents.ports import UsedKernel
from freeact_sub.agents.requested_call import Asker, EndedCall, FeatureAgent, Proceed, RequestedCall
from freeact_sub.agents.runs.results import RunResult
from freeact_sub.agents.tree_agent import TreeAgent, tree_agent
from freeact_sub.approvals.advice import Adviser
from freeact_sub.approvals.open_questions import TryOut
from freeact_sub.calls import Call, CodeAction
from freeact_sub.features.effects.trial import AgentTrials

T = TypeVar("T")

TRIALS_AT_ONCE: Final = 2
"""Trials of cells, of all agents of a root."""


class EffectsPart(RunPart):
    """The trials of one run."""

    closing_seconds: ClassVar[float] = 10.0

    def __init__(self, agent: TreeAgent, places: asyncio.Semaphore) -> None:
        self._agent, self._trials = agent, AgentTrials(agent, places)
        self._advisers = (TrialAdviser(self._trials),)

    def advisers(self, asker: Asker) -> Sequence[Adviser]:
        """Try the cells of the agent: not of its nodes, nor of a check, which runs in another kernel."""
        return self._advisers if asker.agent is self._agent and asker.by != "check" else ()

    async def call(self, call: RequestedCall, proceed: Proceed[T]) -> EndedCall[T]:
        """Note that a cell runs: a trial that was made before does not hold any more."""
        if not isinstance(call.call, CodeAction) or call.agent is not self._agent or call.by == "check":
            return await proceed()
        with self._trials.turns.running(call.call.code):
            return await proceed()

    async def closing(self, ending: RunResult, kernel: UsedKernel) -> None:
        """End those that run: their copies must not outlive the kernel's agent."""
        del ending, kernel
        await self._trials.aclose()


class TrialAdviser(Adviser):
    """Shows what a cell would do."""

    def __init__(self, trials: AgentTrials) -> None:
        self._trials = trials

    def try_out(self, call: Call) -> TryOut | None:
        """Return the trial of a cell, or why it is not tried."""
        return self._trials.of(call)


class EffectsFeature(Feature):
    """Tries the cells of a tree of agents, a few at once."""

    def __init__(self) -> None:
        self._places = asyncio.Semaphore(TRIALS_AT_ONCE)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Make what belongs to the event loop: the root may be opened in another one."""
        self._places = asyncio.Semaphore(TRIALS_AT_ONCE)
        yield

    def run(self, agent: FeatureAgent) -> RunPart:
        """Try the cells of the run."""
        return EffectsPart(tree_agent(agent), self._places)
