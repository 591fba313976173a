"""Finds kernel providers by name: entry points of the group `freeact_sub.kernel_providers` in all installed packages.

An entry point names a function of the settings (`KernelConfig`) and `on_notice` that makes a provider
(`kernels.KernelProvider`). Nothing is imported to find out which there are.
"""

import difflib
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final

from freeact_sub.errors import ConfigError

GROUP: Final = "freeact_sub.kernel_providers"
OWN: Final = {
    name: EntryPoint(name, f"freeact_sub.kernels.{module}:make_{name}", GROUP)
    for name, module in (("fork", "provider"), ("local", "provider"), ("gateway", "gateway"))
}
"""The entry points of `pyproject.toml`, for a frozen program or one that runs from its source, which have none."""


def installed() -> dict[str, EntryPoint]:
    """All providers by name. Ours cannot be replaced; of two others with one name the first found counts."""
    found = {point.name: point for point in reversed(tuple(entry_points(group=GROUP)))}
    return {**found, **OWN}


def check_installed(name: str) -> None:
    """Checks that a provider is installed.

    Raises:
        ValueError: It is not; the message names the installed ones, near names first.
    """
    if name in OWN or name in (known := installed()):
        return
    near = [f"`{other}`" for other in difflib.get_close_matches(name, known, n=2, cutoff=0.6)]
    meant = f": did you mean {' or '.join(near)}?" if near else "."
    raise ValueError(f"no such kernel provider is installed{meant} There are {', '.join(sorted(known))}")


def load(name: str) -> Any:
    """Loads the function that makes a provider.

    Raises:
        ConfigError: The provider is not installed, or cannot be imported.
    """
    point = OWN.get(name) or installed().get(name)
    if point is None:
        raise ConfigError(f"the kernel provider `{name}` is not installed any more")
    try:
        return point.load()
    except Exception as error:  # border: the code of another package
        raise ConfigError(
            f"the kernel provider `{name}` cannot be loaded from `{point.value}`: {type(error).__name__}: {error}"
        ) from error
