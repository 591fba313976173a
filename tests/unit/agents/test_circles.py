"""Runs of models that go in circles, or end without an answer."""

import pytest
from pydantic_ai import TextOutput
from pydantic_ai.messages import ModelRequest, RetryFeedbackPart, UserPromptPart
from support.agents import cell, of_kind, read, task
from support.tables import each

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
    assert (result.status, result.text) == ("limit", "I could not do it.")
    assert "repeats" in result.error
    assert [event.outcome for event in of_kind(events, ToolOutput)] == ["failed"] * 4


async def test_the_same_error_of_different_calls_is_no_circle(make):
    script = [*([cell(f"x{number} = {number}\nundefined")] for number in range(8)), *["Nothing is defined."] * 2]
    async with make(script) as agent:
        events, result = await read(agent.run("go"))
    assert (result.status, result.output) == ("completed", "Nothing is defined.")
    assert len(of_kind(events, ToolOutput)) == 8


async def test_waiting_and_looking_again_is_no_circle(make):
    script = [*([cell("import time\ntime.sleep(0.001)\nprint(False)")] for _ in range(8)), "It never came."]
    async with make(script) as agent:
        _, result = await read(agent.run("go"))
    assert (result.status, result.output) == ("completed", "It never came.")


@pytest.mark.parametrize(("bound", "calls"), [(3, 3), (6, 6), (None, 9)])
async def test_the_number_of_repeats_is_a_setting(make, bound, calls):
    script = [*([cell("print(1)")] for _ in range(9)), "1"]
    async with make(script, config={"max_repeats": bound}) as agent:
        events, result = await read(agent.run("go"))
        assert len(told(agent, "[NOTE]")) == (bound is not None)
    assert result.status == ("completed" if bound is None else "limit")
    assert len(of_kind(events, ToolOutput)) == calls


async def test_a_model_that_heeds_the_advice_goes_on(make):
    script = [[cell("x")]] * 3 + [[cell("x = 1")], [cell("x")], "1"]
    async with make(script) as agent:
        _, result = await read(agent.run("go"))
    assert (result.status, result.output) == ("completed", "1")


async def test_changing_results_and_parallel_questions_are_no_circle(make):
    counting = [[cell("n = globals().get('n', 0) + 1\nprint(n)")] for _ in range(8)]
    votes = [[task("vote") for _ in range(5)]]
    async with make({"root": [*counting, *votes, "done"], "vote": ["yes"] * 5}) as agent:
        _, result = await read(agent.run("root"))
    assert result.status == "completed"


SMALL = {"answer_check": "small"}
BLOCK = "```python\n6 * 7\n```"
TEN_LINES = {
    "Translate: Ich werde morgen kommen.": "I will come tomorrow.",
    "Write a reply to Bob promising the report by Friday.": "I will send you the report by Friday.",
    "What will you do first when I give you the data?": "First, I will load it and look at the columns.",
    "Give me a motto for the team": "Let's build great things together!",
    "Say hello": "Let's go!",
    "Can you remind me later?": "I'll need a reminder tool for that.",
    "Fix the grammar: She goes to school every day by bus with her brother.": (
        "She goes to school every day by bus with her brother."
    ),
    "Repeat exactly: one two three four five six seven": "one two three four five six seven",
    "List three ways to free disk space.": "1. Remove old log files.\n2. Find large files.\n3. Set a quota for the files.",
    "Write the acceptance criteria for the CSV importer.": "- Load files of up to 1 GB.\n- Convert dates.\n- Print the rows.",
    "Summarize what the meeting decided, as action items.": "- Fix the parser's output.\n- Add a column to the file.",
    "Berechne die Summe.": "Ich werde jetzt den Code ausführen.",
    "Show me code that sums a list.": "```python\nprint(sum(items))\n```",
    "Which JSON calls the tool?": '{"name": "task", "arguments": {"prompt": "x"}}',
}
"""What right answers may look like."""


@each("prompt", TEN_LINES)
async def test_no_answer_is_judged_by_its_words(make, prompt):
    async with make([TEN_LINES[prompt]]) as agent:
        _, result = await read(agent.run(prompt))
    assert (result.status, result.output, result.usage.turns, result.warnings) == ("completed", TEN_LINES[prompt], 1, ())


@each("prompt", list(TEN_LINES)[:12])
async def test_no_answer_of_a_small_model_is_judged_by_its_words(make, prompt):
    async with make([TEN_LINES[prompt]], config=SMALL) as agent:
        _, result = await read(agent.run(prompt))
    assert (result.status, result.output, result.usage.turns, result.warnings) == ("completed", TEN_LINES[prompt], 1, ())


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"name": "task", "arguments": {"prompt": "x"}}', "call of a tool as text"),
        (
            '{"type": "function", "function": {"name": "task", "arguments": "{\\"prompt\\": \\"x\\"}"}}',
            "call of a tool as text",
        ),
        ("```python\nprint(sum(range(10)))\n```", "code as text"),
    ],
)
async def test_a_small_model_that_writes_calls_or_code_as_text_is_asked_once_and_then_has_failed(make, text, why):
    small = {"profile": "small", "code_actions": "tool"}
    async with make([text, text], config=small) as agent:
        events, result = await read(agent.run("How many words has a.txt?"))
    assert (result.status, result.text, result.usage.turns) == ("failed", text, 2)
    assert why in result.error
    assert not of_kind(events, ToolOutput)
    async with make([text], config={**small, "answer_check": "empty"}) as agent:
        _, result = await read(agent.run("How many words has a.txt?"))
    assert (result.status, result.usage.turns) == ("completed", 1)


async def test_a_run_that_ends_empty_is_asked_once_and_then_fails(make):
    async with make([" ", "\n"]) as agent:
        _, result = await read(agent.run("go"))
    assert (result.status, result.usage.turns) == ("failed", 2)
    assert "gave no answer" in result.error


async def test_a_model_that_answers_when_asked_again_has_completed(make):
    async with make([BLOCK, [cell("6 * 7")], BLOCK.replace("6", "5"), "42"], config=SMALL) as agent:
        _, result = await read(agent.run("go"))
        assert len(told(agent, "code that you wrote as text")) == 2, "after a step it may be asked again"
    assert (result.status, result.output) == ("completed", "42")


def length(text: str) -> int:
    return len(text)


async def test_a_value_is_not_looked_at_as_a_text(make):
    async with make(["I will now run the code."], output_type=TextOutput(length), config=SMALL) as agent:
        _, result = await read(agent.run("go"))
    assert (result.status, result.output, result.usage.turns) == ("completed", 24, 1)
