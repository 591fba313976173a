"""Output of a forked kernel: its iopub thread, its `sys.stdout` and its `sys.stderr`, on names of ipykernel.

ipykernel has no public names for this: the output of programs goes with the cell's own, that of a forked process comes
over a pair of sockets, and no thread is started for either. Where one of the names is missing,
this file cannot be loaded, and kernels are forked after the imports only.

Loaded by `server.py`; it needs ipykernel and the standard library only.
"""

import codecs
import contextlib
import contextvars
import importlib
import os
import select
import socket
import struct
import sys
import threading
from typing import Any

from ipykernel.iostream import IOPubThread, OutStream
from zmq.eventloop.zmqstream import ZMQStream

zmq: Any = importlib.import_module("zmq")
READABLE = 1
PIECE_BYTES = 60_000
"""Bytes of a piece of a message between processes; the system sends no piece beyond some 200 kB."""
SEND_SECONDS = 3
PIECE = struct.Struct("=QB")
"""The header of a piece: the number of its message, and whether it is the last one."""
FRAME = struct.Struct("=I")
PIPE_BYTES = 65_536
"""Bytes that a pipe holds: all of them are read at once."""

IOPUB = ("_setup_pipe_in", "_setup_pipe_out", "_handle_pipe_msg", "_setup_event_pipe", "_run_event_pipe_gc", "_really_send")
for kind, names in (
    (IOPubThread, (*IOPUB, "_setup_xpub_listener", "_handle_subscription")),
    (OutStream, ("_setup_stream_redirects", "_schedule_flush", "_flush", "_rotate_buffers", "_is_master_process")),
):
    for overridden in names:
        getattr(kind, overridden)  # these names must still mean something


class ForkPair:
    """Messages from the processes that a kernel forks to the kernel; for ipykernel both a zmq context and its socket."""

    def __init__(self) -> None:
        self.ours, self.theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.ours.setblocking(False)
        self.theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("@ll", SEND_SECONDS, 0))
        self.unfinished: dict[int, bytearray] = {}

    def send_multipart(self, frames: list[Any], *_: Any, **__: Any) -> None:
        """Sends frames from a forked process; drops frames that the kernel does not take in time."""
        parts = [bytes(frame) for frame in frames]
        data = b"".join(FRAME.pack(len(part)) + part for part in parts)
        number = int.from_bytes(os.urandom(8), "big")
        with contextlib.suppress(OSError):
            for start in range(0, len(data), PIECE_BYTES):
                last = start + PIECE_BYTES >= len(data)
                self.theirs.send(PIECE.pack(number, last) + data[start : start + PIECE_BYTES])

    def close(self) -> None:
        """Does nothing: all has been sent."""

    term = close

    def receive(self) -> list[list[bytes]]:
        """Returns the messages that are whole by now."""
        messages = []
        with contextlib.suppress(BlockingIOError):
            while piece := self.ours.recv(PIECE.size + PIECE_BYTES):
                number, last = PIECE.unpack_from(piece)
                data = self.unfinished.setdefault(number, bytearray())
                data += piece[PIECE.size :]
                if last:
                    messages.append(frames_of(bytes(self.unfinished.pop(number))))
        return messages


def frames_of(data: bytes) -> list[bytes]:
    """Returns the frames of a message."""
    frames, start = [], 0
    while start < len(data):
        [size] = FRAME.unpack_from(data, start)
        start += FRAME.size + size
        frames.append(data[start - size : start])
    return frames


def is_flush(event: Any) -> bool:
    """Returns whether a stream's flush waits for an event, and so for text that is being sent."""
    return isinstance(getattr(event, "__self__", None), OutStream)


