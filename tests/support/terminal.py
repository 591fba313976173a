"""A program in a pseudo-terminal, as a person sees it: the screen with its scrollback, and keys to press."""

import copy
import os
import re
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import pexpect
import psutil
import pyte
from support.warm import TerminalProgram

from freeact_sub.terminal.card import WAITING

CONVERSATION = Path(__file__).with_name("scripted_conversation.py")
"""A program that talks with a scripted model."""
READY = "type a prompt"
"""What the status line says when it waits for one."""
END_OF_RUN = re.compile(r"\d s · \d+ turns? · .*tokens$", re.MULTILINE)
"""The last line of a run."""
KEYS = ("y yes", "Esc no answer")
"""One of them is in the line of keys of a question, once keys count."""
ALTERNATE = 1049
"""The mode of the alternate screen."""
LIMIT_SECONDS = 120
"""A wait that lasts longer has failed."""
ENTER, ALT_ENTER, ESCAPE, CTRL_C, CTRL_D, CTRL_R, UP, RIGHT = (
    "\r",
    "\x1b\r",
    "\x1b",
    "\x03",
    "\x04",
    "\x12",
    "\x1b[A",
    "\x1b[C",
)


class Emulator(pyte.HistoryScreen):
    """A terminal with an alternate screen, which pyte does not have."""

    _main: str | tuple[object, object] = ""

    def set_mode(self, *modes: int, **kwargs: object) -> None:
        """See pyte."""
        if ALTERNATE in modes and kwargs.get("private"):
            self._main = copy.deepcopy(self.buffer), copy.copy(self.cursor)
            self.erase_in_display(2)
        super().set_mode(*modes, **kwargs)

    def reset_mode(self, *modes: int, **kwargs: object) -> None:
        """See pyte."""
        super().reset_mode(*modes, **kwargs)
        if ALTERNATE in modes and kwargs.get("private") and self._main:
            (self.buffer, self.cursor), self._main = self._main, ""
            self.dirty.update(range(self.lines))


