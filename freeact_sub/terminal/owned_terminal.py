"""`OwnedTerminal`: the terminal of a conversation, its tasks, and the program that has it for a while."""

import asyncio
import io
import sys
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AbstractContextManager, suppress
from typing import Any, TextIO, TypeAlias

from freeact_sub.terminal.driver import Keyboard

OtherProgram: TypeAlias = Callable[[], AbstractContextManager[None]]
"""Entered while another program has the terminal."""


class OwnedTerminal:
    """What a screen that draws and one that prints lines have in common."""

    def __init__(self, keyboard: Keyboard, other_program: OtherProgram) -> None:
        """Args: keyboard: gets what is typed."""
        self._keyboard, self._other_program = keyboard, other_program
        self._stdout: TextIO = sys.stdout
        if isinstance(self._stdout, io.TextIOWrapper):
            self._stdout.reconfigure(errors="replace")  # not every terminal knows every character
        self._closing = False
        self._end_other: Callable[[], None] | None = None
        """Ends the program or pager that has the terminal."""
        self._group = asyncio.TaskGroup()

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Runs a coroutine, which ends with the screen at the latest."""
        if self._closing:
            work.close()
        else:
            self._group.create_task(work)

    async def _run_other(self, command: Sequence[str]) -> bool:
        """Runs another program until it ends; returns False if it cannot be started."""
        try:
            with self._other_program():
                process = await asyncio.create_subprocess_exec(*command)
                self._end_other = process.terminate
                await process.wait()
        except OSError:
            return False
        finally:
            self._end_other = None
        return True

    def _end_other_program(self) -> None:
        if self._end_other is not None:
            with suppress(ProcessLookupError):
                self._end_other()

    def _write(self, text: str) -> None:
        with suppress(OSError):  # the terminal is gone; the run goes on to its end
            self._stdout.write(text)
            self._stdout.flush()
