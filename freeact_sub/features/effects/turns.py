"""`CellTurns`: the order in which cells of one agent run, so that a cell is tried in the kernel that it would find.

A model may write several cells in one response. They are asked about at once, and run one after the other: what a later one
does is known when the earlier ones have run, or are denied.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Literal

from freeact_sub.events import Decision

TURN_SECONDS: Final = 30.0
"""A trial waits so long for a cell that runs. It is tried again whenever somebody looks."""
NOT_DECIDED: Final = "the cell before it is not decided yet, and this one runs after it"
STILL_RUNS: Final = "the cell before it still runs"


@dataclass(eq=False)
class CellTurn:
    """The place of one cell."""

    code: str
    """What will run."""
    state: Literal["asked", "allowed"] = "asked"


class CellTurns:
    """The cells of one agent that are asked about, are about to run, or run."""

    def __init__(self) -> None:
        self.ran = 0
        """Cells that have begun or ended. Another number: a trial that was made before does not hold."""
        self._turns: list[CellTurn] = []
        self._running = 0
        self._changed = asyncio.Event()

    def ask(self, code: str) -> CellTurn:
        """Note that a person is asked about a cell."""
        turn = CellTurn(code)
        self._turns.append(turn)
        return turn

    def decided(self, turn: CellTurn, decision: Decision) -> None:
        """Note the answer."""
        turn.state, turn.code = "allowed", turn.code if decision.code is None else decision.code
        if not decision.allowed:
            self._leave(turn)
        self._change()

    @contextmanager
    def running(self, code: str) -> Iterator[None]:
        """Note that a cell runs, asked about or not."""
        for turn in [turn for turn in self._turns if turn.state == "allowed" and turn.code == code][:1]:
            self._leave(turn)
        self._running += 1
        self.ran += 1
        try:
            yield
        finally:
            self._running -= 1
            self.ran += 1
            self._change()

    async def come(self, turn: CellTurn) -> str:
        """Wait until no cell comes before this one. Returns why it does not come now; empty: it does."""
        try:
            async with asyncio.timeout(TURN_SECONDS):
                while before := self._before(turn):
                    if any(other.state == "asked" for other in before):
                        return NOT_DECIDED
                    self._changed.clear()
                    await self._changed.wait()
                while self._running:
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            if self._running:
                return STILL_RUNS
            for other in self._before(turn):  # allowed, and never made: its budget was at its end
                self._leave(other)
        return ""

    def _before(self, turn: CellTurn) -> list[CellTurn]:
        return self._turns[: self._turns.index(turn)] if turn in self._turns else []

    def _leave(self, turn: CellTurn) -> None:
        if turn in self._turns:
            self._turns.remove(turn)

    def _change(self) -> None:
        self._changed.set()
