"""Imports of other packages that wait until somebody uses what they bring.

The types and resources of openai and anthropic are hundreds of modules for requests that no agent makes, a fifth of the
time up to a first request. Whoever looks into these packages finds the same names as ever: by attribute, by `import *`, by
`dir`.

`dataclasses` writes the source of each `__init__`, `__repr__`, `__eq__`, and so on, and compiles each by itself: a fifth of
the time of an import of pydantic_ai and our own modules, for methods most of which no run calls. They are compiled when they
are first looked up.
"""

import builtins
import contextlib
import copy
import dataclasses
import functools
import gc
import importlib
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import resolve_name
from types import CodeType, FunctionType, ModuleType, SimpleNamespace
from typing import Any, Final

REEXPORTING: Final = ("openai.types", "anthropic.types", "anthropic.resources")
"""Packages that contain nothing but imports from their own modules, as do the packages inside them."""

CALLED_SELDOM: Final = {"rfc3987_syntax": "is_valid_syntax"}
"""Packages by the function that others import from them. This one makes a parser when it is imported, which takes a second;
jsonschema, where it is installed, imports it to look at IRIs."""

FROZEN_BY_PROGRAM: Final = 2000
"""Objects that are out of the sight of the collector of garbage because a program said so. Python 3.12 starts with 375."""


@contextlib.contextmanager
def lean_imports() -> Iterator[None]:
    """What is imported meanwhile takes less time. From now on, the packages above are imported without what they import.

    Garbage is not collected meanwhile: what is imported stays, and to look through it takes a tenth of the time.
    """
    if _FINDER not in sys.meta_path:
        sys.meta_path.insert(0, _FINDER)
    collects, modules = gc.isenabled(), len(sys.modules)
    gc.disable()
    try:
        with methods_compiled_when_used():
            yield
    finally:
        if collects:
            # what is imported counts as old at once, without a look through all of it
            if len(sys.modules) > modules and gc.get_freeze_count() < FROZEN_BY_PROGRAM:
                gc.freeze()
                gc.unfreeze()
            gc.enable()


def import_lean(name: str) -> ModuleType:
    """Import a module so."""
    with lean_imports():
        return importlib.import_module(name)


class _Finder:
    def find_spec(self, name: str, path: Sequence[str] | None, _target: ModuleType | None = None) -> ModuleSpec | None:
        if name not in CALLED_SELDOM and not name.startswith(REEXPORTING):
            return None
        spec = PathFinder.find_spec(name, path)
        if spec is not None and spec.submodule_search_locations is not None and type(spec.loader) is SourceFileLoader:
            spec.loader = (_AtFirstCall if name in CALLED_SELDOM else _AtFirstUse)(name, spec.loader.path)
        return spec


_FINDER: Final[Any] = _Finder()


class _AtFirstUse(SourceFileLoader):
    """Loads a package in which `from .module import name` imports the module when the name is first looked up."""

    def exec_module(self, module: ModuleType) -> None:
        """Run the package's code, whose imports of its own modules are only noted."""
        package, names = module.__name__, module.__dict__

        def note(name: str, space: Any = None, local: Any = None, wanted: Sequence[str] = (), level: int = 0) -> Any:
            if not level or not wanted or "*" in wanted:
                return __import__(name, space, local, wanted, level)
            home = resolve_name("." * level + name, package)
            return SimpleNamespace(**{one: _Noted((home, one)) for one in wanted})

        code: CodeType = self.get_code(package)  # type: ignore[assignment]  # it has a file
        names["__builtins__"] = vars(builtins) | {"__import__": note}
        exec(code, names)  # noqa: S102  # as the import system does it
        names["__builtins__"] = builtins
        homes = {name: names.pop(name) for name, value in tuple(names.items()) if isinstance(value, _Noted)}

        def look_up(name: str) -> Any:
            if name in homes:
                home, there = homes[name]
                value = getattr(importlib.import_module(home), there)
            elif not name.startswith("_") and PathFinder.find_spec(f"{package}.{name}", module.__path__):
                value = importlib.import_module(f"{package}.{name}")
            else:
                raise AttributeError(f"module {package!r} has no attribute {name!r}", name=name, obj=module)
            return names.setdefault(name, value)

        names.setdefault("__all__", [name for name in (*names, *homes) if not name.startswith("_")])
        names |= {"__getattr__": look_up, "__dir__": lambda: {*names, *homes}}


class _AtFirstCall(SourceFileLoader):
    """Loads a package with one function, at whose first call, or with the look-up of another name, its code runs."""

    def exec_module(self, module: ModuleType) -> None:
        """Put the function there."""
        function, names = CALLED_SELDOM[module.__name__], vars(module)
        run, one_at_a_time = super().exec_module, threading.RLock()

        def look_up(name: str) -> Any:
            with one_at_a_time:
                if names.get("__getattr__") is look_up:
                    del names["__getattr__"]
                    try:
                        run(module)
                    except BaseException:
                        names["__getattr__"] = look_up
                        raise
            return getattr(module, name)

        def call(*values: Any, **named: Any) -> Any:
            return look_up(function)(*values, **named)

        names |= {function: call, "__getattr__": look_up}


class _Noted(tuple[str, str]):
    """The module in which something is, and its name there."""

    __slots__ = ()


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
