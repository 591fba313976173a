"""Plans a child: combines what the request, features and the type say."""

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from pydantic_ai.messages import UserContent
from pydantic_ai.models import Model

from freeact_sub.agents.choices import check_tools, chosen_model, resolved
from freeact_sub.agents.life import TreeAgent, tree_agent
from freeact_sub.agents.requested_call import NewChild
from freeact_sub.agents.resumed import EarlierChild, as_it_was, earlier_child, model_of
from freeact_sub.agents.rights import AgentType
from freeact_sub.agents.tree import Tree
from freeact_sub.agents.verifier import Verifier, checked_check
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


@dataclass(frozen=True, kw_only=True)
class PlannedChild:
    """A child that does not exist yet."""

    request: ChildRequest
    """The request, completed by features and the child's type."""
    agent_type: AgentType | None
    model: Model | None
    """None: its parent's."""
    earlier: EarlierChild | None
    """The ended child that this run resumes. None: the child is new."""
    new: NewChild
    """The child as it was asked for."""

    def work(self, child: TreeAgent) -> Work:
        """The work of the child. Args: child: made for this plan."""
        prompt, program = self.request.prompt, self.new.program
        if program is not None:
            return Work(prompt=prompt, program=lambda: program(prompt, child.context))
        check, verify = self.request.check, self.request.verify
        verifier = None
        if check or verify:
            starter, of_program = tree_agent(self.new.agent), self.new.by == "program"
            verifier = Verifier(check=check, verify=verify, starter=starter, of_program=of_program)
        work = Work(prompt=prompt, content=self.request.content, prepare=self.request.prepare, verifier=verifier)
        if self.earlier is not None or verifier is not None:
            return work  # what it answers follows from what it has done before, and what was checked is in its kernel
        return replace(work, request=self.request)


async def planned(new: NewChild, tree: Tree) -> PlannedChild:
    """Complete the request for a child by its type, or by the ended child that it resumes.

    Raises:
        SpawnForbiddenError: There is to be no such child.
        InvalidRequestError: There is no such type, or no such child.
        ConfigError: Its model cannot be built.
    """
    agent, request, earlier = tree_agent(new.agent), new.request, None
    if request.check is not None:
        request = request.replace(check=checked_check(request.check))
    if request.resume is not None:
        earlier = await earlier_child(request.resume, agent, tree)
        request = as_it_was(request, earlier, agent)
    request, agent_type = resolved(request, agent)
    check_tools(request, agent_type, agent)
    name = chosen_model(request.model, agent_type, agent)
    fallbacks = agent_type.fallback_models if agent_type is not None and name == agent_type.model else None
    model = await agent.shared.other_models.get(name, fallbacks) if name is not None and new.program is None else None
    if agent_type is not None and agent_type.code_actions is not None:
        model = acting_by(model or agent.model, agent_type.code_actions)
    if earlier is not None and request.model is None:
        model = await model_of(earlier, model or agent.model, agent)
    return PlannedChild(
        request=request,
        agent_type=agent_type,
        model=model,
        earlier=earlier,
        new=new,
    )
