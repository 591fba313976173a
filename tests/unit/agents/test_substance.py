import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_ai.messages import ModelRequest, ModelResponse, TextPart, ToolCallPart, ToolReturnPart, UserPromptPart
from support.tables import each

from freeact_sub.agents.answers import EMPTY, SHOWN, SHOWN_AGAIN, WRITTEN, is_empty, problem_with
from freeact_sub.tools.toolset import load_definition

TOOLS = {name: load_definition(name).parameters_json_schema for name in ("execute_ipython_cell", "task")}
BLOCK = "```python\nprint(sum(range(10)))\n```"

ANNOUNCEMENTS = [
    "I will now run the code.",
    "Sure! Let me compute that for you:",
    "Okay. I'll start by listing the files in the directory.",
    "Let's calculate the sum of the squares.",
    "Now I'm going to read data.csv and count its rows...",
    "Certainly, I'll run a cell for this.",
    "First, I need to load the data. Then I will compute the mean.",
    "To find the answer, I will execute the following code:",
    "Next, let me check the file.\nI will print its first 5 lines.",
]
ANSWERS = [
    "42",
    "The sum is 338350.",
    "Done.",
    "I wrote the file data.csv with 3.5 MB.",
    "I'll summarize: the mean is 3.",
    "Let me know if you need anything else.",
    "The result is 5. Let me know if you want more.",
    "I will not do that: it would delete your files.",
    "Let me explain: a kernel is a process that runs code.",
    "I will compute it: 6 * 7 = 42",
    "I need to know which file you mean. Which one is it?",
    "I was unable to read the file: it does not exist.",
    "Here is a function, which you may run by yourself whenever you want:\n```python\nprint(1)\n```",
    "Sure!",
    "Let x be 3; then x is prime.",
    "I will be brief. It works.",
]


OTHERS = [
    "How many words are in the file words.txt?",
    "The cell ran without output; print what you need to see.",
    "1. Read the file words.txt.\n2. Count the words.\n3. Print the result.",
    "Ich werde jetzt den Code ausführen.",
    "<tool_response>\nI understand. Please tell me the error.",
]
RAN = [
    ModelRequest.user_text_prompt("Compute it."),
    ModelResponse([TextPart("So:"), ToolCallPart("execute_ipython_cell", {"code": "print(sum(range(10)))  # all"}, "c1")]),
    ModelRequest([ToolReturnPart("execute_ipython_cell", "45", "c1")]),
]


def problem(text, tools=TOOLS, messages=()):
    return problem_with(text, tools, messages)


@each("text", [*ANNOUNCEMENTS, *ANSWERS, *OTHERS])
def test_words_are_an_answer_whatever_they_say(text):
    assert problem(text) is None


@each("text", ["", " \n\t ", "```python\n```", "```\n\n```\n", "\u200b\ufeff", "\u3000"])
def test_nothing_is_no_answer(text):
    assert is_empty(text)
    assert problem(text) == EMPTY


def test_nothing_is_found_however_long_it_is():
    """Were the time not in proportion to the length, this would not end within the time of a test."""
    assert is_empty("\n" * 1_000_000)


@given(st.text(max_size=2000))
def test_no_text_is_too_strange(text):
    problem(text)


@each(
    "text",
    [
        '<tools>\n{"name": "execute_ipython_cell", "arguments": {"code": "print(1)"}}\n</tools>',
        '<tool_call>\n{"name": "task", "arguments": {"prompt": "x"}}',
        '```json\n{"name": "task", "arguments": {"prompt": "x"}}\n```',
        'I start a child.\n```json\n{"type": "function", "function": {"name": "task", "arguments": {"prompt": "x"}}}\n```',
        '{"type": "function", "function": {"name": "task", "arguments": "{\\"prompt\\": \\"x\\"}"}}',
        '{"task": {"prompt": "x"}}',
        "task('count a.txt')\ntask('count b.txt')",
        "```\nexecute_ipython_cell(code='print(1)')\n```",
    ],
)
def test_a_call_as_text_is_no_answer(text):
    assert problem(text) == WRITTEN


@each(
    "text",
    [
        '{"name": "Ann"',
        "[]",
        "{}",
        '{"function": 1}',
        '{"name": ["task"]}',
        "[1]",
        '{"total": 3}',
        '{"name": "Ann", "age": 3}',
        '{"tools": ["hammer"]}',
        '```json\n{"name": "search", "arguments": {"query": "x"}}\n```',
    ],
)
def test_other_json_is_an_answer(text):
    assert problem(text) is None


@pytest.mark.parametrize("text", [BLOCK, "```\nprint(sum(range(10)))\n```", f"I'll run this code:\n{BLOCK}"])
def test_code_that_nobody_has_run_is_no_answer(text):
    assert problem(text) == SHOWN
    assert problem(text, messages=RAN) == SHOWN_AGAIN
    assert problem(text, messages=[*RAN, ModelRequest([UserPromptPart("And now?")])]) == SHOWN, "it ran for another prompt"


@each(
    "text",
    [
        f"There are 45 words in the file. This is the code that I used:\n{BLOCK}",
        f"Use the function sum, which adds up all that a range has:\n{BLOCK}",
        "```bash\nwc -w words.txt\n```",
        "```text\nprint(1)\n```",
        "```\n45 words\n```",
    ],
)
def test_an_answer_may_show_code(text):
    assert problem(text) is None
    assert problem(text, messages=RAN) is None


def test_without_the_tool_nobody_is_asked_to_run_code():
    assert problem(BLOCK, {"task": {}}) is None
