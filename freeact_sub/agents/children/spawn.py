"""Plans a child: combines what the request, the factory and the type say."""

import logging
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeAlias

from pydantic_ai.messages import UserContent
from pydantic_ai.models import Model

from freeact_sub.agents.budgets.ledger import Account
from freeact_sub.agents.children.choices import check_tools, chosen_model, resolved
from freeact_sub.agents.children.earlier import EarlierChild, as_it_was, earlier_child, model_of
from freeact_sub.agents.children.verifier import Verifier, checked_check
from freeact_sub.agents.resources import AgentResources
from freeact_sub.agents.rights import AgentType
from freeact_sub.agents.runs.results import RunResult
from freeact_sub.agents.shared import ChildAgent
from freeact_sub.agents.tree import Tree
from freeact_sub.agents.tree_agent import TreeAgent
from freeact_sub.errors import FreeactError, InvalidRequestError, SpawnForbiddenError
from freeact_sub.events import AgentStarted
from freeact_sub.kernels import Kernel
from freeact_sub.models import acting_by
from freeact_sub.text import whole_text
from freeact_sub.tools import ChildRequest

AgentProgram: TypeAlias = Callable[[], Awaitable[Any]]
"""Produces an answer without a model."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Work:
    """The work of a run."""

    prompt: str
    note: str = ""
    """The model reads it after the prompt."""
    content: tuple[UserContent, ...] = ()
    """The prompt as the model reads it, where it has more than text: texts, pictures and files, in order."""
    output_type: Any = None
    """The type of the answer, as pydantic-ai's `output_type`. None: the agent's."""
    prepare: Callable[[Kernel], Awaitable[str]] | None = None
    """See `ChildRequest`."""
    program: AgentProgram | None = None
    """Produces the answer instead of a model."""
    request: ChildRequest | None = None
    """Of a child whose answer may be that of an earlier one."""
    verifier: Verifier | None = None
    """Checks the answer. None: only its type does."""

    def __post_init__(self) -> None:
        for name in ("prompt", "note"):  # no provider takes half a character
            object.__setattr__(self, name, whole_text(getattr(self, name)))
        content = tuple(whole_text(part) if isinstance(part, str) else part for part in self.content)
        object.__setattr__(self, "content", content)

    def started(self, agent: TreeAgent) -> AgentStarted:
        """The event of its start. Args: agent: does it."""
        shared, has_model = agent.shared, self.program is None
        must_wait = not shared.slots.value or (has_model and shared.kernel_places.full)
        return AgentStarted(
            prompt=self.prompt,
            description=agent.description,
            queued=agent.parent is not None and must_wait,
            key=agent.key,
            agent_type=agent.rights.type_name,
            mode=agent.policy.mode,
            model=agent.model.model_id if has_model else "",
            tool_call_id=agent.tool_call_id,
        )


RunOfChild: TypeAlias = Callable[[Work], Coroutine[Any, Any, RunResult]]
"""Does a child's work, to its end."""


class MakeRun(Protocol):
    """Makes the run of a child."""

    def __call__(
        self,
        child: TreeAgent,
        resources: AgentResources,
        output_type: Any,
        *,
        bring_back: bool,
    ) -> RunOfChild:
        """Make the run; it begins when it is called.

        Args:
            child: The child.
            resources: Its kernel and connections.
            output_type: The type of its answer, as pydantic-ai's `output_type`.
            bring_back: It has ended before: its new kernel gets the variables that it had.
        """
        ...


@dataclass(frozen=True, kw_only=True)
class PlannedChild:
    """A child that does not exist yet."""

    request: ChildRequest
    """The request, completed by the factory and the child's type."""
    agent_type: AgentType | None
    model: Model | None
    """None: its parent's."""
    answers: ChildAgent | None
    """Set for a child implemented in Python."""
    earlier: EarlierChild | None
    """The ended child that this run resumes. None: the child is new."""
    starter: TreeAgent
    of_program: bool
    """A program starts it, not a model or its code."""
    payer: Account | None
    """An account below that of its parent's run, which pays. None: the run's."""

    def run(self, child: TreeAgent, run: RunOfChild) -> Coroutine[Any, Any, RunResult]:
        """Run the child to its end. Args: child: made for this plan. run: does its work."""
        prompt, answers = self.request.prompt, self.answers
        if answers is not None:
            return run(Work(prompt=prompt, program=lambda: answers.run(prompt, child.context)))
        check, verify = self.request.check, self.request.verify
        verifier = None
        if check or verify:
            verifier = Verifier(check=check, verify=verify, starter=self.starter, of_program=self.of_program)
        work = Work(prompt=prompt, content=self.request.content, prepare=self.request.prepare, verifier=verifier)
        if self.earlier is not None or verifier is not None:
            return run(work)  # what it answers follows from what it has done before, and what was checked is in its kernel
        return run(replace(work, request=self.request))


async def planned(
    request: ChildRequest, agent: TreeAgent, tree: Tree, payer: Account | None, *, of_program: bool
) -> PlannedChild:
    """Ask the factory and the type what a child of an agent is to be, or what one was that has ended.

    Raises:
        SpawnForbiddenError: There is to be no such child.
        InvalidRequestError: There is no such type, or no such child.
        ConfigError: Its model cannot be built.
    """
    if request.check is not None:
        request = request.replace(check=checked_check(request.check))
    request, answers = _made(request, agent)
    earlier = None
    if request.resume is not None:
        earlier = await earlier_child(request.resume, agent, tree)
        request = as_it_was(request, earlier, agent)
    request, agent_type = resolved(request, agent)
    check_tools(request, agent_type, agent)
    name = chosen_model(request.model, agent_type, agent)
    fallbacks = agent_type.fallback_models if agent_type is not None and name == agent_type.model else None
    model = await agent.shared.other_models.get(name, fallbacks) if name is not None and answers is None else None
    if agent_type is not None and agent_type.code_actions is not None:
        model = acting_by(model or agent.model, agent_type.code_actions)
    if earlier is not None and request.model is None:
        model = await model_of(earlier, model or agent.model, agent)
    return PlannedChild(
        request=request,
        agent_type=agent_type,
        model=model,
        answers=answers,
        earlier=earlier,
        starter=agent,
        of_program=of_program,
        payer=payer,
    )


def _made(request: ChildRequest, agent: TreeAgent) -> tuple[ChildRequest, ChildAgent | None]:
    """Return the request as the factory changed it, and the child if it is implemented in Python."""
    try:
        made = agent.shared.factory.create(request, agent.context)
    except FreeactError:
        raise
    except Exception as error:  # border: code of the SDK's user
        logger.exception("the agent factory failed")
        raise SpawnForbiddenError(f"the agent factory failed: {type(error).__name__}: {error}") from error
    if isinstance(made, ChildRequest):
        if made.prompt != request.prompt and made.content == request.content:
            seen = (part for part in request.content if not isinstance(part, str))
            made = made.replace(content=(made.prompt, *seen) if request.content else ())
        return made.replace(tool_call_id=request.tool_call_id), None
    if not isinstance(made, ChildAgent):
        raise SpawnForbiddenError(
            f"the agent factory returned a {type(made).__name__}: it must return a ChildRequest, or an object with "
            "`async def run(prompt, context)`"
        )
    if request.is_branch or request.branch_of is not None or request.keep or request.prepare is not None or request.resume:
        raise InvalidRequestError("this child is Python code and has no kernel: leave out inputs, branch, keep and resume")
    if request.check is not None or request.verify is not None:
        raise InvalidRequestError("this child is Python code, whose answer is not checked: leave out check")
    return request, made
