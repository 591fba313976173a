"""`TypedLines`: lines from a terminal that is left as it is, with the terminal's own editing."""

import asyncio
import os
import sys
import termios
from collections.abc import Callable
from contextlib import suppress


class TypedLines:
    """Reads standard input, a terminal, while somebody listens."""

    def __init__(self) -> None:
        self._input = sys.stdin.fileno()
        self._echoes = True

    def listen(self, on_text: Callable[[str], None]) -> None:
        """Passes on what is entered from now on. Args: on_text: gets lines; an empty text: the input has ended."""
        asyncio.get_running_loop().add_reader(self._input, self._read, on_text)

    def stop(self) -> None:
        """Passes on nothing more."""
        asyncio.get_running_loop().remove_reader(self._input)

    def close(self) -> None:
        """Stops, and leaves the terminal as it was."""
        self.stop()
        self.echo(True)

    def drop_typed(self) -> None:
        """Drops what has been typed and not been read: it was typed before a question stood there."""
        with suppress(termios.error):
            termios.tcflush(self._input, termios.TCIFLUSH)

    def echo(self, on: bool) -> None:  # a state
        """Whether the terminal shows what is typed."""
        if on is self._echoes:
            return
        self._echoes = on
        with suppress(termios.error):
            modes = termios.tcgetattr(self._input)
            modes[3] = modes[3] | termios.ECHO if on else modes[3] & ~termios.ECHO
            termios.tcsetattr(self._input, termios.TCSANOW, modes)

    def _read(self, on_text: Callable[[str], None]) -> None:
        try:
            content = os.read(self._input, 65536)
        except OSError:  # the terminal is gone
            content = b""
        if not content:
            self.stop()
        on_text(content.decode(errors="replace"))
