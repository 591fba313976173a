"""`--verbose`: the same story, unfolded, with all agents below their names."""

import io
import re
from typing import get_args

import pytest
from rich.console import Console
from support.sample_events import CHILD, ROOT, USAGE, one_of_each, picture, request

from freeact_sub.calls import Call, CodeAction, McpCall, SpawnCall, ToolCall
from freeact_sub.cells import CellError, ExecuteResult, StreamText
from freeact_sub.config.budget import Usage
from freeact_sub.events import (
    AgentFinished,
    AgentMessage,
    AgentStarted,
    ApprovalDecided,
    ApprovalRequest,
    Cancelled,
    CodeExecutionOutput,
    CodeExecutionOutputChunk,
    Event,
    ModelProgress,
    QuestionRequest,
    Response,
    ResponseChunk,
    StrategyProgress,
    Thoughts,
    ThoughtsChunk,
    ToolCallStarted,
    ToolOutput,
    ToolProgress,
    UsageUpdated,
)
from freeact_sub.show.agent_story import Stories
from freeact_sub.terminal.drawing.parts import draw_part
from freeact_sub.terminal.drawing.story import Story

HOSTILE = "a[/x]\x1b]0;title\x07\x1b]52;c;cm0=\x07\x1b[2J\x1b[3A\x1b[8mb\x07\x08 [red]c[/red] \u202e d"
BELOW = (
    ThoughtsChunk,
    ResponseChunk,
    UsageUpdated,
    ModelProgress,
    StrategyProgress,
    ToolProgress,
    ApprovalRequest,
    QuestionRequest,
)
"""Events that are drawn below the scrollback, if at all."""
CELL = {"tool_call_id": "call-1"}


class Drawn:
    """A story as a terminal would get it."""

    def __init__(self, *, colours: bool = False) -> None:
        self.views = Stories()
        self.story = Story(self.views, verbose=True)
        self.file = io.StringIO()
        self.console = Console(
            file=self.file, force_terminal=colours, color_system="standard" if colours else None, width=100, markup=False
        )

    def draw(self, *events: Event) -> str:
        """What these events add."""
        before = self.file.tell()
        for event in events:
            self.views.observe(event)
            drawn = self.story.draw(event)
            if drawn is not None:
                self.console.print(drawn)
        return self.file.getvalue()[before:]


def call(code: str = "print(1)\nprint(2)", **header: object) -> ToolCallStarted:
    return ToolCallStarted(**{**ROOT, **CELL, **header}, tool_name="execute_ipython_cell", args={"code": code})


def output(text: str, **header: object) -> CodeExecutionOutputChunk:
    return CodeExecutionOutputChunk(**{**ROOT, **CELL, **header}, output=StreamText(name="stdout", text=text))


def test_each_type_of_event_has_a_sample() -> None:
    assert {type(event) for event in one_of_each()} == set(get_args(Event))


def test_everything_that_is_drawn_of_a_child_stands_below_its_name() -> None:
    for event in one_of_each():
        drawn = Drawn()
        drawn.draw(AgentStarted(**ROOT, prompt="go"))
        text = drawn.draw(event)
        if isinstance(event, Thoughts | Cancelled):
            assert text == "", "thoughts of children are for readers of the stream, and how a run ended is told at its end"
        elif text or not isinstance(event, (*BELOW, CodeExecutionOutput)):
            assert "bbbb" in text, event


def test_two_that_work_at_once_have_their_name_again_where_the_other_one_was_drawn() -> None:
    drawn, other = Drawn(), {"agent_id": "agent-cccc0000", "parent_id": "agent-aaaa0000", "depth": 1}
    drawn.draw(AgentStarted(**ROOT, prompt="go"), AgentStarted(**CHILD, prompt="north", description="the north"))
    drawn.draw(AgentStarted(**other, prompt="south", description="the south"))
    text = drawn.draw(
        output("one\n", **CHILD),
        output("two\n", **CHILD),
        output("three\n", **other),
        output("four\n", **CHILD),
        output("five\n"),
    )
    assert [line for line in text.splitlines() if line] == [
        "  bbbb the north",
        "    one",
        "    two",
        "  cccc the south",
        "    three",
        "  bbbb the north",
        "    four",
        "agent",
        "  five",
    ]


def test_the_code_of_a_child_is_seen_while_it_runs_and_that_of_the_root_below_the_scrollback() -> None:
    drawn = Drawn()
    assert drawn.draw(AgentStarted(**ROOT, prompt="go"), call()) == "> go\n"
    assert [call.code for call in drawn.story.pending] == ["print(1)\nprint(2)"]
    assert "print(2)" in drawn.draw(call(**CHILD))
    assert "print" not in drawn.draw(output("2\n", **CHILD))


