"""The code sent into every kernel as source: `agent` and what it needs; standard library and IPython only.

It becomes a package `freeact_guest` there, whose modules find each other by relative imports.
"""

import functools
import importlib.resources
from types import CodeType
from typing import Any, Final

from freeact_sub.calls import ChildChoices, InCell

SENT: Final = (
    "borrowed_kernel",
    "halves",
    "descriptors",
    "kept",
    "writable",
    "stack",
    "plain",
    "line",
    "used",
    "seccomp",
    "wall",
    "reading",
    "doors",
    "borrowed_starts",
    "hook",
    "programs",
    "tracebacks",
    "interrupts",
    "values",
    "portable",
    "schemas",
    "keyboard",
    "skills",
    "tasks",
    "mcp",
    "saved",
    "saved.groups",
    "saved.borrowed_pickler",
    "saved.imported",
    "saved.files",
    "saved.snapshots",
    "state",
    "differences",
    "taken",
    "trial",
    "agent",
)
"""Modules to send, in import order."""
OF_WALL: Final = ("seccomp", "wall", "reading")
"""Modules of `kernels/wall` to send: kernels wall programs that only read."""

LOADER: Final = """
import sys, types
for name, source in {sources}.items():
    module = sys.modules[name] = types.ModuleType(name)
    package, _, last = name.rpartition(".")
    if name in {packages!r}:
        module.__path__, module.__package__ = [], name
    else:
        module.__package__ = package
    if package:
        setattr(sys.modules[package], last, module)
    exec(source if isinstance(source, types.CodeType) else compile(source, "<" + name + ">", "exec"), module.__dict__)
"""

PACKAGES: Final = ("freeact_guest", "freeact_guest.saved")


def choices() -> list[tuple[str, str, Any, str]]:
    """Return the choices for a child: name, type, default and help. In a kernel the package has a copy of the list."""
    found = list[tuple[str, str, Any, str]]()
    for name, field in ChildChoices.model_fields.items():
        [said] = (each for each in field.metadata if isinstance(each, InCell))
        default = field.default if isinstance(field.default, bool) or name == "history" else None
        found.append((name, said.form, default, said.text))
    return found


def guest_source() -> str:
    """Return a program that creates the package in a kernel."""
    return LOADER.format(sources=repr(_sources()), packages=PACKAGES)


@functools.cache
def compiled_guest() -> tuple[CodeType, dict[str, Any]]:
    """Return the program compiled, for a kernel forked from this process, and the globals it runs with."""
    codes = {name: compile(source, f"<{name}>", "exec") for name, source in _sources().items()}
    return compile(LOADER.format(sources="SOURCES", packages=PACKAGES), "<freeact_guest>", "exec"), {"SOURCES": codes}


def _sources() -> dict[str, str]:
    folder = importlib.resources.files(__name__)
    sources = {"freeact_guest": f"def choices(): return {choices()!r}"}
    for name in SENT:
        full = f"freeact_guest.{name}"
        path = f"{name.replace('.', '/')}/__init__.py" if full in PACKAGES else f"{name.replace('.', '/')}.py"
        place = folder.joinpath("..", "wall") if name in OF_WALL else folder
        sources[full] = place.joinpath(path).read_text(encoding="utf-8")
    return sources
