"""The code sent into every kernel as source: `agent` and what it needs; standard library and IPython only.

It becomes a package `freeact_guest` there, whose modules find each other by relative imports.
"""

import importlib.resources
from typing import Final

SENT: Final = (
    "borrowed_kernel",
    "halves",
    "descriptors",
    "scratch",
    "kept",
    "writable",
    "stack",
    "plain",
    "contents",
    "line",
    "hosts",
    "listing",
    "used",
    "hook",
    "programs",
    "keyboard",
    "tracebacks",
    "values",
    "portable",
    "schemas",
    "returns",
    "people",
    "skills",
    "tasks",
    "mcp",
    "names",
    "saved",
    "saved.live",
    "saved.groups",
    "saved.borrowed_pickler",
    "saved.write",
    "saved.imported",
    "saved.read",
    "saved.snapshots",
    "agent",
)
"""The modules to send, in import order."""

LOADER: Final = """
import sys, types
for name, source in {sources!r}.items():
    module = sys.modules[name] = types.ModuleType(name)
    package, _, last = name.rpartition(".")
    if name in {packages!r}:
        module.__path__, module.__package__ = [], name
    else:
        module.__package__ = package
    if package:
        setattr(sys.modules[package], last, module)
    exec(compile(source, "<" + name + ">", "exec"), module.__dict__)
"""

PACKAGES: Final = ("freeact_guest", "freeact_guest.saved")


def guest_source() -> str:
    """Return a program that creates the package in a kernel."""
    folder = importlib.resources.files(__name__)
    sources = {"freeact_guest": ""}
    for name in SENT:
        full = f"freeact_guest.{name}"
        path = f"{name.replace('.', '/')}/__init__.py" if full in PACKAGES else f"{name.replace('.', '/')}.py"
        sources[full] = folder.joinpath(path).read_text(encoding="utf-8")
    return LOADER.format(sources=sources, packages=PACKAGES)
