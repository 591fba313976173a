"""`Terminal`: passes bytes between the real terminal and the host of a conversation; imports nothing slow.

The terminal is raw meanwhile: the pseudo-terminal of the program makes lines, echoes and signals of keys. Its settings are
restored whatever happens; what a program would have restored itself is, if that was killed or another terminal has come.
"""

import contextlib
import json
import os
import select
import signal
import termios
import tty
from typing import Any, Final

from freeact_sub.detached import sockets
from freeact_sub.detached.host import RESET, window_size
from freeact_sub.detached.sockets import Wire

HUNG_UP: Final = 128 + signal.SIGHUP
LOST: Final = 1
KEY_BYTES: Final = 4096
STOPPED: Final = {
    "working": "stopped; the work goes on, and fg brings it back",
    "waiting": "stopped; a question waits for you, and fg brings it back",
    "done": "stopped; fg brings it back",
}


def attach_words(session: str) -> str:
    """Return the command that attaches a terminal to a session."""
    return f"freeact-sub attach {session}"


class Terminal:
    """The real terminal, as long as it shows one conversation."""

    def __init__(self, host: Wire, *, attaches: bool = False) -> None:
        """Args: attaches: it comes to a conversation that began without it, maybe too late."""
        self._host = host
        self._is_late = attaches
        """Whether a conversation that ends now has ended before this terminal showed anything of it."""
        self._settings: list[Any] | None = None
        self._session = ""
        self._signals: set[int] = set()
        self._wakeup, self._writer = os.pipe()

    def relay(self) -> int:
        """Show the conversation until it ends, or the terminal leaves it; return the exit status of this process.

        Raises:
            EOFError: It attaches, and comes too late: the conversation is about to end, or has ended.
        """
        numbers = [signal.SIGWINCH, signal.SIGCONT, signal.SIGTERM, signal.SIGINT]
        numbers += [signal.SIGHUP] if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN else []
        handlers = {number: signal.signal(number, lambda number, _: self._signals.add(number)) for number in numbers}
        os.set_blocking(self._writer, False)
        signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        try:
            self._take(sockets.ATTACH)
            while True:
                try:
                    if (status := self._step()) is not None:
                        return status
                except EOFError:
                    if self._is_late:
                        raise
                    self._leave(f"the host of this conversation has ended: {self._resume_words}", resets=True)
                    return LOST
        finally:
            self._restore()
            signal.set_wakeup_fd(-1)
            os.close(self._wakeup)
            os.close(self._writer)
            for number, handler in handlers.items():
                signal.signal(number, handler)

    def _take(self, kind: bytes) -> None:
        """Make the terminal raw, and show the conversation in its present size."""
        self._settings = termios.tcgetattr(0)
        tty.setraw(0, termios.TCSANOW)
        self._host.put(kind, window_size())

    def _restore(self) -> None:
        settings, self._settings = self._settings, None
        if settings is not None:
            with contextlib.suppress(OSError, termios.error):  # the terminal is gone
                termios.tcsetattr(0, termios.TCSADRAIN, settings)

    def _step(self) -> int | None:
        """Wait for something, and pass it on; return the exit status at the end."""
        readers: list[Any] = [self._wakeup, self._host, *([0] if self._host.waiting_bytes < sockets.PIECE else [])]
        ready, *_ = select.select(readers, [self._host] if self._host.waiting_bytes else [], [])
        self._host.flush()
        if self._wakeup in ready:
            os.read(self._wakeup, KEY_BYTES)
        if self._obey_signals() or (0 in ready and self._has_hung_up()):
            return HUNG_UP
        if self._host in ready:
            for kind, content in self._host.frames():
                if kind == sockets.OUTPUT:
                    self._is_late = False
                    _write(content)
                elif kind == sockets.TOLD and (status := self._hear(json.loads(content))) is not None:
                    return status
        return None

    def _obey_signals(self) -> bool:
        """Pass on what signals mean; return whether the terminal is gone."""
        for number in [*self._signals]:
            self._signals.discard(number)
            match number:
                case signal.SIGHUP:
                    return True
                case signal.SIGWINCH:
                    self._host.put(sockets.SIZE, window_size())
                case signal.SIGCONT:  # somebody has stopped this process
                    self._restore()
                    self._take(sockets.BACK)
                case signal.SIGINT:
                    self._host.put(sockets.INPUT, b"\x03")
                case _:
                    self._host.put(sockets.END)
        return False

    def _has_hung_up(self) -> bool:
        """Pass on what was typed; return whether the terminal is gone."""
        try:
            keys = os.read(0, KEY_BYTES)
        except OSError:
            return True
        if keys:
            self._host.put(sockets.INPUT, keys)
        return not keys

    def _hear(self, told: dict[str, Any]) -> int | None:
        if "stop" in told:
            self._stop(STOPPED[told["stop"]])
            return None
        self._session = str(told.get("session") or self._session)
        match told.get("ends"):
            case "detached":
                self._leave(f"detached: {attach_words(self._session)}")
                return 0
            case "replaced":
                self._leave(f"another terminal has taken over: {attach_words(self._session)} brings it back", resets=True)
                return 0
            case "ending" | "exit" if self._is_late:
                raise EOFError
            case "exit":
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(-1, 0)
                status = int(told["status"])
                if status < 0:
                    self._leave(f"the program was killed (signal {-status}): {self._resume_words}", resets=True)
                return status if status >= 0 else 128 - status
        return None

    @property
    def _resume_words(self) -> str:
        return f"freeact-sub --resume {self._session} continues it" if self._session else "start it again"

    def _leave(self, words: str, *, resets: bool = False) -> None:
        self._restore()
        _write((RESET if resets else b"") + f"{words}\n".encode())

    def _stop(self, words: str) -> None:
        self._leave(words)
        os.kill(0, signal.SIGTSTP)  # the whole job, as the key does; without a shell nothing happens
        self._signals.discard(signal.SIGCONT)
        self._take(sockets.BACK)


def wait_until_begun(host: Wire) -> tuple[int, str]:
    """Wait until a detached program is at work. Returns: the exit status, and the session; empty: the program has ended."""
    while True:
        select.select([host], [], [])
        try:
            for kind, content in host.frames():
                told = json.loads(content) if kind == sockets.TOLD else {}
                if told.get("ends") == "detached":
                    return 0, str(told.get("session") or "")
                if told.get("ends") == "exit":
                    status = int(told["status"])
                    return status if status >= 0 else 128 - status, ""
        except EOFError:
            return LOST, ""


def _write(content: bytes) -> None:
    with contextlib.suppress(OSError):  # the terminal is gone, which its input tells
        while content:
            content = content[os.write(1, content) :]
