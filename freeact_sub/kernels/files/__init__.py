"""Writes files of a workspace, for undo (an earlier state) and for promotions (a branch's changes).

`stage` makes the planned changes, `journal` puts the workspace back if the program is killed meanwhile. Earlier states of
the files are stored by git (`git`, `shadow_files`), for undo, forks and comparisons.
"""

from freeact_sub.kernels.files.journal import FREEACT, UNDONE, NotUndoneError, recover
from freeact_sub.kernels.files.stage import ROOT, FileChange, Stage, folders_above, is_content

__all__ = [
    "FREEACT",
    "ROOT",
    "UNDONE",
    "FileChange",
    "NotUndoneError",
    "Stage",
    "folders_above",
    "is_content",
    "recover",
]
