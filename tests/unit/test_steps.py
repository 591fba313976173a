"""The rules that decide which blocks of a reply are run, and what is made of replies and histories."""

import pytest
from pydantic_ai.messages import (
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)

from freeact_sub.models.arguments import repaired
from freeact_sub.models.reading import read
from freeact_sub.models.replies import WRITTEN, situation_of, told, understood
from freeact_sub.models.steps import Situation, decide, normal
from freeact_sub.tools.toolset import load_definition

TOOLS = {name: load_definition(name).parameters_json_schema for name in ("execute_ipython_cell", "task", "reset_kernel")}
BLOCK = "```python\nprint(sum(range(10)))\n```"
LONG = "This adds up the numbers, one after the other, as the built-in function does it. " * 3


def rule(text, *, prompt="Compute the sum.", **situation):
    decision = decide(read(text, TOOLS), Situation(prompt=prompt, **situation))
    return decision.rule, bool(decision.run)


@pytest.mark.parametrize(
    ("text", "situation", "expected"),
    [
        ("It is 45.", {}, ("no block", False)),
        ("```bash\nls\n```", {}, ("no block", False)),
        ("```\n45\n```", {"block_mode": True}, ("no block", False)),
        ("```\nprint(1)\n```", {"block_mode": True}, ("block mode", True)),
        ("```\nprint(1)\n```", {}, ("no block", False)),
        ("```python\n>>> 1 + 1\n2\n```", {}, ("transcript", False)),
        ("```python\nfor n in (", {}, ("transcript", False)),
        ('```python\nThe file log.txt now has the line "start".\n```', {"block_mode": True}, ("sentence", False)),
        ("```python\nThe file\n```", {"block_mode": True}, ("block mode", True)),
        ("```python\nDone = not a\n```", {"block_mode": True}, ("block mode", True)),
        ("```python\nprint(1)", {}, ("in short", True)),
        (f"Like this:\n{BLOCK}", {"prompt": "How do I sum a range?"}, ("code wanted", False)),
        (BLOCK, {"prompt": "Write a function that sums a range."}, ("code wanted", False)),
        (BLOCK, {"prompt": "Translate this loop into idiomatic Python: for (...)"}, ("code wanted", False)),
        (BLOCK, {"prompt": "Refactor this function: def f(): ..."}, ("code wanted", False)),
        (BLOCK, {"prompt": "Port it to Python and run it."}, ("in short", True)),
        (BLOCK, {"prompt": "Write a function that sums a range and run it for 10."}, ("in short", True)),
        (BLOCK, {"prompt": "Sum it, but do not run anything."}, ("code wanted", False)),
        (BLOCK, {"prompt": "How do I sum a range?", "block_mode": True}, ("code wanted", False)),
        (f"The sum is 45, as this shows:\n{BLOCK}", {"is_over": {"print(sum(range(10)))"}}, ("repeated", False)),
        (BLOCK, {"is_over": {"print(sum(range(10)))"}, "last_result": "ok"}, ("next", True)),
        (f"{BLOCK}\n{LONG}", {"block_mode": True}, ("block mode", True)),
        (BLOCK, {"makes_calls": True}, ("own calls", False)),
        (BLOCK, {"makes_calls": True, "last_result": "ok"}, ("own calls", False)),
        (f"Mended:\n{BLOCK}", {"makes_calls": True, "last_result": "error"}, ("mended", True)),
        (f"You can run this yourself:\n{BLOCK}", {"makes_calls": True, "last_result": "error"}, ("for people", False)),
        (f"{BLOCK}\nThat is how.", {"makes_calls": True, "last_result": "error"}, ("for people", False)),
        (f"{BLOCK}\n{LONG}", {"last_result": "error"}, ("mended", True)),
        (f"{BLOCK}\n{LONG}", {"last_result": "ok"}, ("reported", False)),
        (f"Now the sum:\n{BLOCK}\nThis prints it.", {"last_result": "ok"}, ("next", True)),
        (f"{BLOCK}\n{LONG}", {"prompt": "Explain sums."}, ("explained", False)),
        (BLOCK, {"prompt": "Describe the data."}, ("in short", True)),
        (f"{BLOCK}\n{LONG}", {"prompt": "What is the sum of 0 to 9?"}, ("work wanted", True)),
        (f"{BLOCK}\n{LONG}", {"prompt": "Python sums, in short"}, ("at length", False)),
    ],
)
def test_the_rules(text, situation, expected):
    assert rule(text, **situation) == expected


