"""Handover of values between kernels and the program, by files.

Each kernel can write and read only its own scratch folder, so the host carries. On this machine it moves names and never
opens a file: code in a kernel has written the content, which may be anything. It follows no link, for a kernel may
have made it. Kernels elsewhere move the file themselves where they share a disk; else the host passes on the bytes.
"""

import asyncio
import importlib
import os
import re
import stat
import sys
import tempfile
import threading
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, ExitStack, aclosing, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, BinaryIO, Final, Protocol, runtime_checkable

from freeact_sub.cells import CellError
from freeact_sub.errors import InvalidRequestError, KernelError, KernelLostError, KernelValueError
from freeact_sub.kernels.guest import values as guest_values
from freeact_sub.kernels.guest.portable import MAX_BYTES
from freeact_sub.kernels.kernel import Kernel
from freeact_sub.kernels.portable import decoded
from freeact_sub.kernels.wire.output import CellClock, CellOutputBuffer, CellRun
from freeact_sub.system.safe_files import opened_folder
from freeact_sub.text import shortened, visible

TAKE_SECONDS: Final = 300.0
"""Seconds that a kernel may take to read values, including the imports they need."""
ERROR_CHARS: Final = 1000
PIECE_BYTES: Final = 2**20
TOO_LARGE: Final = f"it is too large: at most {MAX_BYTES:,} bytes can be taken; let the code write it to a file"
MISSING_MODULE: Final = re.compile(r"ModuleNotFoundError: No module named '([\w.]+)'")
GUEST: Final = "freeact_guest"
NO_VALUES: Final = (
    "this kernel exchanges no values with the program, because its provider starts it without the package "
    "`freeact_sub.kernels.guest`: write files instead"
)
NAME: Final = re.compile(r"\w+(?=: | = )")
"""The name of a variable, at the beginning of the line on it."""

_REGISTRY: Final = threading.Lock()
"""Lock of the registry of modules that cloudpickle takes along."""


@runtime_checkable
class FarKernel(Protocol):
    """A kernel whose scratch folder is on another machine."""

    async def move_values(self, name: str, target: "FarKernel") -> bool:
        """Move a file there into the scratch folder of another kernel.

        Returns:
            Whether that was possible.
        """
        ...

    def read_values(self, name: str) -> AsyncGenerator[bytes]:
        """Yield the content of a file there, in pieces; the file is gone afterwards.

        Raises:
            KernelError: It cannot be read.
        """
        ...

    async def write_values(self, name: str, pieces: AsyncIterator[bytes]) -> None:
        """Write a file there.

        Raises:
            KernelError: It cannot be written.
        """
        ...


async def hand_over(name: str, source: Kernel, target: Kernel) -> None:
    """Move a file of values from one kernel's scratch folder to another's, which loads them as variables.

    Args:
        name: The file's name, `values-` and a hexadecimal number.
        source: The kernel that has written it, as `guest/values.py` does.
        target: The kernel that gets the values.

    Raises:
        KernelError: The file does not exist, or the kernel could not read it; the message says why.
    """
    await move_values(name, source, target)
    await own_cell(target, f"get_ipython().user_ns.update(freeact.values.take({name!r}))")


async def move_values(name: str, source: Kernel, target: Kernel) -> None:
    """Move a file of values only, as `hand_over`: code in the target reads it.

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
        raise KernelError("inputs: these kernels cannot exchange values: write files instead")


async def give_values(kernel: Kernel, names: Sequence[str]) -> str:
    """Let a kernel write variables into a file of its scratch folder, for `hand_over`.

    Returns:
        The file's name.

    Raises:
        KernelError: The variable does not exist or cannot be sent; the message names it.
    """
    name = f"values-{uuid.uuid4().hex}"
    await own_cell(kernel, f"freeact.values.give_variables({name!r}, {[*names]!r}, get_ipython().user_ns)")
    return name


class WrittenValues(dict[str, str]):
    """Values of another process of the same user, which has written them to a file: a line on each, by name."""

    def __init__(self, lines: Mapping[str, str], folder: str, name: str) -> None:
        """Args: folder, name: the file's; `write_beside` has made it."""
        super().__init__(lines)
        self.folder, self.name = Path(folder), name


