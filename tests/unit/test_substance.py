import pytest
from hypothesis import given
from hypothesis import strategies as st

from freeact_sub.agents.substance import (
    ANNOUNCED,
    DESCRIBED,
    ECHOED,
    EMPTY,
    PLANNED,
    SHOWN,
    SHOWN_AGAIN,
    UNKNOWN,
    problem_with,
)
from freeact_sub.models.steps import Situation
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
    "Here is a function:\n```python\nprint(1)\n```\nI will run it if you want.",
    "Sure!",
    "Let x be 3; then x is prime.",
    "I will be brief. It works.",
]


@pytest.mark.parametrize("text", ANNOUNCEMENTS)
def test_a_text_that_only_announces_is_no_answer(text):
    assert problem_with(text) == ANNOUNCED


@pytest.mark.parametrize("text", ANSWERS)
def test_an_answer_is_left_alone(text):
    assert problem_with(text) is None


@pytest.mark.parametrize("text", ["", " \n\t ", "```python\n```", "```\n\n```\n"])
def test_nothing_is_no_answer(text):
    assert problem_with(text) == EMPTY


@given(st.text(max_size=2000))
def test_no_text_is_too_strange(text):
    problem_with(text)


@given(st.sampled_from(ANNOUNCEMENTS), st.sampled_from([text for text in ANSWERS if text != "Sure!"]))
def test_an_announcement_before_an_answer_takes_nothing_from_it(announcement, answer):
    assert problem_with(f"{announcement}\n\n{answer}") is None


@pytest.mark.parametrize(
    "text",
    [
        '{"name": "run", "parameters": {"type": "object"}}',
        '```json\n{"type": "function", "function": {"name": "run", "description": "x"}}\n```',
        '[{"name": "run"}]',
    ],
)
def test_the_description_of_a_tool_is_no_answer(text):
    assert problem_with(text, {"run": {}}) == DESCRIBED
    assert problem_with(text, {"other": {}}) is None
    assert problem_with(f"{text}\nThat is all.", {"run": {}}) is None


@pytest.mark.parametrize(
    "text", ['{"name": "run"', "[]", "{}", '{"function": 1}', '{"name": ["run"]}', "[1]", '{"total": 3}']
)
def test_other_json_is_an_answer(text):
    assert problem_with(text, {"run": {}}) is None


@pytest.mark.parametrize(
    ("text", "situation", "expected"),
    [
        (f"To find out, I'll run this code:\n{BLOCK}\nIt prints the number.", {}, SHOWN),
        (BLOCK, {}, SHOWN),
        ('<tools>\n{"name": "execute_ipython_cell", "arguments": {"code": "print(1)"}}\n</tools>', {}, SHOWN),
        ('```json\n{"name": "task", "arguments": {"prompt": "x"}}\n```', {}, SHOWN),
        (f"How many words are in the file words.txt?\n{BLOCK}", {"is_over": RUN, "last_result": "ok"}, SHOWN_AGAIN),
        ("How many words are in the file words.txt?", {}, ECHOED),
        (
            "How many words are there in the file words.txt?",
            {"prompt": "How many words are in the file words.txt, there?"},
            ECHOED,
        ),
        (
            "The script a.py should print 5, but it prints 4.",
            {"prompt": "The script a.py should print 5, but prints 4."},
            ECHOED,
        ),
        (
            "I repeated what I was sent. Take the next step, or answer in words of your own with what you have found.",
            {},
            ECHOED,
        ),
        ("The cell ran without output; print what you need to see.", {"last_result": "ok"}, ECHOED),
        ('```json\n{"name": "function_name", "arguments": {"argument_name": "start"}}\n```', {}, UNKNOWN),
        ("<tool_response>\nI understand. Please tell me the error.", {}, ECHOED),
        ("The block was run. The result:\nNameError: name 'x' is not defined", {"last_result": "error"}, ECHOED),
        ("1. Read the file words.txt.\n2. Count the words.\n3. Print the result.", {}, PLANNED),
        ("To do so:\n\n1. **Open** the file.\n- Then, count its words.", {}, PLANNED),
        (
            "1. Open the file `a.py` in an editor.\n2. Run the code again.",
            {"prompt": "The script a.py should print 5. Fix it."},
            PLANNED,
        ),
    ],
)
def test_work_that_was_not_done_is_no_answer(text, situation, expected):
    assert problem_with(text, TOOLS, Situation(**{"prompt": ASKED, **situation})) == expected


@pytest.mark.parametrize(
    ("text", "situation"),
    [
        (f"There are 45. I used this:\n{BLOCK}", {"is_over": RUN, "last_result": "ok"}),
        (f"There are 45. I used this:\n{BLOCK}", {"makes_calls": True, "last_result": "ok"}),
        (BLOCK, {"prompt": "Write a function that counts words."}),
        (f"Like this:\n{BLOCK}", {"prompt": "How do I count the words of a file?"}),
        (
            '```json\n{"name": "task", "arguments": {"prompt": "x"}}\n```\nThis starts one.',
            {"prompt": "How do I call a tool?"},
        ),
        ("```bash\nwc -w words.txt\n```", {}),
        ("Yes.", {"prompt": "yes"}),
        ("Yes", {"prompt": "Yes"}),
        ("45\n", {"last_result": "ok"}),
        (
            "Wrote the words of a.txt, in order, to the file b.txt.",
            {"prompt": "Write the words of a.txt, in order, to the file b.txt."},
        ),
        ("It is a.txt.", {"prompt": "Which is larger, a.txt or b.txt?"}),
        ('{"name": "Ann", "age": 3}', {}),
        ('{"name": "Ann", "arguments": "none"}', {}),
        ("1. Read the file.\n2. Count the words.", {"prompt": "What steps are needed to count the words of a file?"}),
        ("1. Read the file.\n2. Count the words.", {"prompt": "What should I do to count the words?"}),
        ("1. Read the file.\n2. Count the words.", {"prompt": "Explain what wc does."}),
        ("- Change the code in a.py.\n- Update b.py.", {"prompt": "Which files should be changed to add a flag?"}),
        ("- Change the code in a.py.\n- Update b.py.", {"prompt": "Which files must change? " + "A file. " * 99}),
        ("1. Read the file.\n2. Count the words.", {"last_result": "ok"}),
        ("1. Read the file: it has 45 words.\n2. That is all.", {}),
        ("- cat: 3\n- dog: 4", {}),
        ("1. Find a place by the sea.\n2. Go there.", {"prompt": "Where shall we go?"}),
        ("1. Print the result.", {}),
    ],
)
def test_answers_with_code_or_lists_are_left_alone(text, situation):
    assert problem_with(text, TOOLS, Situation(**{"prompt": ASKED, **situation})) is None


def test_without_the_tool_nobody_is_asked_to_run_code():
    assert problem_with(BLOCK, {"task": {}}, Situation(prompt=ASKED)) is None
