"""A person who looks elsewhere is called, and one who looks is not; the title is given back."""

import contextlib
import io
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from unittest.mock import Mock

import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.input import PipeInput, create_pipe_input
from support.waiting import eventually

from freeact_sub.terminal.attention import GIVE_BACK_TITLE, KEEP_TITLE, LOOKING_SECONDS, QUIET, REPORT, Attention, Notify
from freeact_sub.terminal.driver import Keyboard, Picture
from freeact_sub.terminal.screen import Screen

BELL = "\x07"


class Tried:
    """An attention with a clock that the test sets, and what it has written."""

    def __init__(self, notify: Notify = "auto", **environment: str) -> None:
        self.now = 100.0
        self.written: list[str] = []
        self.attention = Attention(self.written.append, notify, environment, lambda: self.now)
        self.attention.begin()
        self.take()

    def take(self) -> str:
        text = "".join(self.written)
        self.written.clear()
        return text


def test_nobody_is_called_who_looks() -> None:
    tried = Tried()
    tried.attention.focus(True)
    tried.attention.call("a question")
    assert tried.take() == ""
    tried.attention.focus(False)
    tried.attention.key()
    tried.attention.call("a question")
    assert tried.take() == BELL


def test_where_the_terminal_does_not_tell_a_key_of_a_moment_ago_counts_as_looking() -> None:
    tried = Tried()
    tried.attention.call("a question")
    assert tried.take() == BELL
    tried.attention.key()
    tried.attention.call("a question")
    assert tried.take() == ""
    tried.now += LOOKING_SECONDS
    tried.attention.call("a question")
    assert tried.take() == BELL


@pytest.mark.parametrize(
    ("notify", "environment", "expected"),
    [
        ("off", {}, ""),
        ("bell", {"TERM_PROGRAM": "iTerm.app"}, BELL),
        ("auto", {"TERM_PROGRAM": "iTerm.app"}, "\x1b]9;a title\x07"),
        ("auto", {"TERM": "xterm-kitty"}, "\x1b]9;a title\x07"),
        ("auto", {"TERM": "xterm-kitty", "TMUX": "/tmp/x"}, BELL),
        ("osc9", {}, "\x1b]9;a title\x07"),
    ],
)
def test_how_a_person_is_called(notify: Notify, environment: dict[str, str], expected: str) -> None:
    tried = Tried(notify, **environment)
    tried.attention.call("a\ntitle")
    assert tried.take() == expected


def test_no_text_ends_the_sequence_that_it_stands_in() -> None:
    tried = Tried("osc9")
    for set_text in (tried.attention.call, tried.attention.title):
        set_text("a\x07b\x1b]52;c;cm0=\x07\x1b\\c\u202e")
        sequence = tried.take()
        assert sequence.count("\x1b") == sequence.count("\x07") == 1


def test_a_title_is_written_when_it_changes_and_given_back_at_the_end() -> None:
    tried = Tried()
    tried.attention.title("one")
    tried.attention.title("one")
    assert tried.take() == "\x1b]2;one\x07"
    tried.attention.pause()
    assert tried.take() == QUIET
    tried.attention.resume()
    assert tried.take() == REPORT + "\x1b]2;one\x07"
    tried.attention.end()
    tried.attention.end()
    assert tried.take() == QUIET + GIVE_BACK_TITLE
    tried.attention.pause()
    tried.attention.resume()  # the program that had the terminal ended later than ours
    tried.attention.title("two")
    tried.attention.call("nobody hears it")
    assert tried.take() == ""


def test_what_is_set_before_the_terminal_is_ours_waits() -> None:
    written: list[str] = []
    attention = Attention(written.append, "bell")
    attention.title("early")
    attention.end()
    assert written == []
    attention.begin()
    assert "".join(written) == KEEP_TITLE + REPORT + "\x1b]2;early\x07"


class Written(io.FileIO):
    """What a screen writes; something may happen in the middle of a write."""

    meanwhile: Callable[[], None] | None = None

    def write(self, content: object) -> int:
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            meanwhile()
        return super().write(content)  # type: ignore[arg-type]


@contextlib.asynccontextmanager
async def drawn_screen(
    written: Written, keys: PipeInput, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> AsyncIterator[Screen]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))  # the prompts of others are none of the test's
    with monkeypatch.context() as patched, create_app_session(input=keys):
        patched.setattr(sys, "stdout", io.TextIOWrapper(io.BufferedWriter(written), encoding="utf-8"))
        picture = Mock(spec=Picture, live=Mock(return_value=None), status=Mock(return_value=""))
        async with Screen(picture, Mock(spec=Keyboard, offers=Mock(return_value=())), notify="off") as screen:
            await screen.shown()
            yield screen


async def test_who_presses_keys_looks_at_a_terminal_that_does_not_tell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with create_pipe_input() as keys, Written(tmp_path / "written", "w") as written:
        async with drawn_screen(written, keys, monkeypatch, tmp_path) as screen:
            assert not screen.attention.looks
            keys.send_text("x")
            await eventually(lambda: screen.line.buffer.text == "x")
            assert screen.attention.looks


async def test_a_signal_in_the_middle_of_a_write_gives_the_terminal_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with create_pipe_input() as keys, Written(tmp_path / "written", "w") as written:
        async with drawn_screen(written, keys, monkeypatch, tmp_path) as screen:
            written.meanwhile = screen.restore
            screen.write_raw("a text")
            assert QUIET + GIVE_BACK_TITLE in (tmp_path / "written").read_text()
