"""What is made of replies: arguments put right, blocks that become calls, and what stays as it is."""

import pytest
from pydantic_ai.messages import ModelRequest, ModelResponse, TextPart, ThinkingPart, ToolCallPart, ToolReturnPart
from support.tables import each

from freeact_sub.models.arguments import repaired
from freeact_sub.models.blocks import WRITTEN, without_text_after_calls
from freeact_sub.models.code_actions import read_reply
from freeact_sub.tools.toolset import load_definition

TOOLS = {name: load_definition(name).parameters_json_schema for name in ("execute_ipython_cell", "task", "reset_kernel")}
BLOCK = "```python\nprint(sum(range(10)))\n```"
CELL = "execute_ipython_cell"


@each(
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


@each(
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


@each("name", STRONG)
def test_what_strong_models_send_is_left_as_it_is(name):
    made = read_reply(STRONG[name], TOOLS, blocks=False)
    assert all(mine is theirs for mine, theirs in zip(made, STRONG[name], strict=True))


@each(
    "text",
    [
        BLOCK,
        f"I run it:\n{BLOCK}",
        '{"name": "execute_ipython_cell", "arguments": {"code": "print(1)"}}',
        '<tool_call>{"name": "task", "arguments": {"prompt": "x"}}</tool_call>',
        "task('x')",
    ],
)
def test_text_is_never_run_with_tool_calls(text):
    assert read_reply([TextPart(text)], TOOLS, blocks=False) == [TextPart(text)]


def run(text, tools=TOOLS, *, complete=True):
    parts = read_reply([TextPart(text)], tools, blocks=True, complete=complete)
    return [(part.tool_name, part.args) for part in parts if isinstance(part, ToolCallPart)]


def cell_of(code):
    return [(CELL, {"code": code})]


def test_a_block_becomes_a_call_and_all_words_stay():
    parts = [ThinkingPart("hm"), TextPart(f"Let me add:\n{BLOCK}\nThis prints 45.")]
    thought, before, call, after = read_reply(parts, TOOLS, blocks=True)
    assert thought is parts[0]
    assert (before.content, after.content) == ("Let me add:\n", "\nThis prints 45.")
    assert (call.tool_name, call.args) == (CELL, {"code": "print(sum(range(10)))"})
    assert call.tool_call_id.startswith(WRITTEN)


@each(
    "text",
    [
        "```\nprint(1)\n```",
        "```text\nprint(1)\n```",
        "```bash\nls\n```",
        '{"name": "execute_ipython_cell", "arguments": {"code": "print(1)"}}',
        '```json\n{"name": "task", "arguments": {"prompt": "x"}}\n```',
        "task('x')",
        "It is 45.",
    ],
)
def test_only_a_block_that_is_marked_as_python_is_run(text):
    assert run(text) == []


@pytest.mark.parametrize(
    "prompt_like",
    [
        "Zeig mir Code, der build löscht. Nicht ausführen!",
        "You can run this yourself:",
        "In other words:",
    ],
)
def test_what_stands_around_a_block_decides_nothing(prompt_like):
    assert run(f"{prompt_like}\n```python\nx = 1\n```\nThat is how.") == cell_of("x = 1")
    assert run(f"{prompt_like}\n```text\nx = 1\n```\nThat is how.") == []


def test_blocks_are_one_cell_up_to_a_block_of_another_kind():
    text = "```python\nx = 1\n```\nthen\n```python\nprint(x)\n```\n{}\n```python\nprint(2)\n```"
    for between in ("```\n1\n```", "```text\n1\n```", "```python\ntask('x')\n```"):
        assert run(text.format(between)) == cell_of("x = 1\n\nprint(x)")
    assert run(text.format("and")) == cell_of("x = 1\n\nprint(x)\n\nprint(2)")
    assert run("```\nshown\n```\n```py\nx = 1\n```") == cell_of("x = 1")


def test_blocks_of_nothing_but_calls_are_these_calls():
    text = "```python\ntask('a')\n```\nand\n```python\ntask('b')\nreset_kernel()\n```\n```python\nprint(1)\n```"
    assert run(text) == [("task", {"prompt": "a"}), ("task", {"prompt": "b"}), ("reset_kernel", {})]
    assert run("```python\nfor name in 'ab':\n    task(name)\n```") == cell_of("for name in 'ab':\n    task(name)")
    assert run("```python\nprint(1)\n```", {"task": TOOLS["task"]}) == []


def test_a_reply_that_was_cut_off_is_not_run():
    assert run("```python\nprint(1)\nprint(2)", complete=False) == []
    assert run("```python\nprint(1)\n```\nSo it is", complete=False) == cell_of("print(1)")
    assert run("```python\nprint(1)\nprint(2)") == cell_of("print(1)\nprint(2)")
    assert run("```python\nfor n in (") == []
    for args in ('{"code": "pri', "print(1)\nprint(", "", None):
        parts = [TextPart("So:"), ToolCallPart(CELL, args)]
        for blocks in (True, False):
            assert read_reply(parts, TOOLS, blocks=blocks, complete=False) == parts[:1]
    whole = [ToolCallPart(CELL, '{"code": "print(1)"}')]
    assert read_reply(whole, TOOLS, blocks=False, complete=False) == whole


def test_without_tools_nothing_is_run():
    assert run(f"{BLOCK}\n```python\ntask('x')\n```", {}) == []


def test_what_a_model_made_up_behind_a_block_is_not_shown_to_it_again():
    def history(call_id):
        call = ToolCallPart(CELL, {"code": "print(1)"}, call_id)
        return [
            ModelRequest.user_text_prompt("Compute it."),
            ModelResponse([TextPart("So:"), call, TextPart("It is 7.")]),
            ModelRequest([ToolReturnPart(CELL, "1", call_id)]),
        ]

    _, response, _ = without_text_after_calls(history(f"{WRITTEN}1"))
    assert [type(part) for part in response.parts] == [TextPart, ToolCallPart]
    messages = history("c1")
    assert all(mine is theirs for mine, theirs in zip(without_text_after_calls(messages), messages, strict=True))
