"""Variables of kernels in files: what a kernel writes of them (`guest/saved/`), the host keeps, and a new kernel reads."""

from freeact_sub.kernels.snapshots.report import LeftOut, LostVariable, RestoreReport, SnapshotReport, Variable

__all__ = ["LeftOut", "LostVariable", "RestoreReport", "SnapshotReport", "Variable"]
