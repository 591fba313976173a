"""`BareFork`: a fork of this process that looks at its variables as they are now, and ends. Made in the main thread."""

import asyncio
import contextlib
import importlib
import io
import os
import signal
import sys
from collections.abc import Callable
from typing import Any, Final, NoReturn

from freeact_sub.errors import KernelError

ERROR_CHARS: Final = 300
READ_BYTES: Final = 1 << 20
GO: Final = b"g"


class BareFork:
    """It waits until it is asked for its result, and ends with this process in any case."""

    def __init__(self, work: Callable[[], bytes]) -> None:
        """Forks. Args: work: what the fork does when it is asked. Raises: OSError: there is no room for a process."""
        brancher: Any = importlib.import_module("freeact_sub.kernels.forkserver.brancher")  # Linux only
        self._reader, writer = os.pipe()
        asked, self._asking = os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            self._pid: int | None = brancher.fork_quietly()
            if self._pid == 0:
                os.close(self._asking)
                _work_and_exit(brancher, work, asked, writer)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            os.close(writer)
            os.close(asked)
        self._reap: Callable[[int], None] = brancher.reap

    async def result(self, seconds: float) -> bytes:
        """Has it work, once, and ends it. Raises: KernelError: it failed, it takes longer than that, or it has ended."""
        if self._pid is None:
            raise KernelError("it has ended")
        with contextlib.suppress(BrokenPipeError):
            os.write(self._asking, GO)
        reader, self._reader = self._reader, -1
        reading = asyncio.ensure_future(asyncio.to_thread(_read_all, reader))
        try:
            await asyncio.wait({reading}, timeout=seconds)
        finally:
            self.close()
            data = await asyncio.shield(reading)  # its end has come with that of the process
        if not data.endswith(b"\n"):
            raise KernelError(data.decode(errors="replace") or f"it took longer than {seconds:g} s")
        return data

    def close(self) -> None:
        """Ends it. Can be called again."""
        pid, self._pid = self._pid, None
        if pid is None:
            return
        with contextlib.suppress(ProcessLookupError):  # the user's own code may have waited for it
            os.kill(pid, signal.SIGKILL)
            self._reap(pid)
        os.close(self._asking)
        if self._reader >= 0:
            os.close(self._reader)


def _work_and_exit(brancher: Any, work: Callable[[], bytes], asked: int, writer: int) -> NoReturn:
    """In the fork. What is printed meanwhile goes nowhere; no loop, no socket and no clean-up of the origin is touched."""
    try:
        brancher.prctl(brancher.PR_SET_PDEATHSIG, signal.SIGKILL)
        os.setpgid(0, 0)  # when it shuts down, ipykernel waits half a minute for all of its group, also for the dead
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        sys.stdout, sys.stderr = io.StringIO(), io.StringIO()
        nothing = os.open(os.devnull, os.O_WRONLY)
        for descriptor in (1, 2):
            os.dup2(nothing, descriptor)
        if os.read(asked, 1) == GO:
            _write_all(writer, work() + b"\n")
    except BaseException as error:  # noqa: BLE001  # border: the end of this process
        _write_all(writer, f"{type(error).__name__}: {error}"[:ERROR_CHARS].rstrip().encode())
    finally:
        os._exit(0)


def _write_all(writer: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(writer, view) :]


def _read_all(reader: int) -> bytes:
    with open(reader, "rb", buffering=READ_BYTES) as file:  # it is a descriptor
        return file.read()
