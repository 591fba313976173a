"""Imports of other packages that wait until somebody uses what they bring.

The types and resources of openai and anthropic are hundreds of modules for requests that no agent makes, a fifth of the
time up to a first request. Whoever looks into these packages finds the same names as ever: by attribute, by `import *`, by
`dir`.
"""

import builtins
import contextlib
import gc
import importlib
import sys
import threading
from collections.abc import Iterator, Sequence
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import resolve_name
from types import CodeType, ModuleType, SimpleNamespace
from typing import Any, Final

from freeact_sub.system.deferred_methods import methods_compiled_when_used

REEXPORTING: Final = ("openai.types", "anthropic.types", "anthropic.resources")
"""Packages whose code, and that of the packages in them, is nothing but imports from their own modules."""

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
