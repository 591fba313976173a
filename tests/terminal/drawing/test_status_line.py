"""The line at the bottom: both ends, and what is left out first where there is no room."""

from rich.cells import cell_len

from freeact_sub.terminal.display import Piece, status_line

STATE = [Piece(text="3 agents at work", rank=1), Piece(text="12 s", rank=4), Piece(text="Ctrl-C cancels", rank=3)]
FACTS = [
    Piece(text="2 waiting", rank=2),
    Piece(text="auto", rank=5),
    Piece(text="87% context left", rank=6),
    Piece(text="", rank=7),
    Piece(text="12,345 tokens", rank=8),
    Piece(text="claude", rank=9),
]


def test_where_there_is_room_all_is_shown_at_both_ends() -> None:
    line = status_line(STATE, FACTS, 110)
    assert line.startswith("3 agents at work · 12 s · Ctrl-C cancels  ")
    assert line.endswith("  2 waiting · auto · 87% context left · 12,345 tokens · claude")
    assert len(line) == 110


def test_the_least_important_pieces_are_left_out_in_one_order() -> None:
    order = [
        "claude",
        "12,345 tokens",
        "87% context left",
        "auto",
        "12 s",
        "Ctrl-C cancels",
        "2 waiting",
        "3 agents at work",
    ]
    left_out: list[str] = []
    for columns in range(110, 0, -1):
        line = status_line(STATE, FACTS, columns)
        assert cell_len(line) <= columns
        left_out += [text for text in order if text not in line and text not in left_out]
    assert left_out == order


def test_one_piece_that_is_too_long_is_cut_at_whole_characters() -> None:
    assert status_line([Piece(text="猫猫猫", rank=0)], [], 5) == "猫猫 "
