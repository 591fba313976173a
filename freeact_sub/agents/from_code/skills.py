"""Handles `skill`: code in a cell loads a skill, whose text the model reads before its next request."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pydantic import Field
from pydantic_ai.messages import ModelMessage, TextContent

from freeact_sub.agents.children.type_effects import skills_of
from freeact_sub.agents.from_code.base import Params, tool_call_id_of, validated
from freeact_sub.agents.loaded_skills import content_of, loaded_in
from freeact_sub.agents.tree import TreeAgent
from freeact_sub.agents.types.files import unknown_name
from freeact_sub.errors import FreeactError, InvalidRequestError
from freeact_sub.events import SkillLoaded
from freeact_sub.kernels import CellClock
from freeact_sub.skills import Skill


class SkillParams(Params):
    """The parameters of a request."""

    name: str = Field(max_length=200)


class SkillRequests:
    """Loads skills for code."""

    def __init__(
        self,
        agent: TreeAgent,
        history: Callable[[], Sequence[ModelMessage]],
        send: Callable[[TextContent], bool | None],
    ) -> None:
        """Args: history: the conversation so far. send: see `AgentLoop.send`."""
        self._agent, self._history, self._send = agent, history, send
        self.handlers = {"skill": self._load}
        self._under_way: tuple[ModelMessage | None, set[str]] = (None, set())
        """What was sent after this message, and is not in the conversation yet."""

    async def _load(self, params: Mapping[str, Any], clock: CellClock | None) -> dict[str, Any]:
        skill = self._found(validated(SkillParams.model_validate, params, "agent.skill").name)
        history = self._history()
        last = history[-1] if history else None
        if last is not self._under_way[0]:
            self._under_way = last, set()
        known = skill.name in self._under_way[1] or skill.name in loaded_in(history)
        if not known:
            if not self._send(content_of(skill)):
                raise FreeactError(f"the skill {skill.name!r} is not loaded: no model is at work here that could read it")
            self._under_way[1].add(skill.name)
            await self._agent.emitter.emit(SkillLoaded(name=skill.name), tool_call_id=tool_call_id_of(clock))
        return {"name": skill.name, "folder": str(skill.folder), "files": list(skill.files), "known": known}

    def _found(self, name: str) -> Skill:
        """Raises: InvalidRequestError: There is no such skill for a model of this agent."""
        skills = {known: skill for known, skill in skills_of(self._agent).items() if not skill.for_people}
        if name not in skills:
            raise InvalidRequestError(unknown_name("skill", name, skills))
        return skills[name]
