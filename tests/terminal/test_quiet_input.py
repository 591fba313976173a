"""What the terminal itself says is no key, in whatever pieces it comes."""

import pytest
from prompt_toolkit.input.vt100_parser import Vt100Parser
from prompt_toolkit.keys import Keys
from support.tables import each

from freeact_sub.terminal.screen import QuietParser

REPORTS = [
    "\x1b[I",
    "\x1b[O",
    "\x1b]11;rgb:1e1e/1e1e/2e2e\x1b\\",
    "\x1b]4;1;rgb:ffff/0000/0000\x07",
    "\x1bP>|WezTerm 2024\x1b\\",
    "\x1b[?62;22c",
    "\x1b[?1u",
    "\x1b[12;40R",
    "\x1b[97;5u",
    "\x1b[<0;12;4M",
    "\x1b[?997;1n",
    "\x1b_Gi=31;OK\x1b\\",
]
PASTED = "\x1b[200~a\x1b[Ib\x1b]0;x\x07\x1b[201~"
KEYS = {"é": ["é"], "\x1b[A": [Keys.Up], "\x1b[Z": [Keys.BackTab], "\x1bOP": [Keys.F1], "\r": [Keys.ControlM]}


def keys_of(*pieces: str) -> list[str]:
    """The keys that the pieces are; after each of them nothing comes for a moment."""
    found: list[str] = []
    parser = QuietParser(Vt100Parser(lambda press: found.append(press.key)))
    for piece in pieces:
        parser.feed(piece)
        parser.flush()
    return found


@each("report", REPORTS)
def test_a_report_is_left_out_between_the_keys(report: str) -> None:
    for typed, keys in KEYS.items():
        assert keys_of(f"{typed}{report}{typed}{report}") == [*keys, *keys]


@pytest.mark.parametrize("report", [report for report in REPORTS if report[1] in "]P_"])
def test_an_answer_that_comes_in_two_pieces_is_left_out(report: str) -> None:
    for at in range(5, len(report)):
        assert keys_of(f"a{report[:at]}", f"{report[at:]}b") == ["a", "b"]


def test_an_escape_is_a_key_and_an_answer_without_an_end_takes_no_more_than_one() -> None:
    assert keys_of("\x1b", "[", "I") == [Keys.Escape, "[", "I"]
    assert keys_of("\x1b]11;rgb:", "x", "y", "z") == ["y", "z"]


def test_a_paste_is_whole_however_it_comes() -> None:
    for at in range(1, len(PASTED)):
        found = list[tuple[str, str]]()
        parser = QuietParser(Vt100Parser(lambda press, found=found: found.append((press.key, press.data))))
        parser.feed(PASTED[:at])
        parser.feed(f"{PASTED[at:]}\x1b[Oc")
        parser.flush()
        assert found == [(Keys.BracketedPaste, "a\x1b[Ib\x1b]0;x\x07"), ("c", "c")]
