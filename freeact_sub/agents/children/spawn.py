"""What is to become of a request for a child: what the factory, its type and the caller say, and what its run is to do."""

import logging
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeAlias

from pydantic_ai.models import Model

from freeact_sub.agents.children.reuse import Known, reuse_key, run_once
from freeact_sub.agents.children.type_effects import resolved
from freeact_sub.agents.factory import ChildAgent
from freeact_sub.agents.runs.results import RunResult
from freeact_sub.agents.sessions.answers import digest_of_task
from freeact_sub.agents.tree import AgentNode
from freeact_sub.agents.types.files import AgentType
from freeact_sub.errors import FreeactError, InvalidRequestError, SpawnForbiddenError
from freeact_sub.kernels import Kernel
from freeact_sub.models import acting_by
from freeact_sub.tools import SpawnRequest

Program: TypeAlias = Callable[[], Awaitable[Any]]
"""Finds an answer without a model."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Work:
    """What a run is to do."""

    prompt: str
    prepare: Callable[[Kernel], Awaitable[str]] | None = None
    """See `SpawnRequest`."""
    program: Program | None = None
    """Finds the answer instead of the model."""
    digest: str | None = None
    """Tells the work from others, so that it is not done again after a crash; see `agents/sessions/answers.py`."""
    known: Known | None = None
    """Asked first: the output of what it returns is the answer."""


class ChildLoop(Protocol):
    """What runs a child: `AgentLoop`, which itself has children."""

    def run(self, work: Work) -> Coroutine[Any, Any, RunResult]:
        """Run to the end; a failure is a result."""
        ...


@dataclass(frozen=True, kw_only=True)
class PlannedChild:
    """A child that is not made yet."""

    request: SpawnRequest
    """With what the factory and the child's type say."""
    agent_type: AgentType | None
    model: Model | None
    """None: its parent's."""
    answers: ChildAgent | None
    """It answers by itself."""

    def run(self, child: AgentNode, loop: ChildLoop) -> Coroutine[Any, Any, RunResult]:
        """Run it to the end, whatever it is. Args: child: made for this plan."""
        prompt, answers = self.request.prompt, self.answers
        if answers is not None:
            return loop.run(Work(prompt=prompt, program=lambda: answers.run(prompt, child.context)))
        digest = digest_of_task(self.request, child)
        work = Work(prompt=prompt, prepare=self.request.prepare, digest=digest)
        key = reuse_key(self.request, child) if child.shared.config.subagents.cache else None
        return loop.run(work) if key is None else run_once(child, key, lambda known: loop.run(replace(work, known=known)))


async def planned(request: SpawnRequest, node: AgentNode) -> PlannedChild:
    """Ask the factory and the type what a child of an agent is to be.

    Raises:
        SpawnForbiddenError: There is to be no such child.
        InvalidRequestError: There is no such type.
        ConfigError: Its model cannot be built.
    """
    request, answers = _made(request, node)
    request, agent_type = resolved(request, node)
    name = request.model or (agent_type.model if agent_type is not None else None)
    model = await node.shared.other_models.get(name) if name is not None and answers is None else None
    if agent_type is not None and agent_type.code_actions is not None:
        model = acting_by(model or node.model, agent_type.code_actions)
    return PlannedChild(request=request, agent_type=agent_type, model=model, answers=answers)


def _made(request: SpawnRequest, node: AgentNode) -> tuple[SpawnRequest, ChildAgent | None]:
    """What the factory makes of a request; with it the child, if that answers by itself."""
    try:
        made = node.shared.factory.create(request, node.context)
    except FreeactError:
        raise
    except Exception as error:  # border: code of whoever uses the SDK
        logger.exception("the agent factory failed")
        raise SpawnForbiddenError(f"the agent factory failed: {type(error).__name__}: {error}") from error
    if isinstance(made, SpawnRequest):
        return replace(made, tool_call_id=request.tool_call_id), None
    if not isinstance(made, ChildAgent):
        raise SpawnForbiddenError(
            f"the agent factory returned a {type(made).__name__}: it must return a SpawnRequest, or an object with "
            "`async def run(prompt, context)`"
        )
    if request.branch or request.branch_of is not None or request.keep or request.prepare is not None:
        raise InvalidRequestError("this child answers by itself and has no kernel: ask without inputs, branch and keep")
    return request, made
