"""An agent that acts by running code in its own Jupyter kernel, and hands work to child agents.

The SDK is the names that `__init__.pyi` imports. Each is imported when it is first used: `import freeact_sub` itself costs
nothing, so `freeact-sub --help` answers at once.
"""

import importlib
from functools import cache
from typing import Any

__version__ = "0.2.0"

_EVENTS = "freeact_sub.events"


def __getattr__(name: str) -> Any:
    if name == "__all__":
        return __dir__()
    home = _homes().get(name) or _EVENTS
    module = importlib.import_module(home)
    if home == _EVENTS and name not in dir(module):
        from importlib.util import find_spec  # noqa: PLC0415  # see the module's docstring

        if find_spec(f"{__name__}.{name}") is not None:  # `from freeact_sub import events` asks first
            return importlib.import_module(f"{__name__}.{name}")
        from difflib import get_close_matches  # noqa: PLC0415

        near = "" if name.startswith("_") else "".join(get_close_matches(name, __dir__(), 1))
        hint = f". Did you mean: {near!r}?" if near else ""
        raise AttributeError(f"module 'freeact_sub' has no attribute {name!r}{hint}")
    value = globals()[name] = getattr(module, name)
    return value


def __dir__() -> list[str]:
    return sorted([*_homes(), *dir(importlib.import_module(_EVENTS))])


@cache
def _homes() -> dict[str, str]:
    """Return the module of each name that the stub spells out; by `*` it imports the events."""
    import ast  # noqa: PLC0415  # see the module's docstring
    from pathlib import Path  # noqa: PLC0415

    stub = ast.parse(Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
    imports = [node for node in stub.body if isinstance(node, ast.ImportFrom)]
    return {name.name: str(node.module) for node in imports for name in node.names if name.name != "*"}
