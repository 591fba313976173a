"""Dataclasses whose methods are compiled when they are first looked up.

`dataclasses` writes the source of each `__init__`, `__repr__`, `__eq__`, and so on, and compiles each by itself: a fifth of
the time of an import of pydantic_ai and our own modules, for methods most of which no run calls.
"""

import contextlib
import copy
import dataclasses
import functools
import sys
import threading
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any, Final

_compile_now: Final = getattr(dataclasses, "_create_fn", None) if sys.version_info < (3, 13) else None
"""Makes one method from its source. None: Python 3.13 and later compile all of a class at once."""
_wrap_now: Final = getattr(dataclasses, "_recursive_repr", None)
"""Makes a `__repr__` that ends where an object holds itself."""

_importing: Final[set[int]] = set()
"""Threads whose dataclasses wait."""
_lock: Final = threading.Lock()


@contextlib.contextmanager
def methods_compiled_when_used() -> Iterator[None]:
    """Dataclasses that this thread makes meanwhile compile a method when it is first looked up."""
    thread = threading.get_ident()
    if _compile_now is None or thread in _importing:
        yield
        return
    with _lock:
        _importing.add(thread)
        vars(dataclasses).update(_create_fn=_compile_later, _recursive_repr=_wrap_later)
    try:
        yield
    finally:
        with _lock:
            _importing.remove(thread)
            if not _importing:
                vars(dataclasses).update(_create_fn=_compile_now, _recursive_repr=_wrap_now)


def _compile_later(name: str, *source: Any, **names: Any) -> Any:
    """Takes the place of `dataclasses._create_fn`."""
    assert _compile_now is not None
    compile_ = functools.partial(_compile_now, name, *source, **names)
    return _Method(name, compile_) if threading.get_ident() in _importing else compile_()


def _wrap_later(function: Any) -> Any:
    """Takes the place of `dataclasses._recursive_repr`."""
    assert _wrap_now is not None
    if isinstance(function, _Method):
        return _Method(function.__name__, lambda: _wrap_now(function.made()))
    return _wrap_now(function)


class _Method:
    """Stands in a class until its function is looked up, which then takes its place."""

    __slots__ = ("__name__", "_compile", "_function")

    def __init__(self, name: str, compile_: Callable[[], FunctionType]) -> None:
        self.__name__, self._compile = name, compile_
        self._function: FunctionType | None = None

    def __get__(self, instance: Any, owner: type) -> Any:
        function = self.made()
        for home in owner.__mro__:
            if vars(home).get(self.__name__) is self:
                function.__qualname__ = f"{home.__qualname__}.{self.__name__}"
                type.__setattr__(home, self.__name__, function)
        return function.__get__(instance, owner)

    def __reduce__(self) -> Any:
        """A class that is pickled by value has the function."""
        return copy.copy, (self.made(),)

    def made(self) -> FunctionType:
        """The function, compiled once."""
        if self._function is None:
            self._function = self._compile()
        return self._function
