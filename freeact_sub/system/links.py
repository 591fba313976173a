"""Links in copies: second names of files, for a copy that costs nothing, and where symbolic links lead."""

import os
import shutil
from collections.abc import Iterable
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


def target_in_copy(target: str, originals: Iterable[Path], copy: Path) -> str:
    """Return where a symbolic link leads in the copy of a folder: into the copy, if it names a path in the original.

    Args:
        target: Where it leads in the original. A relative one is the same in the copy.
        originals: The folder, and those of which it is a copy itself.
        copy: The copy.
    """
    if not os.path.isabs(target):  # noqa: PTH117  # of text, here and below: a target may be anything
        return target
    folder, name = os.path.split(target)  # what stands there may be a link itself, which has a copy
    is_name = name not in ("", ".", "..")
    place = os.path.join(os.path.realpath(folder), name) if is_name else os.path.realpath(target)  # noqa: PTH118
    if f"{place}/".startswith(f"{os.path.realpath(copy)}/"):  # the copy may be somewhere in the original
        return target
    for original in map(os.path.realpath, originals):
        if original in (place, os.path.realpath(target)):
            return str(copy)
        if place.startswith(f"{original}/"):
            return f"{copy}{place[len(original) :]}"
    return target
