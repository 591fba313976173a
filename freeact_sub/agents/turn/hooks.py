"""What we hook into pydantic-ai for the runs of an agent."""

from collections.abc import Callable
from typing import Any

from pydantic_ai.capabilities import AbstractCapability

from freeact_sub.agents.children.type_effects import ToolFilter
from freeact_sub.agents.turn.answer_hooks import AnswerHooks
from freeact_sub.agents.turn.budget_hooks import RunBudget
from freeact_sub.agents.turn.call_hooks import CallHooks
from freeact_sub.agents.turn.calls import ToolCalls
from freeact_sub.agents.turn.turns import Turns
from freeact_sub.tools import AgentToolset, McpToolset


def hooks_of(
    turns: Turns, ours: AgentToolset, mcp: McpToolset, *, forgotten: Callable[[], str]
) -> list[AbstractCapability[Any]]:
    """The capabilities of a run, to come after those of the user.

    pydantic-ai calls the `before` hooks in the order of the list and the `after` hooks in reverse. So the budget reserves
    for what all others have made of a request, and settles a response before anybody looks at it.

    Args:
        turns: Of the run.
        ours: Our tools.
        mcp: Those of MCP servers.
        forgotten: What the model is asked that would end its run while children are at work; empty: nothing.
    """
    return [
        ToolFilter(node=turns.node),
        CallHooks(turns=turns, calls=ToolCalls(turns.node), ours=ours, mcp=mcp),
        AnswerHooks(turns=turns, forgotten=forgotten),
        turns.progress,
        turns.inner_tasks,
        RunBudget(turns=turns),
    ]
