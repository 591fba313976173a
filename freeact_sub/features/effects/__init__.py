"""Tries a cell while a person is asked whether it may run, and tells what it did (docs/effects.md).

`trial.py` runs trials, and ends them with their run; `trial_host.py` answers the requests of its code, and ends it at what
must not happen unasked; `diffs.py` compares its copy of the workspace with the workspace. The kernel's side is
`kernels/guest/trial.py`, its wall `wall/of_trials.py` and `layer.seal`.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from freeact_sub.agents.feature import Feature, RunPart
from freeact_sub.agents.ports import UsedKernel
from freeact_sub.agents.runs.results import RunResult
from freeact_sub.agents.tree_agent import TreeAgent
from freeact_sub.approvals.open_questions import TryOut
from freeact_sub.calls import Call
from freeact_sub.features.effects.trial import AgentTrials

TRIALS_AT_ONCE: Final = 2
"""Trials of cells, of all agents of a root."""


class EffectsOfRun(RunPart):
    """The trials of one run."""

    def __init__(self, agent: TreeAgent, places: asyncio.Semaphore) -> None:
        self._agent, self._trials = agent, AgentTrials(agent, places)

    def try_out(self, agent: TreeAgent, call: Call) -> TryOut | None:
        """Try a cell of the agent, not of its nodes."""
        return self._trials.of(call) if agent is self._agent else None

    async def closing(self, ending: RunResult, kernel: UsedKernel) -> None:
        """End those that run: their copies must not outlive the kernel's agent."""
        del ending, kernel
        await self._trials.aclose()


class EffectsOfCells(Feature):
    """See the module."""

    def __init__(self) -> None:
        self._places = asyncio.Semaphore(TRIALS_AT_ONCE)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """The root may be opened in another event loop."""
        self._places = asyncio.Semaphore(TRIALS_AT_ONCE)
        yield

    def run(self, agent: TreeAgent) -> RunPart:
        """Try the cells of the run."""
        return EffectsOfRun(agent, self._places)
