"""What is folded shows its first and its last lines, and what a running cell printed last is held until it ends."""

import io

import pytest
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text
from support.drawn_story import CELL, DrawnStory, call, output
from support.sample_events import ROOT, request

from freeact_sub.calls import ShellCommand
from freeact_sub.cells import CellError
from freeact_sub.events import ApprovalDecided, CodeExecutionOutput, CodeExecutionOutputChunk, ToolCallStarted, ToolOutput
from freeact_sub.terminal.drawing.parts import Hanging, filled


def test_code_and_output_fold_at_twelve_lines() -> None:
    drawn = DrawnStory()
    text = drawn.draw(
        call("# many names\n" + "\n".join(f"x{number} = {number}" for number in range(30))),
        *(output("".join(f"line {number}\n" for number in range(start, start + 500))) for start in range(0, 3000, 500)),
        CodeExecutionOutput(**ROOT, **CELL, text="", status="ok", seconds=0.1, output_file="/tmp/out.txt"),
    )
    lines = [line.strip() for line in text.splitlines()]
    assert "… 18 more lines (ctrl-o)" in lines
    assert "x11 = 11" in lines
    assert "x12 = 12" not in lines
    assert lines[lines.index("line 0") :] == [
        *(f"line {number}" for number in range(7)),
        "… 2,988 more lines (ctrl-o, or /tmp/out.txt)",
        *(f"line {number}" for number in range(2995, 3000)),
    ]


def test_the_last_lines_of_a_cell_at_work_are_held_and_drawn_once() -> None:
    drawn = DrawnStory()

    def held() -> list[str]:
        return [line.plain for line in drawn.story.output]

    text = drawn.draw(call(), output("".join(f"line {number}\n" for number in range(10))))
    assert text.splitlines()[-7:] == [f"  line {number}" for number in range(7)]
    assert held() == ["line 7", "line 8", "line 9"]
    asked = request("r", ShellCommand(command="ls"), **ROOT, **CELL)
    assert drawn.draw(asked) == ""
    denied = drawn.draw(ApprovalDecided(**ROOT, **CELL, request_id="r", allowed=False, reason="no"))
    lines = denied.splitlines()
    assert lines[:3] == ["  line 7", "  line 8", "  line 9"]  # they came before it
    assert lines[-1] == "  denied: no"
    assert held() == []
    assert drawn.draw(output("".join(f"line {number}\n" for number in range(10, 40)))) == ""
    assert held() == ["… 25 more lines (ctrl-o)", *(f"line {number}" for number in range(35, 40))]
    ended = drawn.draw(CodeExecutionOutput(**ROOT, **CELL, text="", status="error", seconds=0.1))
    assert ended.splitlines() == [f"  {line}" for line in (*held_after(35, 40, 25), "✗ error after 0.1 s")]
    assert held() == []


def held_after(first: int, end: int, more: int) -> list[str]:
    return [f"… {more} more lines (ctrl-o)", *(f"line {number}" for number in range(first, end))]


def test_the_output_before_an_error_has_its_last_lines_before_it() -> None:
    drawn = DrawnStory()
    error = CellError(ename="KeyError", evalue="'a'", traceback=("KeyError: 'a'",))
    drawn.draw(call(), output("".join(f"line {number}\n" for number in range(20))))
    lines = drawn.draw(CodeExecutionOutputChunk(**ROOT, **CELL, output=error)).splitlines()
    assert lines == [f"  {line}" for line in (*held_after(15, 20, 8), "KeyError: 'a'")]


def test_the_result_of_a_tool_has_its_first_and_its_last_lines() -> None:
    drawn = DrawnStory()
    started = ToolCallStarted(**ROOT, **CELL, tool_name="subagents", args={})
    content = "\n".join(f"line {number}" for number in range(100))
    text = drawn.draw(started, ToolOutput(**ROOT, **CELL, tool_name="subagents", content=content))
    assert [line.strip() for line in text.splitlines()][-13:] == [
        *(f"line {number}" for number in range(7)),
        "… 88 more lines (ctrl-o)",
        *(f"line {number}" for number in range(95, 100)),
    ]


def test_a_long_error_has_its_beginning_and_its_end() -> None:
    drawn = DrawnStory()
    error = CellError(ename="KeyError", evalue="'a'", traceback=tuple(f"frame {number}" for number in range(60)))
    lines = [
        line.strip() for line in drawn.draw(call(), CodeExecutionOutputChunk(**ROOT, **CELL, output=error)).splitlines()
    ]
    assert lines[4:] == [
        *(f"frame {number}" for number in range(7)),
        "… 48 more lines (ctrl-o)",
        *(f"frame {number}" for number in range(55, 60)),
    ]


@pytest.mark.parametrize("printed", ["x" * 20_000, "ab\t" * 4_000, "\u5c71" * 9_000, "\n".join(["y" * 1_000] * 30)])
def test_long_lines_are_folded_by_rows(printed: str) -> None:
    drawn = DrawnStory(columns=80)
    text = drawn.draw(call(), output(f"{printed}\n"), CodeExecutionOutput(**ROOT, **CELL, text=printed, status="ok"))
    assert len(text.split("\n")) < 24
    assert " more rows (ctrl-o)" in text
    assert max(map(cell_len, text.split("\n"))) <= 80


def test_each_label_fits_its_columns() -> None:
    for label in ("\u200d\u200d👩👩宽 a宽👩\u200d👩 宽宽é👩é👩宽宽宽\u200d\u200d👩宽宽a", "e\u0301" * 40, "北 north", ""):
        for columns in range(30):
            assert {cell_len(filled(label, columns, keeps_end=keeps)) for keeps in (True, False)} == {columns}, label


def test_further_rows_of_a_long_line_stand_to_the_right_of_its_first() -> None:
    console = Console(width=24, color_system=None, file=io.StringIO())
    console.print(Hanging(lines=[Text("changed:"), Text("  a: 5 of 1,000 elements changed"), Text(""), Text("+x")]))
    assert console.file.getvalue().splitlines() == [  # type: ignore[attr-defined]
        "changed:",
        "  a: 5 of 1,000 elements",
        "    changed",
        "",
        "+x",
    ]
