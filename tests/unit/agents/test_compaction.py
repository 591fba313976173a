"""Conversations that would fill the window of their model go on, shortened."""

import asyncio
import re

import pytest
from pydantic import BaseModel
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.messages import CompactionPart, ModelRequest, ToolCallPart, ToolReturnPart, UserPromptPart
from pydantic_ai.models.function import FunctionModel
from support.agents import cell, of_kind, read
from support.waiting import eventually
from support.windows import WindowedModel, is_summary_request, text_of

from freeact_sub import Agent, AgentBusyError, ChildRequest, Config, FreeactError
from freeact_sub.config.budget import Budget
from freeact_sub.events import Compacted, Notice, UsageUpdated
from freeact_sub.features.compaction import SMALLEST, transcript
from freeact_sub.models.blocks import SUMMARISED
from freeact_sub.testing import FakeKernelProvider

pytestmark = pytest.mark.features("compaction")

WORDS = "one two six ten "
FACT = re.compile(r"fact \d+ is \w+")


@pytest.fixture
def windowed(tmp_path):
    def make(script, *, window_tokens=8_000, told=True, **config):
        model = WindowedModel(script, window_tokens=window_tokens)
        context = {"window_tokens": window_tokens, **config.pop("context", {})} if told else {}
        settings = Config(workspace=tmp_path, mode="full", context=context, **config)
        agent = Agent(settings, model=model, kernel_provider=FakeKernelProvider())
        agent.scripted = model
        return agent

    return make


def facts_in(text):
    return sorted(set(FACT.findall(text)))


def summary_of(messages):
    return "; ".join(facts_in(text_of(messages))) + " " + WORDS * 40


async def run_all(agent, prompts):
    """The events of all runs and their results."""
    events, results = [], []
    for prompt in prompts:
        more, result = await read(agent.run(prompt))
        events += more
        results.append(result)
    return events, results


@pytest.mark.slow
async def test_two_hundred_prompts_fit_into_a_window_of_16k_and_the_fact_of_the_third_is_there(windowed):
    def script(messages, info):
        if is_summary_request(messages):
            return summary_of(messages)
        last = messages[-1]
        prompt = text_of([last])
        if "cell please" in prompt and not any(isinstance(part, ToolReturnPart) for part in last.parts):
            return [cell(f"print({WORDS!r} * 400)")]
        if "which facts" in prompt:
            assert "prompt 1 " in text_of(messages[:1])  # the first prompt stays
            return ", ".join(facts_in(text_of(messages)))
        return WORDS * 60

    def prompt(number):
        said = {3: "fact 3 is azure", 150: "fact 150 is olive", 200: "which facts?"}.get(number, "")
        return f"prompt {number} {said} {'cell please' if number % 4 == 0 and number < 200 else ''} {WORDS * 30}"

    async with windowed(script, window_tokens=16_384) as agent:
        events, results = await run_all(agent, [prompt(number) for number in range(1, 201)])
        model = agent.scripted
    assert {result.status for result in results} == {"completed"}
    assert results[-1].output == "fact 150 is olive, fact 3 is azure"
    compacted = of_kind(events, Compacted)
    assert model.summaries == sum(bool(event.summary) for event in compacted) > 1
    before = of_kind(events, Notice)
    assert len(before) == model.summaries
    for told, event in zip(before, [event for event in compacted if event.summary], strict=True):
        assert told.seq < event.seq
        went = f"a summary takes the place of {event.prompts} prompts and {event.turns} turns"
        assert re.match(rf"the conversation takes [\d,]+ of 16,384 tokens: {went}", told.content)
        assert event.prompts > 1
        assert event.turns > event.kept_turns > 0
    assert all(0 < event.tokens_after < event.tokens_before for event in compacted)
    assert sum(result.usage.turns for result in results) == model.requests


