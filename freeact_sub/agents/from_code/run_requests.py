"""`RunRequests`: what code of an agent may ask that its own run answers: models, children, steps, skills.

The handlers are made when the code first asks something; in most runs it never does.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from freeact_sub.agents.children.owner import ChildOwner
from freeact_sub.agents.from_code.ask import AskRequests
from freeact_sub.agents.from_code.base import Handler
from freeact_sub.agents.from_code.children import BackgroundRequests, NodeRequests, TaskRequests
from freeact_sub.agents.from_code.people import ProgressRequests
from freeact_sub.agents.from_code.skills import SkillRequests
from freeact_sub.agents.loaded_texts import LoadedTexts
from freeact_sub.agents.resources import AgentResources
from freeact_sub.agents.tree import TreeAgent
from freeact_sub.agents.turn.single_request import SingleRequests


@dataclass
class RunRequests:
    """Those of one agent; a program asks through the same objects."""

    agent: TreeAgent
    resources: AgentResources
    children: ChildOwner
    single_requests: SingleRequests
    texts: LoadedTexts

    @cached_property
    def asks(self) -> AskRequests:
        """Questions to a model."""
        return AskRequests(self.resources.calls, self.single_requests, self.children.fan_outs)

    @cached_property
    def tasks(self) -> TaskRequests:
        """Children that are waited for."""
        return TaskRequests(self.resources.calls, self.children, self.resources.kernel.get)

    @cached_property
    def progress(self) -> ProgressRequests:
        """Steps of strategies."""
        return ProgressRequests(self.agent, self.children.fan_outs)

    def handlers(self) -> Mapping[str, Handler]:
        """By the name of the request."""
        return {
            **self.tasks.handlers,
            **self.asks.handlers,
            **self.progress.handlers,
            **BackgroundRequests(self.resources.calls, self.children).handlers,
            **NodeRequests(self.children.nodes, self.resources.kernel.get).handlers,
            **SkillRequests(self.agent, self.texts).handlers,
        }
