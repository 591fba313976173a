"""Progress bars that move the cursor: the last state of each line is drawn, once, as a terminal shows it."""

import io
import re

import pyte
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from rich.progress import Progress
from support.tables import each

from freeact_sub.cells import DisplayData
from freeact_sub.show.teller import LINE_CHARS, OPEN_LINES, LineBuffer, UndrawnOutput
from freeact_sub.text import clean

UP = "\x1b[A"


def drawn(*pieces: str) -> list[str]:
    """All lines that are drawn of a cell's output, without colours."""
    buffer = LineBuffer()
    lines = [line for piece in pieces for line in buffer.add(piece)]
    return [clean(line) for line in [*lines, *buffer.flush()]]


def nested_tqdm() -> list[str]:
    """What two nested bars of tqdm write: the inner one a line below, and back."""
    inner = [f"\n\rinner {percent:3}%{UP}" for percent in range(0, 101, 10)]
    return ["\router   0%", *inner, "\router  50%", *inner, "\router 100%", "\n", "\n"]


def rich_bars() -> list[str]:
    """What `rich.progress` writes to a terminal, with two bars."""
    written = io.StringIO()
    console = Console(file=written, force_terminal=True, width=80, legacy_windows=False)
    pieces = []
    with Progress(console=console, auto_refresh=False) as progress:
        tasks = [progress.add_task(name, total=20) for name in ("north", "south")]
        for _ in range(20):
            for task in tasks:
                progress.advance(task)
            progress.refresh()
            pieces.append(written.getvalue())
            written.seek(0)
            written.truncate()
    return [*pieces, written.getvalue()]


@each(
    ("pieces", "lines"),
    [
        pytest.param(nested_tqdm(), ["outer 100%", "inner 100%"], id="two nested bars of tqdm"),
        pytest.param([f"\r{n:3}%" for n in range(101)] + ["\n"], ["100%"], id="a loop with a carriage return"),
        pytest.param(["|", *(f"\b{mark}" for mark in "/-\\|/-"), "\bdone\n", "next\n"], ["done", "next"], id="a spinner"),
        pytest.param([f"\x1b[2K\x1b[1G{n}/3" for n in range(4)] + ["\n"], ["3/3"], id="npm"),
        pytest.param(
            ["\x1b[?25l", *(f"\r\x1b[2K   {n}/9 kB" for n in range(10)), "\n\x1b[?25hInstalled\n"],
            ["   9/9 kB", "Installed"],
            id="pip",
        ),
        pytest.param(
            ["layer 1: 0\nlayer 2: 0\n", *(f"\x1b[2Flayer 1: {n}\x1b[K\nlayer 2: {n}\x1b[K\n" for n in (5, 9))],
            ["layer 1: 0", "layer 2: 0", "layer 1: 9", "layer 2: 9"],
            id="lines that were drawn before the cursor moved stay",
        ),
    ],
)
def test_the_last_state_is_drawn(pieces: list[str], lines: list[str]) -> None:
    assert [line for line in drawn(*pieces) if line] == lines


def test_bars_of_rich_are_drawn_once_with_their_colours() -> None:
    pieces = rich_bars()
    assert len(pieces) == 21
    buffer = LineBuffer()
    early = [line for piece in pieces[:-1] for line in buffer.add(piece)]
    assert early == []
    assert re.fullmatch(r"north .* 100% 0:00:00\nsouth .* 100% 0:00:00\n?", buffer.rest())
    lines = [*buffer.add(pieces[-1]), *buffer.flush()]
    assert [re.sub("━+", "━", clean(line)) for line in lines if clean(line)] == [
        "north ━ 100% 0:00:00",
        "south ━ 100% 0:00:00",
    ]
    assert "\x1b[" in lines[0]
    assert lines[0].endswith("\x1b[0m")


def test_what_follows_bars_is_drawn_at_once_with_the_colours_in_force() -> None:
    buffer = LineBuffer()
    assert list(buffer.add("\x1b[31ma\bb\n")) == ["\x1b[31mb\x1b[0m"]
    assert list(buffer.add("c\n")) == ["\x1b[31mc"]


def test_the_place_of_a_bar_in_a_notebook_is_not_drawn() -> None:
    widget = "application/vnd.jupyter.widget-view+json"
    place, other = ({"text/plain": text, widget: {"model_id": "a"}} for text in ("Output()", "IntSlider(value=1)"))
    assert UndrawnOutput().settled(DisplayData(data=place)) == []
    assert len(UndrawnOutput().settled(DisplayData(data=other))) == 1
    assert len(UndrawnOutput().settled(DisplayData(data={"text/plain": "Output()"}))) == 1


def test_memory_is_bounded() -> None:
    buffer = LineBuffer()
    lines = [line for n in range(3 * OPEN_LINES) for line in buffer.add(f"{n}\n\n{UP}")]
    assert lines[0] == "0"
    assert len(lines) + 1 >= 2 * OPEN_LINES
    assert [line for _ in range(10) for line in buffer.add("x" * LINE_CHARS)]
    assert len(buffer.rest()) <= (OPEN_LINES + 1) * LINE_CHARS


moves = st.sampled_from(
    [
        "ab",
        "longer text",
        "\n",
        "\r",
        "\b",
        UP,
        "\x1b[2A",
        "\x1b[F",
        "\x1b[3C",
        "\x1b[2D",
        "\x1b[4G",
        "\x1b[K",
        "\x1b[1K",
        "\x1b[2K",
        "\x1b[J",
    ]
)


@given(st.lists(moves, max_size=40), st.integers(1, 5))
@pytest.mark.slow
def test_a_terminal_shows_the_same(tokens: list[str], pieces: int) -> None:
    screen = pyte.Screen(600, 60)
    screen.set_mode(pyte.modes.LNM)
    pyte.Stream(screen).feed("".join(tokens))
    text = "\x1b[?25l" + "".join(tokens)
    size = max(1, len(text) // pieces)
    shown = drawn(*(text[start : start + size] for start in range(0, len(text), size)))
    expected = "\n".join(line.rstrip() for line in screen.display).rstrip("\n")
    assert "\n".join(shown).rstrip("\n") == expected
