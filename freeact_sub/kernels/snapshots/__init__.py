"""Variables of kernels in files: a kernel writes them (`guest/saved/`), the host keeps them, a new kernel reads them."""

from freeact_sub.kernels.snapshots.report import LeftOut, LostVariable, RestoreReport, SnapshotReport, Variable

__all__ = ["LeftOut", "LostVariable", "RestoreReport", "SnapshotReport", "Variable"]
