"""Second names of files, for a copy that costs nothing."""

import os
import shutil
from pathlib import Path


def link_or_copy(source: str | Path, target: str | Path) -> None:
    """Give a file, which is only ever replaced, a second name; copy it where that cannot be. One that is gone is left out.

    Raises:
        OSError: It can be neither linked nor copied.
    """
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError:  # another file system, or too many links
        if os.path.lexists(source):  # else whoever has it at work, such as git, has removed it
            shutil.copy2(source, target, follow_symlinks=False)
