"""`Pipes` passes a program's output through the process guard. Standard library only; the guard reads this file.

An MCP server sends one message a line. A line that is too long is not passed on: its request fails with an error instead, so
no caller waits for it and no reader has to take it in. Standard error goes to a file, whose older half is dropped when it is
full.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import time

CHUNK_BYTES = 1 << 16
KEPT_BYTES = 4096
"""Bytes kept of the head and of the tail of an overlong line; one of them has the id."""
FINISH_SECONDS = 1.0
"""Seconds to wait for the host after the program has ended."""
_ID = rb'"id"\s*:\s*(\d+|"(?:[^"\\\\]|\\\\.){1,200}")'
AT_BEGINNING = re.compile(rb'^\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?' + _ID)
AT_END = re.compile(_ID + rb'\s*(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}\s*$')
REFUSAL = (
    b'{"jsonrpc":"2.0","id":%s,"error":{"code":-32603,"message":"the response has %d bytes, more than the %d of the setting '
    b'`max_message_bytes`"}}\n'
)


class Pipes:
    """Standard output and standard error of the program that the guard starts."""

    def __init__(self, line_bytes: int, log_bytes: int) -> None:
        """Takes over the guard's own streams, which lead to the host and to the log."""
        self._line_bytes, self._log_bytes = line_bytes, log_bytes
        self._host, self._log = os.dup(1), os.dup(2)
        os.set_blocking(self._host, False)
        self._output, self._output_end = os.pipe()
        self._errors, self._errors_end = os.pipe()
        self._open = {self._output, self._errors}
        self._line = bytearray()
        self._left_out = 0
        """Bytes of the current line that were dropped because the line is too long."""
        self._pending = bytearray()
        """Bytes that the host has not taken yet; nothing more is read meanwhile."""

    def become_streams(self) -> None:
        """Redirects the output of the child process here. Called in the child."""
        os.dup2(self._output_end, 1)
        os.dup2(self._errors_end, 2)

    def waits_for(self) -> tuple[list[int], list[int]]:
        """Returns the descriptors to wait for: to read, to write."""
        for end in (self._output_end, self._errors_end):
            with contextlib.suppress(OSError):  # closed already
                os.close(end)
        self._output_end = self._errors_end = -1
        if self._output not in self._open and not self._pending and self._host >= 0:
            os.close(self._host)  # the program has closed its standard output, and the host waits for what comes of it
            self._host = -1
        readers = self._open - {self._output} if self._pending else self._open
        return [*readers], [self._host] if self._pending else []

    def go_on(self, ready: list[int], writable: list[int]) -> None:
        """Moves bytes between descriptors that are ready."""
        if self._host in writable:
            self._write_to_host()
        for descriptor in self._open.intersection(ready):
            data = os.read(descriptor, CHUNK_BYTES)
            if not data:
                self._open.discard(descriptor)
            elif descriptor == self._errors:
                self._write_to_log(data)
            else:
                self._take(data)
                self._write_to_host()

    def finish(self) -> None:
        """Passes on the rest of the output of a program that has ended, as long as the host reads it."""
        deadline = time.monotonic() + FINISH_SECONDS
        while time.monotonic() < deadline:
            readers, writers = self.waits_for()
            ready, writable, _ = select.select(readers, writers, [], 0 if not writers else deadline - time.monotonic())
            if not ready and not writable:
                return
            self.go_on(ready, writable)

    def _take(self, data: bytes) -> None:
        """Cuts bytes into lines; queues whole lines."""
        *ends, rest = data.split(b"\n")
        lines = []
        for end in ends:
            self._grow(end)
            lines.append(self._whole_line())
        self._grow(rest)
        self._pending += b"".join(lines)

    def _grow(self, data: bytes) -> None:
        self._line += data
        if self._left_out or len(self._line) > self._line_bytes:
            middle = max(0, len(self._line) - 2 * KEPT_BYTES)
            del self._line[KEPT_BYTES : KEPT_BYTES + middle]
            self._left_out += middle

    def _whole_line(self) -> bytes:
        line, size = bytes(self._line), len(self._line) + self._left_out
        self._line.clear()
        self._left_out = 0
        if size <= self._line_bytes:
            return line + b"\n" if line.strip() else b""
        found = AT_BEGINNING.search(line) or AT_END.search(line)
        self._write_to_log(b"[a line of %d bytes on standard output was not passed on]\n" % size)
        return REFUSAL % (found[1], size, self._line_bytes) if found else b""

    def _write_to_host(self) -> None:
        try:
            written = os.write(self._host, bytes(self._pending[:CHUNK_BYTES])) if self._pending else 0
        except BlockingIOError:
            written = 0
        except OSError:  # the host has closed its end, and the program shall not wait for it
            written = len(self._pending)
        del self._pending[:written]

    def _write_to_log(self, data: bytes) -> None:
        with contextlib.suppress(OSError):  # a full disk is no reason to end the program
            size = os.fstat(self._log).st_size
            if size + len(data) > self._log_bytes:
                kept = os.pread(self._log, self._log_bytes // 2, max(0, size - self._log_bytes // 2)).partition(b"\n")[2]
                os.ftruncate(self._log, 0)
                os.write(self._log, b"[older lines were dropped]\n" + kept)
            os.write(self._log, data)
