"""Skills that agents know and load (`SkillsFeature`).

A model reads the catalogue in its system prompt. Code in a cell loads a skill by `agent.skill`, and the model reads its text
before its next request; a person loads one by `Agent.skill`. Kernels import the Python of skills, and do not write their
folders. A text is never twice in a conversation (`agents/prompt.py`).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from pydantic import Field
from pydantic_ai.messages import TextContent

from freeact_sub.agents.feature import Feature, FeatureAgent, FeatureRoot, Handler, RunPart
from freeact_sub.agents.life import TreeAgent, tree_agent
from freeact_sub.agents.prompt import loaded_in, name_in, named_text
from freeact_sub.agents.requests import Params, tool_call_id_of, validated
from freeact_sub.agents.rights import AgentType, only
from freeact_sub.agents.root import whole_root
from freeact_sub.channel import Tap
from freeact_sub.errors import FreeactError, InvalidRequestError
from freeact_sub.events import SkillLoaded
from freeact_sub.features.skills.skill import Skill, catalogue, load_skills, loaded_text
from freeact_sub.kernels import CellClock, KernelSpec
from freeact_sub.text import unknown_name

KNOWN: Final = "(The text of the skill {name} stands above, in this conversation.)"


class SkillParams(Params):
    """Parameters of a request."""

    name: str = Field(max_length=200)


class SkillsPart(RunPart):
    """The skills in the prompt of one run."""

    def __init__(self, agent: FeatureAgent) -> None:
        self._agent = agent

    async def opening(self, said: str, *, is_prompt: bool) -> str:
        """Announce the skills in the prompt; one that the conversation has already becomes a note."""
        del said
        run = self._agent.run
        if is_prompt and any(map(name_in, run.prompt)):
            known, parts = set(loaded_in(run.conversation)), []
            for part in run.prompt:
                name = name_in(part)
                parts.append(KNOWN.format(name=name) if name in known else part)
                if name and name not in known:
                    known.add(name)
                    await self._agent.emitter.emit(SkillLoaded(name=name))
            run.prompt = parts
        return ""


class SkillsFeature(Feature):
    """The skills of one tree of agents."""

    name = "skills"

    def __init__(self) -> None:
        self._skills: Mapping[str, Skill] = {}

    def attach(self, root: FeatureRoot) -> Sequence[Tap]:
        """Read the skills, and tell people their faults."""
        found = load_skills(root.agent.config.skill_contents.values())
        self._skills = found.skills
        for problem in (*found.problems, *unknown_skills(whole_root(root).tree.shared.types.values(), self._skills)):
            root.notice(problem)
        return ()

    def run(self, agent: FeatureAgent) -> RunPart | None:
        """Look at the prompt of each run, if there are skills."""
        return SkillsPart(agent) if self._skills else None

    def instructions(self, agent: FeatureAgent) -> str:
        """Tell the model the skills that it may load."""
        skills = self._skills_of(agent)
        return catalogue(skills) if skills else ""

    def kernel(self, agent: FeatureAgent, spec: KernelSpec) -> KernelSpec:
        """Let kernels import the Python of skills, and not write their folders."""
        if not (skills := self._skills_of(agent).values()):
            return spec
        from freeact_sub.kernels.wall.sandbox import with_read_only  # noqa: PLC0415  # only kernels need it

        return replace(
            spec,
            skills=tuple(module for skill in skills for module in skill.modules),
            sandbox=with_read_only(spec.sandbox, [skill.folder for skill in skills]),
        )

    def requests(self, agent: FeatureAgent) -> Mapping[str, Handler]:
        """Load a skill for code of an agent; a node has no model that could read it."""
        whole = tree_agent(agent)

        async def load(params: Mapping[str, Any], clock: CellClock | None) -> dict[str, Any]:
            name = validated(SkillParams.model_validate, params, "agent.skill").name
            skills = {known: skill for known, skill in self._skills_of(whole).items() if not skill.for_people}
            if name not in skills:
                raise InvalidRequestError(unknown_name("skill", name, skills))
            return await _load(skills[name], whole, clock)

        return {"skill": load} if whole.owner is None else {}

    @property
    def descriptions(self) -> dict[str, str]:
        """The descriptions of the root's skills, by name."""
        return {name: skill.description for name, skill in self._skills.items()}

    def text(self, name: str) -> TextContent:
        """Return the text of a skill as a part of a prompt. Raises: InvalidRequestError: There is no such skill."""
        if name not in self._skills:
            raise InvalidRequestError(unknown_name("skill", name, self._skills))
        return content_of(self._skills[name])

    def _skills_of(self, agent: FeatureAgent) -> Mapping[str, Skill]:
        return only(self._skills, tree_agent(agent).rights.skills)


def unknown_skills(types: Iterable[AgentType], skills: Mapping[str, Skill]) -> list[str]:
    """Return a sentence on each unknown skill that an agent type names."""
    return [
        f"{agent_type.file}: `skills` names {unknown_name('skill', name, skills)}"
        for agent_type in types
        for name in agent_type.skills or ()
        if name not in skills
    ]


def content_of(skill: Skill) -> TextContent:
    """Return a skill as a part of a prompt."""
    return named_text(skill.name, loaded_text(skill))


async def _load(skill: Skill, agent: TreeAgent, clock: CellClock | None) -> dict[str, Any]:
    """Let the model read a skill, and return the part for code. Raises: FreeactError: No model is at work."""
    known = skill.name in loaded_in(agent.run.conversation)
    if not known:
        if agent.run.tell(content_of(skill)) is not True:
            raise FreeactError(f"the skill {skill.name!r} is not loaded: no model is running here to read it")
        await agent.emitter.emit(SkillLoaded(name=skill.name), tool_call_id=tool_call_id_of(clock))
    return {"name": skill.name, "folder": str(skill.folder), "files": list(skill.files), "known": known}