async def test_old_outputs_go_first_and_the_notes_name_files_that_have_all_of_them(windowed, tmp_path):
    def script(messages, info):
        turns = sum(message.kind == "response" for message in messages)
        return [cell(f"print('output {turns} ' + {WORDS!r} * 550 + 'end {turns}')")] if turns < 20 else "done"

    async with windowed(script, window_tokens=26_000) as agent:
        events, result = await read(agent.run("go"))
        history = agent.history
        assert agent.scripted.summaries == 0
    assert result.status == "completed"
    compacted = of_kind(events, Compacted)
    assert compacted
    assert all(event.outputs and not event.summary for event in compacted)
    outputs = [part.content for message in history for part in message.parts if isinstance(part, ToolReturnPart)]
    assert [f"output {number} " in text for number, text in enumerate(outputs)] == [True] * 20
    notes = [(number, text) for number, text in enumerate(outputs) if "left out to make room" in text]
    assert notes[0][0] == 0
    assert notes[-1][0] < 19  # the newest is whole
    for number, text in notes:
        file = re.search(r"all of the output is in (.+)\]", text)[1]
        assert file.startswith(str(tmp_path))
        with open(file) as whole:
            assert whole.read().rstrip().endswith(f"end {number}")


async def test_a_long_output_keeps_the_file_that_it_has_already(windowed, tmp_path):
    def script(messages, info):
        turns = sum(message.kind == "response" for message in messages)
        return [cell(f"print('{turns} ' + 'word ' * 1000)")] if turns < 12 else "done"

    async with windowed(script, kernel={"output_chars": 1_500}, context={"compact_at": 0.3}) as agent:
        await read(agent.run("go"))
        outputs = [part.content for message in agent.history for part in message.parts if isinstance(part, ToolReturnPart)]
    files = re.findall(r"all of the output is in (.+)\]", "\n".join(outputs))
    assert files
    for file in files:
        with open(file) as whole:
            assert len(whole.read()) > 4_000
    assert len(set(files)) == len(files)


async def test_a_summary_is_paid_for_by_the_agent_and_told(windowed):
    def script(messages, info):
        return "short summary" if is_summary_request(messages) else WORDS * 200

    async with windowed(script) as agent:
        events, results = await run_all(agent, ["go " + WORDS * 100] * 12)
    with_summary = [result for result in results if result.usage.turns == 2]
    assert len(with_summary) == len(of_kind(events, Compacted)) == agent.scripted.summaries > 0
    assert agent.usage.turns == agent.scripted.requests == sum(result.usage.turns for result in results)
    assert of_kind(events, UsageUpdated)[-1].tree_usage == results[-1].tree_usage


async def test_a_summary_that_the_budget_does_not_allow_changes_nothing(windowed):
    def script(messages, info):
        assert not is_summary_request(messages)
        return WORDS * 200

    async with windowed(script, context={"compact_at": None}) as agent:
        await run_all(agent, ["go " + WORDS * 100] * 5)
        history = agent.history
    agent = windowed(script, context={"compact_at": 0.3})
    agent = Agent(agent.config, model=agent.scripted, kernel_provider=FakeKernelProvider(), history=history)
    async with agent:
        events, result = await read(agent.run("on", budget=Budget(tokens=1_500)))
        assert result.status == "limit"
        assert "could not be summarised" in of_kind(events, Notice)[1].content
        assert text_of(agent.history).startswith(text_of(history))


@pytest.mark.parametrize(
    "broken", [ModelHTTPError(500, "scripted", "it broke"), ModelHTTPError(400, "scripted", "maximum context length")]
)
@pytest.mark.slow
async def test_a_summary_that_fails_leaves_the_run_as_it_was_and_is_not_tried_again_at_once(windowed, broken):
    def script(messages, info):
        return broken if is_summary_request(messages) else WORDS * 50

    # the window is larger than the agent believes, so that nothing else ends the runs
    async with windowed(script, window_tokens=8_000, context={"window_tokens": 4_000}, rate_limit_seconds=0) as agent:
        events, results = await run_all(agent, ["go " + WORDS * 50] * 10)
        history = agent.history
        asked = agent.scripted.summaries
    assert {result.status for result in results} == {"completed"}
    notices = [event.content for event in of_kind(events, Notice) if "a summary takes the place" not in event.content]
    assert notices
    assert all(text.startswith("the conversation could not be summarised, and goes on as it is: ") for text in notices)
    assert not of_kind(events, Compacted)
    assert len(history) == 20
    assert 0 < len(notices) < 6
    assert asked >= len(notices)


