"""What a second interrupt does, and a first one while what runs is being ended anyway."""

import asyncio
import signal

import pytest

from freeact_sub.terminal.interrupts import Interrupts


class Counted(Interrupts):
    """Counts how often the program would have been left at once."""

    left = 0

    def leave_at_once(self) -> None:
        """See `Interrupts`."""
        self.left += 1


@pytest.mark.parametrize(
    ("steps", "left"),
    [
        (["ctrl-c"], 0),
        (["ctrl-c", "ctrl-c"], 1),
        (["ctrl-c", "reset", "ctrl-c"], 0),
        (["cancel", "ctrl-c"], 1),  # Escape or /cancel has begun to end it
        (["cancel", "reset", "ctrl-c"], 0),
        (["cancel", "signal"], 0),  # a signal asks for a clean end first
        (["cancel", "signal", "signal"], 1),
    ],
)
def test_when_the_program_is_left_at_once(steps: list[str], left: int) -> None:
    async def take() -> int:
        interrupts = Counted(lambda _: None)
        does = {
            "ctrl-c": interrupts.interrupt,
            "signal": lambda: signal.raise_signal(signal.SIGTERM),
            "cancel": interrupts.expect_end,
            "reset": interrupts.reset,
        }
        with interrupts:
            for step in steps:
                does[step]()
        return interrupts.left

    assert asyncio.run(take()) == left
