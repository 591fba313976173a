"""What replies in text hold: words and blocks, and the calls that a text is nothing but."""

import json

from hypothesis import given, settings
from hypothesis import strategies as st
from support.tables import each, lines
from support.thorough import examples

from freeact_sub.models.blocks import FencedBlock, GrowingReply, holds_calls, python_calls, read_spans
from freeact_sub.tools.toolset import load_definition

TOOLS = {name: load_definition(name).parameters_json_schema for name in ("execute_ipython_cell", "task", "reset_kernel")}
CELL = "execute_ipython_cell"


def blocks(text):
    return [span.code for span in read_spans(text) if isinstance(span, FencedBlock) and span.is_python]


def calls(text):
    return [(call.tool, call.args) for call in python_calls(text, TOOLS)]


@each("text", lines("written_calls.txt"))
def test_a_written_call_is_read(text):
    assert holds_calls(text, TOOLS)
    assert all(call == (CELL, {"code": "print(1)"}) for call in calls(text))


def test_line_ends_inside_strings():
    code = "for n in range(3):\n    print(n)"
    assert holds_calls(f'{{"name": "{CELL}", "arguments": {{"code": "{code}"}}}}', TOOLS)
    assert calls(f'{CELL}(code="""{code}""")') == [(CELL, {"code": code})]


def test_several_calls_in_their_order():
    lines = 'task("count a.txt")\ntask("count b.txt", max_turns=3)\n'
    expected = [("task", {"prompt": "count a.txt"}), ("task", {"prompt": "count b.txt", "max_turns": 3})]
    assert calls(lines) == expected
    assert holds_calls("\n".join(json.dumps({"name": name, "arguments": args}) for name, args in expected), TOOLS)
    assert calls("reset_kernel()") == [("reset_kernel", {})]


@each(
    "text",
    [
        "Call `task(prompt)` for that.",
        '{"name": "read_large_file", "arguments": {"path": "x"}}',
        '{"name": "Ann", "age": 3}',
        "task(some_variable)",
        'print(task("count a.txt"), task("count b.txt"))',
        "for name in ['a', 'b']:\n    task(name)",
        "",
    ],
)
def test_what_is_something_else_as_well_is_no_call(text):
    assert not holds_calls(text, TOOLS)
    assert python_calls(text, TOOLS) == []


@each("mark", ["python", "py", "python3", "py3", "ipython", "ipython3", "Python", "PY", "python title=x"])
def test_what_marks_a_block_as_python(mark):
    assert blocks(f"So:\n```{mark}\nx = 1\n```\n") == ["x = 1"]
    assert blocks(f"So:\n~~~ {mark}\nx = 1\n~~~") == ["x = 1"]


@each("mark", ["", "text", "bash", "json", "pycon", "tool_code", "python-repl", "{python}"])
def test_no_other_block_is_python(mark):
    text = f"So:\n```{mark}\nx = 1\n```\n"
    assert blocks(text) == []
    assert [span.raw for span in read_spans(text)] == ["So:\n", f"```{mark}\nx = 1\n```", "\n"]


def test_where_blocks_begin_and_end():
    text = "First:\n```python\nx = 1\n```\n2. ```py\n   print(x)\n   ```\nand\n~~~python3\nprint(2)\n~~~\n```bash\nls\n```"
    assert blocks(text) == ["x = 1", "print(x)", "print(2)"]
    assert [span.closed for span in read_spans("```python\nprint(1") if isinstance(span, FencedBlock)] == [False]
    assert blocks("````python\nprint('''\n```\n''')\n````") == ["print('''\n```\n''')"]
    assert blocks("```text\n```python\nx = 1\n```\n") == []
    assert blocks("Write ```python``` before it, and ``` behind it.\nx = 1\n```") == []
    assert blocks("```python\n\n```") == []
    assert blocks("```python\r\nx = 1\r\n```\r\n") == ["x = 1\r"]


PIECES = st.sampled_from(
    [
        "```python\n", "```Py \n", "1. ```python\n", "~~~~\n", "   ```text\n", "````", "```json\n", "```\n", "```", "~~~", "`", "<tool_call>", "</tool_call>", "<tools>", "</tools>", "<", ">",
        '{"name": "execute_ipython_cell", "arguments": {"code": "print(1)\\nprint(2)"}}', '{"name": "task", ', "{", "}", "[", "]",
        '"arguments": ', '"code": "', 'execute_ipython_cell(code="print(7)")', 'task("count")', "task(", ")", "(", '"', '"""', "'",
        "print(3)\n", "import os\n", "x = 'y'\n", "\n", "\n\n", " ", "    ", "functions.", "Output:\n", "So it is 3.", "bash\n", "\\n",
        '\\"', ",", ":", "reset_kernel()", "await ", "await task('a')\n", "é", "\x00", "1. ",
    ]
)  # fmt: skip
REPLIES = st.lists(st.one_of(PIECES, st.text("ab{}[]()<>`~\"'\n :,=.", max_size=6)), max_size=14).map("".join)


def is_subsequence(part, whole):
    rest = iter(whole)
    return all(character in rest for character in part if character.isalnum())


@given(REPLIES)
@settings(max_examples=examples(400))
def test_nothing_is_lost_and_nothing_is_made_up(reply):
    spans = read_spans(reply)
    assert "".join(span.raw for span in spans) == reply
    for span in spans:
        if isinstance(span, FencedBlock):
            assert is_subsequence(span.code, span.raw)


@given(st.text(max_size=300))
def test_any_text_can_be_read(reply):
    assert "".join(span.raw for span in read_spans(reply)) == reply


@given(REPLIES, st.integers(1, 9))
@settings(max_examples=examples(400))
def test_what_is_passed_on_early_is_words_whatever_follows(reply, piece):
    first = 0
    for span in read_spans(reply):
        if isinstance(span, FencedBlock) and span.is_python:
            break
        first += len(span.raw)
    growing = GrowingReply()
    given, at = "", 0
    while at < len(reply):
        given += growing.add(reply[at : at + piece])
        at += piece
        assert reply.startswith(given)
        assert len(given) <= first, reply[:at]
    assert given + growing.rest() == reply
    assert growing.passed == len(reply)


def early(text):
    growing = GrowingReply()
    return "".join(growing.add(character) for character in text)


def test_plain_text_is_passed_on_as_it_comes():
    text = 'The sum is 5. See `x` and {y}, or a < b.\nIt holds for [1].\n{"name": "task"}\n'
    assert early(text) == text
    shell = "Run this:\n```bash\npip install x\n"
    assert early(shell) == shell
    assert early("So:\n```pyth") == "So:\n"
    assert early("So:\n``") == "So:\n"
    assert early("1. ```python\nx = 1\n```\nand so on") == "1. "
    assert early("x" * 1000 + " `y` " + "`" * 300 + " z") == "x" * 1000 + " `y` " + "`" * 300 + " z"
