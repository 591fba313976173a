"""`Status`: the line at the bottom of a conversation, and the title of its window."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rich.cells import cell_len, set_cell_size

from freeact_sub.config.budget import Usage
from freeact_sub.events import Compacted, Event, UsageUpdated
from freeact_sub.show.agent_story import Stories
from freeact_sub.show.questions import Questions
from freeact_sub.terminal.conversation.present import Present
from freeact_sub.terminal.drawing.parts import marked
from freeact_sub.text import counted, one_line, visible

JOINT: Final = " · "
GAP: Final = 2
"""The least number of columns between the two ends of the line."""


@dataclass(frozen=True, kw_only=True)
class Piece:
    """A few words of the line."""

    text: str
    """The words; empty: the piece is left out."""
    rank: int
    """Pieces with a higher rank are left out first."""


def status_line(state: Sequence[Piece], facts: Sequence[Piece], columns: int) -> str:
    """Return the line in at most `columns` columns; if it is too narrow, the least important pieces are left out.

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


MODEL_CHARS: Final = 40
PROGRAM: Final = "freeact-sub"


class Status:
    """Draws the state, the useful keys, and the remaining context and budget."""

    def __init__(self, present: Present) -> None:
        self._present = present
        self._context_left = ""

    def observe(self, event: Event) -> None:
        """Handles an event of the run: the root's requests and compactions change what its context has left."""
        agent = self._present.agent
        if agent is None or event.parent_id is not None or not isinstance(event, UsageUpdated | Compacted):
            return
        use = agent.context()
        left = max(0.0, 1 - use.tokens / use.window_tokens) if use.window_tokens else None
        self._context_left = "" if left is None else f"{left:.0%} context left"

    def forget(self) -> None:
        """Forgets the conversation: another one begins."""
        self._context_left = ""

    def line(self, views: Stories, focus: str, columns: int) -> str:
        """The line. Args: focus: the name of the agent that Ctrl-C cancels first; empty: the run's."""
        return status_line(self._state(views, focus), self._facts(), columns)

    def title(self, views: Stories, questions: Questions) -> str:
        """The title of the window."""
        root, present = views.root, self._present
        if questions.current is not None:
            return f"? {PROGRAM}: {len(questions.waiting)} to answer"
        if present.run is not None and root is not None and root.is_running:
            return f"● {PROGRAM}: {one_line(visible(present.prompt))}"
        return f"{PROGRAM}: {one_line(visible(Path(present.config.workspace).name))}"

    def _state(self, views: Stories, focus: str) -> list[Piece]:
        present = self._present
        match present.phase:
            case "idle":
                texts = ["type a prompt", "/help", "Ctrl-D quits"]
                return [Piece(text=text, rank=rank) for text, rank in zip(texts, (0, 3, 4), strict=True)]
            case "cancelling" | "ending":
                return [Piece(text=f"{present.phase} … Ctrl-C quits at once", rank=0)]
            case "running" if present.run is not None and (root := views.root) is not None:
                working = sum(view.is_running for view in views.by_id.values())
                agents = f"{counted(working, 'agent')} at work"
                return [
                    Piece(text=f"Ctrl-C cancels {focus}" if focus else "", rank=0),
                    Piece(text=agents, rank=1),
                    Piece(text=f"{root.seconds(time.time()):.0f} s", rank=4),
                    Piece(text="" if focus else "Ctrl-C cancels", rank=3),
                ]
            case _:
                return [Piece(text=f"{present.phase} …", rank=0)]

    def _facts(self) -> list[Piece]:
        present = self._present
        waiting = present.waiting.count
        usage = self._usage()
        return [
            Piece(text=f"{waiting} queued" if waiting else "", rank=2),
            Piece(text=f"{present.mode}{'*' if present.code_rule else ''}", rank=5),
            Piece(text=self._context_left, rank=6),
            Piece(text=marked(usage.cost_text), rank=7),
            Piece(text=f"{marked(usage.tokens_text)} tokens" if usage.tokens else "", rank=8),
            Piece(text=self._models, rank=9),
        ]

    @property
    def _models(self) -> str:
        """The model, and during a run the one for the next prompt if it differs."""
        present, agent = self._present, self._present.agent if self._present.run is not None else None
        values = [present.model] if agent is None else dict.fromkeys([agent.config.model, present.model])
        names = ((value or "").partition(":")[2] or value or "" for value in values)
        return " → ".join(one_line(visible(name), MODEL_CHARS) for name in names if name)

    def _usage(self) -> Usage:
        present = self._present
        if present.run is not None:
            return present.run.usage
        return Usage() if present.agent is None else present.agent.usage
