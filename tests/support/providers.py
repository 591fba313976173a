"""A package with kernel providers or session stores, as pip leaves it."""

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from freeact_sub.config.entry_points import KERNEL_PROVIDERS

MODULE = """
from freeact_sub.testing import FakeKernelProvider

made = []

def make(settings, *, on_notice=None):
    made.append((settings, on_notice))
    return FakeKernelProvider()
"""
ELSEWHERE = "elsewhere = other_kernels:make"


@contextmanager
def installed(site: Path, *entries: str, group: str = KERNEL_PROVIDERS.name, module: str = MODULE) -> Iterator[None]:
    """Install it into a new folder for the time of a test; entries: of its `entry_points.txt`."""
    info = site / "other_kernels-1.0.dist-info"
    info.mkdir(parents=True)
    (site / "other_kernels.py").write_text(module)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: other-kernels\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("\n".join([f"[{group}]", *entries, ""]))
    sys.path.insert(0, str(site))
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.path.remove(str(site))
        sys.modules.pop("other_kernels", None)
        importlib.invalidate_caches()