async def test_a_summary_that_is_longer_than_what_it_replaces_is_not_used(windowed):
    def script(messages, info):
        return WORDS * 2_000 if is_summary_request(messages) else "yes"

    async with windowed(script, window_tokens=30_000, told=False) as agent:
        await run_all(agent, ["first", "second"])
        before = list(agent.history)
        assert await agent.compact() is None
        assert agent.history == before
        assert agent.scripted.summaries == 1


async def test_a_summary_that_never_ends_is_cut(windowed):
    def script(messages, info):
        return "fact 1 is red. " + WORDS * 5_000 if is_summary_request(messages) else WORDS * 200

    async with windowed(script) as agent:
        events, results = await run_all(agent, ["go " + WORDS * 100] * 12)
    assert {result.status for result in results} == {"completed"}
    summaries = [event.summary for event in of_kind(events, Compacted)]
    assert summaries
    assert all("fact 1 is red" in text and len(text) < 8_000 for text in summaries)


async def test_a_cancel_during_the_summary_leaves_the_conversation_whole(windowed):
    stuck, asked = asyncio.Event(), []

    def script(messages, info):
        if is_summary_request(messages):
            asked.append(True)
            return [stuck, "summary"]
        return WORDS * 200

    async with windowed(script) as agent:
        while not asked:
            run = agent.run("go " + WORDS * 100)
            async with run:
                reading = asyncio.ensure_future(run.result())
                await eventually(lambda reading=reading: asked or reading.done())
                if asked:
                    run.cancel()
                result = await reading
        assert result.status == "cancelled"
        kept = agent.history
        assert not any(isinstance(part, CompactionPart) for message in kept for part in message.parts)
        assert isinstance(kept[-1], ModelRequest)  # the prompt that was not answered
        stuck.set()
        _, result = await read(agent.run("on"))
        assert result.status == "completed"
        assert any(isinstance(part, CompactionPart) for message in agent.history for part in message.parts)


class FoundFile(BaseModel):
    fact: str


async def test_a_child_that_fills_its_window_goes_on_to_its_typed_answer(windowed):
    def script(messages, info):
        if is_summary_request(messages):
            return summary_of(messages)
        tools = {tool.name for tool in info.output_tools} - {"cannot_answer"}
        assert tools
        seen = max(map(int, re.findall(r"step (\d+)", text_of(messages))), default=0)
        if seen < 30:
            code = f"# fact {seen} is blue\n# {WORDS * 40}\nprint('step {seen + 1} ' + {WORDS!r} * 100)"
            return [cell(code)]
        return [ToolCallPart(tools.pop(), {"fact": facts_in(text_of(messages))[0]})]

    agent = windowed(script, subagents={"budget": {"turns": 100}})
    async with agent:
        result = await agent.spawn_and_run(ChildRequest(prompt="find it", output_type=FoundFile))
    assert (result.status, result.output) == ("completed", FoundFile(fact="fact 0 is blue")), result.error
    assert agent.scripted.summaries > 0


async def test_models_that_act_by_blocks_read_the_summary_as_text(windowed):
    seen = []

    def script(messages, info):
        if is_summary_request(messages):
            return "the summary ```python\nprint(1)\n```"
        seen.append(messages)
        answers = sum(message.kind == "response" for message in messages)
        text = text_of(messages[-1:])
        if "The result:" in text:
            return WORDS * 150
        return f"I look.\n```python\nprint('{answers} ' + {WORDS!r} * 120)\n```"

    async with windowed(script, code_actions="block") as agent:
        events, results = await run_all(agent, [f"prompt {number}" for number in range(14)])
    assert {result.status for result in results} == {"completed"}
    assert any(event.summary for event in of_kind(events, Compacted))
    parts = [part for messages in seen for message in messages for part in message.parts]
    assert not any(isinstance(part, CompactionPart | ToolReturnPart) for part in parts)
    assert any(isinstance(part, UserPromptPart) and SUMMARISED in part.content for part in parts)


