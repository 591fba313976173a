"""Functions that the pickles of saved variables call when a new kernel reads them."""

import functools
import importlib
import sys
import types
from collections.abc import Callable
from typing import Any


def namespace() -> dict[str, Any]:
    """The variables of this kernel, which are the globals of what its cells define."""
    return sys.modules["__main__"].__dict__


def make_function(code: types.CodeType, name: str, closure: tuple[Any, ...] | None) -> types.FunctionType:
    """Make a function of a cell whose globals are this kernel's variables instead of saved copies."""
    return types.FunctionType(code, namespace(), name, None, closure)


def make_code(file: str, *arguments: Any) -> types.CodeType:
    """Code that knows the file it came from."""
    return types.CodeType(*arguments).replace(co_filename=file)


def make_cached(function: Callable[..., Any], parameters: dict[str, Any]) -> Any:
    """A function with `functools.lru_cache`, with nothing in its cache."""
    return functools.lru_cache(**parameters)(function)


def make_view(root: Any, offset: int, shape: tuple[int, ...], strides: tuple[int, ...], dtype: Any, writeable: bool) -> Any:
    """An array over the memory of another one. Args: offset: in bytes. root: contiguous."""
    numpy: Any = importlib.import_module("numpy")
    flat = (root if root.flags.c_contiguous else root.T).reshape(-1).view(numpy.uint8)
    view = numpy.ndarray(shape, dtype, buffer=flat, offset=offset, strides=strides)
    if not writeable:
        view.flags.writeable = False
    return view
