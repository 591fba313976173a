"""Passes values from one kernel, or from a program, to another kernel, by moving a file.

Each kernel can write and read only its own scratch folder, so the host carries. On this machine it moves names and never
opens a file: what is in it was written by code in a kernel, and may be anything. It follows no link, for a kernel may have
made it. Kernels elsewhere move the file themselves where they share a disk; else the host passes on the bytes.
"""

import asyncio
import io
import os
import stat
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from pathlib import Path
from typing import Any, Final, Protocol, runtime_checkable

from freeact_sub.errors import InvalidRequestError, KernelError, KernelLostError
from freeact_sub.kernels.guest import values as guest_values
from freeact_sub.kernels.kernel import Kernel
from freeact_sub.kernels.output import CellClock, CellOutputBuffer
from freeact_sub.system.safe_files import opened_folder

TAKE_SECONDS: Final = 300.0
"""Seconds that a kernel may take to read values, including the imports they need."""
ERROR_CHARS: Final = 1000


@runtime_checkable
class FarKernel(Protocol):
    """A kernel whose scratch folder is on another machine."""

    async def move_values(self, name: str, target: "FarKernel") -> bool:
        """Moves a file there into the scratch folder of another kernel.

        Returns:
            Whether that was possible: somebody sees the folders of both.
        """
        ...

    def read_values(self, name: str) -> AsyncGenerator[bytes]:
        """The content of a file there, in pieces; the file is gone afterwards.

        Raises:
            KernelError: It cannot be read.
        """
        ...

    async def write_values(self, name: str, pieces: AsyncIterator[bytes]) -> None:
        """Writes a file there.

        Raises:
            KernelError: It cannot be written.
        """
        ...


async def hand_over(name: str, source: Kernel, target: Kernel) -> None:
    """Moves a file of values from one kernel's scratch folder to another's, which loads them as variables.

    Args:
        name: The file's name, `values-` and a hexadecimal number.
        source: The kernel that has written it, as `guest/values.py` does.
        target: The kernel that gets the values.

    Raises:
        KernelError: There is no such file, or the kernel could not read it; the message says why.
    """
    await move_values(name, source, target)
    await _do(target, f"take({name!r}, get_ipython().user_ns)")


async def move_values(name: str, source: Kernel, target: Kernel) -> None:
    """Moves a file of values only: code in the target reads it. See `hand_over`.

    Raises:
        KernelError: There is no such file.
    """
    if isinstance(source, FarKernel) and isinstance(target, FarKernel):
        if not await source.move_values(name, target):
            async with aclosing(source.read_values(name)) as pieces:
                await target.write_values(name, pieces)
    elif source.scratch is not None and target.scratch is not None:
        move_file(name, source.scratch, target.scratch)
    else:
        raise KernelError("inputs: these kernels have no way to hand values over: write them to files instead")


async def give_values(kernel: Kernel, names: Sequence[str]) -> str:
    """Lets a kernel write variables into a file of its scratch folder, for `hand_over`.

    Returns:
        The file's name.

    Raises:
        KernelError: There is no such variable, or it cannot be handed over; the message names it.
    """
    name = f"values-{uuid.uuid4().hex}"
    await _do(kernel, f"give_variables({name!r}, {[*names]!r}, get_ipython().user_ns)")
    return name


async def put_values(values: Mapping[str, Any], target: Kernel) -> list[str]:
    """Puts values of this process among a kernel's variables.

    Returns:
        A line on each value, as the agent of the kernel reads it.

    Raises:
        InvalidRequestError: A value cannot be handed over, or a name is none of a variable; the message names it.
        KernelError: The kernel could not read them; the message says why.
    """
    name = f"values-{uuid.uuid4().hex}"
    if isinstance(target, FarKernel):
        await target.write_values(name, _piece(await asyncio.to_thread(_packed, dict(values))))
    elif target.scratch is not None:
        await asyncio.to_thread(_write, name, await asyncio.to_thread(_packed, dict(values)), target.scratch)
    else:
        raise KernelError("inputs: this kernel has no way to take values: write them to files instead")
    await _do(target, f"take({name!r}, get_ipython().user_ns)")
    return [guest_values.line(variable, value) for variable, value in values.items()]


async def _do(kernel: Kernel, call: str) -> None:
    """Calls a function of `guest/values.py`."""
    buffer = CellOutputBuffer()
    code = f"__import__('sys').modules['freeact_guest.values'].{call}"
    async with kernel.execute(code, buffer, CellClock(TAKE_SECONDS), silent=True) as cell:
        reply = await cell.reply()
    if reply.status == "kernel_lost":
        raise KernelLostError(f"the kernel ended while values were handed over: {kernel.lost_reason}")
    if reply.status != "ok":
        last = (buffer.text.strip().splitlines() or [reply.status])[-1]
        raise KernelError(last[-ERROR_CHARS:])


def _packed(values: dict[str, Any]) -> bytes:
    file = io.BytesIO()
    try:
        guest_values.check_names(values)
        guest_values.write(file, values)
    except (TypeError, ValueError) as error:
        raise InvalidRequestError(str(error)) from error
    return file.getvalue()


async def _piece(data: bytes) -> AsyncIterator[bytes]:
    yield data


def _write(name: str, data: bytes, folder: Path) -> None:
    try:
        with _folder(folder) as there:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
            with os.fdopen(os.open(name, flags, 0o600, dir_fd=there), "wb") as file:
                file.write(data)
    except OSError as error:
        raise KernelError(f"inputs: they could not be written for the kernel: {error.strerror}") from error


def move_file(name: str, source: Path, target: Path, *, marks: tuple[str, str] = (".", ".")) -> None:
    """Moves a file of values from folder to folder, and follows no link.

    Args:
        name: The file's name.
        source: The folder that it is in.
        target: The folder that gets it.
        marks: A name that must exist in each of both, as what shows that the folder is meant.

    Raises:
        KernelError: There is no such file, or it is not a regular one.
    """
    try:
        with _folder(source, marks[0]) as here, _folder(target, marks[1]) as there:
            os.rename(name, name, src_dir_fd=here, dst_dir_fd=there)
            mode = os.stat(name, dir_fd=there, follow_symlinks=False).st_mode
    except OSError as error:
        raise KernelError(f"inputs: they are not there any more: {error.strerror}") from error
    if not stat.S_ISREG(mode):
        raise KernelError("inputs: what the kernel has written is no file")


@contextmanager
def _folder(path: Path, mark: str = ".") -> Iterator[int]:
    with opened_folder(path) as descriptor:
        os.stat(mark, dir_fd=descriptor, follow_symlinks=False)
        yield descriptor