class Terminal:
    """Runs a program in a terminal of its own; leaving it ends the program, which removes what it has made."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        cwd: os.PathLike[str],
        env: Mapping[str, str] | None = None,
        rows: int = 40,
        columns: int = 100,
    ) -> None:
        self.screen = Emulator(columns, rows, history=100_000, ratio=0.5)
        self._stream = pyte.ByteStream(self.screen)
        self.written = bytearray()
        """All that the program has written."""
        self._child = TerminalProgram(
            command[0],
            list(command[1:]),
            cwd=os.fspath(cwd),
            env={**os.environ, "TERM": "xterm-256color", "COLORTERM": "", **(env or {})},
            dimensions=(rows, columns),
            timeout=LIMIT_SECONDS,
        )
        self._child.delaybeforesend = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._child.isalive():
            self._child.kill(signal.SIGTERM)
            deadline = time.monotonic() + LIMIT_SECONDS / 2
            while self._read() and time.monotonic() < deadline:
                pass
        if self._child.isalive():
            self._child.kill(signal.SIGKILL)
            self._child.wait()
        self._child.close()

    @property
    def pid(self) -> int:
        """The program's process."""
        return self._child.pid

    @property
    def shown(self) -> str:
        """All that the terminal shows, from the first line of its scrollback to its last."""
        rows = [*self.screen.history.top, *(self.screen.buffer[index] for index in range(self.screen.lines))]
        lines = ("".join(row[column].data for column in range(self.screen.columns)).rstrip() for row in rows)
        return "\n".join(lines).rstrip()

    @property
    def bottom(self) -> str:
        """What stands on the screen without scrolling."""
        return "\n".join(line.rstrip() for line in self.screen.display).rstrip()

    def wait_until_whole(self) -> None:
        """Wait until a drawing has come to its end: the cursor is hidden from its first row to its last."""
        self._wait(lambda: self._is_whole, "a whole drawing")

    def wait_ended(self, *, runs: int) -> None:
        """Wait until so many runs have ended and all of them is printed: that may be a moment after the line is free."""
        self._wait(
            lambda: len(END_OF_RUN.findall(self.shown)) == runs and READY in self.bottom, f"the last line of run {runs}"
        )

    def wait_for(self, *texts: str) -> None:
        """Wait until all the texts are shown."""
        self._wait(lambda: all(text in self.shown for text in texts), f"{texts} to be shown")

    def wait_for_match(self, pattern: str) -> None:
        """Wait until the pattern is found in what is shown; ``^`` and ``$`` match at each line."""
        self._wait(lambda: re.search(pattern, self.shown, re.MULTILINE) is not None, f"{pattern!r} to match")

    def wait_at_bottom(self, *texts: str) -> None:
        """Wait until all the texts are on the screen."""
        self._wait(lambda: all(text in self.bottom for text in texts), f"{texts} to be on the screen")

    def wait_gone(self, text: str) -> None:
        """Wait until the text is no longer on the screen."""
        self._wait(lambda: text not in self.bottom, f"{text!r} to leave the screen")

    def wait_until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait until a condition holds on what is shown."""
        self._wait(condition, what)

    def settle(self) -> None:
        """Wait until nothing new has come for a while: for whoever records what is shown, never for a test."""
        seen = ""
        while seen != self.shown:
            seen = self.shown
            deadline = time.monotonic() + 2
            while time.monotonic() < deadline and self._read():
                pass

    def resize(self, rows: int, columns: int) -> None:
        """Make the window another size; rows that no longer fit are cut, as xterm does."""
        self.screen.resize(rows, columns)
        self._child.setwinsize(rows, columns)

    def press(self, keys: str) -> None:
        """Type."""
        self._child.send(keys)

    def answer(self, key: str, *texts: str) -> None:
        """Wait until the approval that shows these texts is on the screen with its keys, and answer it by a key."""
        self.reply(key, "Approval ", *texts)

    def reply(self, keys: str, *texts: str) -> None:
        """Wait until a question's texts are on the screen and its keys count, and type."""

        def counts() -> bool:
            shown = self.bottom
            has_keys = any(key in shown for key in KEYS) and WAITING not in map(str.strip, shown.splitlines())
            return self._is_whole and has_keys and all(text in shown for text in texts)

        self._wait(counts, f"{texts} to be on the screen, with keys that count")
        self.press(keys)

    def enter(self, line: str) -> None:
        """Type a line, and when the terminal shows it, press Enter."""
        self.press(line)
        self.wait_at_bottom(line)
        self.press(ENTER)

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal to the program alone."""
        os.kill(self.pid, number)

    def wait_end(self) -> int:
        """Wait until the program ends; its exit status, negative for a signal."""
        deadline = time.monotonic() + LIMIT_SECONDS
        while self._read():
            assert time.monotonic() < deadline, f"the program does not end:\n{self.shown}"
        self._child.wait()
        if self._child.exitstatus is None:
            return -int(self._child.signalstatus or 0)
        return int(self._child.exitstatus)

    def descendants(self) -> list[psutil.Process]:
        """The processes that the program has started."""
        return psutil.Process(self.pid).children(recursive=True)

    @property
    def _is_whole(self) -> bool:
        return not self.screen.cursor.hidden

    def _wait(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + LIMIT_SECONDS
        while not condition():
            is_open = self._read()
            assert is_open or condition(), f"the program ended; waited for {what}:\n{self.shown}"
            assert time.monotonic() < deadline, f"waited for {what}:\n{self.shown}"

    def _read(self) -> bool:
        """Take in what the program writes, or wait a moment; False once it has closed the terminal."""
        try:
            content = self._read_or_wait()
            self.written += content
            self._stream.feed(content)
        except pexpect.TIMEOUT:
            pass
        except pexpect.EOF:
            return False
        return True

    def _read_or_wait(self) -> bytes:
        try:
            return bytes(self._child.read_nonblocking(65536, timeout=0.05))
        except pexpect.EOF:  # the program has ended since pexpect looked for output, and may have written before
            return bytes(self._child.read_nonblocking(65536, timeout=0))