async def test_nothing_is_done_where_the_window_is_not_known_or_it_is_switched_off(windowed):
    def script(messages, info):
        assert not is_summary_request(messages)
        return WORDS * 500

    for settings in ({"told": False}, {"context": {"compact_at": None}}):
        async with windowed(script, window_tokens=100_000, **settings) as agent:
            events, _ = await run_all(agent, ["go"] * 5)
            assert not of_kind(events, Compacted)


async def test_a_person_asks_for_a_summary_and_says_what_it_is_to_keep(windowed):
    asked = []

    def script(messages, info):
        if is_summary_request(messages):
            asked.append(text_of(messages))
            return "all in short"
        return WORDS * 300

    async with windowed(script, told=False, window_tokens=30_000) as agent:
        assert await agent.compact() is None
        await run_all(agent, ["first " + WORDS, "second", "third"])
        told = await agent.compact("the colours")
        assert told.summary == "all in short"
        assert told.tokens_after < told.tokens_before
        assert "keep what the user asks for: the colours" in asked[0]
        assert [type(part) for part in agent.history[0].parts] == [UserPromptPart, CompactionPart]
        assert agent.history[0].parts[0].content == "first " + WORDS
        assert await agent.compact() is None
        assert len(asked) == 1
        assert agent.usage.turns == 4
        async with agent.run("fourth") as run:
            with pytest.raises(AgentBusyError):
                await agent.compact()
            assert (await run.result()).status == "completed"


async def test_a_summary_that_a_person_asked_for_and_that_fails_is_an_error(windowed):
    def script(messages, info):
        return ModelHTTPError(400, "scripted", "no") if is_summary_request(messages) else WORDS * 100

    async with windowed(script, told=False) as agent:
        await run_all(agent, ["first", "second"])
        before = list(agent.history)
        with pytest.raises(FreeactError, match="the conversation was not summarised: .*no"):
            await agent.compact()
        assert agent.history == before


async def test_the_use_of_the_window_is_told(windowed):
    def script(messages, info):
        ran = any(isinstance(part, ToolReturnPart) for part in messages[-1].parts)
        return "done" if ran else [cell(f"print({WORDS!r} * 200)")]

    async with windowed(script) as agent:
        assert agent.context().tokens < 200
        await read(agent.run(WORDS * 100))
        use = agent.context()
        counted = agent.scripted.largest
    assert use.window_tokens == 8_000
    assert min(use.instructions, use.tools, use.messages, use.outputs) > 100
    assert use.outputs > use.messages
    assert counted <= use.tokens < counted + 100


async def test_the_window_is_the_one_that_pydantic_ai_knows_unless_the_settings_say_another(tmp_path):
    model = FunctionModel(lambda messages, info: None, profile={"context_window": 50_000})
    for context, window in (({}, 50_000), ({"window_tokens": 9_000}, 9_000)):
        agent = Agent(Config(workspace=tmp_path, context=context), model=model, kernel_provider=FakeKernelProvider())
        async with agent:
            assert agent.context().window_tokens == window


def test_a_transcript_fits_however_long_the_conversation_is():
    messages = [ModelRequest(parts=[UserPromptPart(f"{number} " + WORDS * 300)]) for number in range(200)]
    summary = ModelRequest(parts=[CompactionPart(content="shown", metadata={"summary": "fact 1 is red"})])
    text = transcript([summary, *messages], 20_000)
    assert "fact 1 is red" in text
    assert len(text) < 20_200
    assert "199 one" in transcript([summary, *messages], round(200 * 4_000 * SMALLEST * 2))
