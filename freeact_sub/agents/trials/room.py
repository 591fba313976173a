"""`TrialRoom`: where the cells of all agents of a root are tried."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Final

from freeact_sub.approvals.open_questions import Trial, Tried, TryOut
from freeact_sub.calls import Call, CodeAction
from freeact_sub.events.effects import Effects
from freeact_sub.text import one_line

AT_ONCE: Final = 2
"""Trials of a root that run at the same time; more wait."""
CLOSE_SECONDS: Final = 10.0

logger = logging.getLogger(__name__)


class TrialRoom:
    """Knows the agents whose cells can be tried."""

    def __init__(self) -> None:
        """There is none yet."""
        self._agents: dict[str, tuple[Trial, Callable[[], Effects | None]]] = {}
        self._running: dict[asyncio.Task[object], str] = {}
        self.renew()

    def renew(self) -> None:
        """Renew what belongs to an event loop."""
        self._places = asyncio.Semaphore(AT_ONCE)

    def open(self, agent_id: str, trial: Trial, refusal: Callable[[], Effects | None]) -> None:
        """Let cells of an agent be tried.

        Args:
            agent_id: The agent.
            trial: Tries a cell of it.
            refusal: Why none is tried now, as far as that is known beforehand.
        """
        self._agents[agent_id] = trial, refusal

    async def close(self, agent_id: str) -> None:
        """End the trials of an agent, and try none of its cells any more."""
        self._agents.pop(agent_id, None)
        deadline = asyncio.get_running_loop().time() + CLOSE_SECONDS
        while tasks := {task for task, owner in self._running.items() if owner == agent_id}:
            for task in tasks:
                task.cancel()  # what ends a kernel ends it nevertheless
            if not (await asyncio.wait(tasks, timeout=deadline - asyncio.get_running_loop().time()))[0]:
                break

    def end_later(self, agent_id: str, ending: Coroutine[None, None, None]) -> None:
        """End a trial of an agent while its effects are read."""
        task = asyncio.create_task(ending, name="end of a trial")
        self._running[task] = agent_id
        task.add_done_callback(self._running.pop)

    def of(self, agent_id: str, call: Call) -> TryOut | None:
        """What tries a call of an agent, or why nothing does. None: it is no cell of an agent's own kernel."""
        if agent_id not in self._agents or not isinstance(call, CodeAction):
            return None
        return self._agents[agent_id][1]() or partial(self._try_out, agent_id)

    async def _try_out(self, agent_id: str, call: Call) -> Tried:
        task = asyncio.current_task()
        assert task is not None
        self._running[task] = agent_id
        try:
            async with self._places:
                if (opened := self._agents.get(agent_id)) is None:
                    return Tried(Effects(status="refused", reason="its agent is closed"))
                return await opened[0](call)
        except Exception as error:  # border: a trial costs its agent nothing, whatever fails in it
            logger.warning("a trial failed", exc_info=True)
            return Tried(Effects(status="refused", reason=one_line(f"{type(error).__name__}: {error}", 300)))
        finally:
            del self._running[task]
