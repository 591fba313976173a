"""Prompts of a session's root, and the kept variables before each of them.

A session has one snapshot of the root's variables, the present one. Before each prompt that can be undone the snapshot gets
a second name here: values that have not changed since the prompt before are not stored twice.
"""

import os
import shutil
from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from freeact_sub.events import AgentStarted
from freeact_sub.sessions import PAST, VARIABLES, SessionReader, StoredRun, stats_below
from freeact_sub.system.removal import remove
from freeact_sub.system.safe_files import link_or_copy

SAVED_UP_TO: Final = "saved-up-to"
"""The suffix of a snapshot's mark: the end of the last cell in it."""
MAX_STATES: Final = 50
MAX_BYTES: Final = 2 * 2**30
"""Size limit of all files that only these states still name."""


def path_of_mark(folder: Path, agent_id: str) -> Path:
    """Return the mark of an agent's snapshot. Args: folder: with the variables of all agents."""
    return folder / f"{agent_id}.{SAVED_UP_TO}"


def keep_variables(folder: Path, agent_id: str, run: int) -> None:
    """Keep an agent's saved variables as they are now; without a second name for their files, nothing is kept.

    Args:
        folder: The folder of the session's variables.
        agent_id: The root.
        run: The number of its run that is about to begin.
    """
    past = folder.parent / PAST
    part = past / f"{run}.part"
    with suppress(OSError):  # no room, or the sweep has removed the folder: a fork says that they are not kept
        remove(str(part))
        part.mkdir(mode=0o700, parents=True)
        copy_snapshot(folder, part, agent_id)
        remove(str(past / str(run)))
        part.rename(past / str(run))
        _thin_out(past, folder)


def copy_snapshot(folder: Path, target: Path, agent_id: str) -> None:
    """Give an agent's snapshot, if there is one, second names in another folder. Raises: OSError."""
    source = folder / agent_id
    if not source.is_dir():
        return
    (target / agent_id).mkdir(mode=0o700, parents=True)
    for path in source.iterdir():
        link_or_copy(path, target / agent_id / path.name)
    with suppress(FileNotFoundError):  # it is overwritten in place
        shutil.copy2(path_of_mark(folder, agent_id), path_of_mark(target, agent_id))


def use_variables_before(folder: Path, agent_id: str, run: int) -> bool:
    """Restore the variables before a run of the root. Return whether they were kept; if not, there are none now.

    Args:
        folder: The session's folder.
        agent_id: The root.
        run: The number of its run.
    """
    variables, kept = folder / VARIABLES, folder / PAST / str(run)
    remove(str(variables / agent_id))
    path_of_mark(variables, agent_id).unlink(missing_ok=True)
    is_kept = kept.is_dir()
    if is_kept:
        copy_snapshot(kept, variables, agent_id)
    for path in _states(folder / PAST):
        if int(path.name) > run:
            remove(str(path))
    return is_kept


def remove_oldest(folder: Path, max_bytes: int, spared: Collection[str]) -> None:
    """Remove the oldest snapshots of children, until all of them together take no more than this.

    Args:
        folder: The folder of a session's variables.
        max_bytes: Bytes that they may take.
        spared: The root, and children at work.
    """
    found = []
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False) and entry.name not in spared:
                with suppress(FileNotFoundError):  # another child's end removes it
                    size = sum(file.st_size for file in stats_below(entry.path))
                    found.append((entry.stat(follow_symlinks=False).st_mtime, size, entry.path))
    total = sum(size for _, size, _ in found)
    for _, size, path in sorted(found):
        if total <= max_bytes:
            break
        remove(path)
        total -= size


def _thin_out(past: Path, folder: Path) -> None:
    states = _states(past)
    for path in states[:-MAX_STATES]:
        remove(str(path))
    seen = {each.st_ino for each in stats_below(str(folder))}
    used = 0
    for path in reversed(states[-MAX_STATES:]):
        new = {each.st_ino: each.st_size for each in stats_below(str(path)) if each.st_ino not in seen}
        seen.update(new)
        used += sum(new.values())
        if used > MAX_BYTES:
            remove(str(path))


def _states(past: Path) -> list[Path]:
    if not past.is_dir():
        return []
    return sorted((path for path in past.iterdir() if path.name.isdecimal()), key=lambda path: int(path.name))


def prompts_of(reader: SessionReader, agent_id: str) -> list[StoredRun]:
    """Return the prompts of the root that its model has read, in order: the first one is prompt 1.

    Undone prompts, commands of a person (`!`), summaries and programs do not count.
    """
    runs = reader.runs(agent_id)
    started = [event for event in reader.events(agent_id) if isinstance(event, AgentStarted)]
    if len(started) == len(runs):
        return [run for run, event in zip(runs, started, strict=True) if event.model and not run.undone]
    return _that_moved(runs, reader.chain(agent_id))  # a crash has taken an event


def _that_moved(runs: Sequence[StoredRun], chain: Sequence[int]) -> list[StoredRun]:
    present = [run for run in runs if not run.undone]
    after = [*(run.head for run in present[1:]), chain[-1] if chain else None]
    return [run for run, head in zip(present, after, strict=True) if run.files is not None or run.head != head]
