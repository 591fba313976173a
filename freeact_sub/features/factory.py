"""Children as a program's own object makes them (`FactoryFeature`, `Agent(factory=...)`)."""

import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, Protocol, TypeVar, runtime_checkable

from freeact_sub.agents.feature import Feature, FeatureAgent, NewChild, RunPart
from freeact_sub.agents.life import TreeAgent, tree_agent
from freeact_sub.agents.shared import ExecutionContext
from freeact_sub.errors import FreeactError, InvalidRequestError, SpawnForbiddenError
from freeact_sub.tools import ChildRequest

T = TypeVar("T")
logger = logging.getLogger(__name__)


@runtime_checkable
class ChildAgent(Protocol):
    """A child implemented in Python, without a model, kernel or tools of its own."""

    async def run(self, prompt: str, context: ExecutionContext) -> Any:
        """Do the work and return the answer; an exception ends the child as `failed`.

        Args:
            prompt: The child's prompt.
            context: The child. Cancellation and timeout arrive as `asyncio.CancelledError`.
        """
        ...


class AgentFactory(Protocol):
    """A maker of children from requests; a user of the SDK may supply another.

    Every child passes through it, whether a model, code in a cell or a program starts it. It runs after the approval and
    before the bounds: in any case mode and budget are narrowed to the parent's, and the spawn is counted.
    """

    def create(self, request: ChildRequest, context: ExecutionContext) -> ChildRequest | ChildAgent:
        """Turn a request into a child.

        Args:
            request: The child as requested.
            context: The agent that starts it.

        Returns:
            The request, unchanged or changed by `request.replace`, to start an ordinary agent; or a `ChildAgent`.

        Raises:
            SpawnForbiddenError: The child must not start; the caller reads the reason.
        """
        ...


class FactoryFeature(Feature):
    """The factory of a program, asked about each child."""

    def __init__(self, factory: AgentFactory) -> None:
        self._factory = factory

    def run(self, agent: FeatureAgent) -> "FactoryPart":
        """Make the part for a run."""
        return FactoryPart(self._factory, tree_agent(agent))


class FactoryPart(RunPart):
    """The factory's part in one run."""

    def __init__(self, factory: AgentFactory, agent: TreeAgent) -> None:
        self._factory, self._agent = factory, agent

    async def child(self, child: NewChild, proceed: Callable[[NewChild], Awaitable[T]]) -> T:
        """Start the child that the factory makes of the request."""
        return await proceed(self._made(child))

    def _made(self, child: NewChild) -> NewChild:
        request = child.request
        try:
            made = self._factory.create(request, self._agent.context)
        except FreeactError:
            raise
        except Exception as error:  # border: code of the SDK's user
            logger.exception("the agent factory failed")
            raise SpawnForbiddenError(f"the agent factory failed: {type(error).__name__}: {error}") from error
        if isinstance(made, ChildRequest):
            if made.prompt != request.prompt and made.content == request.content:
                seen = (part for part in request.content if not isinstance(part, str))
                made = made.replace(content=(made.prompt, *seen) if request.content else ())
            return replace(child, request=made.replace(tool_call_id=request.tool_call_id))
        if not isinstance(made, ChildAgent):
            raise SpawnForbiddenError(
                f"the agent factory returned a {type(made).__name__}: it must return a ChildRequest, or an object with "
                "`async def run(prompt, context)`"
            )
        has_kernel = request.is_branch or request.branch_of is not None or request.keep or request.prepare is not None
        if has_kernel or request.resume:
            raise InvalidRequestError(
                "this child is Python code and has no kernel: leave out inputs, branch, keep and resume"
            )
        if request.check is not None or request.verify is not None:
            raise InvalidRequestError("this child is Python code, whose answer is not checked: leave out check")
        return replace(child, program=made.run)
