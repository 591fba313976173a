import io
import re
from typing import get_args

import pytest
from rich.console import Console
from support.sample_events import CHILD, ROOT, USAGE, one_of_each, picture, request

from freeact_sub.calls import CodeAction, McpCall, SpawnCall, ToolCall
from freeact_sub.cells import CellError, ExecuteResult, StreamText
from freeact_sub.config.budget import Usage
from freeact_sub.events import (
    AgentFinished,
    AgentStarted,
    ApprovalAnswered,
    CodeExecutionOutput,
    CodeExecutionOutputChunk,
    Event,
    ModelProgress,
    Response,
    ResponseChunk,
    StrategyProgress,
    Thoughts,
    ThoughtsChunk,
    ToolCallStarted,
    ToolOutput,
    UsageUpdated,
)
from freeact_sub.show.agent_story import Stories
from freeact_sub.show.rows import ROWS
from freeact_sub.terminal.drawing.transcript import Transcript

HOSTILE = "a[/x]\x1b]0;title\x07\x1b]52;c;cm0=\x07\x1b[2J\x1b[3A\x1b[8mb\x07\x08 [red]c[/red] \u202e d"
NOT_SHOWN = (ThoughtsChunk, ResponseChunk, UsageUpdated, ModelProgress, StrategyProgress)
CELL = {"tool_call_id": "call-1"}


class Drawn:
    """A transcript as a terminal would get it."""

    def __init__(self, *, colours: bool = False) -> None:
        self.views = Stories()
        self.transcript = Transcript(self.views)
        self.file = io.StringIO()
        self.console = Console(
            file=self.file, force_terminal=colours, color_system="standard" if colours else None, width=100, markup=False
        )

    def draw(self, *events: Event) -> str:
        """What these events add."""
        before = self.file.tell()
        for event in events:
            self.views.observe(event)
            drawn = self.transcript.draw(event)
            if drawn is not None:
                self.console.print(drawn)
        return self.file.getvalue()[before:]


def output(text: str, **header: object) -> CodeExecutionOutputChunk:
    return CodeExecutionOutputChunk(**{**ROOT, **CELL, **header}, output=StreamText(name="stdout", text=text))


def test_each_type_of_event_has_a_row() -> None:
    assert set(ROWS) == set(get_args(Event))
    assert {type(event) for event in one_of_each()} == set(get_args(Event))


def test_everything_that_is_drawn_names_its_agent() -> None:
    for event in one_of_each():
        text = Drawn().draw(event)
        hidden = isinstance(event, (*NOT_SHOWN, Thoughts))  # thoughts of a child are not shown
        assert ("bbbb" in text) != hidden, event


def test_hostile_text_changes_nothing_but_colours() -> None:
    drawn = Drawn(colours=True)
    for event in one_of_each(HOSTILE):
        text = re.sub(r"\x1b\[[0-9;]*m", "", drawn.draw(event))
        assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", text), event
    assert "[/x]" in drawn.file.getvalue()
    assert not re.search(r"\x1b\[[0-9;]*\b8\b[0-9;]*m", drawn.file.getvalue()), "text is hidden by its colour"


def test_thoughts_are_shown_of_the_root_only() -> None:
    assert "hmm" in Drawn().draw(Thoughts(**ROOT, content="hmm"))
    assert Drawn().draw(Thoughts(**CHILD, content="hmm")) == ""


def test_children_are_indented_and_have_a_label_and_colour_of_their_own() -> None:
    drawn = Drawn(colours=True)
    root = drawn.draw(AgentStarted(**ROOT, prompt="go"))
    child = drawn.draw(AgentStarted(**CHILD, prompt="north", description="the north", queued=True))
    assert root.startswith("\x1b[36m▌ ")
    assert child.startswith("\x1b[35m  ▌ ")
    assert "bbbb the north" in child
    assert "aaaa" in child
    assert "waits for a free place" in child


def test_a_response_is_drawn_as_markdown_and_shows_where_links_lead() -> None:
    text = Drawn().draw(
        Response(**ROOT, content="# Title\n\n- **bold** [click](http://evil.example)\n\n```python\nx = 1\n```")
    )
    assert "**" not in text
    assert "#" not in text
    assert "```" not in text
    assert "bold" in text
    assert "http://evil.example" in text
    assert "x = 1" in text


