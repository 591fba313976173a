"""`RunHooks` hands on every hook that one of its parts has."""

from pydantic_ai.capabilities import AbstractCapability

from freeact_sub.agents.children.type_effects import ToolFilter
from freeact_sub.agents.turn.answer_hooks import AnswerHooks
from freeact_sub.agents.turn.budget_hooks import RunBudget
from freeact_sub.agents.turn.call_hooks import CallHooks
from freeact_sub.agents.turn.hooks import RunHooks
from freeact_sub.agents.turn.inner_tasks import InnerTasks
from freeact_sub.agents.turn.progress import RequestProgress


def hooks_in(kind):
    """The hooks of pydantic-ai that a class has of its own."""
    return {
        name
        for name in dir(AbstractCapability)
        if not name.startswith("_") and getattr(kind, name) is not getattr(AbstractCapability, name)
    }


def test_no_hook_is_forgotten():
    parts = (ToolFilter, CallHooks, AnswerHooks, RequestProgress, InnerTasks, RunBudget)
    assert set.union(*map(hooks_in, parts)) == hooks_in(RunHooks)
    assert {"wrap_model_request", "wrap_tool_execute", "prepare_tools"} <= hooks_in(RunHooks)