def test_blocks_of_one_reply_are_one_cell_up_to_what_only_a_run_could_tell():
    text = "```python\nx = 1\n```\nthen\n```python\nprint(x)\n```\n{}\n```python\nprint(2)\n```"
    for between in ("Output:", "The result is 1:", "```\n1\n```", "The output should be:"):
        assert len(decide(read(text.format(between), TOOLS), Situation(prompt="Compute it.")).run) == 2
    assert len(decide(read(text.format("and"), TOOLS), Situation(prompt="Compute it.")).run) == 3


def test_code_is_compared_without_comments():
    assert normal("# a\nx = 1  # b\n\nprint('# c')\n") == "x = 1\nprint('# c')"


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        ("print(1)", {"code": "print(1)"}),
        ('"print(1)"', {"code": "print(1)"}),
        ({"source": "print(1)"}, {"code": "print(1)"}),
        ({"code": "```python\nprint(1)\n```"}, {"code": "print(1)"}),
        ({"code": "x = 1\\nprint(x)"}, {"code": "x = 1\nprint(x)"}),
        ('{"code": "x = 1\\\\nprint(x)"}', {"code": "x = 1\nprint(x)"}),
        ("{'code': 'print(1)'}", {"code": "print(1)"}),
        ({"code": "f.write('a\nb\n')"}, {"code": "f.write('a\\nb\\n')"}),
        ({"code": "x = 1  # it's\nprint('a\nb', x)"}, {"code": "x = 1  # it's\nprint('a\\nb', x)"}),
        ({"code": 'x = """\nit\'s\n"""\nprint("a\n")'}, {"code": 'x = """\nit\'s\n"""\nprint("a\\n")'}),
        ({"code": "re.findall(r'\bthe\b', text)"}, {"code": "re.findall(r'\\bthe\\b', text)"}),
        ({"code": "with a as f: f.write('x\n')"}, {"code": "with a as f: f.write('x\\n')"}),
        ({"code": "with a as f: for n in b: f.write('x\n')"}, {"code": "with a as f:\n    for n in b: f.write('x\\n')"}),
        (
            {"code": "s = {1: 2}; for n in s[0:2]: if f(lambda: n): print(n); print('; for')"},
            {"code": "s = {1: 2}\nfor n in s[0:2]:\n    if f(lambda: n): print(n); print('; for')"},
        ),
    ],
)
def test_arguments_are_put_right(args, expected):
    assert repaired(args, TOOLS["execute_ipython_cell"]) == expected


@pytest.mark.parametrize(
    "args",
    [
        {"code": "print('a\\nb')"},
        {"code": "!ls\\n"},
        {"code": "%%bash\necho hi"},
        {"code": "print(1"},
        {"code": "print('a\nprint('b')"},
        {"code": "x = r'a\nb'"},
        {"code": "!echo 'a\nb'"},
        {"code": "for n in a: print(n); if n: print(2)"},
        {"code": "x = 1 y = 2"},
        {"code": "for n in a: print(n)"},
        {"code": ""},
        {},
        None,
        [1],
        {"a": "x", "b": "y"},
        {"code": 3},
        '{"code": "print(1)"}',
        '{"code": "text = \\"\\"\\"```\\nx\\n```\\"\\"\\""}',
    ],
)
def test_other_arguments_stay_as_they_are(args):
    assert repaired(args, TOOLS["execute_ipython_cell"]) is args
    assert repaired({"prompt": "a\\nb"}, TOOLS["task"]) == {"prompt": "a\\nb"}