def test_output_comes_line_by_line_under_one_heading_for_each_agent() -> None:
    drawn = Drawn()
    assert drawn.draw(output("one\ntw")) == "▌ aaaa output\n▌ one\n"
    assert drawn.draw(output("o\n")) == "▌ two\n"
    assert drawn.draw(output("x\n", **CHILD)) == "  ▌ bbbb output\n  ▌ x\n"
    assert drawn.draw(output("three")) == ""
    end = drawn.draw(CodeExecutionOutput(**ROOT, **CELL, text="", status="ok", seconds=1.26))
    assert end == "▌ aaaa output\n▌ three\n▌ aaaa cell ok, 1.3 s\n"


def test_long_lines_of_output_go_on_at_any_character() -> None:
    assert Drawn().draw(output("ab " + "x" * 120 + "\n")) == ("▌ aaaa output\n▌ ab " + "x" * 95 + "\n▌ " + "x" * 25 + "\n")
    assert "▌ a       b\n▌ 猫\n" in Drawn().draw(output("a\tb\n猫\n"))


def test_output_keeps_its_colours() -> None:
    assert "\x1b[31mred" in Drawn(colours=True).draw(output("\x1b[31mred\x1b[0m\n"))
    error = CellError(ename="E", evalue="bad", traceback=("\x1b[32mline\x1b[0m",))
    assert "\x1b[32mline" in Drawn(colours=True).draw(CodeExecutionOutputChunk(**ROOT, output=error))


def test_an_error_without_a_traceback_is_shown_all_the_same() -> None:
    error = CellError(ename="ValueError", evalue="bad")
    assert "ValueError: bad" in Drawn().draw(CodeExecutionOutputChunk(**ROOT, output=error))


def test_a_picture_is_one_line_and_a_table_its_text() -> None:
    text = Drawn().draw(CodeExecutionOutputChunk(**ROOT, output=picture()))
    assert "[picture: image/png, 100 bytes, 640 x 480 pixels]" in text
    assert "Figure" not in text
    table = ExecuteResult(data={"text/html": "<table>", "text/plain": "   a\n0  1"})
    assert "▌    a\n▌ 0  1\n" in Drawn().draw(CodeExecutionOutputChunk(**ROOT, output=table))


def test_output_that_was_left_out_is_said_and_where_it_is() -> None:
    end = CodeExecutionOutput(**ROOT, text="", status="timeout", left_out_chars=1_234_567, output_file="/tmp/x.txt")
    text = Drawn().draw(end)
    assert "cell timeout" in text
    assert "1,234,567 characters" in text
    assert "/tmp/x.txt" in text


def test_the_result_of_a_cell_is_not_shown_twice_but_that_of_a_tool_is_once_and_cut() -> None:
    drawn = Drawn()
    drawn.draw(output("42\n"), CodeExecutionOutput(**ROOT, **CELL, text="42", status="ok"))
    assert drawn.draw(ToolOutput(**ROOT, **CELL, tool_name="execute_ipython_cell", content="42")) == ""
    text = drawn.draw(ToolOutput(**ROOT, tool_call_id="call-2", tool_name="t", content="\n".join(map(str, range(50)))))
    assert "▌ 11\n" in text
    assert "▌ 12\n" not in text
    assert "38 more lines" in text


def test_the_answer_of_a_child_is_not_repeated_when_its_parent_reads_it() -> None:
    drawn = Drawn()
    drawn.draw(AgentStarted(**ROOT, prompt="go"), Response(**CHILD, content="It is *fine*."))
    text = drawn.draw(ToolOutput(**ROOT, **CELL, tool_name="task", content="[child: completed]\nIt is *fine*."))
    assert "[child: completed]" in text
    assert "fine" not in text


