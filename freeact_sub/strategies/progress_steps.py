"""`Progress`: an agent in the hands of a strategy, which reports each step: a request, a child, a state of a search."""

import contextlib
import secrets
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, Final, Self

from freeact_sub.strategies.agent_like import AgentLike
from freeact_sub.strategies.side_by_side import parallel
from freeact_sub.strategies.states import SearchNode

CHARS: Final = 300
"""Characters of an action and of a reason that a step has."""


class Progress:
    """Asks and starts children as the agent does, and reports each one that has ended, to an agent that has `progress`."""

    def __init__(self, agent: AgentLike, strategy: str, of: int | None = None) -> None:
        """Args: of: the number of steps. None: it is not known."""
        self._agent = agent
        self._step: dict[str, Any] = {"strategy": strategy, "strategy_id": secrets.token_hex(4), "step": 0, "of": of}

    async def ask(self, prompt: str, **options: Any) -> Any:
        """Makes one model request, without tools."""
        return await self._reported(lambda: self._agent.ask(prompt, **options))

    async def task(self, prompt: str, **options: Any) -> Any:
        """Starts a child and waits for its end; returns a value with `output`, `status` and `agent_id`."""
        return await self._reported(lambda: self._agent.task(prompt, **options))

    async def _reported(self, work: Callable[[], Awaitable[Any]]) -> Any:
        [found] = await parallel([work])  # work that is cancelled by itself is a failure, and cancels nothing else
        await self.report()
        if isinstance(found, Exception):
            raise found
        return found

    async def state(self, node: SearchNode, best: SearchNode | None) -> None:
        """Report a state of a search. Args: best: the best one up to now."""
        searched = {
            "node_id": node.name,
            "parent": node.parent.name if node.parent is not None else "",
            "action": node.action[:CHARS],
            "state": node.status[:CHARS],
            "score": node.score,
            "value": node.value,
            "visits": node.visits,
            "reason": node.reason[:CHARS],
            "terminal": node.terminal,
        }
        await self.report(node=searched, best=best.name if best is not None else "")

    async def report(self, *, step: int = 1, **more: Any) -> None:
        """Report that so many further steps have ended."""
        self._step["step"] += step
        tell = getattr(self._agent, "progress", None)
        if tell is not None:
            await tell(**self._step, **more)

    async def __aenter__(self) -> Self:
        await self.report(step=0)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is None:
            await self.report(step=0, done=True)
        elif issubclass(kind, Exception):  # the end of a cancelled strategy waits for nobody
            with contextlib.suppress(Exception):  # the strategy's own error counts
                await self.report(step=0, done=True)