STRONG = {
    "a call": [ToolCallPart("execute_ipython_cell", '{"code": "print(1)"}', "c1")],
    "text and calls": [
        ThinkingPart("hm"),
        TextPart(f"I run this:\n{BLOCK}"),
        ToolCallPart("execute_ipython_cell", {"code": "print('a\\nb')"}, "c1"),
        ToolCallPart("task", {"prompt": "x"}, "c2"),
    ],
    "an unknown tool": [ToolCallPart("search", '{"query": "x"}', "c1")],
    "an answer": [TextPart("The sum is 45.")],
    "an answer with code": [TextPart(f"The sum is 45. I used\n{BLOCK}\nwhich adds up.\n```json\n{{'name': 'Ann'}}\n```")],
}


@pytest.mark.parametrize("name", STRONG)
@pytest.mark.parametrize("prompt", ["Compute the sum of 0 to 9.", "Explain how to sum.", "sums"])
@pytest.mark.parametrize("last", ["ok", "none"])
def test_what_strong_models_send_is_left_as_it_is(name, prompt, last):
    situation = Situation(prompt=prompt, makes_calls=True, last_result=last)
    made = understood(STRONG[name], TOOLS, situation)
    assert all(mine is theirs for mine, theirs in zip(made.parts, STRONG[name], strict=True))


@pytest.mark.parametrize(
    "prompt",
    [
        "How do I reverse a list?",
        "Explain generators with an example.",
        "What's the difference between a list and a tuple?",
        "Write a decorator that counts calls.",
        "Give me a one-liner that flattens a list.",
        "Why is my loop slow?",
        "What does functools.cache do?",
    ],
)
def test_explanations_of_a_strong_model_at_the_start_of_a_conversation(prompt):
    parts = [TextPart(f"There are two ways. The first:\n\n{BLOCK}\n\n{LONG}\n\nThe second:\n\n{BLOCK}\n\n{LONG}")]
    assert understood(parts, TOOLS, situation_of([ModelRequest.user_text_prompt(prompt)])).parts == tuple(parts)


def test_a_step_becomes_a_call_and_all_words_stay():
    parts = [ThinkingPart("hm"), TextPart(f"Let me add:\n{BLOCK}\nThis prints 45.")]
    made = understood(parts, TOOLS, Situation(prompt="Compute it."))
    thought, before, call, after = made.parts
    assert thought is parts[0]
    assert (before.content, after.content) == ("Let me add:\n", "\nThis prints 45.")
    assert (call.tool_name, call.args) == ("execute_ipython_cell", {"code": "print(sum(range(10)))"})
    assert call.tool_call_id.startswith(WRITTEN)


def test_a_written_call_with_words_behind_it_may_be_shown_only():
    text = '```json\n{"name": "task", "arguments": {"prompt": "x"}}\n```'
    shown, meant = (TextPart(f"So:\n{text}\nThis starts a child."),), (TextPart(f"So:\n{text}\n"),)
    for situation in (Situation(makes_calls=True), Situation(prompt="How do I call a tool?")):
        assert understood(shown, TOOLS, situation).parts == shown
        assert understood(meant, TOOLS, situation).parts[-1].args == {"prompt": "x"}
    assert understood(shown, TOOLS, Situation(prompt="Ask a child.")).parts[1].args == {"prompt": "x"}


def test_a_reply_that_broke_off_is_not_run():
    parts = [TextPart("```python\nprint(1)\nprint(2)")]
    assert understood(parts, TOOLS, Situation(prompt="Compute it."), complete=False).parts == tuple(parts)
    parts = [TextPart('{"name": "execute_ipython_cell", "arguments": {"code": "print(1)"}')]
    assert understood(parts, TOOLS, Situation(prompt="Compute it."), complete=False).parts == tuple(parts)


def test_without_tools_nothing_is_read():
    parts = (TextPart(f'{BLOCK}\n{{"name": "task", "arguments": {{"prompt": "x"}}}}'),)
    assert understood(parts, {}, Situation(prompt="Compute it.")).parts == parts


