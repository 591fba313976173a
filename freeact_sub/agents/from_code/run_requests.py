"""`RunRequests`: what code of an agent may ask that its own run answers: models, children, steps.

The handlers are imported and made when the code first asks something; in most runs it never does.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from freeact_sub.agents.children.owner import ChildOwner
from freeact_sub.agents.feature import Handler
from freeact_sub.agents.from_code.people import ProgressRequests
from freeact_sub.agents.resources import AgentResources
from freeact_sub.agents.tree_agent import TreeAgent
from freeact_sub.agents.turn.single_request import SingleRequests

if TYPE_CHECKING:
    from freeact_sub.agents.from_code.ask import AskRequests
    from freeact_sub.agents.from_code.children import TaskRequests


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
    def progress(self) -> ProgressRequests:
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
