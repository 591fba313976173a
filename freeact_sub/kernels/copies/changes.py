"""What differs between a notebook's kernel and its copy, and how values of the copy are taken over.

Both are described by themselves (`guest/state.py`): the copy in a cell of ours, this kernel in a bare fork, which may be
ended if the code of a value's type hangs. What the copy says is not trusted: it is text of a bounded length.
"""

import asyncio
import importlib
import io
import json
import os
import signal
import sys
from collections.abc import Callable, Sequence
from typing import Any, Final

from freeact_sub.errors import KernelError
from freeact_sub.events.effects import VariableChange
from freeact_sub.kernels.copies.kernel import NotebookCopy
from freeact_sub.kernels.copies.launcher import kernel_app
from freeact_sub.kernels.copies.safety import unsafe
from freeact_sub.kernels.guest import state
from freeact_sub.kernels.handover import read_whole
from freeact_sub.kernels.variable_reports import FIELD_CHARS, REPORT_BYTES, About, compared, parsed

VALUES_BYTES: Final = 1 << 40
REPORT_SECONDS: Final = state.DIGEST_SECONDS + 5
READ_BYTES: Final = 1 << 20


async def changes_of(copy: NotebookCopy, shell: Any) -> list[VariableChange]:
    """The variables that differ between this kernel as it is now and its copy, by name.

    Raises:
        KernelError: They cannot be compared; the message says why.
    """
    before, after = await asyncio.gather(report_here(shell), _report_of(copy))
    return list(compared(before, after))


async def take(copy: NotebookCopy, names: Sequence[str]) -> tuple[dict[str, Any], dict[str, str]]:
    """The values of variables of the copy, and for each that cannot be had the reason.

    To unpickle is to run code of whoever wrote the values: a person has said yes before.

    Raises:
        KernelError: There is no copy, or what it wrote cannot be read.
    """
    file = await copy.write_values(names)
    data = await asyncio.to_thread(read_whole, file, copy.scratch, max_bytes=VALUES_BYTES)
    try:
        values, lost = state.read(memoryview(data))
    except Exception as error:  # border: to unpickle is to run any code
        raise KernelError(f"the values cannot be read here: {type(error).__name__}: {error}") from error
    return values, {str(name): str(reason)[:FIELD_CHARS] for name, reason in lost.items()}


async def report_here(shell: Any, *, digests: bool = True) -> dict[str, About]:
    """Describes the variables of this kernel, in a fork of it.

    Raises:
        KernelError: It cannot be forked now, or it takes too long.
    """
    if reason := unsafe(kernel_app()):
        raise KernelError(f"the variables cannot be looked at now: {reason}")
    seconds = REPORT_SECONDS if digests else 1.0
    data = await in_a_fork(lambda: json.dumps(state.report(shell, digests=digests)).encode(), seconds)
    return parsed(data)


async def _report_of(copy: NotebookCopy) -> dict[str, About]:
    file = await copy.write_state()
    return parsed(await asyncio.to_thread(read_whole, file, copy.scratch, max_bytes=REPORT_BYTES))


async def in_a_fork(work: Callable[[], bytes], seconds: float) -> bytes:
    """Runs a function in a fork of this process, which ends with it.

    Raises:
        KernelError: It failed, or takes too long.
    """
    forking: Any = importlib.import_module("freeact_sub.kernels.copies.forking")  # Linux only
    reader, writer = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        pid = forking.fork_quietly()
        if pid == 0:
            _work_and_exit(forking, work, writer)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        os.close(writer)
    reading = asyncio.ensure_future(asyncio.to_thread(_read_all, reader))
    try:
        await asyncio.wait({reading}, timeout=seconds)
    finally:
        os.kill(pid, signal.SIGKILL)
        data = await asyncio.shield(reading)  # its end has come with that of the process
        forking.reap(pid)
    if not data.endswith(b"\n"):
        raise KernelError(data.decode(errors="replace") or f"it took longer than {seconds:g} s")
    return data


def _work_and_exit(forking: Any, work: Callable[[], bytes], writer: int) -> None:
    """In the fork. What is printed meanwhile goes nowhere; no loop, no socket and no clean-up of the origin is touched."""
    try:
        forking.prctl(forking.PR_SET_PDEATHSIG, signal.SIGKILL)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        sys.stdout, sys.stderr = io.StringIO(), io.StringIO()
        nothing = os.open(os.devnull, os.O_WRONLY)
        for descriptor in (1, 2):
            os.dup2(nothing, descriptor)
        _write_all(writer, work() + b"\n")
    except BaseException as error:  # noqa: BLE001  # border: the end of this process
        _write_all(writer, f"{type(error).__name__}: {error}"[:FIELD_CHARS].rstrip().encode())
    finally:
        os._exit(0)


def _write_all(writer: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(writer, view) :]


def _read_all(reader: int) -> bytes:
    with open(reader, "rb", buffering=READ_BYTES) as file:  # it is a descriptor
        return file.read()
