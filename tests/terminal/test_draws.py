"""What changes is drawn at most 20 times a second, however fast events come: counted under a clock that only waiting moves."""

import asyncio
import contextlib
import sys
import time
from pathlib import Path
from unittest.mock import Mock

import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.history import InMemoryHistory
from prompt_toolkit.input import create_pipe_input
from rich.console import RenderableType
from rich.text import Text
from support.virtual_time import VirtualTimeLoop, passes

from freeact_sub.terminal.screen import DRAW_SECONDS, Screen
from freeact_sub.terminal.surface import Keyboard

EVENTS, SECONDS = 2_000, 2.0
MOST = round(SECONDS / DRAW_SECONDS)


class Counting:
    """A picture that counts its drawings."""

    def __init__(self) -> None:
        self.drawings = 0
        self.events = 0

    def live(self, rows: int) -> RenderableType:
        self.drawings += 1
        return Text(f"{self.events} events")

    def status(self) -> str:
        return "at work"


@pytest.mark.parametrize("prints", [False, True])
def test_the_region_is_drawn_twenty_times_a_second_at_most(
    prints: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    picture = Counting()

    async def work() -> int:
        keyboard = Mock(spec=Keyboard, actions=(), offers=Mock(return_value=()))
        async with contextlib.AsyncExitStack() as stack:
            stack.enter_context(create_app_session(input=stack.enter_context(create_pipe_input())))
            screen = await stack.enter_async_context(Screen(picture.live, picture.status, keyboard))
            await screen.shown()
            before = picture.drawings
            for number in range(EVENTS):
                picture.events = number + 1
                if prints:
                    screen.post(Text(f"event {number}"))
                screen.refresh(None)
                await passes(SECONDS / EVENTS)
            return picture.drawings - before

    loop = VirtualTimeLoop()
    with monkeypatch.context() as patched, (tmp_path / "terminal").open("w", encoding="utf-8") as written:
        patched.setattr(time, "time", lambda: 1_000_000_000.0 + loop.time())
        patched.setattr(sys, "stdout", written)
        # the clock stands still while a thread is at work, and this one's reads a file
        patched.setattr("freeact_sub.terminal.line.ThreadedHistory", lambda _: InMemoryHistory())
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            drawings = runner.run(work())
    assert MOST / 4 <= drawings <= MOST + 5
    text = (tmp_path / "terminal").read_text(encoding="utf-8")
    assert text.count("event ") == (EVENTS if prints else 0)
