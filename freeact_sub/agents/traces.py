"""The spans of runs: their names, what they are part of, and how they ended (docs/tracing.md)."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from freeact_sub.agents.life import TreeAgent
from freeact_sub.spans import note_here, part_of, span

NAME: Final = "freeact-sub"
"""Of an agent without a type: names of spans are few, so that viewers can group them."""


def name_of(agent: TreeAgent) -> str:
    """The name of its runs' spans."""
    return agent.rights.type_name or NAME


def conversation_of(agent: TreeAgent) -> str:
    """The id that all agents of its tree share: that of their session, if it is kept."""
    return agent.shared.recorded.session_id or list(agent.ancestors())[-1].agent_id


@contextmanager
def traced_run(agent: TreeAgent) -> Iterator[None]:
    """Around what a model drives, in the span that pydantic-ai has made of it."""
    with part_of(conversation_of(agent)):
        note_here(**{"gen_ai.agent.id": agent.agent_id}, depth=agent.depth, mode=agent.policy.mode)
        yield
        _spent(agent)


@contextmanager
def traced_program(agent: TreeAgent, program: Callable[..., Any]) -> Iterator[None]:
    """Around what a program drives."""
    name = getattr(program, "__name__", "") or "program"
    named = {"gen_ai.operation.name": "invoke_workflow", "gen_ai.workflow.name": name}
    with span(f"invoke_workflow {name}", **named), part_of(conversation_of(agent)):
        note_here(**{"gen_ai.agent.id": agent.agent_id}, depth=agent.depth)
        yield
        _spent(agent)


def _spent(agent: TreeAgent) -> None:
    usage = agent.run.account.own_usage
    if usage.cost_usd is not None:
        note_here(cost_usd=float(usage.cost_usd))
