import pytest
from hypothesis import given
from hypothesis import strategies as st

from freeact_sub.agents.substance import ANNOUNCED, DESCRIBED, EMPTY, problem_with

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


@pytest.mark.parametrize("text", ["", " \n\t "])
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
        '{"name": "run", "arguments": {}}',
        '```json\n{"type": "function", "function": {"name": "run", "description": "x"}}\n```',
        '[{"name": "run"}]',
    ],
)
def test_the_description_of_a_tool_is_no_answer(text):
    assert problem_with(text, ["run"]) == DESCRIBED
    assert problem_with(text, ["other"]) is None
    assert problem_with(f"{text}\nThat is all.", ["run"]) is None


@pytest.mark.parametrize(
    "text", ['{"name": "run"', "[]", "{}", '{"function": 1}', '{"name": ["run"]}', "[1]", '{"total": 3}']
)
def test_other_json_is_an_answer(text):
    assert problem_with(text, {"run"}) is None
