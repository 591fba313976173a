"""Skills in conversations: put there by a person, once; kept when the rest is summarised; no exchange of their own."""

import pytest
from pydantic_ai.messages import (
    CompactionPart,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    TextPart,
    UserPromptPart,
)
from support.agents import of_kind, read
from support.windows import is_summary_request, text_of

from freeact_sub import Agent, Config
from freeact_sub.agents.prompt import last_exchanges, loaded_in
from freeact_sub.errors import InvalidRequestError
from freeact_sub.events import AgentStarted, Compacted, SkillLoaded
from freeact_sub.features.compaction import texts_to_keep, to_summarise, transcript, with_summary
from freeact_sub.features.skills.feature import content_of
from freeact_sub.features.skills.skill import Skill
from freeact_sub.testing import FakeKernelProvider, ScriptedModel


@pytest.fixture
def folder(tmp_path):
    for name in ("one", "two"):
        path = tmp_path / "skills" / name
        path.mkdir(parents=True)
        (path / "SKILL.md").write_text(f"---\nname: {name}\ndescription: The {name} skill.\n---\nText of {name}.")
    return tmp_path / "skills"


@pytest.fixture
def make(tmp_path, folder):
    def make_agent(script, **config):
        settings = Config(workspace=tmp_path, skill_folders=[folder], mode="full", **config)
        return Agent(settings, model=ScriptedModel(script), kernel_provider=FakeKernelProvider())

    return make_agent


@pytest.mark.features("skills")
async def test_a_person_loads_a_skill_with_a_prompt_and_it_is_there_once(make):
    seen = []

    def script(messages, info):
        seen.append(info.instructions)
        return "done"

    async with make(script) as agent:
        assert agent.skills == {"one": "The one skill.", "two": "The two skill."}
        first, _ = await read(agent.run([agent.skill("one"), "go"]))
        again, _ = await read(agent.run([agent.skill("one"), agent.skill("two"), "go on"]))
        assert text_of(agent.history).count("Text of one.") == 1
        assert [*loaded_in(agent.history)] == ["one", "two"]
        with pytest.raises(InvalidRequestError, match="did you mean 'one'"):
            agent.skill("onne")
    assert [event.prompt for event in of_kind(first, AgentStarted)] == ["/one\ngo"]
    assert [event.name for events in (first, again) for event in of_kind(events, SkillLoaded)] == ["one", "two"]
    assert "\n  - one: The one skill.\n  - two: The two skill." in seen[0]
    assert "Text of" not in seen[0]


@pytest.mark.features("skills", "compaction")
@pytest.mark.slow
async def test_a_skill_survives_a_summary_and_the_summary_of_that(make):
    def script(messages, info):
        return "a summary" if is_summary_request(messages) else "word " * 2_000

    async with make(script) as agent:
        await agent.run("begin").result()
        await agent.run([agent.skill("one"), "go"]).result()
        for _ in range(2):
            await agent.run("go on").result()
            await agent.run("and on").result()
            events, _ = await read(agent.run_compaction())
            assert of_kind(events, Compacted)[0].summary == "a summary"
            assert text_of(agent.history).count("Text of one.") == 1
            assert [*loaded_in(agent.history)] == ["one"]
        events, _ = await read(agent.run([agent.skill("one"), "once more"]))
        assert of_kind(events, SkillLoaded) == []
        stored = ModelMessagesTypeAdapter.validate_json(ModelMessagesTypeAdapter.dump_json(agent.history))
        assert [*loaded_in(stored)] == ["one"]


def skill(name: str, text: str = "text") -> UserPromptPart:
    return UserPromptPart([content_of(Skill(name=name, description="", text=text, folder=__file__))])


def prompt(text: str) -> ModelRequest:
    return ModelRequest([UserPromptPart(text)])


def answer(text: str = "answer") -> ModelResponse:
    return ModelResponse([TextPart(text)])


def test_the_newest_skills_stay_while_there_is_room():
    messages = [prompt("begin"), answer()]
    messages += [part for name in "abc" for part in (ModelRequest([skill(name, "x" * 4_000)]), answer())]
    kept, left_out = texts_to_keep(messages, len(messages), 3_000)
    assert ([part.metadata["freeact_text"] for part in kept], left_out) == (["b", "c"], ["a"])
    assert texts_to_keep(messages, 2, 3_000) == ([], [])
    shorter = with_summary(messages, 6, "a summary", "", kept[:1])
    assert [*loaded_in(shorter)] == ["b", "c"]
    assert [type(part) for part in shorter[0].parts] == [UserPromptPart, CompactionPart, UserPromptPart]
    assert to_summarise(shorter[:1], 1) == []
    assert "xxx" not in transcript(messages, 100_000)
    assert "[the skill b]" in transcript(messages, 100_000)


def test_a_skill_that_is_loaded_in_the_middle_begins_no_exchange():
    history = [prompt("first"), answer(), prompt("second"), answer(), ModelRequest([skill("one")]), answer()]
    assert last_exchanges(history, 1) == history[2:]
    assert last_exchanges(history, 2) == history
    with_words = ModelRequest([UserPromptPart([*skill("one").content, "go"])])
    last = answer()
    assert last_exchanges([*history, with_words, last], 1) == [with_words, last]