def test_nothing_is_folded() -> None:
    drawn = Drawn()
    code = "\n".join(f"x{number} = {number}" for number in range(40))
    text = drawn.draw(AgentStarted(**ROOT, prompt="go"), AgentStarted(**CHILD, prompt="line\n" * 30, description="x"))
    text += drawn.draw(call(code, **CHILD))
    text += drawn.draw(output("y\n" * 40, **CHILD), CodeExecutionOutput(**CHILD, **CELL, text="", status="ok"))
    assert (text.count("line\n"), text.count(" = "), text.count("    y\n")) == (30, 40, 40)
    assert "more" not in text


def test_hostile_text_changes_nothing_but_colours() -> None:
    drawn = Drawn(colours=True)
    for event in one_of_each(HOSTILE):
        text = re.sub(r"\x1b\[[0-9;]*m|\x1b\]8;[^\x1b]*\x1b\\", "", drawn.draw(event))
        assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", text), event
    assert "[/x]" in drawn.file.getvalue()
    assert not re.search(r"\x1b\[[0-9;]*\b8\b[0-9;]*m", drawn.file.getvalue()), "text is hidden by its colour"


def test_thoughts_are_shown_of_the_root_only() -> None:
    assert "hmm" in Drawn().draw(Thoughts(**ROOT, content="hmm"))
    assert Drawn().draw(Thoughts(**CHILD, content="hmm")) == ""


def test_children_are_indented_and_have_a_label_and_colour_of_their_own() -> None:
    drawn = Drawn(colours=True)
    drawn.draw(AgentStarted(**ROOT, prompt="go"))
    child = drawn.draw(AgentStarted(**CHILD, prompt="look north", description="the north", queued=True))
    assert "\n  \x1b[1;35mbbbb the north" in child
    assert "  \x1b[1m> \x1b[0m\x1b[1mlook north" in child


def test_a_response_is_drawn_as_markdown_and_shows_where_links_lead() -> None:
    text = Drawn().draw(
        Response(**ROOT, content="# Title\n\n- **bold** [click](http://evil.example)\n\n```python\nx = 1\n```")
    )
    assert not any(mark in text for mark in ("**", "#", "```"))
    assert all(words in text for words in ("bold", "http://evil.example", "x = 1"))


def test_output_comes_line_by_line() -> None:
    drawn = Drawn()
    assert drawn.draw(output("one\ntw")) == "  one\n"
    assert drawn.draw(output("o\n")) == "  two\n"
    assert drawn.draw(output("three")) == ""
    assert drawn.draw(CodeExecutionOutput(**ROOT, **CELL, text="", status="ok", seconds=2.26)) == "  three\n  2.3 s\n"


def test_long_lines_of_output_go_on_at_any_character() -> None:
    assert Drawn().draw(output("ab " + "x" * 120 + "\n")) == "  ab " + "x" * 95 + "\n  " + "x" * 25 + "\n"
    assert Drawn().draw(output("a\tb\n猫\n")) == "  a       b\n  猫\n"


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
    assert Drawn().draw(CodeExecutionOutputChunk(**ROOT, output=table)) == "     a\n  0  1\n"


def test_output_that_was_left_out_is_said_and_where_it_is() -> None:
    end = CodeExecutionOutput(**ROOT, text="", status="timeout", left_out_chars=1_234_567, output_file="/tmp/x.txt")
    text = Drawn().draw(end)
    assert all(words in text for words in ("timeout after", "1,234,567 characters", "/tmp/x.txt"))


def test_the_result_of_a_cell_is_not_shown_twice_but_that_of_a_tool_is_once_and_whole() -> None:
    drawn = Drawn()
    drawn.draw(output("42\n"), CodeExecutionOutput(**ROOT, **CELL, text="42", status="ok"))
    assert drawn.draw(ToolOutput(**ROOT, **CELL, tool_name="execute_ipython_cell", content="42")) == ""
    text = drawn.draw(ToolOutput(**ROOT, tool_call_id="call-2", tool_name="t", content="\n".join(map(str, range(50)))))
    assert [line.strip() for line in text.splitlines()][-50:] == [*map(str, range(50))]


