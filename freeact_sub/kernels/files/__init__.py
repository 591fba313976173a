"""Writes files of a workspace, for undo (an earlier state) and for promotions (a branch's changes).

`change` says what is to be made, `stage` makes it, `journal` puts the workspace back if the program is killed meanwhile.
"""

from freeact_sub.kernels.files.change import ROOT, FileChange, folders_above, is_content
from freeact_sub.kernels.files.journal import FREEACT, UNDONE, NotUndoneError, recover
from freeact_sub.kernels.files.stage import Stage

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
