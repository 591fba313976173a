"""Extensions of other packages by name: the entry points of a group in all installed packages.

An entry point of `freeact_sub.kernel_providers` names a function of the settings (`KernelConfig`) and `on_notice` that makes
a provider (`kernels.KernelProvider`); one of `freeact_sub.session_stores` a function of the settings (`SessionsConfig`) that
makes a store (`sessions.SessionStore`); one of `freeact_sub.features` a function without arguments, such as a class, that
makes a feature (`Feature`) for a new agent. Listing the names imports nothing.
"""

import difflib
import sys
from collections.abc import Mapping
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, Final

from freeact_sub.errors import ConfigError


class EntryPoints:
    """The entry points of one group."""

    def __init__(self, name: str, noun: str, own: Mapping[str, str]) -> None:
        """Make the group. Args: noun: the word for them in messages. own: ours, which stand nowhere else."""
        self.name = name
        self._noun = noun
        self._own = {key: EntryPoint(key, value, name) for key, value in own.items()}

    def installed(self) -> dict[str, EntryPoint]:
        """Return all entry points by name. Ours cannot be replaced; among others with one name the first one counts."""
        return {**_found(self.name, tuple((place, _changed_at(place)) for place in sys.path)), **self._own}

    def check(self, name: str) -> str:
        """Return the name if it is installed.

        Raises:
            ValueError: The name is not installed; the message lists the installed names, similar ones first.
        """
        if name in self._own or name in (known := self.installed()):
            return name
        near = [f"`{other}`" for other in difflib.get_close_matches(name, known, n=2, cutoff=0.6)]
        meant = f": did you mean {' or '.join(near)}?" if near else "."
        raise ValueError(f"the {self._noun} {name!r} is not installed{meant} Installed: {', '.join(sorted(known))}")

    def load(self, name: str) -> Any:
        """Load the function that an entry point names.

        Raises:
            ConfigError: The entry point is not installed, or cannot be imported.
        """
        point = self._own.get(name) or self.installed().get(name)
        if point is None:
            raise ConfigError(f"the {self._noun} `{name}` is no longer installed")
        try:
            return point.load()
        except Exception as error:  # border: the code of another package
            raise ConfigError(
                f"the {self._noun} `{name}` cannot be loaded from `{point.value}`: {type(error).__name__}: {error}"
            ) from error


@lru_cache(maxsize=8)
def _found(group: str, places: tuple[tuple[str, int], ...]) -> dict[str, EntryPoint]:
    """Return the entry points of all installed packages, read again only if a place of packages has changed."""
    del places
    return {point.name: point for point in reversed(tuple(entry_points(group=group)))}


def _changed_at(place: str) -> int:
    try:
        return Path(place).stat().st_mtime_ns
    except OSError:
        return 0


KERNEL_PROVIDERS: Final = EntryPoints(
    "freeact_sub.kernel_providers",
    "kernel provider",
    {
        "fork": "freeact_sub.kernels.provider:make_fork",
        "local": "freeact_sub.kernels.provider:make_local",
        "gateway": "freeact_sub.kernels.gateway:make_gateway",
    },
)
FEATURES: Final = EntryPoints("freeact_sub.features", "feature", {})
"""Features of other packages; ours are a list (`features/__init__.py`)."""
SESSION_STORES: Final = EntryPoints(
    "freeact_sub.session_stores", "session store", {"sqlite": "freeact_sub.sessions.sqlite:make_sqlite"}
)