def write_beside(values: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Write values for a kernel of another process. Return the arguments of `WrittenValues`.

    Raises:
        InvalidRequestError: A value cannot be sent; the message names it.
        KernelError: They cannot be written.
    """
    name = f"values-{uuid.uuid4().hex}"
    _write_into(folder, name, dict(values), ())
    lines = {variable: guest_values.line(variable, value) for variable, value in values.items()}
    return {"lines": lines, "folder": str(folder), "name": name}


async def put_values(values: Mapping[str, Any], target: Kernel) -> list[str]:
    """Put values of this process among a kernel's variables.

    Returns:
        A line on each value, as the agent of the kernel reads it.

    Raises:
        InvalidRequestError: A value cannot be sent, or a name is not the name of a variable; the message names it.
        KernelError: The kernel could not read them; the message says why.
    """
    if isinstance(values, WrittenValues):
        if target.scratch is None:
            raise KernelError("inputs: this kernel cannot receive values: write files instead")
        move_file(values.name, values.folder, target.scratch)
        await own_cell(target, f"get_ipython().user_ns.update(freeact.values.take({values.name!r}))")
        return [*values.values()]
    try:
        guest_values.check_names(values)
    except (TypeError, ValueError) as error:
        raise InvalidRequestError(str(error)) from error
    own: list[str] = []
    while True:
        name = f"values-{uuid.uuid4().hex}"
        await _write(name, dict(values), target, own)
        try:
            await own_cell(target, f"get_ipython().user_ns.update(freeact.values.take({name!r}))")
        except KernelError as error:
            # a class of the program's own module goes along as code where the kernel cannot import it
            found = MISSING_MODULE.search(str(error))
            if found is None or found[1] in own or found[1] not in sys.modules:
                raise
            own.append(found[1])
        else:
            return [guest_values.line(variable, value) for variable, value in values.items()]


async def write_value(value: Any, target: Kernel) -> str:
    """Write a value of this process for code in a kernel that reads it (`guest/values.py`, under the name `value`).

    Returns:
        The file's name.

    Raises:
        InvalidRequestError: It cannot be pickled.
        KernelError: It cannot be written.
    """
    name = f"values-{uuid.uuid4().hex}"
    await _write(name, {"value": value}, target, ())
    return name


async def take_value(variable: str, source: Kernel, *, output: Any, trust: bool, seconds: float | None) -> Any:
    """Return the value of a kernel's variable.

    Args:
        variable: Its name.
        source: The kernel.
        output: The type of the value. None: any.
        trust: Unpickles it: code in the kernel may have it run anything here.
        seconds: The time that the kernel may take to write it.

    Raises:
        InvalidRequestError: Values cannot be checked against `output`.
        KernelLostError: The kernel has ended.
        KernelValueError: There is no such variable, it cannot be taken, or it is not of the type.
    """
    name = f"values-{uuid.uuid4().hex}"
    call = f"freeact.values.give_variables({name!r}, [{variable!r}], get_ipython().user_ns)"
    if not trust:
        call = f"freeact.portable.write_variable({name!r}, {variable!r}, get_ipython().user_ns)"
    try:
        await own_cell(source, call, seconds)
        data = await _content(name, source)
    except KernelLostError:
        raise
    except KernelError as error:
        raise KernelValueError(f"{variable!r} cannot be taken: {error}") from None
    if not trust:
        return await asyncio.to_thread(decoded, data, variable, output)
    try:
        return guest_values.read(memoryview(data))[variable]
    except Exception as error:  # border: to unpickle is to run any code
        raise KernelValueError(f"{variable!r} cannot be taken: {type(error).__name__}: {error}") from error


async def _content(name: str, source: Kernel) -> bytearray:
    """Read the content of a file of values, which is gone afterwards."""
    if source.scratch is not None and not isinstance(source, FarKernel):
        return await asyncio.to_thread(read_whole, name, source.scratch)
    if not isinstance(source, FarKernel):
        raise KernelError(NO_VALUES)
    data = bytearray()
    async with aclosing(source.read_values(name)) as pieces:
        async for piece in pieces:
            data += piece
            if len(data) > MAX_BYTES:
                raise KernelError(TOO_LARGE)
    return data


def read_whole(name: str, folder: Path, *, max_bytes: int = MAX_BYTES) -> bytearray:
    """Read a file that a kernel has written into its scratch folder, and removes it.

    Raises:
        KernelError: There is no such file, it is not a regular one, or it is too large.
    """
    try:
        with _folder(folder) as there:
            handle = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=there)
            try:
                os.unlink(name, dir_fd=there)
                data = _bytes_of(handle, max_bytes)
            finally:
                os.close(handle)
    except OSError as error:
        raise KernelError(f"the kernel's file of values is not there: {error.strerror}") from error
    return data


def _bytes_of(handle: int, max_bytes: int) -> bytearray:
    found = os.fstat(handle)
    if not stat.S_ISREG(found.st_mode):
        raise KernelError("the kernel's file of values is not a regular file")
    if found.st_size > max_bytes:
        raise KernelError(TOO_LARGE)
    data, size = bytearray(found.st_size), 0
    view = memoryview(data)
    while size < len(data) and (count := os.readv(handle, [view[size:]])):
        size += count
    if size < len(data):
        raise KernelError("the kernel's file of values became shorter while it was read")
    return data


async def described_variables(kernel: Kernel, seconds: float | None = TAKE_SECONDS) -> dict[str, str]:
    """Return the variables that cells have made, oldest first: by name, a line with its type and size, or its value.

    Raises:
        KernelError: The kernel has ended, or takes longer than this many seconds.
    """
    lines = (await own_cell(kernel, "freeact.agent.show_names(get_ipython(), sizes=True)", seconds)).splitlines()
    return {found[0]: visible(line) for line in lines if (found := NAME.match(line))}


class RunsCells(Protocol):
    """A kernel that can run a silent cell of ours."""

    @property
    def lost_reason(self) -> str | None:
        """The reason why the kernel has ended, if it has."""
        ...

    def execute(
        self, code: str, buffer: CellOutputBuffer, clock: CellClock, *, silent: bool = False
    ) -> AbstractAsyncContextManager[CellRun]:
        """Run a cell."""
        ...


async def own_cell(kernel: RunsCells, call: str, seconds: float | None = TAKE_SECONDS, *, module: str = GUEST) -> str:
    """Evaluate an expression of ours in a kernel, silently and after the running cell. Return its printed text.

    Args:
        kernel: The kernel.
        call: The expression. In it `freeact` is the module.
        seconds: The time that it may take.
        module: Where it looks: the package of `guest/` in the kernel, or a module that the kernel has been given anew.

    Raises:
        KernelLostError: The kernel has ended.
        KernelError: It has failed, or takes longer; the message is its error.
    """
    buffer, clock = CellOutputBuffer(), CellClock(seconds)
    code = f"(lambda freeact: {call})(__import__('sys').modules[{module!r}])"
    error = ""
    async with kernel.execute(code, buffer, clock, silent=True) as cell:
        async for output in cell:
            if isinstance(output, CellError):
                error = f"{output.ename}: {output.evalue}"
                if output.ename in ("KeyError", "NameError") and (GUEST in output.evalue or "get_ipython" in output.evalue):
                    error = NO_VALUES
        reply = await cell.reply()
    if reply.status == "kernel_lost":
        raise KernelLostError(f"the kernel ended while values were handed over: {kernel.lost_reason}")
    if reply.status == "timeout":
        raise KernelError(f"it took longer than {seconds:g} s")
    if reply.status != "ok":
        raise KernelError(shortened(error or reply.status, ERROR_CHARS))
    return buffer.text


async def _write(name: str, values: dict[str, Any], target: Kernel, own: Sequence[str]) -> None:
    """Write a file of values for a kernel. Args: own: modules whose classes and functions go along as code."""
    if isinstance(target, FarKernel):
        with tempfile.TemporaryFile(prefix="fa-values-") as file:
            await asyncio.to_thread(_pack, file, values, own)
            file.seek(0)
            await target.write_values(name, _pieces(file))
    elif target.scratch is not None:
        await asyncio.to_thread(_write_into, target.scratch, name, values, own)
    else:
        raise KernelError(NO_VALUES)


def _pack(file: BinaryIO, values: dict[str, Any], own: Sequence[str]) -> None:
    try:
        guest_values.check_names(values)
        with _as_code(own):
            guest_values.write(file, values)
    except (TypeError, ValueError) as error:
        raise InvalidRequestError(str(error)) from error


@contextmanager
def _as_code(modules: Sequence[str]) -> Iterator[None]:
    cloudpickle: Any = importlib.import_module("cloudpickle")
    with _REGISTRY if modules else nullcontext(), ExitStack() as stack:
        for name in {*modules} - cloudpickle.list_registry_pickle_by_value():
            cloudpickle.register_pickle_by_value(sys.modules[name])
            stack.callback(cloudpickle.unregister_pickle_by_value, sys.modules[name])
        yield


async def _pieces(file: BinaryIO) -> AsyncIterator[bytes]:
    while piece := await asyncio.to_thread(file.read, PIECE_BYTES):
        yield piece


def _write_into(folder: Path, name: str, values: dict[str, Any], own: Sequence[str]) -> None:
    try:
        with _folder(folder) as there:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            with os.fdopen(os.open(name, flags, 0o600, dir_fd=there), "wb") as file:
                try:
                    _pack(file, values, own)
                except BaseException:
                    with suppress(OSError):
                        os.unlink(name, dir_fd=there)
                    raise
    except OSError as error:
        raise KernelError(f"inputs could not be written for the kernel: {error.strerror}") from error


def move_file(name: str, source: Path, target: Path, *, marks: tuple[str, str] = (".", ".")) -> None:
    """Move a file of values from folder to folder, and follows no link.

    Args:
        name: The file's name.
        source: The folder that it is in.
        target: The folder that gets it.
        marks: A name that must exist in each folder, which shows that the folder is meant.

    Raises:
        KernelError: There is no such file, or it is not a regular one.
    """
    try:
        with _folder(source, marks[0]) as here, _folder(target, marks[1]) as there:
            os.rename(name, name, src_dir_fd=here, dst_dir_fd=there)
            mode = os.stat(name, dir_fd=there, follow_symlinks=False).st_mode
    except OSError as error:
        raise KernelError(f"inputs are no longer there: {error.strerror}") from error
    if not stat.S_ISREG(mode):
        raise KernelError("inputs: the kernel wrote something that is not a file")


@contextmanager
def _folder(path: Path, mark: str = ".") -> Iterator[int]:
    with opened_folder(path) as descriptor:
        os.stat(mark, dir_fd=descriptor, follow_symlinks=False)
        yield descriptor
