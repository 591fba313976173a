"""`start_hosted`: two forks, after which the caller is the terminal, a `TerminalHost` serves, and the program has a `Link`.

A host reads all that the program writes. While no terminal is there it drops it, so the program never waits for one. A slow
terminal slows the program, as a real one does; one that takes nothing for `STALLED_SECONDS` counts as away, and gets a new
drawing when it is back.

A terminal that ends without a word (a closed window, `kill -9`) leaves the program at its work. The host ends a program that
has no terminal and nothing to do: by SIGHUP, which is what a terminal's end always was.
"""

import contextlib
import fcntl
import json
import os
import select
import signal
import socket
import struct
import sys
import termios
import time
from collections.abc import Callable
from typing import Any, Final, NoReturn

from freeact_sub.detached import sockets
from freeact_sub.detached.sockets import Wire

ROOM_BYTES: Final = 2**18
"""Bytes that may wait for the terminal before no more are read."""
STALLED_SECONDS: Final = 2.0
LEAVE_SECONDS: Final = 1.0
"""Seconds that a program has to leave the terminal; one that is still starting does not."""
END_SECONDS: Final = 10.0
"""Seconds between SIGTERM and SIGKILL."""
LAST_SECONDS: Final = 2.0
"""Seconds for the last output and the exit status to reach the terminal."""
QUIET_SECONDS: Final = 0.05
"""Silence after which a program's output has come through the pseudo-terminal: the system passes it on a little later."""
MAX_PEERS: Final = 16
RESET: Final = b"\x1b[?1049l\x1b[?2004l\x1b[?25h\x1b[23;2t\x1b[0m\r\n\x1b[J"
"""The main screen, pastes as typed text, the cursor, the window's title, no colour; nothing below the line."""
USUAL_SIZE: Final = struct.pack("4H", 24, 80, 0, 0)


class Link:
    """The program's side: what it tells its host, and hears of the terminal."""

    def __init__(self, connection: socket.socket, *, detached: bool) -> None:
        self._wire = Wire(connection)
        self.is_detached = detached
        """Whether the program begins without a terminal."""
        self._told: dict[str, Any] = {}

    def tell(self, **facts: Any) -> None:
        """Tell what has changed among the facts: `session`, `workspace`, `state`, `is_ending`, `left`."""
        if new := {name: value for name, value in facts.items() if self._told.get(name) != value or name == "left"}:
            self._told |= new
            self._wire.tell(**new)

    def begun(self) -> None:
        """Tell the waiting caller of a detached program that it is at work; from now on its errors are not the caller's."""
        if self.is_detached and "begun" not in self._told:
            os.dup2(1, 2)
            self.tell(begun=True)

    def listen(self, loop: Any, heard: Callable[[dict[str, Any]], None]) -> None:
        """Call a function with what the host tells, until the loop ends."""

        def read() -> None:
            try:
                for _, content in self._wire.frames():
                    heard(json.loads(content))
            except EOFError:  # the host has been killed; the end of the pseudo-terminal ends the program
                loop.remove_reader(self._wire)

        loop.add_reader(self._wire, read)


def start_hosted(*, detached: bool = False) -> Link | Wire | None:
    """Fork the host and the program. Args: detached: the program begins without a terminal.

    Returns:
        In the program its `Link`, in the caller the way to the host; None: not possible here, so nothing was forked.
    """
    while (spare := os.open(os.devnull, os.O_RDWR)) < 3:  # a stream that the caller has closed
        pass
    os.close(spare)
    try:
        folder = sockets.hosts_folder(makes=True)
        master, slave = os.openpty()
        listener = sockets.listen(folder)
    except (OSError, AttributeError):
        return None
    if not detached:
        with contextlib.suppress(OSError, termios.error):
            termios.tcsetattr(slave, termios.TCSANOW, termios.tcgetattr(0))
    fcntl.ioctl(slave, termios.TIOCSWINSZ, USUAL_SIZE if detached else window_size())
    ours, theirs = socket.socketpair()
    sys.stdout.flush()
    if os.fork():
        for descriptor in (folder, master, slave):
            os.close(descriptor)
        theirs.close()
        listener.close()
        return Wire(ours)
    ours.close()
    os.setsid()
    to_program, to_host = socket.socketpair()
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # the host's word to the program, which no starter means to have ignored
    program = os.fork()
    if program == 0:
        os.close(folder)
        os.close(master)
        theirs.close()
        listener.close()
        to_program.close()
        os.setsid()
        fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
        for number in (0, 1) if detached or not os.isatty(2) else (0, 1, 2):
            os.dup2(slave, number)
        os.close(slave)
        if detached:
            _close_inherited()
            sys.stdin = sys.stdin or open(0, encoding="utf-8")  # noqa: SIM115
        return Link(to_host, detached=detached)
    os.close(slave)
    to_host.close()
    return _serve(TerminalHost(folder, listener, master, program, Wire(to_program), Wire(theirs), detached=detached))


