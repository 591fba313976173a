"""The code that is sent into every kernel as source: `agent` and what it needs; standard library and IPython only.

It becomes a package `freeact_guest` there, whose modules find each other by relative imports.
"""

import importlib.resources
from typing import Final

SENT: Final = (
    "writable",
    "stack",
    "line",
    "hosts",
    "hook",
    "listing",
    "used",
    "values",
    "schemas",
    "tasks",
    "mcp",
    "names",
    "agent",
)
"""The modules that are sent, in the order in which they can be imported."""

LOADER: Final = """
import sys, types
package = sys.modules["freeact_guest"] = types.ModuleType("freeact_guest")
package.__path__ = []
for name, source in {sources!r}.items():
    module = sys.modules["freeact_guest." + name] = types.ModuleType("freeact_guest." + name)
    module.__package__ = "freeact_guest"
    setattr(package, name, module)
    exec(compile(source, "<freeact_guest." + name + ">", "exec"), module.__dict__)
"""


def guest_source() -> str:
    """A program that makes the package in a kernel."""
    folder = importlib.resources.files(__name__)
    return LOADER.format(sources={name: folder.joinpath(f"{name}.py").read_text(encoding="utf-8") for name in SENT})
