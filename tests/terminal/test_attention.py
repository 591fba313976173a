"""A person is called by the bell or a notification; the title of the window is given back."""

import contextlib
import io
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from unittest.mock import Mock

import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.input import PipeInput, create_pipe_input

from freeact_sub.terminal.screen import Screen
from freeact_sub.terminal.surface import GIVE_BACK_TITLE, KEEP_TITLE, Attention, Keyboard, Notify

BELL = "\x07"


class Tried:
    """An attention, and what it has written."""

    def __init__(self, notify: Notify = "auto", **environment: str) -> None:
        self.written: list[str] = []
        self.attention = Attention(self.written.append, notify, environment)
        self.attention.begin()
        self.take()

    def take(self) -> str:
        text = "".join(self.written)
        self.written.clear()
        return text


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
    tried.attention.end()
    tried.attention.end()
    assert tried.take() == GIVE_BACK_TITLE
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
    assert "".join(written) == KEEP_TITLE + "\x1b]2;early\x07"


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
        keyboard = Mock(spec=Keyboard, actions=(), offers=Mock(return_value=()))
        async with Screen(lambda _: None, str, keyboard, notify="off") as screen:
            await screen.shown()
            yield screen


async def test_a_signal_in_the_middle_of_a_write_gives_the_terminal_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with create_pipe_input() as keys, Written(tmp_path / "written", "w") as written:
        async with drawn_screen(written, keys, monkeypatch, tmp_path) as screen:
            written.meanwhile = screen.restore
            screen.write_raw("a text")
            assert GIVE_BACK_TITLE in (tmp_path / "written").read_text()