def _serve(host: "TerminalHost") -> NoReturn:
    """Be the host to its end. It has no window, and keeps nothing open that the caller had."""
    status = 1
    try:
        null = os.open(os.devnull, os.O_RDWR)
        for number in range(3):
            os.dup2(null, number)
        os.close(null)
        _close_inherited()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN if number == signal.SIGINT else host.end)
        host.serve()
        status = 0
    finally:
        os._exit(status)


def _close_inherited() -> None:
    """Close what the caller was given besides its streams: who holds the other end of a pipe waits for its end."""
    for number in map(int, os.listdir("/dev/fd")):  # noqa: PTH208  # pathlib makes paths of them
        with contextlib.suppress(OSError):  # that of the listing
            if number > 2 and os.get_inheritable(number):
                os.close(number)


def window_size() -> bytes:
    """Return the size of the terminal at standard output, as the system has it."""
    with contextlib.suppress(OSError):
        return fcntl.ioctl(1, termios.TIOCGWINSZ, bytes(8))
    return USUAL_SIZE


class TerminalHost:
    """The small process between a program and the terminals that come and go."""

    def __init__(
        self, folder: int, listener: socket.socket, master: int, program: int, link: Wire, first: Wire, *, detached: bool
    ) -> None:
        self._folder, self._listener, self._name = folder, listener, str(os.getpid())
        sockets.publish(folder, listener, self._name)
        self._master, self._program, self._link = master, program, link
        os.set_blocking(master, False)
        self._peers = [first]
        self._terminal = None if detached else first
        self._caller = first if detached else None
        """The process that waits for a detached program to be at work."""
        self._is_stopped = False
        """Whether the terminal is stopped, and comes back by itself."""
        self._typed = bytearray()
        self._facts: dict[str, Any] = {"state": "working" if detached else "done"}
        """Facts for others. A program that is still starting asks at most whether to trust a folder: nothing is lost."""
        self._place = "left" if detached else "here"
        """Whether the program uses the terminal: `here`, `leaving`, `left`."""
        self._is_fresh = True
        """Whether the terminal has nothing of the conversation on its screen."""
        self._is_torn = False
        """Whether the terminal has a drawing that was not erased."""
        self._leaves_by = self._stalled_since = self._killed_at = 0.0
        self._is_hung_up = False

    def serve(self) -> None:
        """Serve until the program has ended."""
        wakeup, writer = os.pipe()
        os.set_blocking(writer, False)
        os.set_blocking(wakeup, False)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        while (ended := os.waitpid(self._program, os.WNOHANG))[0] == 0:
            self._wait(wakeup)
            self._take_output()
            self._write_typed()
            for peer in [*self._peers]:
                self._hear(peer)
            self._hear_program()
            self._decide()
        self._finish(os.waitstatus_to_exitcode(ended[1]))

    def end(self, *_: object) -> None:
        """End the program: in good order first."""
        if not self._killed_at:
            self._killed_at = time.monotonic() + END_SECONDS
            if not self._is_hung_up:  # a second signal would end it at once
                os.kill(self._program, signal.SIGTERM)
            os.kill(self._program, signal.SIGCONT)  # one that is stopped would not hear it

    def _wait(self, wakeup: int) -> None:
        readers: list[Any] = [wakeup, self._link, self._listener, *self._peers]
        readers += [self._master] if self._reads_output else []
        writers: list[Any] = [peer for peer in self._peers if peer.waiting_bytes]
        writers += [self._master] if self._typed else []
        is_timed = self._killed_at or self._place == "leaving" or not self._reads_output
        ready, *_ = select.select(readers, writers, [], 0.1 if is_timed else None)
        for peer in self._peers:
            peer.flush()
        if wakeup in ready:
            os.read(wakeup, 4096)
        if self._listener in ready:
            with contextlib.suppress(OSError):
                connection, _ = self._listener.accept()
                if len(self._peers) < MAX_PEERS and sockets.may_connect(connection, self._program):
                    self._peers.append(Wire(connection))
                else:
                    connection.close()

    @property
    def _reads_output(self) -> bool:
        return self._terminal is None or self._terminal.waiting_bytes < ROOM_BYTES or self._place == "left"

    def _take_output(self) -> bool:
        """Pass on what the program has written; return False if there is nothing."""
        if not self._reads_output:
            return False
        try:
            output = os.read(self._master, sockets.PIECE)
        except OSError:  # there is none, or the program has ended
            return False
        if self._terminal is not None and self._place == "here":
            self._terminal.put(sockets.OUTPUT, output)
        return bool(output)

    def _write_typed(self) -> None:
        with contextlib.suppress(OSError):
            while self._typed:
                del self._typed[: os.write(self._master, self._typed[:1024])]

    def _hear(self, peer: Wire) -> None:
        try:
            for kind, content in peer.frames():
                self._obey(peer, kind, content)
        except EOFError:
            self._peers.remove(peer)
            peer.connection.close()
            if peer is self._terminal:
                self._terminal = None
                self._leave()
            elif peer is self._caller:  # it was interrupted, so nobody knows of the program
                self.end()

    def _obey(self, peer: Wire, kind: bytes, content: bytes) -> None:
        if kind == sockets.ATTACH and len(content) == len(USUAL_SIZE):
            if self._is_hung_up or self._killed_at or self._facts.get("is_ending"):
                peer.tell(ends="ending")
            else:
                self._attach(peer, content)
        elif kind == sockets.ASK:
            peer.tell(**self._facts)
        elif kind == sockets.END:
            self.end()
        elif peer is not self._terminal:
            return
        elif kind == sockets.INPUT:
            self._typed += content
        elif kind in (sockets.SIZE, sockets.BACK) and len(content) == len(USUAL_SIZE):
            fcntl.ioctl(self._master, termios.TIOCSWINSZ, content)
            if kind == sockets.BACK:
                self._is_torn = not self._is_stopped  # from outside, so the screen may be another one
                self._is_stopped = self._is_fresh = False
                self._leave()

    def _attach(self, peer: Wire, size: bytes) -> None:
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, size)
        if peer is not self._terminal:  # one that has started the program is there from the first output on
            self._let_go(ends="replaced")
            self._terminal, self._is_stopped, self._is_fresh = peer, False, True
            self._leave()

    def _leave(self) -> None:
        """Have the program leave the terminal; when it has, `_decide` has it come back to the one that is there."""
        if self._place == "here":
            self._place, self._leaves_by = "leaving", time.monotonic() + LEAVE_SECONDS
            self._link.tell(what="leave")

    def _let_go(self, *, ends: str) -> None:
        terminal, self._terminal = self._terminal, None
        if terminal is not None:
            terminal.tell(ends=ends, session=self._facts.get("session"))

    def _hear_program(self) -> None:
        told: dict[str, Any] = {}
        with contextlib.suppress(EOFError):  # it has ended
            for _, content in self._link.frames():
                told |= json.loads(content)
        self._facts |= {name: told[name] for name in ("session", "workspace", "state", "is_ending") if name in told}
        if "session" in told and self._terminal is not None:
            self._terminal.tell(session=told["session"])
        if "begun" in told and self._caller is not None:
            self._caller.tell(ends="detached", session=self._facts["session"])
            self._caller = None
        if "left" in told:
            self._take_rest()  # the terminal gets it, unless another one has come
            self._place = "left"
            if told["left"] == "stop" and self._terminal is not None:
                self._is_stopped, self._is_fresh = True, False
                self._terminal.tell(stop=self._facts["state"])
            elif told["left"] == "detach":
                self._let_go(ends="detached")

    def _take_rest(self) -> None:
        deadline = time.monotonic() + LAST_SECONDS
        while time.monotonic() < deadline and select.select([self._master], [], [], QUIET_SECONDS)[0]:
            if not self._take_output():
                return

    def _decide(self) -> None:
        """Do what time, or the absence of a terminal, asks for."""
        now, terminal = time.monotonic(), self._terminal
        if terminal is None:
            if self._facts["state"] == "done" and not self._is_hung_up:
                self._is_hung_up = True
                os.kill(self._program, signal.SIGHUP)
        elif self._place == "left" and not self._is_stopped and not terminal.waiting_bytes:
            if self._is_torn:
                terminal.put(sockets.OUTPUT, RESET)
            self._place, self._is_torn = "here", False
            self._link.tell(what="back", fresh=self._is_fresh)
        elif self._place == "leaving" and now > self._leaves_by:
            self._place = "here"
            with contextlib.suppress(OSError):  # another program may have the terminal, or ours is still starting
                os.killpg(os.tcgetpgrp(self._master), signal.SIGWINCH)
        elif self._reads_output:
            self._stalled_since = now
        elif now - self._stalled_since > STALLED_SECONDS:
            terminal.drop_unsent()
            self._is_fresh = self._is_torn = True
            self._leave()
        if self._killed_at and now > self._killed_at:
            os.kill(self._program, signal.SIGKILL)

    def _finish(self, status: int) -> None:
        """Pass on the program's last words and its exit status."""
        self._take_rest()
        with contextlib.suppress(OSError):
            os.unlink(self._name, dir_fd=self._folder)
        for peer in self._peers:
            peer.tell(ends="exit", status=status, session=self._facts.get("session"))
            peer.finish(LAST_SECONDS)
