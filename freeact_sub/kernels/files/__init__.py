"""The files of a workspace: their earlier states, a branch's own copy of them, and how either is written into the workspace.

`stage` makes planned changes, and puts the workspace back if the program is killed meanwhile. The changes are those between
two states that git stores (`states`, for undo, forks and comparisons), or those of a branch's copy (`own_files`; `layer`
makes an overlay). `places` reaches single entries.
"""

from freeact_sub.kernels.files.own_files import Changes, OwnFiles, lay_over, promote
from freeact_sub.kernels.files.stage import (
    FREEACT,
    ROOT,
    UNDONE,
    FileChange,
    NotUndoneError,
    Stage,
    folders_above,
    is_content,
    recover,
)

__all__ = [
    "FREEACT",
    "ROOT",
    "UNDONE",
    "Changes",
    "FileChange",
    "NotUndoneError",
    "OwnFiles",
    "Stage",
    "folders_above",
    "is_content",
    "lay_over",
    "promote",
    "recover",
]
