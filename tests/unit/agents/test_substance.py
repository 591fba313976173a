import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_ai.messages import ModelRequest, ModelResponse, TextPart, ToolCallPart, ToolReturnPart, UserPromptPart

from freeact_sub.agents.turn.substance import (
    ANNOUNCED,
    DESCRIBED,
    ECHOED,
    EMPTY,
    PLANNED,
    SHOWN,
    SHOWN_AGAIN,
    UNKNOWN,
    WRITTEN,
    Situation,
    is_empty,
    problem_with,
    situation_of,
)
from freeact_sub.tools.toolset import load_definition

TOOLS = {name: load_definition(name).parameters_json_schema for name in ("execute_ipython_cell", "task")}
BLOCK = "```python\nprint(sum(range(10)))\n```"
RUN = frozenset({"print(sum(range(10)))"})
ASKED = "How many words are in the file words.txt?"

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


def problem(text, tools=TOOLS, **situation):
    return problem_with(text, tools, Situation(**{"prompt": ASKED, **situation}))


@pytest.mark.parametrize("text", ANNOUNCEMENTS)
def test_a_text_that_only_announces_sounds_like_no_answer(text):
    assert problem(text) == ANNOUNCED


@pytest.mark.parametrize("text", ANSWERS)
def test_an_answer_is_left_alone(text):
    assert problem(text) is None


@pytest.mark.parametrize("text", ["", " \n\t ", "```python\n```", "```\n\n```\n", "\u200b\ufeff", "\u3000"])
def test_nothing_is_no_answer(text):
    assert is_empty(text)
    assert problem(text) == EMPTY


def test_nothing_is_found_however_long_it_is():
    """Were the time not in proportion to the length, this would not end within the time of a test."""
    assert is_empty("\n" * 1_000_000)


@given(st.text(max_size=2000))
def test_no_text_is_too_strange(text):
    problem(text)


@given(st.sampled_from(ANNOUNCEMENTS), st.sampled_from([text for text in ANSWERS if text != "Sure!"]))
def test_an_announcement_before_an_answer_takes_nothing_from_it(announcement, answer):
    assert problem(f"{announcement}\n\n{answer}") is None


@pytest.mark.parametrize(
    "text",
    [
        '{"name": "task", "parameters": {"type": "object"}}',
        '```json\n{"type": "function", "function": {"name": "task", "description": "x"}}\n```',
        '{"type": "function", "function": {"name": "task", "parameters": {"type": "object", "properties": {}}}}',
        '[{"name": "task"}]',
        'Sure:\n```\n{"tools": [{"type": "function", "function": {"name": "task"}}]}\n```',
    ],
)
def test_the_description_of_a_tool_is_no_answer(text):
    assert problem(text) == DESCRIBED
    assert problem(text, {"other": {}}) is None
    assert problem(f"{text}\nThat is all that I know of the tools that are offered here.") is None


@pytest.mark.parametrize(
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


@pytest.mark.parametrize(
    "text",
    [
        '```json\n{"name": "function_name", "arguments": {"argument_name": "start"}}\n```',
        '{"type": "function", "function": {"name": "search", "arguments": "{}"}}',
        '{"tool_calls": [{"function": {"name": "search", "arguments": {"query": "x"}}}]}',
    ],
)
def test_a_call_of_a_tool_that_there_is_not_is_no_answer(text):
    assert problem(text) == UNKNOWN


@pytest.mark.parametrize(
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
    ],
)
def test_other_json_is_an_answer(text):
    assert problem(text) is None


@pytest.mark.parametrize(
    ("text", "situation", "expected"),
    [
        (BLOCK, {}, SHOWN),
        ("```\nprint(sum(range(10)))\n```", {}, SHOWN),
        (f"I'll run this code:\n{BLOCK}", {}, SHOWN),
        (BLOCK, {"has_acted": True}, SHOWN),
        (f"How many words are in the file words.txt?\n{BLOCK}", {"codes": RUN, "has_acted": True}, SHOWN_AGAIN),
        ("How many words are in the file words.txt?", {}, ECHOED),
        (
            "How many words are there in the file words.txt?",
            {"prompt": "How many words are in the file words.txt, there?"},
            ECHOED,
        ),
        ("The cell ran without output; print what you need to see.", {"has_acted": True}, ECHOED),
        ("<tool_response>\nI understand. Please tell me the error.", {}, ECHOED),
        ("The block was run. The result:\nNameError: name 'x' is not defined", {"has_acted": True}, ECHOED),
        ("1. Read the file words.txt.\n2. Count the words.\n3. Print the result.", {}, PLANNED),
        ("To do so:\n\n1. **Open** the file.\n- Then, count its words.", {}, PLANNED),
    ],
)
def test_work_that_was_not_done(text, situation, expected):
    assert problem(text, **situation) == expected


@pytest.mark.parametrize(
    ("text", "situation"),
    [
        (f"There are 45 words in the file. This is the code that I used:\n{BLOCK}", {"codes": RUN, "has_acted": True}),
        (f"Use the function sum, which adds up all that a range has:\n{BLOCK}", {}),
        ("```bash\nwc -w words.txt\n```", {}),
        ("```text\nprint(1)\n```", {}),
        ("```\n45 words\n```", {}),
        ("Yes.", {"prompt": "yes"}),
        ("45\n", {"has_acted": True}),
        ("It is a.txt.", {"prompt": "Which is larger, a.txt or b.txt?"}),
        ("1. Read the file.\n2. Count the words.", {"has_acted": True}),
        ("1. Read the file: it has 45 words.\n2. That is all.", {}),
        ("- cat: 3\n- dog: 4", {}),
        ("1. Find a place by the sea.\n2. Go there.", {"prompt": "Where shall we go?"}),
        ("1. Print the result.", {}),
    ],
)
def test_answers_with_code_or_lists_are_left_alone(text, situation):
    assert problem(text, **situation) is None


def test_only_what_is_certain_is_no_guess():
    assert [one.is_guess for one in (EMPTY, DESCRIBED, WRITTEN, UNKNOWN, SHOWN, SHOWN_AGAIN)] == [False] * 6
    assert [one.is_guess for one in (ANNOUNCED, PLANNED, ECHOED)] == [True] * 3


def test_without_the_tool_nobody_is_asked_to_run_code():
    assert problem(BLOCK, {"task": {}}) is None


def test_the_situation_follows_from_the_history():
    call = ToolCallPart("execute_ipython_cell", {"code": "print(1)  # one"}, "c1")
    messages = [
        ModelRequest.user_text_prompt("Compute it."),
        ModelResponse([TextPart("So:"), call]),
        ModelRequest([ToolReturnPart("execute_ipython_cell", "1", "c1")]),
    ]
    assert situation_of(messages) == Situation(prompt="Compute it.", has_acted=True, codes=frozenset({"print(1)"}))
    later = [*messages, ModelResponse([TextPart("1")]), ModelRequest([UserPromptPart(["And", " now?"])])]
    assert situation_of(later) == Situation(prompt="And\n now?")
