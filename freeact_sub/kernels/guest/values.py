"""Passes values from an agent's kernel into its child's, in one file. Sent into every kernel as source.

The parent's kernel writes the file into its scratch folder, the host moves it into the child's, the child's kernel reads it.
The host never unpickles. Large blocks in a value (arrays, frames) are written unchanged, out of band, and the child maps
them copy on write: they are not read until they are used, and the child's changes stay its own.

The file: blocks, each at a multiple of 64 bytes; then the index as JSON; then the index's length in eight bytes.
"""

import contextlib
import hashlib
import importlib
import io
import json
import keyword
import mmap
import os
import pickle
import types
from collections.abc import Callable
from typing import Any, BinaryIO

FOLDER = "FA_FOLDER"
"""The variable that names the private folder of a kernel; `tmp` in it is its scratch folder."""
ALIGNMENT = 64
LENGTH_BYTES = 8
DIGEST_BYTES = 32_000_000
"""About 50 ms."""
RESERVED = {"agent", "In", "Out", "get_ipython", "__builtins__"}


def give(name: str, values: dict[str, Any]) -> tuple[str, list[str]]:
    """Write values into a new file of that name in this kernel's scratch folder.

    Returns:
        The file's path, and one line for each value that describes it in the other kernel.

    Raises:
        TypeError: A value cannot be handed over; the message names it.
        ValueError: A name cannot be a variable's.
        OSError: There is no room for them, or this kernel has no such folder.
    """
    check_names(values)
    path = os.path.join(scratch(), name)
    try:
        with open(path, "xb") as file:
            write(file, values)
    except OSError as error:
        drop(path)
        sizes = ", ".join(line(name, value) for name, value in values.items())
        raise OSError(error.errno, f"inputs could not be written ({error.strerror}): {sizes}") from error
    except BaseException:
        drop(path)
        raise
    return path, [line(name, value) for name, value in values.items()]


def give_variables(name: str, names: list[str], namespace: dict[str, Any]) -> None:
    """Writes variables into a new file of this kernel's scratch folder. Raises: see `give`.

    Raises:
        NameError: The variable does not exist.
    """
    for variable in names:
        if variable not in namespace:
            raise NameError(f"name {variable!r} is not defined")
    give(name, {variable: namespace[variable] for variable in names})


def digest(path: str) -> str:
    """Return a digest of the values. Empty: the file is too large to hash quickly."""
    with open(path, "rb") as file:
        if os.fstat(file.fileno()).st_size > DIGEST_BYTES:
            return ""
        return hashlib.file_digest(file, "sha256").hexdigest()


def take(name: str) -> dict[str, Any]:
    """Return the values of a file in this kernel's scratch folder, by name, and remove the file."""
    path = os.path.join(scratch(), name)
    with open(path, "rb") as file:
        drop(path)  # what is mapped stays
        return read(memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)))


def scratch() -> str:
    """Return the folder in which only this kernel may write.

    Raises:
        OSError: There is none.
    """
    folder = os.path.join(os.environ.get(FOLDER, ""), "tmp")
    if not os.path.isabs(folder) or not os.path.isdir(folder):
        raise OSError("inputs: this kernel has no folder to hand values over in: write them to files in the workspace")
    return folder


def drop(path: str) -> None:
    """Remove a file, unless the host has moved it."""
    with contextlib.suppress(OSError):
        os.unlink(path)


def check_names(values: Any) -> None:
    """Check that this is a dict of variables.

    Raises:
        TypeError: It is not a dict, or a name is not text.
        ValueError: A name cannot be a variable's.
    """
    if not isinstance(values, dict):
        raise TypeError(f"inputs must be a dict of names and values, not {type(values).__name__}")
    for name in values:
        if not isinstance(name, str):
            raise TypeError(f"inputs: a name must be text, not {name!r}")
        if not name.isidentifier() or keyword.iskeyword(name):
            raise ValueError(f"inputs: {name!r} is not the name of a variable")
        if name in RESERVED:
            raise ValueError(f"inputs: {name!r} is reserved in every kernel: choose another name")


