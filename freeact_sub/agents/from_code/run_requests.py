"""`RunRequests`: what code of an agent may ask that its own run answers: models, children, steps.

The handlers are imported and made when the code first asks something; in most runs it never does.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, Final

from pydantic import TypeAdapter

from freeact_sub.agents.children.owner import ChildOwner
from freeact_sub.agents.feature import Handler
from freeact_sub.agents.from_code.base import tool_call_id_of, validated
from freeact_sub.agents.resources import AgentResources
from freeact_sub.agents.tree_agent import TreeAgent
from freeact_sub.agents.turn.single_request import SingleRequests
from freeact_sub.events import StrategyProgress
from freeact_sub.events.progress import SearchedState, StrategyStep
from freeact_sub.kernels import CellClock

if TYPE_CHECKING:
    from freeact_sub.agents.from_code.ask import AskRequests
    from freeact_sub.agents.from_code.children import TaskRequests


MAX_CHARS: Final = 500
"""Characters of each text in a step: code in a kernel writes them."""
MAX_NUMBER: Final = 10**9


@dataclass
class RunRequests:
    """Those of one agent; a program asks through the same objects."""

    agent: TreeAgent
    resources: AgentResources
    children: ChildOwner
    single_requests: SingleRequests

    @cached_property
    def asks(self) -> "AskRequests":
        """Questions to a model."""
        from freeact_sub.agents.from_code.ask import AskRequests  # noqa: PLC0415  # see above

        return AskRequests(self.resources.calls, self.single_requests)

    @cached_property
    def tasks(self) -> "TaskRequests":
        """Children that are waited for."""
        from freeact_sub.agents.from_code.children import TaskRequests  # noqa: PLC0415  # see above

        return TaskRequests(self.resources.calls, self.children, self.resources.kernel.get)

    @cached_property
    def progress(self) -> "ProgressRequests":
        """Steps of strategies."""
        return ProgressRequests(self.agent)

    def handlers(self) -> Mapping[str, Handler]:
        """By the name of the request."""
        from freeact_sub.agents.from_code.children import NodeRequests  # noqa: PLC0415  # see above

        return {
            **self.tasks.handlers,
            **self.asks.handlers,
            **self.progress.handlers,
            **NodeRequests(self.children.nodes, self.resources.kernel.get).handlers,
        }


class ProgressRequests:
    """Handles `progress`: the steps of strategies, in a cell or in a program, become events of their agent."""

    def __init__(self, agent: TreeAgent) -> None:
        self._agent = agent
        self.handlers = {"progress": self._reply}

    async def _reply(self, params: Mapping[str, Any], clock: CellClock | None) -> None:
        await self.report(params, tool_call_id_of(clock))

    async def report(self, step: Mapping[str, Any], tool_call_id: str | None = None) -> None:
        """Emit the event. Args: step: the fields of a `StrategyStep`.

        Raises:
            InvalidRequestError: A field is invalid.
        """
        valid = validated(_adapter().validate_python, step, "agent.progress")
        node = None if valid.node is None else replace(valid.node, **_bounded(valid.node))
        step = {**vars(valid), **_bounded(valid), "node": node}
        await self._agent.emitter.emit(StrategyProgress(**step), tool_call_id=tool_call_id)


def _bounded(value: StrategyStep | SearchedState) -> dict[str, Any]:
    fields = dict[str, Any]()
    for name, given in vars(value).items():
        if isinstance(given, str):
            fields[name] = given[:MAX_CHARS]
        elif isinstance(given, float):
            fields[name] = min(1.0, max(0.0, given))  # no number is 0
        elif isinstance(given, int):
            fields[name] = type(given)(min(MAX_NUMBER, max(0, given)))
    return fields


@cache
def _adapter() -> TypeAdapter[StrategyStep]:
    return TypeAdapter(StrategyStep)
