"""No line that is drawn ends with blanks that only fill it up."""

import io
import re

import pytest
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text
from support.sample_events import ROOT
from support.tables import each

from freeact_sub.calls import CodeAction
from freeact_sub.cells import StreamText
from freeact_sub.events import CodeExecutionOutput, CodeExecutionOutputChunk, Response, ToolCallStarted
from freeact_sub.show.agent_story import Stories
from freeact_sub.show.teller import call_part
from freeact_sub.terminal.drawing.markdown import markdown
from freeact_sub.terminal.drawing.parts import Folded, Indented, coloured, draw_part, make_console
from freeact_sub.terminal.drawing.story import Story

CODE = "import math\nfor r in range(3):\n    print(r)   \n\nx = '''a  \n'''"
CELL = {**ROOT, "tool_call_id": "c"}
EVENTS = (
    ToolCallStarted(**CELL, tool_name="execute_ipython_cell", args={"code": CODE}),
    CodeExecutionOutputChunk(
        **CELL, output=StreamText(name="stdout", text="short\na longer line   \n\n\x1b[32mgreen  \x1b[0m  \n")
    ),
    CodeExecutionOutput(**CELL, text="short", status="ok", seconds=3.0),
    Response(
        **ROOT, content="Words.\n\n```python\nx = 1\nlonger = 22222\n```\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n- item\n"
    ),
)


def table() -> Table:
    table = Table("a", "b", box=None, pad_edge=False)
    table.add_row("1", "2")
    table.add_row("longer", "3")
    return table


def lines(drawn: RenderableType, width: int = 80) -> list[str]:
    console = make_console(io.StringIO())
    console.width = width
    console.no_color = False
    with console.capture() as capture:
        console.print(drawn)
    return [re.sub(r"\x1b\[[0-9;]*m|\x1b\]8;.*?\x1b\\", "", line) for line in capture.get().split("\n")]


@each("width", [20, 80, 200])
@each(
    "drawn",
    [
        Padding(Folded(lines=coloured("r=1\n\x1b[1mbold\x1b[0m  \n")), (0, 0, 0, 2), expand=False),
        Indented(body=Folded(lines=coloured("r=1\n\x1b[1mbold\x1b[0m  \n")), columns=2),
        draw_part(call_part(CodeAction(code=CODE))),
        Padding(draw_part(call_part(CodeAction(code=CODE))), (0, 0, 0, 2)),
        markdown("# Head\n\ntext\n\n```\ncode\nlonger code\n```\n\n1. one\n2. two\n"),
        table(),
        Group(Text("a   "), Padding(Text("b"), (1, 30))),
    ],
    ids=["output", "indented output", "code", "padded code", "markdown", "table", "group"],
)
def test_no_line_ends_with_blanks(drawn: RenderableType, width: int) -> None:
    found = lines(drawn, width)
    assert any(found)
    assert [line for line in found if line != line.rstrip()] == []


@pytest.mark.parametrize("verbose", [False, True])
def test_no_line_of_a_run_ends_with_blanks(verbose: bool) -> None:
    views = Stories()
    story = Story(views, verbose=verbose)
    text: list[str] = []
    for event in EVENTS:
        views.observe(event)
        if (drawn := story.draw(event)) is not None:
            text += lines(drawn)
    assert any("longer line" in line for line in text)
    assert [line for line in text if line != line.rstrip()] == []


def test_blanks_with_a_background_are_seen_and_stay() -> None:
    assert lines(Folded(lines=coloured("\x1b[41m    \x1b[0m")))[0] == "    "
    assert lines(Text(" Approval ", "reverse"))[0] == " Approval "
    assert lines(Text("a", end=""))[0] == "a"
