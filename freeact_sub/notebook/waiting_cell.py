"""What a cell does while an agent works: it waits, asks for lines, and ends as soon as the user runs another cell."""

import asyncio
import contextvars
import time
from typing import Any, Final

from freeact_sub.notebook.borrowed_ipykernel import hear_cells
from freeact_sub.notebook.ipython_shell import ask_line, running_kernel

WAKE_SECONDS: Final = 0.05
QUEUED_SECONDS: Final = 1.0
"""Cells that come so soon after one were queued with it ("run all"): they wait for the agent."""


async def wait_awake(first: "set[asyncio.Task[Any]]") -> None:
    """Waits until one of these has ended. An interrupt cancels the waiting task, but does not wake a loop that sleeps."""
    while not (await asyncio.wait(first, timeout=WAKE_SECONDS, return_when=asyncio.FIRST_COMPLETED))[0]:
        pass


class CellsOfUser:
    """Hears of cells that the user runs while another one waits. In the main thread."""

    def __init__(self) -> None:
        self._heard = asyncio.Event()
        self._last = 0.0
        kernel = running_kernel()
        self.are_heard = kernel is not None and hear_cells(kernel, self._hear)
        """False: this front end or ipykernel does not say; then a cell waits for its agent."""

    async def next(self, begun: float) -> None:
        """Waits until the user runs a cell that was not queued with this one. Args: begun: when this one began."""
        while self._last < begun + QUEUED_SECONDS:
            self._heard.clear()
            await self._heard.wait()

    def _hear(self) -> None:
        self._last = time.monotonic()
        self._heard.set()


class LineAsker:
    """Asks for lines in whichever cell waits for the agent; while none does, a question waits."""

    def __init__(self, main: asyncio.AbstractEventLoop) -> None:
        """Args: main: the loop in which cells run."""
        self._main = main
        self._home: asyncio.AbstractEventLoop | None = None
        self._cell: contextvars.Context | None = None
        self._may_ask = asyncio.Event()
        self.is_free = asyncio.Event()
        """No question is open. In the loop of the cells."""
        self.is_free.set()

    async def ask(self, prompt: str, *, secret: bool = False) -> str:
        """See `ask_line`. In the thread that draws."""
        self._home = asyncio.get_running_loop()
        if self._cell is None:
            self._may_ask.clear()
            await self._may_ask.wait()
        assert self._cell is not None  # `wait_in_cell` comes first
        asked = self._cell.copy().run(asyncio.run_coroutine_threadsafe, self._ask_here(prompt, secret), self._main)
        return await asyncio.wrap_future(asked)

    def wait_in_cell(self) -> None:
        """This cell waits now."""
        self._cell = contextvars.copy_context()
        if self._home is not None:
            self._home.call_soon_threadsafe(self._may_ask.set)

    def leave_cell(self) -> None:
        """No cell waits any more."""
        self._cell = None

    async def _ask_here(self, prompt: str, secret: bool) -> str:
        self.is_free.clear()
        try:
            return await ask_line(prompt, secret=secret)
        finally:
            self.is_free.set()


async def user_goes_on(cells: CellsOfUser, asker: LineAsker, begun: float) -> None:
    """Waits until the user runs another cell, and no question is open in this one. Args: begun: see `CellsOfUser.next`."""
    if not cells.are_heard:
        await asyncio.Event().wait()
    await cells.next(begun)
    await asker.is_free.wait()
