"""How saved variables are pickled: cloudpickle, with what it gets wrong for variables that live on.

- A function of a cell takes a copy of the globals along that it reads: here it gets the live ones of the new kernel.
- A class of a cell has another id in each process: here the same each time, so that its pickle is the same, and instances
  that were saved apart are of one class again.
- What pickles by a name that no new kernel has (`lru_cache`), or as something that it is not (an open file as its content).
- A view over an array becomes a copy.

cloudpickle has no public names for how it saves a function and knows a class again (`BORROWED`). Where there is no
cloudpickle, or one without these names, what is defined in cells is refused, and the rest is plain pickle.
"""

import functools
import importlib
import io
import pickle
import sys
import types
import typing
from collections.abc import Callable
from typing import Any

from ..values import PlainPickler
from . import live
from .groups import root_of

BORROWED = (
    "_DYNAMIC_CLASS_TRACKER_BY_CLASS",
    "_DYNAMIC_CLASS_TRACKER_BY_ID",
    "_code_reduce",
    "_function_getstate",
    "_function_setstate",
    "_make_empty_cell",
)
"""The private names of cloudpickle that stand in this file; one more, `Pickler._dynamic_function_reduce`, is overridden."""
CACHED = type(functools.lru_cache(lambda: None))
IN_MEMORY = (io.StringIO, io.BytesIO)
SMALLEST_BLOCK = 1024
"""Bytes of a buffer that is written as it is; a smaller one goes into the pickle."""


class Room:
    """The file that pickles are written into, as long as there is room."""

    def __init__(self, size: int, check: Callable[[int], None]) -> None:
        """Args: size: the bytes written before. check: called with the bytes written so far; may raise."""
        self.size = size
        self.check = check
        self.pieces: list[bytes] = []
        self.blocks: list[Any] = []

    def write(self, data: Any) -> None:
        """Called by the pickler."""
        self.add(len(data))
        self.pieces.append(data if type(data) is bytes else bytes(data))

    def take(self, buffer: pickle.PickleBuffer) -> bool:
        """Decide whether a buffer goes into the pickle."""
        try:
            block = buffer.raw()
        except BufferError:  # it is not contiguous
            return True
        if block.nbytes < SMALLEST_BLOCK:
            return True
        self.add(block.nbytes)
        self.blocks.append(block)
        return False

    def add(self, size: int) -> None:
        """More is written."""
        self.size += size
        self.check(self.size)


def pickler_class() -> Any:
    """cloudpickle's, or one for what is not defined in cells."""
    try:
        cloud = importlib.import_module("cloudpickle.cloudpickle")
    except ImportError:
        return PlainPickler
    known = all(hasattr(cloud, name) for name in BORROWED) and hasattr(cloud.Pickler, "_dynamic_function_reduce")
    return cloud.Pickler if known else PlainPickler


def saver_class(namespace: dict[str, Any], salt: str, arrays: set[int], files: set[str]) -> Any:
    """A class of picklers.

    Args:
        namespace: The variables of the kernel.
        salt: The mark of this kernel: what the ids of its classes end with.
        arrays: Ids of arrays whose views must stay views.
        files: Gets the names under which the sources of functions are known.
    """
    base = pickler_class()
    cloud: Any = None if base is PlainPickler else sys.modules["cloudpickle.cloudpickle"]

    class SavingPickler(base):  # type: ignore[misc, valid-type]  # one of two
        """Pickles variables."""

        def reducer_override(self, value: Any) -> Any:
            """See `pickle.Pickler`."""
            kind = type(value)
            if kind is CACHED:
                found = reduced_cached(value)
            elif cloud is not None and kind is types.CodeType:
                # newer cloudpickles forget the file, by which `inspect` and tracebacks find the source
                found = live.make_code, (value.co_filename, *cloud._code_reduce(value)[1])
            elif issubclass(kind, io.IOBase) and not issubclass(kind, IN_MEMORY):
                raise pickle.PicklingError("an open file: open it again")
            elif cloud is not None and (issubclass(kind, type) or kind is typing.TypeVar):
                name_class(cloud, value, salt)
                found = NotImplemented
            else:
                is_array = kind is getattr(sys.modules.get("numpy"), "ndarray", None)
                found = reduced_view(value, arrays) if is_array else NotImplemented
            return super().reducer_override(value) if found is NotImplemented else found

        def _dynamic_function_reduce(self, function: types.FunctionType) -> Any:
            """Called by cloudpickle for a function that it cannot import."""
            files.add(function.__code__.co_filename)
            if function.__globals__ is not namespace:
                return super()._dynamic_function_reduce(function)
            closure = function.__closure__ and tuple(cloud._make_empty_cell() for _ in function.__closure__)
            state, slots = cloud._function_getstate(function)
            slots["__globals__"] = {}
            arguments = (function.__code__, function.__name__, closure or None)
            return live.make_function, arguments, (state, slots), None, None, cloud._function_setstate

    return SavingPickler


def name_class(cloud: Any, kind: Any, salt: str) -> None:
    """Gives a class of a cell an id that it has in every process which is forked from this one."""
    by_class = cloud._DYNAMIC_CLASS_TRACKER_BY_CLASS
    if getattr(kind, "__module__", None) == "__main__" and kind not in by_class:
        name = by_class[kind] = f"{getattr(kind, '__qualname__', '')}-{id(kind):x}-{salt}"
        cloud._DYNAMIC_CLASS_TRACKER_BY_ID[name] = kind


def reduced_cached(value: Any) -> Any:
    """A function with `lru_cache`, which pickles by its name alone."""
    if getattr(value, "__module__", None) != "__main__":
        return NotImplemented
    return live.make_cached, (value.__wrapped__, value.cache_parameters())


def reduced_view(value: Any, arrays: set[int]) -> Any:
    """A view, if the array under it is saved as well, or another view of it."""
    root = root_of(value)
    if root is value or id(root) not in arrays or not value.size or root.dtype.hasobject:
        return NotImplemented
    if not (root.flags.c_contiguous or root.flags.f_contiguous):
        return NotImplemented
    offset = value.__array_interface__["data"][0] - root.__array_interface__["data"][0]
    return live.make_view, (root, offset, value.shape, value.strides, value.dtype, value.flags.writeable)
