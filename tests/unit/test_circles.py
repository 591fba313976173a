"""Runs of models that go in circles, or end without an answer."""

from pydantic_ai.messages import ModelRequest, RetryFeedbackPart, UserPromptPart
from support.agents import cell, of_kind, read, task

from freeact_sub.events import ToolOutput


def told(agent, word):
    parts = [part for message in agent.history if isinstance(message, ModelRequest) for part in message.parts]
    return [part for part in parts if isinstance(part, UserPromptPart | RetryFeedbackPart) and word in str(part.content)]


async def test_a_model_that_repeats_a_failing_call_is_told_once_and_then_its_run_ends(make):
    def model(messages, info):
        return [cell("1 / 0")] if info.function_tools else "I could not do it."

    async with make(model) as agent:
        events, result = await read(agent.run("go"))
        assert len(told(agent, "[NOTE]")) == 1
    assert (result.status, result.output) == ("limit", "I could not do it.")
    assert "repeats" in result.error
    assert [event.outcome for event in of_kind(events, ToolOutput)] == ["failed"] * 4


async def test_the_same_error_of_different_calls_is_a_circle_too(make):
    script = [[cell(f"x{number} = {number}\nundefined")] for number in range(20)]
    async with make(script) as agent:
        events, result = await read(agent.run("go"))
    assert result.status == "limit"
    assert len(of_kind(events, ToolOutput)) == 4


async def test_a_model_that_heeds_the_advice_goes_on(make):
    script = [[cell("x")]] * 3 + [[cell("x = 1")], [cell("x")], "1"]
    async with make(script) as agent:
        _, result = await read(agent.run("go"))
    assert (result.status, result.output) == ("completed", "1")


async def test_what_changes_and_what_is_asked_side_by_side_is_no_circle(make):
    counting = [[cell("n = globals().get('n', 0) + 1\nprint(n)")] for _ in range(8)]
    votes = [[task("vote") for _ in range(5)]]
    async with make({"root": [*counting, *votes, "done"], "vote": ["yes"] * 5}) as agent:
        _, result = await read(agent.run("root"))
    assert result.status == "completed"


async def test_a_run_that_ends_with_an_announcement_is_asked_once_and_then_fails(make):
    async with make(["I will now run the code.", "Let me compute that."]) as agent:
        _, result = await read(agent.run("go"))
    assert (result.status, result.usage.turns) == ("failed", 2)
    assert "announced" in result.error


async def test_a_run_that_ends_empty_is_asked_once_and_then_fails(make):
    async with make([" ", "\n"]) as agent:
        _, result = await read(agent.run("go"))
    assert (result.status, result.usage.turns) == ("failed", 2)
    assert "gave no answer" in result.error


async def test_who_is_asked_and_answers_has_completed(make):
    async with make(["I'll compute it:", [cell("6 * 7")], "Let me check.", "42"]) as agent:
        _, result = await read(agent.run("go"))
        assert len(told(agent, "announced")) == 2, "after a step it may be asked again"
    assert (result.status, result.output) == ("completed", "42")


async def test_a_value_is_not_looked_at_as_a_text(make):
    async with make(["7"], output_type=int) as agent:
        _, result = await read(agent.run("go"))
    assert result.status in ("completed", "failed")
