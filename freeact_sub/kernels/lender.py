"""A finder of modules in the folders of another Python, by name. Runs in the kernels' Python; standard library only.

They come last: modules that a Python has itself, or gets later, come before them.
"""

import json
import re
import sys
from collections.abc import Iterator, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from typing import Any


class Lender:
    """A finder of modules and of packages' facts, as `sys.meta_path` has them."""

    def __init__(self, folders: list[str], modules: list[str], packages: list[str]) -> None:
        self.folders, self.modules, self.packages = folders, frozenset(modules), frozenset(packages)

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: Any = None) -> ModuleSpec | None:
        """Finds a module that is lent. Modules in a lent package are found by the package's own path."""
        if path is None and name in self.modules:
            return PathFinder.find_spec(name, self.folders, target)
        return None

    def find_distributions(self, context: Any = None) -> Iterator[Any]:
        """Yields the facts of packages that are lent."""
        from importlib.metadata import DistributionFinder, MetadataPathFinder  # noqa: PLC0415  # loaded if need be

        wanted = getattr(context, "name", None)
        for name in self.packages if wanted is None else self.packages & {re.sub(r"[-_.]+", "-", wanted).lower()}:
            named = DistributionFinder.Context(name=name, path=self.folders)
            yield from MetadataPathFinder.find_distributions(named)


def install(wire: str) -> None:
    """Makes this Python find the modules that it is lent. Args: wire: see `Lent.wire`."""
    sys.meta_path.append(Lender(**json.loads(wire)))
