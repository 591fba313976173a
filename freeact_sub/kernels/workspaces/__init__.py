"""A workspace of a branch's own: a copy on write of its agent's, what has changed in it, and how that is taken over."""

from freeact_sub.kernels.files import UNDONE, recover
from freeact_sub.kernels.workspaces.changes import Changes
from freeact_sub.kernels.workspaces.own_files import OwnFiles, lay_over
from freeact_sub.kernels.workspaces.promotion import promote

__all__ = ["UNDONE", "Changes", "OwnFiles", "lay_over", "promote", "recover"]
