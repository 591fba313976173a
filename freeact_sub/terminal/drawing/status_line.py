"""`status_line`: the line at the bottom: the state at its left end, facts at its right end.

A narrow terminal leaves out the least important pieces, always in the same order.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from rich.cells import cell_len, set_cell_size

JOINT: Final = " · "
GAP: Final = 2
"""Least number of columns between both ends of the line."""


@dataclass(frozen=True, kw_only=True)
class Piece:
    """A few words of the line."""

    text: str
    """The words; empty: the piece is left out."""
    rank: int
    """Of two pieces the one with the higher rank is left out first."""


def status_line(state: Sequence[Piece], facts: Sequence[Piece], columns: int) -> str:
    """Both ends of the line, in at most so many columns.

    Args:
        state: The state and the keys that count, from the left.
        facts: The pieces at the right end.
        columns: The columns of the terminal.
    """
    state, facts = [piece for piece in state if piece.text], [piece for piece in facts if piece.text]
    while _width(state, facts) > columns and len(state) + len(facts) > 1:
        least = max([*state, *facts], key=lambda piece: piece.rank)
        state, facts = [piece for piece in state if piece is not least], [piece for piece in facts if piece is not least]
    left, right = _joined(state), _joined(facts)
    if cell_len(left) + cell_len(right) > columns:
        return set_cell_size(left or right, columns)
    return left + " " * (columns - cell_len(left) - cell_len(right)) + right if right else left


def _width(state: Sequence[Piece], facts: Sequence[Piece]) -> int:
    gap = GAP if state and facts else 0
    return cell_len(_joined(state)) + gap + cell_len(_joined(facts))


def _joined(pieces: Sequence[Piece]) -> str:
    return JOINT.join(piece.text for piece in pieces)