class PairIOPubThread(IOPubThread):  # type: ignore[misc]  # ipykernel is not followed by the type checker
    """Output of processes that a cell forks arrives through a socket pair, so nothing listens or connects."""

    def _setup_pipe_in(self) -> None:
        self._pipe_uuid = b""
        self._pair = ForkPair()
        self.io_loop.add_handler(self._pair.ours, self._receive, READABLE)

    def _receive(self, *_: Any) -> None:
        for message in self._pair.receive():
            self._handle_pipe_msg(message)

    def _setup_pipe_out(self) -> tuple[Any, Any]:
        return self._pair, self._pair

    def _setup_event_pipe(self) -> None:
        """Makes no pipe: other threads hand work to the loop through its own (`schedule`)."""
        self._no_cell = contextvars.Context()  # empty: output of programs belongs to the cell that runs when it comes

    async def _run_event_pipe_gc(self) -> None:
        """Returns no pipes, because no thread has one."""

    _xpub_stream: Any = None
    _pair: Any = None
    """The `ForkPair` in which the kernel hears processes that a cell forks, if any."""

    def _setup_xpub_listener(self) -> None:
        """Makes no listener yet: subscribers wait until the kernel is ready."""

    def greet(self) -> None:
        """Greets all subscribers from now on. Called in this thread."""
        self._xpub_stream = ZMQStream(self.socket, self.io_loop)
        self._xpub_stream.on_recv(self._handle_subscription)

    def _really_send(self, *arguments: Any, **options: Any) -> None:
        """Sends, then reads subscriptions that zmq noted meanwhile: its descriptor does not tell of them any more."""
        super()._really_send(*arguments, **options)
        if self._xpub_stream and self._is_master_process() and self.socket.getsockopt(zmq.EVENTS) & READABLE:
            self._xpub_stream.flush(READABLE)

    _is_woken = is_sending = False

    def schedule(self, event: Any) -> None:
        """Schedules an event with one wake for all that wait; ipykernel wakes the thread for each, and the thread itself."""
        if not self.thread.is_alive():
            event()
            return
        if self.thread is threading.current_thread():
            if not self.is_sending:  # a flush in time: these events were sent before its text was written
                while self._events and not is_flush(self._events[0]):
                    self._events.popleft()()
            event()
            return
        self._events.append(event)
        if not self._is_woken:
            self._is_woken = True
            try:
                self.io_loop.asyncio_loop.call_soon_threadsafe(self._handle_event, None, context=self._no_cell)
            except BaseException:  # an interrupt of the cell
                self._is_woken = False
                raise

    def _handle_event(self, message: Any) -> None:
        self._is_woken = False
        self.is_sending = True
        try:
            if self._pair is not None:
                self._receive()  # output of an ended process comes before later output of the cell
            super()._handle_event(message)
        finally:
            self.is_sending = False


def has_come(descriptor: int) -> bool:
    """Returns whether something can be read."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(0))


class ForkedStream(OutStream):  # type: ignore[misc]  # ipykernel is not followed by the type checker
    """Output of cells. Output of programs to the descriptor goes with the next flush, not after the cell's end."""

    pub_thread: Any
    _buffers: Any
    _should_watch: bool

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self._reading = threading.RLock()
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")  # a character may come in two reads
        self._is_timed = self._is_sending = False
        super().__init__(*arguments, **options)

    def flush(self) -> None:
        """Sends the written text, that of programs too. Each display flushes both streams, mostly without text."""
        if self._should_watch and self._is_master_process():
            self._read_pipe()
        if self._buffers or self._is_sending:  # in this order: what is not in the buffers any more is being sent, or was
            super().flush()

    def _flush(self) -> None:
        self._is_sending = True
        try:
            super()._flush()
        finally:
            self._is_sending = False

    def close(self) -> None:
        """Puts back the descriptor."""
        if self._should_watch:
            self._should_watch = False
            loop = self.pub_thread.io_loop
            self.pub_thread.schedule(lambda: loop.remove_handler(self._fid))
            os.dup2(self._original_stdstream_copy, self._original_stdstream_fd)
            os.close(self._original_stdstream_copy)
        self.pub_thread = None

    def _setup_stream_redirects(self, name: str) -> None:
        """Redirects the stream; the thread of iopub reads the pipe, in place of a further thread for each stream."""
        self._fid, writer = os.pipe()
        self._original_stdstream_fd = getattr(sys, name).fileno()
        self._original_stdstream_copy = os.dup(self._original_stdstream_fd)
        os.dup2(writer, self._original_stdstream_fd)
        os.close(writer)
        self.pub_thread.schedule(lambda: self.pub_thread.io_loop.add_handler(self._fid, self._on_readable, READABLE))

    def _on_readable(self, *_: Any) -> None:
        if self._reading.acquire(blocking=False):  # else the thread of a cell is reading
            try:
                if not self._read_pipe():
                    self.pub_thread.io_loop.remove_handler(self._fid)
            finally:
                self._reading.release()

    def _read_pipe(self) -> bool:
        """Takes the content of the pipe; returns False at its end."""
        with self._reading:
            if not has_come(self._fid):
                return True
            data = os.read(self._fid, PIPE_BYTES)
            if data:
                # it belongs to the running cell: the control thread flushes too, in the context of an old message
                contextvars.Context().run(self.write, self._decoder.decode(data))
                with contextlib.suppress(OSError):  # the log's disk may be full
                    os.write(self._original_stdstream_copy, data)
            return bool(data)

    def _schedule_flush(self) -> None:
        """Starts one timer for all text that is written until it ends."""
        if not self._is_timed:
            self._is_timed = True
            loop = self.pub_thread.io_loop
            try:
                self.pub_thread.schedule(lambda: loop.call_later(self.flush_interval, self._flush_in_time))
            except BaseException:  # an interrupt of the cell
                self._is_timed = False
                raise

    def _flush_in_time(self) -> None:
        self._is_timed = False
        self._flush()
