"""`AgentBase`: what the groups of methods of `Agent` use of it."""

from abc import ABC, abstractmethod
from contextlib import AsyncExitStack
from typing import Any

from freeact_sub.agents.children.spawn import Work
from freeact_sub.agents.runs.loop import AgentLoop
from freeact_sub.agents.runs.run import RootRuns, Run
from freeact_sub.config.budget import Budget
from freeact_sub.config.schema import Config


class AgentBase(ABC):
    """See above."""

    config: Config
    _resources: AsyncExitStack
    """Closed with the agent."""
    _runs: RootRuns
    """Knows the live run."""

    @property
    @abstractmethod
    def _opened(self) -> AgentLoop:
        """The root's loop. Raises: FreeactError: The agent is not open."""

    @property
    @abstractmethod
    def _callers_loop(self) -> AgentLoop:
        """The loop of the agent on whose behalf this is called."""

    @abstractmethod
    def _begin(self, work: Work, budget: Budget) -> Run[Any]:
        """Begin a run of the root."""

    @abstractmethod
    async def _settle(self) -> None:
        """Wait for the end of a run that is ending, if the caller is not a part of it."""
