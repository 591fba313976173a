"""Golden screens: all that the terminal shows in some moments, in windows of several sizes (`support/screens.py`)."""

import io
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pyte
import pytest
from support.sample_events import ROOT, picture
from support.screens import check_screen, check_text, style_of
from support.terminal import READY, Terminal

from freeact_sub.events import CodeExecutionOutput, CodeExecutionOutputChunk, ToolCallStarted
from freeact_sub.show.agent_story import Stories
from freeact_sub.terminal.drawing.parts import make_console
from freeact_sub.terminal.drawing.story import Story

PROGRAM = Path(__file__).parents[1] / "support" / "scripted_screens.py"
DISTANT = PROGRAM.with_name("distant_terminal.py")
STATIONS = ("harbour", "ridge", "valley", "山頂")
SIZES = [(60, 30), (100, 36), (200, 36)]

Start = Callable[..., Terminal]

pytestmark = pytest.mark.e2e


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    opened: list[Terminal] = []

    def start(*arguments: str, columns: int = 100, rows: int = 36, distant: bool = False, **env: str) -> Terminal:
        command = [sys.executable, str(PROGRAM), *arguments]
        if distant:
            command[:0] = [sys.executable, str(DISTANT)]
        # it cuts rows that no longer fit, as pyte does
        env = {"PYDANTIC_AI_NO_BANNER": "1", "XTERM_VERSION": "1", **env}
        opened.append(Terminal(command, cwd=tmp_path, env=env, rows=rows, columns=columns))
        return opened[-1]

    yield start
    for terminal in opened:
        terminal.__exit__(None, None, None)


def children_that_ask(terminal: Terminal, folder: Path) -> None:
    """Four children at work, of which two ask, in this order."""
    terminal.wait_at_bottom(READY)
    terminal.enter("stations " + " ".join(STATIONS))
    terminal.answer("a", "Approval 1 of 4")
    terminal.wait_at_bottom("5 agents at work", *(f"clean {name}.csv" for name in STATIONS))
    for number, name in enumerate(("ridge", "山頂"), start=1):
        (folder / name).touch()
        terminal.wait_at_bottom(f"Approval 1 of {number}", f" clean {name}.csv")
    terminal.wait_at_bottom("y yes")


@pytest.mark.parametrize(("columns", "rows"), SIZES)
def test_the_first_screen_and_an_answer(start: Start, columns: int, rows: int, tmp_path: Path) -> None:
    (tmp_path / "harbour.csv").touch()  # the answer names it
    terminal = start(columns=columns, rows=rows)
    terminal.wait_at_bottom(READY)
    check_screen(terminal, f"first-{columns}")
    terminal.enter("answer go")
    terminal.wait_at_bottom("harbour: nothing missing", "1 agent at work")
    check_screen(terminal, f"growing-{columns}")
    (tmp_path / "go").touch()
    terminal.wait_for("seven days")
    terminal.wait_at_bottom(READY)
    check_screen(terminal, f"answer-{columns}")


@pytest.mark.parametrize(("columns", "rows"), SIZES)
def test_four_children_of_whom_two_ask(start: Start, columns: int, rows: int, tmp_path: Path) -> None:
    terminal = start(columns=columns, rows=rows)
    children_that_ask(terminal, tmp_path)
    check_screen(terminal, f"children-{columns}")


def test_a_terminal_that_is_far_away_shows_the_same(start: Start, tmp_path: Path) -> None:
    terminal = start(distant=True)
    children_that_ask(terminal, tmp_path)
    check_screen(terminal, "children-100")


def test_a_window_that_becomes_narrow_and_wide_again_while_children_work(start: Start, tmp_path: Path) -> None:
    terminal = start(columns=200)
    children_that_ask(terminal, tmp_path)
    terminal.resize(36, 60)
    check_screen(terminal, "resized-60")
    terminal.resize(36, 100)
    check_screen(terminal, "resized-100")


def test_code_and_output_that_are_folded(start: Start) -> None:
    terminal = start(rows=50)
    terminal.wait_at_bottom(READY)
    terminal.enter("long")
    terminal.answer("y", "Approval 1 of 1")
    terminal.wait_for("That was long.")
    terminal.wait_at_bottom(READY)
    check_screen(terminal, "folded")


@pytest.mark.parametrize("no_colour", ["", "1"])
def test_colours_are_the_terminals_own_so_that_it_may_be_light_or_dark(start: Start, no_colour: str, tmp_path: Path) -> None:
    terminal = start(NO_COLOR=no_colour) if no_colour else start()
    children_that_ask(terminal, tmp_path)
    check_screen(terminal, f"{'without-' if no_colour else ''}colours", coloured=True)
    chars = [terminal.screen.buffer[row][column] for row in range(36) for column in range(100)]
    assert {char.bg for char in chars} == {"default"}
    styles = {style_of(char) for char in chars}
    assert {char.fg for char in chars}.isdisjoint({"white", "black", "brightwhite"})
    assert no_colour == "" or styles <= {"", "bold", "reverse", "italics", "bold reverse"}


def test_a_picture_that_the_terminal_cannot_draw_is_a_path() -> None:
    screen = pyte.Screen(100, 20)
    views, text = Stories(), io.StringIO()
    story, console = Story(views), make_console(text)
    console.size = (100, 20)
    call = {**ROOT, "tool_call_id": "call-1"}
    file = str(Path.cwd() / ".freeact/outputs/agent-aaaa0000/0001.png")
    for event in (
        ToolCallStarted(**call, tool_name="execute_ipython_cell", args={"code": "figure.show()"}),
        CodeExecutionOutputChunk(**call, output=picture()),
        CodeExecutionOutput(**call, text="", status="ok", picture_files=(file,)),
    ):
        views.observe(event)
        if (drawn := story.draw(event)) is not None:
            console.print(drawn)
    pyte.Stream(screen).feed(text.getvalue().replace("\n", "\r\n"))
    check_text("\n".join(line.rstrip() for line in screen.display), "picture")


def test_a_screen_reader_gets_lines(start: Start) -> None:
    terminal = start("be north", TERM="dumb")
    terminal.wait_for("Approval 1 of 1", "or type why not)")
    terminal.press("y\r")
    assert terminal.wait_end() == 0
    check_screen(terminal, "dumb")


@pytest.mark.parametrize(("columns", "rows"), [(40, 12), (80, 24), (120, 40)])
def test_a_plan_that_is_worked_on_and_is_done(start: Start, columns: int, rows: int, tmp_path: Path) -> None:
    terminal = start(columns=columns, rows=rows)
    terminal.wait_at_bottom(READY)
    terminal.enter("plan go")
    terminal.wait_at_bottom("Join both tables", "1 agent at work")
    check_screen(terminal, f"plan-{columns}")
    (tmp_path / "go").touch()
    terminal.wait_for("● Plan  4 of 4 done", "Both agree.")
    terminal.wait_at_bottom(READY)
    assert terminal.shown.count("Read harbour.csv") == 1, "it stands there once"
    check_screen(terminal, f"planned-{columns}")
