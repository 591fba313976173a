"""A package with kernel providers, as pip leaves it."""

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from freeact_sub.config.kernel_providers import GROUP

MODULE = """
from freeact_sub.testing import FakeKernelProvider

made = []

def make(settings, *, on_notice=None):
    made.append((settings, on_notice))
    return FakeKernelProvider()
"""
ELSEWHERE = "elsewhere = other_kernels:make"


@contextmanager
def installed(site: Path, *entries: str) -> Iterator[None]:
    """Install it into a new folder for the time of a test; entries: of its `entry_points.txt`."""
    info = site / "other_kernels-1.0.dist-info"
    info.mkdir(parents=True)
    (site / "other_kernels.py").write_text(MODULE)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: other-kernels\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("\n".join([f"[{GROUP}]", *entries, ""]))
    sys.path.insert(0, str(site))
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.path.remove(str(site))
        sys.modules.pop("other_kernels", None)
        importlib.invalidate_caches()
