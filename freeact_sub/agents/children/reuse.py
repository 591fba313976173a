"""Reuses the answer of an earlier child for an equal request (`subagents.cache`).

Requests are equal if their digests (`sessions/answers.py`) and their model objects are. What a child looks at (files, the
web) does not count. Answers that no session would keep, and answers of children that received values, are not reused either.
"""

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from pydantic_ai.models import Model
from pydantic_ai.models.wrapper import WrapperModel

from freeact_sub.agents.runs.results import RunResult
from freeact_sub.agents.tree import TreeAgent
from freeact_sub.calls import Call, ToolCall
from freeact_sub.events import Notice
from freeact_sub.tools import TOOL_NAMES, SpawnRequest

Known: TypeAlias = Callable[[], Awaitable[RunResult | None]]
"""Looks for the result of an earlier child; returns None if there is none."""


def reuse_key(request: SpawnRequest, child: TreeAgent, digest: str | None) -> str | None:
    """Return the key of a request. None: its result must not be reused. Args: see `digest_of_task`."""
    return None if digest is None or request.prepare is not None else f"{digest} {id(_innermost(child.model))}"


def _innermost(model: Model) -> Model:
    """Return the wrapped model: two models of one name may use different servers, and some types wrap theirs anew."""
    while isinstance(model, WrapperModel):
        model = model.wrapped
    return model


def note_call(call: Call, agent: TreeAgent) -> None:
    """Note an allowed call, for the agent and its ancestors."""
    if acts_outside(call):
        agent.run.note_outside_action()


def acts_outside(call: Call) -> bool:
    """Whether a call may have an effect besides its result; built-in tools have none of their own."""
    return call.tool_name not in TOOL_NAMES if isinstance(call, ToolCall) else call.acts_outside


async def run_once(child: TreeAgent, key: str, run: Callable[[Known], Awaitable[RunResult]]) -> RunResult:
    """Run a child, or end it at no cost with the answer of an earlier one.

    Args:
        child: Made for the request.
        key: See `reuse_key`.
        run: Runs it; looks for a known answer first.
    """
    cache, found, looked = child.shared.answer_cache, None, False

    async def known() -> RunResult | None:
        nonlocal found, looked
        found = await cache.find(key)
        looked = True
        if found is not None:
            text = f"{found.agent_id} gave this answer to the same task (setting `subagents.cache`)"
            child.emitter.put(Notice(content=text))
        return found

    result = None
    try:
        result = await run(known)
    finally:
        if looked and found is None:
            whole = result is not None and result.status == "completed"
            cache.settle(key, result if whole and not child.run.record.had_effects else None)
    return result
