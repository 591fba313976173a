"""The entries of a workspace with their modes. Git itself stores only files, links and the executable bit.

A table maps each path to the mode that the system gives it, kind and permission bits in one number.
"""

import os
import stat
from collections.abc import Collection, Iterable, Mapping, Sequence

from freeact_sub.kernels.files import ROOT, FileChange, folders_above, is_content


def known(root: str, tracked: Mapping[str, bool], left_out: Collection[str]) -> tuple[dict[str, int], list[str]]:
    """Look at files that git tracks and at the folders above them.

    Args:
        root: The workspace.
        tracked: Paths, and whether each is a repository of its own, which is left alone.
        left_out: Names of what is never looked at.

    Returns:
        The modes, and the other folders and special files that stand in these folders.
    """
    entries = {path: mode for path, inner in tracked.items() if not inner and (mode := _mode_of(root, path))}
    folders = {ROOT} | {above for path in tracked for above in folders_above(path)}
    entries |= {path: mode for path in folders if (mode := _mode_of(root, path))}
    unknown = []
    for folder in folders:
        if stat.S_ISDIR(entries.get(folder, 0)):
            unknown += [path for path in _others(root, folder, left_out) if path not in entries and path not in tracked]
    return entries, unknown


def found_in(root: str, paths: Iterable[str]) -> tuple[dict[str, int], list[str]]:
    """Look at folders and special files that git does not track. Return the modes, and what stands in the folders."""
    entries = {path: mode for path in paths if (mode := _mode_of(root, path))}
    folders = [path for path, mode in entries.items() if stat.S_ISDIR(mode)]
    return entries, [path for folder in folders for path in _others(root, folder, ())]


def _mode_of(root: str, path: str) -> int:
    try:
        return os.lstat(os.path.join(root, path)).st_mode  # noqa: PTH118  # a path for each file takes long
    except (OSError, ValueError):
        return 0


def _others(root: str, folder: str, left_out: Collection[str]) -> list[str]:
    """Return the folders and special files in a folder. The user's repository is none of them."""
    try:
        with os.scandir(os.path.join(root, folder)) as found:  # noqa: PTH118
            names = [
                entry.name
                for entry in found
                if entry.name != ".git"
                and entry.name not in left_out
                and not (entry.is_file(follow_symlinks=False) or entry.is_symlink())
            ]
    except OSError:
        return []
    return names if folder == ROOT else [f"{folder}/{name}" for name in names]


def differences_of_entries(
    old: Mapping[str, int], new: Mapping[str, int], diff: Mapping[str, Sequence[str]], repositories: Collection[str]
) -> list[FileChange]:
    """Compare two states.

    Args:
        old: The table of the first one.
        new: That of the second one.
        diff: What git says of each path: its old and new mode, its old and new blob, a letter.
        repositories: Paths at which one of them has a repository, which is left alone with what is in it.
    """
    holding = {
        above
        for table in (old, new)
        for path, mode in table.items()
        if not stat.S_ISDIR(mode)
        for above in folders_above(path)
    }
    inner = tuple(f"{path}/" for path in repositories)
    changes = []
    for path in sorted(old.keys() | new.keys() | diff.keys()):
        if path in repositories or path.startswith(inner):
            continue
        before, after = old.get(path, 0), new.get(path, 0)
        old_blob = blob = ""
        if path in diff:
            git_before, git_after, old_blob, blob, _ = diff[path]
            before, after = _agreed(before, git_before), _agreed(after, git_after)
            if old_blob == blob and stat.S_IFMT(before) == stat.S_IFMT(after):
                old_blob = blob = ""
            old_blob, blob = old_blob if is_content(before) else "", blob if is_content(after) else ""
        elif before == after or (0 in (before, after) and is_content(before or after)):
            continue  # whether there is a file, git says
        changes.append(
            FileChange(
                path=path,
                before=before,
                mode=after,
                old_blob=old_blob,
                blob=blob,
                is_implied=path in holding and stat.S_ISDIR(before or after) and 0 in (before, after),
            )
        )
    return changes


def _agreed(mode: int, of_git: str) -> int:
    """Return the mode of an entry. A file that disappeared before its mode was known is restored for its owner only."""
    stored = int(of_git, 8)
    if not stored or stat.S_IFMT(stored) == stat.S_IFMT(mode):
        return 0 if not stored and is_content(mode) else mode
    return stored & ~0o077
