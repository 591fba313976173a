"""`FileChange`: the planned change of one entry of a workspace."""

import stat
from dataclasses import dataclass
from typing import Final

ROOT: Final = "."
"""The path of the workspace itself."""


@dataclass(frozen=True, kw_only=True)
class FileChange:
    """One difference between two states: an entry to make, to change or to remove."""

    path: str
    """Relative to the workspace."""
    before: int
    """Kind and permission bits in the first state. 0: there was nothing."""
    mode: int
    """Kind and permission bits in the second state. 0: there is nothing."""
    old_blob: str = ""
    blob: str = ""
    """The new content of a file, or the target of a link, as git names it. Empty: the content stays, or is not git's."""
    is_implied: bool = False
    """A folder that comes or goes with what is in it."""

    @property
    def is_other_kind(self) -> bool:
        """Whether the entry comes, goes, or becomes another kind."""
        return stat.S_IFMT(self.before) != stat.S_IFMT(self.mode)


def is_content(mode: int) -> bool:
    """Whether it is a file or a link: git stores these alone."""
    return stat.S_ISREG(mode) or stat.S_ISLNK(mode)


def folders_above(path: str) -> list[str]:
    """The folders above a path, the outermost first, without the workspace."""
    parts = path.split("/")[:-1]
    return ["/".join(parts[:count]) for count in range(1, len(parts) + 1)]
