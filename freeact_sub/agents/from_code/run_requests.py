"""`RunRequests`: what code of an agent may ask that its own run answers: models, children, steps, skills.

The handlers are imported and made when the code first asks something; in most runs it never does. `SkillRequests`: code in a
cell loads a skill, whose text the model reads before its next request.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pydantic import Field

from freeact_sub.agents.children.owner import ChildOwner
from freeact_sub.agents.feature import Handler
from freeact_sub.agents.from_code.base import Params, tool_call_id_of, validated
from freeact_sub.agents.from_code.people import ProgressRequests
from freeact_sub.agents.loaded_texts import LoadedTexts, content_of, skills_of
from freeact_sub.agents.resources import AgentResources
from freeact_sub.agents.tree_agent import TreeAgent
from freeact_sub.agents.turn.single_request import SingleRequests
from freeact_sub.errors import FreeactError, InvalidRequestError
from freeact_sub.events import SkillLoaded
from freeact_sub.kernels import CellClock
from freeact_sub.skills import Skill
from freeact_sub.text import unknown_name

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
    texts: LoadedTexts

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
        from freeact_sub.agents.from_code.children import BackgroundRequests, NodeRequests  # noqa: PLC0415  # see above

        return {
            **self.tasks.handlers,
            **self.asks.handlers,
            **self.progress.handlers,
            **BackgroundRequests(self.resources.calls, self.children).handlers,
            **NodeRequests(self.children.nodes, self.resources.kernel.get).handlers,
            **SkillRequests(self.agent, self.texts).handlers,
        }


class SkillParams(Params):
    """The parameters of a request."""

    name: str = Field(max_length=200)


class SkillRequests:
    """Loads skills for code."""

    def __init__(self, agent: TreeAgent, texts: LoadedTexts) -> None:
        self._agent, self._texts = agent, texts
        self.handlers = {"skill": self._load}

    async def _load(self, params: Mapping[str, Any], clock: CellClock | None) -> dict[str, Any]:
        skill = self._found(validated(SkillParams.model_validate, params, "agent.skill").name)
        known = skill.name in self._texts.present
        if not known:
            if not self._texts.load(content_of(skill)):
                raise FreeactError(f"the skill {skill.name!r} is not loaded: no model is running here to read it")
            await self._agent.emitter.emit(SkillLoaded(name=skill.name), tool_call_id=tool_call_id_of(clock))
        return {"name": skill.name, "folder": str(skill.folder), "files": list(skill.files), "known": known}

    def _found(self, name: str) -> Skill:
        """Raises: InvalidRequestError: There is no such skill for a model of this agent."""
        skills = {known: skill for known, skill in skills_of(self._agent).items() if not skill.for_people}
        if name not in skills:
            raise InvalidRequestError(unknown_name("skill", name, skills))
        return skills[name]
