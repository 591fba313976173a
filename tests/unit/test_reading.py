"""What replies in text hold: the forms in which weak models write calls, and what holds of any text whatever."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from freeact_sub.models.reading import Block, Call, GrowingReply, Words, read
from freeact_sub.tools.toolset import load_definition

TOOLS = {name: load_definition(name).parameters_json_schema for name in ("execute_ipython_cell", "task", "reset_kernel")}
CELL = "execute_ipython_cell"


def calls(text):
    return [(span.tool, span.args) for span in read(text, TOOLS) if isinstance(span, Call)]


def blocks(text):
    return [span.code for span in read(text, TOOLS) if isinstance(span, Block)]


def cell_of(code):
    return [(CELL, {"code": code})]


@pytest.mark.parametrize(
    "text",
    [
        '<tool_call>\n{"name": "execute_ipython_cell", "arguments": {"code": "print(1)"}}\n</tool_call>',
        '<tools>{"name": "execute_ipython_cell", "arguments": {"code": "print(1)"}}</tools>',
        '<tool_call>\n{"name": "execute_ipython_cell", "arguments": {"code": "print(1)"}}',
        'I will look.\n<tools>\n{"name": "execute_ipython_cell", "arguments": {"code": "print(1)"}}\n</tools>\nWait.',
        '```json\n{"name": "execute_ipython_cell", "arguments": {"code": "print(1)"}}\n```',
        '```\n{"name": "execute_ipython_cell", "arguments": {"code": "print(1)"}}\n```',
        '```xml\n<tool_call>\n{"name": "execute_ipython_cell", "arguments": {"code": "print(1)"}}\n</tool_call>\n```',
        '{"name": "execute_ipython_cell", "arguments": {"code": "print(1)"}}',
        'Sure:\n{"name": "execute_ipython_cell", "parameters": {"code": "print(1)"}}\nDone.',
        '[{"name": "execute_ipython_cell", "arguments": {"code": "print(1)"}}]',
        '{"type": "function", "function": {"name": "execute_ipython_cell", "arguments": "{\\"code\\": \\"print(1)\\"}"}}',
        '{"tool": "execute_ipython_cell", "args": {"code": "print(1)"}}',
        '{"function": "execute_ipython_cell", "code": "print(1)"}',
        '{"execute_ipython_cell": {"code": "print(1)"}}',
        '{"execute_ipython_cell": "print(1)"}',
        '{"name": "execute_ipython_cell", "arguments": {"code": "print(1)"}',
        '```json\n{"name": "execute_ipython_cell", "arguments": {"code": """print(1)"""}}\n```',
        "```json\n{'name': 'execute_ipython_cell', 'arguments': {'code': 'print(1)'}}\n```",
        '```json\n{\n "name": "execute_ipython_cell",\n "arguments": {\n  "code": "print(1)\n }\n}\n```',
        '{"name": "execute_ipython_cell", "arguments": "print(1)"}',
        '{"name": "execute_ipython_cell", "arguments": {"source": "print(1)"}}',
        '{"name": "execute_ipython_cell", "arguments": {"code": "```python\\nprint(1)\\n```"}}',
        'execute_ipython_cell(code="print(1)")',
        "execute_ipython_cell('print(1)')",
        "Now:\n  functions.execute_ipython_cell('print(1)')",
        '```python\nexecute_ipython_cell(code="print(1)")\n```',
        '```python\nresult = await execute_ipython_cell(code="print(1)")\nprint(result)\n```',
        '```python\ncode = "print(1)"\nexecute_ipython_cell(code)\n```',
        '```python\nprint(execute_ipython_cell("""print(1)"""))\n```',
    ],
)
def test_a_written_call_is_read(text):
    assert calls(text) == cell_of("print(1)")
    assert "".join(span.raw for span in read(text, TOOLS)) == text


def test_line_ends_inside_strings():
    code = "for n in range(3):\n    print(n)"
    assert calls(f'{{"name": "{CELL}", "arguments": {{"code": "{code}"}}}}') == cell_of(code)
    assert calls(f'{CELL}(code="""{code}""")') == cell_of(code)
    twice = code.replace("\n", "\\\\n")
    assert calls(f'{{"name": "{CELL}", "arguments": {{"code": "{twice}"}}}}') == cell_of(code)


def test_quotes_inside_quotes():
    assert calls(f'{CELL}(code="print("hi")")') == cell_of('print("hi")')
    assert calls(f'```json\n{{"name": "{CELL}", "arguments": {{"code": "print("hi")"}}}}\n```') == cell_of('print("hi")')


def test_several_calls_in_their_order():
    lines = 'task("count a.txt")\ntask("count b.txt", max_turns=3)\n'
    expected = [("task", {"prompt": "count a.txt"}), ("task", {"prompt": "count b.txt", "max_turns": 3})]
    assert calls(lines) == expected
    assert calls(f"```python\n{lines}```") == expected
    two = "\n".join(json.dumps({"name": name, "arguments": args}) for name, args in expected)
    assert calls(f"<tool_call>\n{two}\n</tool_call>") == expected
    assert calls(f"<tool_call>{two.splitlines()[0]}</tool_call>\n<tool_call>{two.splitlines()[1]}</tool_call>") == expected
    assert calls("reset_kernel()") == [("reset_kernel", {})]


@pytest.mark.parametrize(
    "text",
    [
        "Call `task(prompt)` for that, or execute_ipython_cell(code).",
        "It is task(1) of three.",
        '```json\n{"name": "read_large_file", "arguments": {"path": "x"}}\n```',
        '```json\n{"name": "Ann", "age": 3}\n```',
        "```bash\nexecute_ipython_cell(code='x')\n```",
        "```toml\n[tools]\nname = 'task'\n```",
        "{not json}\n[1] a footnote\n[link](http://x)",
        "<tools> are listed below\n</tools>",
        "task(some_variable)",
        "",
        "```",
        "~~~\n\n~~~",
    ],
)
def test_other_text_is_words(text):
    spans = read(text, TOOLS)
    assert all(isinstance(span, Words) for span in spans)
    assert "".join(span.raw for span in spans) == text


def test_blocks_of_python():
    text = "First:\n```python\nx = 1\n```\nthen ```py\nprint(x)\n```\nand\n~~~python3\nprint(2)\n~~~\n```bash\nls\n```"
    assert blocks(text) == ["x = 1", "print(x)", "print(2)"]
    assert [span.closed for span in read("```python\nprint(1", TOOLS) if isinstance(span, Block)] == [False]
    assert blocks("````python\nprint('''\n```\n''')\n````") == ["print('''\n```\n''')"]


def test_a_program_that_also_calls_a_tool_is_a_block():
    text = "```python\nfor name in ['a', 'b']:\n    task(name)\n```"
    assert calls(text) == []
    assert blocks(text) == ["for name in ['a', 'b']:\n    task(name)"]


PIECES = st.sampled_from(
    [
        "```python\n", "```json\n", "```\n", "```", "~~~", "`", "<tool_call>", "</tool_call>", "<tools>", "</tools>", "<", ">",
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
@settings(max_examples=400)
def test_nothing_is_lost_and_nothing_is_made_up(reply):
    spans = read(reply, TOOLS)
    assert "".join(span.raw for span in spans) == reply
    for span in spans:
        if isinstance(span, Block):
            assert span.code.strip()
            assert is_subsequence(span.code, span.raw)
        elif isinstance(span, Call):
            assert span.tool in TOOLS
            assert all(is_subsequence(str(value), reply) for value in span.args.values())


@given(st.text(max_size=300))
def test_any_text_can_be_read(reply):
    assert "".join(span.raw for span in read(reply, TOOLS)) == reply


@given(REPLIES, st.booleans(), st.integers(1, 9))
@settings(max_examples=300)
def test_what_is_passed_on_early_is_words_whatever_follows(reply, blocks_may_run, piece):
    kinds = (Call, Block) if blocks_may_run else (Call,)
    first = 0
    for span in read(reply, TOOLS):
        if isinstance(span, kinds):
            break
        first += len(span.raw)
    growing = GrowingReply(TOOLS, blocks_may_run=blocks_may_run)
    given = ""
    while growing.text != reply:
        at = len(growing.text)
        given += growing.add(reply[at : at + piece])
        assert reply.startswith(given)
        assert len(given) <= first, growing.text
    assert given + growing.rest() == reply


def early(text, *, blocks_may_run=True):
    return GrowingReply(TOOLS, blocks_may_run=blocks_may_run).add(text)


def test_plain_text_is_passed_on_as_it_comes():
    text = "The sum is 5. See `x` and {y}, or a < b.\nIt holds for [1]."
    assert early(text) == text
    shell = "Run this:\n```bash\npip install x\n"
    assert early(shell) == shell
    assert early("So:\n```pyth") == "So:\n"
    assert early("So:\n``") == "So:\n"
    closed = "So:\n```python\nx = 1\n```\nand so on"
    assert early(closed, blocks_may_run=False) == closed
    assert early(closed) == "So:\n"