def test_a_denial_by_configuration_is_shown_one_by_a_person_once() -> None:
    drawn, denied = Drawn(), ToolOutput(**ROOT, **CELL, tool_name="t", content="denied: rule", outcome="denied")
    assert "denied: rule" in drawn.draw(denied)
    drawn.draw(request("r", CodeAction(code="x"), **CELL))
    assert "denied (why): run code: x" in drawn.draw(
        ApprovalAnswered(**ROOT, request_id="r", allowed=False, reason="why")
    ).replace("\n▌", "")
    assert drawn.draw(denied) == ""


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (CodeAction(code="import os\nos.getcwd()"), ("asks to run this cell", "import os", "os.getcwd()")),
        (
            McpCall(server="gh", tool="search", args={"q": "a\x1b[8mb", "n": 3}),
            ("search of the MCP server gh", r"a\x1b[8mb", "n = 3"),
        ),
        (
            SpawnCall(prompt="first\nsecond", description="north", max_turns=4),
            ("child agent (north), at most 4 turns", "first", "second"),
        ),
        (ToolCall(tool_name="fetch", args={"url": "http://x"}), ("asks to call fetch", "url = http://x")),
        (ToolCall(tool_name="fetch"), ("asks to call fetch", "(no arguments)")),
    ],
)
def test_a_question_shows_the_call_in_full(call: CodeAction, words: tuple[str, ...]) -> None:
    text = Drawn().draw(request("r", call))
    assert all(word in text for word in words)


def test_a_question_does_not_repeat_what_its_tool_call_showed() -> None:
    drawn, code = Drawn(), "print(1)\nprint(2)"
    shown = ToolCallStarted(**ROOT, **CELL, tool_name="execute_ipython_cell", args={"code": code})
    asked = request("r", CodeAction(code=code), **CELL)
    assert "print(2)" in drawn.draw(shown)
    assert drawn.draw(asked) == ""
    assert drawn.transcript.is_last(asked)
    drawn.draw(output("of another\n", **CHILD))
    assert not drawn.transcript.is_last(asked)


@pytest.mark.parametrize("code", ["print(1)\nprint(3)", "print(1)"])
def test_a_question_that_differs_from_its_tool_call_is_shown(code: str) -> None:
    drawn = Drawn()
    drawn.draw(ToolCallStarted(**ROOT, **CELL, tool_name="execute_ipython_cell", args={"code": "print(1)\nprint(2)"}))
    asked = request("r", CodeAction(code=code), **CELL)
    assert "print(1)" in drawn.draw(asked)
    assert drawn.transcript.is_last(asked)


def test_a_call_made_by_code_is_shown_though_its_cell_was() -> None:
    drawn = Drawn()
    drawn.draw(ToolCallStarted(**ROOT, **CELL, tool_name="execute_ipython_cell", args={"code": "agent.mcp.s.t(code='x')"}))
    assert "of the MCP server s" in drawn.draw(request("r", McpCall(server="s", tool="t", args={"code": "x"}), **CELL))


def test_the_end_shows_status_usage_and_an_answer_that_was_not_shown() -> None:
    drawn = Drawn()
    drawn.draw(Response(**ROOT, content="forty-two"))
    end = AgentFinished(**ROOT, status="completed", output="forty-two", usage=USAGE, tree_usage=USAGE, seconds=3.21)
    text = drawn.draw(end)
    assert "ended (completed)" in text
    assert "forty-two" not in text
    assert "turns 3, tool calls 2, tokens 1,234, $0.0123, 3.2 s" in text
    assert "children" not in text
    whole = AgentFinished(**ROOT, status="kernel_lost", output="less", error="gone", usage=USAGE, tree_usage=USAGE + USAGE)
    text = drawn.draw(whole)
    assert all(word in text for word in ("kernel lost", "less", "gone", "with its children: turns 6"))
    assert "files written" not in text
    names = tuple(f"out/{number}\x1b[2J.csv" for number in range(10))
    text = drawn.draw(AgentFinished(**ROOT, status="completed", usage=USAGE, tree_usage=USAGE, files_written=names))
    assert "files written: out/0" in text.replace("\n", " ")
    assert "and 2 more" in text.replace("\n", " ")
    assert "\x1b[2J" not in text


def test_a_prompt_stands_apart_from_the_one_before() -> None:
    drawn, start = Drawn(), AgentStarted(**ROOT, prompt="go")
    assert drawn.draw(start).startswith("▌")
    assert drawn.draw(start).startswith("\n▌")


def test_usage_of_a_run_begins_anew() -> None:
    views = Stories()
    view = views.observe(UsageUpdated(**ROOT, usage=USAGE, tree_usage=USAGE))
    assert view.usage == USAGE
    views.observe(AgentStarted(**ROOT, prompt="again"))
    assert view.usage == Usage()
