"""Sentences for a person: a terminal shows them without a word broken in two, a pipe gets them as one line."""

import os
import termios
from collections.abc import Iterator
from typing import TextIO

import pytest

from freeact_sub.text import fitted

COMMAND = "`python -m pip install 'a-package[of-a-provider]==1.2.3'`"


@pytest.fixture
def terminal() -> Iterator[TextIO]:
    ours, theirs = os.openpty()
    termios.tcsetwinsize(theirs, (24, 40))
    with open(theirs, "w") as stream:
        yield stream
    os.close(ours)


def test_lines_break_between_words(terminal: TextIO) -> None:
    text = (
        f"freeact-sub: the model 'provider:name' needs a package that is not installed: run {COMMAND}\n    --as it is\ntwo"
    )
    assert fitted(text, terminal).split("\n") == [
        "freeact-sub: the model 'provider:name'",
        "needs a package that is not installed:",
        "run",
        COMMAND,  # in one piece, to be copied
        "    --as it is",
        "two",
    ]
    assert fitted("two  spaces", terminal) == "two  spaces"
    assert fitted("two  spaces stay where they do not  end  it", terminal) == "two  spaces stay where they do not  end\nit"
    assert fitted("a" * 39 + " b", terminal) == "a" * 39 + "\nb"
    assert (
        fitted("an open ` and more words than fit into one line", terminal)
        == "an open ` and more words than fit into\none line"
    )


def test_elsewhere_a_text_stays_as_it_is(terminal: TextIO, tmp_path) -> None:
    text = "word " * 40
    with open(tmp_path / "file", "w") as file:
        assert fitted(text, file) == text
    terminal.close()
    assert fitted(text, None) == fitted(text, terminal) == text
