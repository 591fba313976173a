"""Files of a workspace are written in one way: undo takes over an earlier state, and a promotion what a branch has changed.

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
