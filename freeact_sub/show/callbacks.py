"""Callbacks on the one stream of events, instead of a loop.

::

    async def main():
        async with Agent(config) as agent, agent.run("…") as run:
            await dispatch(run, Callbacks(on_text=lambda event: print(event.agent_id, event.content)))
            result = await run.result()

A callback gets the event, which carries the id of its agent. It may be a plain function or a coroutine function, which is
awaited before the next event is read. One that raises is logged, and the run continues.
"""

import inspect
import logging
from collections.abc import AsyncIterable, Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from freeact_sub import events as ev
from freeact_sub.show.questions import leave_unasked

_Kind = TypeVar("_Kind")
Callback: TypeAlias = Callable[[_Kind], Awaitable[Any] | Any] | None

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Callbacks:
    """Functions that `dispatch` calls for the events of a run, one for each kind; None: that kind calls nothing."""

    on_start: Callback[ev.AgentStarted] = None
    on_text: Callback[ev.ResponseChunk] = None
    """Called with a piece of a model's text."""
    on_tool_start: Callback[ev.ToolCallStarted] = None
    on_tool_end: Callback[ev.ToolOutput] = None
    on_finish: Callback[ev.AgentFinished] = None
    """Called when an agent has completed its work. For each agent either this or `on_error` is called, once and last."""
    on_error: Callback[ev.AgentFinished] = None
    """Called when an agent has ended in another way: `event.status` and `event.error` say how and why."""
    on_approval: Callback[ev.ApprovalRequest] = None
    """Called when a call waits for `event.approve()` or `event.deny()`. Default: the answer for unattended runs."""
    on_question: Callback[ev.QuestionRequest] = None
    """Called when code waits for `event.answer(text)` or `event.decline()`. Default: skipped, as in unattended runs."""


async def dispatch(events: "AsyncIterable[ev.Event]", callbacks: Callbacks) -> None:
    """Read a run to its end, and call the callback of each event.

    A run that this call begins is cancelled with it, as a task is with the one that awaits it: see `Run`.
    """
    async for event in events:
        callback = _callback(callbacks, event)
        if callback is None:
            continue
        try:
            outcome = callback(event)
            if inspect.isawaitable(outcome):
                await outcome
        except Exception:  # border: a user's code, which must not end the run
            logger.exception("a callback failed on %s of %s", type(event).__name__, event.agent_id)
            if isinstance(event, ev.ApprovalRequest | ev.QuestionRequest):
                leave_unasked(event)  # unless it was answered: nobody else will


def _callback(callbacks: Callbacks, event: ev.Event) -> Callback[Any]:
    match event:
        case ev.AgentStarted():
            return callbacks.on_start
        case ev.ResponseChunk():
            return callbacks.on_text
        case ev.ToolCallStarted():
            return callbacks.on_tool_start
        case ev.ToolOutput():
            return callbacks.on_tool_end
        case ev.AgentFinished():
            return callbacks.on_finish if event.status == "completed" else callbacks.on_error
        case ev.ApprovalRequest():
            return callbacks.on_approval or leave_unasked
        case ev.QuestionRequest():
            return callbacks.on_question or leave_unasked
    return None