def history(call_id, outcome="success", metadata=None):
    return [
        ModelRequest.user_text_prompt("Compute it."),
        ModelResponse(
            [
                TextPart("So:"),
                ToolCallPart("execute_ipython_cell", {"code": "print(1)  # one"}, call_id),
                TextPart("It is 7."),
            ]
        ),
        ModelRequest([ToolReturnPart("execute_ipython_cell", "1", call_id, outcome=outcome, metadata=metadata)]),
    ]


def test_the_situation_follows_from_the_history():
    expected = Situation(prompt="Compute it.", makes_calls=True, last_result="ok", is_over=frozenset({"print(1)"}))
    assert situation_of(history("c1")) == expected
    assert not situation_of(history(f"{WRITTEN}1")).makes_calls
    stored = ModelMessagesTypeAdapter.validate_json(ModelMessagesTypeAdapter.dump_json(history(f"{WRITTEN}1")))
    assert not situation_of(stored).makes_calls
    for failed in (history("c1", "failed"), history("c1", metadata={"outcome": "failed"})):
        assert situation_of(failed).last_result == "error"
        assert not situation_of(failed).is_over
    later = situation_of([*history("c1"), ModelResponse([TextPart("1")]), ModelRequest([UserPromptPart(["And", " now?"])])])
    assert (later.prompt, later.last_result, later.makes_calls) == ("And\n now?", "none", True)


def test_the_model_is_told_what_was_made_of_its_text():
    request, response, result = told(history(f"{WRITTEN}1"))
    assert request == history("x")[0] or request.parts[0].content == "Compute it."
    assert [type(part) for part in response.parts] == [TextPart, ToolCallPart]
    assert result.parts[0].content == (
        "[You wrote Python as text. It was taken as a call of execute_ipython_cell; text behind it was not read.]\n1"
    )


def test_histories_of_strong_models_are_sent_as_they_are():
    messages = history("c1")
    assert all(mine is theirs for mine, theirs in zip(told(messages), messages, strict=True))


def missed(text, error="NameError: name 'square' is not defined", code="print(square(3))"):
    return [
        ModelRequest.user_text_prompt("Compute it."),
        ModelResponse([TextPart(text), ToolCallPart("execute_ipython_cell", {"code": code}, "c1")]),
        ModelRequest([ToolReturnPart("execute_ipython_cell", error, "c1", outcome="failed")]),
    ]


@pytest.mark.parametrize("line", ["def square(n):\n    return n * n", "square = 4", "from numbers import square"])
def test_a_model_is_told_that_its_definition_was_text(line):
    *_, result = told(missed(f"First:\n```python\n{line}\n```\nThen:"))
    assert result.parts[0].content == (
        "NameError: name 'square' is not defined\n"
        "[You defined square in your text. Text is not run: put the definition and what uses it into one call.]"
    )


@pytest.mark.parametrize(
    "messages",
    [
        missed("No code."),
        missed("```python\ndef cube(n): pass\n```"),
        missed("```python\ndef square(n: pass\n```"),
        missed("```bash\nsquare = 3\n```"),
        missed("```python\ndef square(n): pass\n```", "TypeError: square() takes no arguments"),
    ],
)
def test_of_other_errors_it_is_told_nothing(messages):
    assert all(mine is theirs for mine, theirs in zip(told(messages), messages, strict=True))


LINE = "with open('a.txt') as f: text = f.read() text = text.upper() print(text)"


@pytest.mark.parametrize(
    ("written", "way"), [(True, "in a fenced ```python block"), (False, "Put \\n between the statements")]
)
def test_a_model_is_told_that_a_program_in_one_line_is_none(written, way):
    *_, result = told(missed("So:", "  Cell In[1], line 1\nSyntaxError: invalid syntax", LINE), written=written)
    assert result.parts[0].content.startswith("  Cell In[1], line 1\nSyntaxError: invalid syntax\n[The code is one line")
    assert way in result.parts[0].content


@pytest.mark.parametrize("code", ["print(1", "x = 1\n" + LINE])
def test_of_a_slip_it_is_told_nothing(code):
    messages = missed("So:", "SyntaxError: invalid syntax", code)
    assert all(mine is theirs for mine, theirs in zip(told(messages), messages, strict=True))