def test_the_answer_of_a_child_is_not_repeated_when_its_parent_reads_it_or_is_told_of_it() -> None:
    drawn = Drawn()
    drawn.draw(AgentStarted(**ROOT, prompt="go"), AgentStarted(**CHILD, **CELL, prompt="look"))
    assert "It is fine." in drawn.draw(Response(**CHILD, content="It is *fine*."))
    told = AgentMessage(**CHILD, kind="status", recipient_id="agent-aaaa0000", content="It is *fine*.", success=True)
    assert drawn.draw(told, ToolOutput(**ROOT, **CELL, tool_name="task", content="[child: completed]\nIt is *fine*.")) == ""


def test_what_a_told_child_writes_to_its_parent_is_whole_in_all_its_lines() -> None:
    drawn, lines = Drawn(), [f"line {number}" for number in range(50)]
    drawn.draw(AgentStarted(**ROOT, prompt="go"), AgentStarted(**CHILD, **CELL, prompt="look"))
    told = drawn.draw(AgentMessage(**CHILD, kind="request", recipient_id="agent-aaaa0000", content="\n".join(lines)))
    assert [line.split(": ")[-1].strip() for line in told.splitlines()][-50:] == lines


def test_a_denial_by_configuration_is_shown_one_by_a_person_once() -> None:
    drawn, denied = Drawn(), ToolOutput(**ROOT, **CELL, tool_name="t", content="denied: rule", outcome="denied")
    assert "denied: rule" in drawn.draw(denied)
    drawn.draw(request("r", CodeAction(code="x"), **CELL))
    text = drawn.draw(ApprovalDecided(**ROOT, request_id="r", allowed=False, reason="why"))
    assert text.splitlines()[-2:] == ["● Python  x", "  denied: why"]
    assert drawn.draw(denied) == ""


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (CodeAction(code="import os\nos.getcwd()"), ("import os", "os.getcwd()")),
        (McpCall(server="gh", tool="search", args={"q": "a\x1b[8mb", "n": 3}), (r"a\x1b[8mb", "n = 3")),
        (SpawnCall(prompt="first\nsecond", description="north", max_turns=4), ("first", "second")),
        (ToolCall(tool_name="fetch", args={"url": "http://x"}), ("url = http://x",)),
        (ToolCall(tool_name="fetch"), ("(no arguments)",)),
    ],
)
def test_a_call_is_drawn_in_full(call: Call, words: tuple[str, ...]) -> None:
    from freeact_sub.show.teller import call_part

    drawn = Drawn()
    drawn.console.print(draw_part(call_part(call)))
    assert all(word in drawn.file.getvalue() for word in words)


def test_the_end_shows_status_usage_and_an_answer_that_was_not_shown() -> None:
    drawn = Drawn()
    drawn.draw(Response(**ROOT, content="forty-two"))
    end = AgentFinished(**ROOT, status="completed", output="forty-two", usage=USAGE, tree_usage=USAGE, seconds=3.21)
    assert drawn.draw(end) == "\n3.2 s · 3 turns · 1,234 tokens · $0.0123\n"
    whole = AgentFinished(**ROOT, status="kernel_lost", output="less", error="gone", usage=USAGE, tree_usage=USAGE + USAGE)
    text = drawn.draw(whole)
    assert all(word in text for word in ("✗ kernel lost: gone", "less", "6 turns"))
    assert "files written" not in text
    names = tuple(f"out/{number}\x1b[2J.csv" for number in range(10))
    text = drawn.draw(AgentFinished(**ROOT, status="completed", usage=USAGE, tree_usage=USAGE, files_written=names))
    assert "files written: out/0" in text.replace("\n", " ")
    assert "and 2 more" in text.replace("\n", " ")
    assert "\x1b[2J" not in text


def test_the_end_of_a_child_has_its_whole_error_and_its_line() -> None:
    drawn, error = Drawn(), "no model " * 60
    text = drawn.draw(
        AgentFinished(**CHILD, status="failed", error=error, usage=USAGE, tree_usage=USAGE, warnings=("careful",))
    )
    assert " ".join(text.split()).count("no model") >= 60
    assert "careful" in text
    assert "✗ bbbb" in text


def test_prompts_stand_apart_and_have_no_name_above_them() -> None:
    drawn, start = Drawn(), AgentStarted(**ROOT, prompt="go")
    assert drawn.draw(start) == "> go\n"
    drawn.draw(AgentStarted(**CHILD, prompt="look"))
    assert drawn.draw(start) == "\n> go\n"


def test_usage_of_a_run_begins_anew() -> None:
    views = Stories()
    view = views.observe(UsageUpdated(**ROOT, usage=USAGE, tree_usage=USAGE))
    assert view.usage == USAGE
    views.observe(AgentStarted(**ROOT, prompt="again"))
    assert view.usage == Usage()
