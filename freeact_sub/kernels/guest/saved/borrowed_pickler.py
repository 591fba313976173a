"""Pickles of single objects: cloudpickle, with repairs for variables that live on.

- A function of a cell takes a copy of the globals along that it reads: here it gets the live ones of the new kernel.
- A class of a cell has another id in each process: here always the same, so that its pickle is the same, and instances
  that were saved apart are of one class again.
- Some objects pickle by a name that no new kernel has (`lru_cache`), or as something else (an open file as its content).
- A view over an array becomes a copy.

These pickles call functions of this file when they are read; those of `handing_pickler` call none, for their readers know
this file by another name as well. cloudpickle has no public names for how it saves a function and knows a class again
(`BORROWED`). Where there is no cloudpickle, or for variables one without these names, definitions of cells are refused,
and the rest is plain pickle.
"""

import functools
import importlib
import io
import pickle
import sys
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any

from ..values import PlainPickler, handing_pickler
from .groups import root_of

BORROWED = (
    "_DYNAMIC_CLASS_TRACKER_BY_CLASS",
    "_DYNAMIC_CLASS_TRACKER_BY_ID",
    "_code_reduce",
    "_function_getstate",
    "_function_setstate",
    "_make_empty_cell",
)
"""The private names of cloudpickle in this file; one more, `Pickler._dynamic_function_reduce`, is overridden."""
CACHED = type(functools.lru_cache(lambda: None))
IN_MEMORY = (io.StringIO, io.BytesIO)


def saving_pickler(
    namespace: dict[str, Any],
    salt: str,
    arrays: set[int],
    files: set[str],
    known: Mapping[str, Any] = types.MappingProxyType({}),
) -> Any:
    """Return a class of picklers for variables that become a new kernel's.

    Args:
        namespace: The variables of the kernel.
        salt: The mark of this kernel, with which the ids of its classes end.
        arrays: Ids of arrays whose views must stay views.
        files: Gets the names under which the sources of functions are known.
        known: Functions and classes that the other kernel has as variables of these names.
    """
    base: Any = handing_pickler()
    cloud: Any = sys.modules.get("cloudpickle.cloudpickle")
    if cloud is None or not (all(hasattr(cloud, name) for name in BORROWED) and hasattr(base, "_dynamic_function_reduce")):
        base, cloud = PlainPickler, None

    class SavingPickler(base):  # type: ignore[misc]  # one of two
        def reducer_override(self, value: Any) -> Any:
            kind = type(value)
            if known and isinstance(value, type | types.FunctionType) and known.get(name := value.__name__) is value:
                found: Any = find_variable, (name,)
            elif kind is CACHED:
                found = reduced_cached(value)
            elif cloud is not None and kind is types.CodeType:
                # newer cloudpickles forget the file, by which `inspect` and tracebacks find the source
                found = make_code, (value.co_filename, *cloud._code_reduce(value)[1])
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
            """Reduce a function that cloudpickle cannot import."""
            files.add(function.__code__.co_filename)
            if function.__globals__ is not namespace:
                return super()._dynamic_function_reduce(function)
            closure = function.__closure__ and tuple(cloud._make_empty_cell() for _ in function.__closure__)
            state, slots = cloud._function_getstate(function)
            slots["__globals__"] = {}
            arguments = (function.__code__, function.__name__, closure or None)
            return make_function, arguments, (state, slots), None, None, cloud._function_setstate

    return SavingPickler


def name_class(cloud: Any, kind: Any, salt: str) -> None:
    """Give a class of a cell an id that it has in every process forked from this one."""
    by_class = cloud._DYNAMIC_CLASS_TRACKER_BY_CLASS
    if getattr(kind, "__module__", None) == "__main__" and kind not in by_class:
        name = by_class[kind] = f"{getattr(kind, '__qualname__', '')}-{id(kind):x}-{salt}"
        cloud._DYNAMIC_CLASS_TRACKER_BY_ID[name] = kind


def reduced_cached(value: Any) -> Any:
    """Return the reduced form of a function with `lru_cache`, which pickles by its name alone."""
    if getattr(value, "__module__", None) != "__main__":
        return NotImplemented
    return make_cached, (value.__wrapped__, value.cache_parameters())


def reduced_view(value: Any, arrays: set[int]) -> Any:
    """Return the reduced form of a view, if the array under it is saved as well, or another view of it."""
    root = root_of(value)
    if root is value or id(root) not in arrays or not value.size or root.dtype.hasobject:
        return NotImplemented
    if not (root.flags.c_contiguous or root.flags.f_contiguous):
        return NotImplemented
    offset = value.__array_interface__["data"][0] - root.__array_interface__["data"][0]
    return make_view, (root, offset, value.shape, value.strides, value.dtype, value.flags.writeable)


# --- what the pickles call when a new kernel reads them


def namespace_here() -> dict[str, Any]:
    """Return the variables of this kernel, which are the globals of its cells' functions."""
    return sys.modules["__main__"].__dict__


def find_variable(name: str) -> Any:
    """Return a function or class that this kernel has."""
    return namespace_here()[name]


def make_function(code: types.CodeType, name: str, closure: tuple[Any, ...] | None) -> types.FunctionType:
    """Make a function of a cell whose globals are this kernel's variables instead of saved copies."""
    return types.FunctionType(code, namespace_here(), name, None, closure)


def make_code(file: str, *arguments: Any) -> types.CodeType:
    """Return code that knows the file it came from."""
    return types.CodeType(*arguments).replace(co_filename=file)


def make_cached(function: Callable[..., Any], parameters: dict[str, Any]) -> Any:
    """Return a function with `functools.lru_cache` and an empty cache."""
    return functools.lru_cache(**parameters)(function)


def make_view(root: Any, offset: int, shape: tuple[int, ...], strides: tuple[int, ...], dtype: Any, writeable: bool) -> Any:
    """Return an array over the memory of another one. Args: offset: in bytes. root: contiguous."""
    numpy: Any = importlib.import_module("numpy")
    flat = (root if root.flags.c_contiguous else root.T).reshape(-1).view(numpy.uint8)
    view = numpy.ndarray(shape, dtype, buffer=flat, offset=offset, strides=strides)
    if not writeable:
        view.flags.writeable = False
    return view