def write(file: BinaryIO, values: dict[str, Any]) -> None:
    """Write values one after another, each pickled separately, so that an error can name it."""
    dumps, index = pickler(), []
    for name, value in values.items():
        buffers: list[pickle.PickleBuffer] = []
        try:
            data = dumps(value, buffers.append)
        except Exception as error:  # border: pickling runs code of the value's type, which may raise anything
            raise TypeError(
                f"{name!r} ({type(value).__name__}) cannot be handed over: {error}. "
                "Hand over its parts, or write it to a file in the workspace."
            ) from error
        index.append([name, put(file, data), [put(file, buffer.raw()) for buffer in buffers]])
    finish(file, index)


def finish(file: BinaryIO, index: Any) -> None:
    """Write the index of a file, which is its end."""
    tail = json.dumps(index).encode()
    file.write(tail)
    file.write(len(tail).to_bytes(LENGTH_BYTES, "little"))


def put(file: BinaryIO, data: Any) -> tuple[int, int]:
    """Write a block, and return its position and size."""
    file.write(b"\0" * (-file.tell() % ALIGNMENT))
    start = file.tell()
    file.write(data)
    return start, file.tell() - start


def read(view: memoryview) -> dict[str, Any]:
    """Return the values in the content of a file, by name.

    Raises:
        TypeError: A value cannot be read here; the message names it.
    """
    tail = len(view) - LENGTH_BYTES
    index = json.loads(bytes(view[tail - int.from_bytes(view[tail:], "little") : tail]))
    values = {}
    for name, (start, size), blocks in index:
        buffers = [view[begin : begin + length] for begin, length in blocks]
        try:
            values[name] = pickle.loads(view[start : start + size], buffers=buffers)  # noqa: S301  # who has written them may run code here anyway
        except Exception as error:  # border: as above
            raise TypeError(f"{name!r} cannot be read here: {type(error).__name__}: {error}") from error
    return values


def pickler() -> Callable[[Any, Callable[[pickle.PickleBuffer], Any]], bytes]:
    """Pickles a value; what is defined in a cell goes along where cloudpickle is there, and is refused where it is not."""
    try:
        cloudpickle: Any = importlib.import_module("cloudpickle")
    except ImportError:
        return plain_dumps
    return lambda value, callback: bytes(cloudpickle.dumps(value, protocol=5, buffer_callback=callback))


def plain_dumps(value: Any, callback: Callable[[pickle.PickleBuffer], Any]) -> bytes:
    """Like `pickle.dumps`, but rejects objects that the child could not find."""
    file = io.BytesIO()
    PlainPickler(file, protocol=5, buffer_callback=callback).dump(value)
    return file.getvalue()


class PlainPickler(pickle.Pickler):
    """Refuses functions and classes of cells: pickle saves only their names, which another kernel does not have."""

    def reducer_override(self, value: Any) -> Any:
        """See `pickle.Pickler`."""
        if isinstance(value, type | types.FunctionType) and value.__module__ == "__main__":
            raise pickle.PicklingError(
                f"{value.__qualname__} is defined in a cell, and there is no cloudpickle in the kernels' Python: "
                "install it, or define it in a module"
            )
        return NotImplemented


def line(name: str, value: Any) -> str:
    """A short description of a value: its type and size; of a number, the number."""
    kind = type(value)
    module = kind.__module__.partition(".")[0]
    text = f"{name}: {kind.__qualname__}" if module in ("builtins", "__main__") else f"{name}: {module}.{kind.__qualname__}"
    try:
        if value is None or isinstance(value, bool | int | float):
            return f"{name} = {str(value)[:40]}"
        shape = getattr(value, "shape", None)
        if isinstance(shape, tuple):
            return f"{text}, shape {shape}"[:200]
        return f"{text}, length {len(value)}"[:200]
    except Exception:  # noqa: BLE001  # border: all run code of the value's type; it has no size, then
        return text[:200]
