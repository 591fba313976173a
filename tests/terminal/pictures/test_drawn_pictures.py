"""Pictures: which terminal draws them how, and what is written for that, as the terminal would take it."""

import asyncio
import base64
import contextlib
import fcntl
import os
import re
import struct
import termios
from pathlib import Path

import pyte
import pytest
from PIL import Image
from support.tables import each
from support.waiting import LOADED_MACHINE_SECONDS

from freeact_sub.terminal import pictures
from freeact_sub.terminal.picture_encoder import fitted
from freeact_sub.terminal.pictures import CELL, Pictures, Way, cell_size, way_of

WAYS: tuple[Way, ...] = ("kitty", "iterm2", "sixel", "blocks")


@pytest.fixture
def picture(tmp_path: Path) -> Path:
    """100 by 60 pixels, red over blue: 10 columns and 3 rows of 10 by 20 pixels."""
    image = Image.new("RGB", (100, 60), "red")
    image.paste("blue", (0, 30, 100, 60))
    image.save(tmp_path / "two.png")
    return tmp_path / "two.png"


@each(
    ("environment", "expected"),
    [
        ({"TERM": "xterm-256color"}, "off"),
        ({"TERM": "dumb"}, "off"),
        ({}, "off"),
        ({"TERM": "xterm-kitty"}, "kitty"),
        ({"TERM": "xterm-kitty", "TMUX": "/tmp/tmux"}, "off"),
        ({"TERM": "xterm-256color", "TERM_PROGRAM": "ghostty"}, "kitty"),
        ({"TERM": "xterm-256color", "TERM_PROGRAM": "iTerm.app"}, "iterm2"),
        ({"TERM": "xterm-256color", "LC_TERMINAL": "iTerm2"}, "iterm2"),
        ({"TERM": "xterm-256color", "TERM_PROGRAM": "WezTerm"}, "iterm2"),
        ({"TERM": "xterm-256color", "KONSOLE_VERSION": "230401"}, "sixel"),
        ({"TERM": "foot"}, "sixel"),
    ],
)
def test_a_terminal_is_known_by_its_variables(environment: dict[str, str], expected: Way) -> None:
    assert way_of("auto", environment) == expected
    assert way_of("blocks", environment) == "blocks"


def test_a_picture_keeps_its_shape_and_is_never_made_larger() -> None:
    assert fitted(10, 3, 80, 24) == (10, 3)
    assert fitted(160, 48, 80, 24) == (80, 24)
    assert fitted(100, 48, 80, 24) == (50, 24)
    assert fitted(0.2, 0.1, 80, 24) == (1, 1)
    assert fitted(1000, 1, 80, 24) == (80, 1)


@pytest.fixture
def draws() -> None:
    """Nothing is drawn without the extra, whatever the terminal knows."""
    pytest.importorskip("textual_image", reason="the extra `pictures` is not installed")


@pytest.mark.usefixtures("draws")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.process
async def test_what_is_written_is_the_picture_and_ends_below_it_wherever_it_begins(way: Way, picture: Path) -> None:
    drawn = await Pictures(way).drawn(picture, 80, 24, (10, 20))
    for above in (0, 5, 23):
        screen = pyte.Screen(80, 24)
        stream = pyte.Stream(screen)
        stream.feed("above\r\n" * above + "last\r\n")
        # pyte knows no pictures; a terminal that knows them moves no cursor that is put back
        text = re.sub("\x1b_G.*?\x1b\\\\|\x1bP.*?\x1b\\\\|\x1b]1337;.*?\x07", "", drawn, flags=re.DOTALL)
        stream.feed(text.replace("\n", "\r\n") + "below")
        rows = [line.rstrip() for line in screen.display]
        assert rows[rows.index("last") + 4] == "below"
    match way:
        case "kitty":
            assert "a=T,f=100,q=2,C=1,c=10,r=3," in drawn
        case "iterm2":
            [(size, content)] = re.findall("size=(\\d+):(.*)\x07", drawn)
            assert len(base64.b64decode(content)) == int(size)
        case "sixel":
            assert '"1;1;100;60' in drawn
        case _:
            cells = [screen.buffer[rows.index("last") + row] for row in (1, 2, 3)]
            assert [row[0].data + row[10].data for row in cells] == ["▀ "] * 3
            assert (cells[0][0].fg, cells[2][0].bg) == ("ff0000", "0000ff")


@pytest.mark.parametrize("size", [0, 100])
@pytest.mark.process
async def test_what_is_no_picture_is_not_drawn(size: int, tmp_path: Path) -> None:
    (tmp_path / "bad.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(size))
    assert await Pictures("kitty").drawn(tmp_path / "bad.png", 80, 24, CELL) == ""


async def test_nothing_is_drawn_of_what_is_gone_or_too_large_or_where_there_is_no_room(
    picture: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await Pictures("kitty").drawn(picture.with_name("gone.png"), 80, 24, CELL) == ""
    assert await Pictures("kitty").drawn(picture, 80, 4, CELL) == ""
    assert await Pictures("off").drawn(picture, 80, 24, CELL) == ""
    monkeypatch.setattr(pictures, "MAX_BYTES", 10)
    assert await Pictures("kitty").drawn(picture, 80, 24, CELL) == ""


@pytest.mark.usefixtures("draws")
async def test_nobody_waits_for_a_pipe_that_code_has_put_in_the_place_of_a_picture(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.png"
    os.mkfifo(pipe)
    try:
        async with asyncio.timeout(LOADED_MACHINE_SECONDS):
            assert await Pictures("kitty").drawn(pipe, 80, 24, CELL) == ""
    finally:
        with contextlib.suppress(OSError):  # who waits all the same is let go
            os.close(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK))


@pytest.mark.process
async def test_a_picture_that_takes_all_memory_ends_its_encoder_alone(tmp_path: Path) -> None:
    Image.new("1", (20_000, 20_000)).save(tmp_path / "bomb.png")
    assert await Pictures("kitty").drawn(tmp_path / "bomb.png", 80, 24, CELL) == ""


def test_the_size_of_a_character_is_the_terminals() -> None:
    ours, theirs = os.openpty()
    try:
        assert cell_size(theirs) == CELL
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 80 * 8, 24 * 17))
        assert cell_size(theirs) == (8, 17)
    finally:
        os.close(ours)
        os.close(theirs)
