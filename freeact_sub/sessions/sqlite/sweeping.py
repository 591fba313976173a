"""Sweeping: archives old sessions and removes the oldest above the limit, but never one that is open.

An archived session keeps its rows and can be resumed; its variables and the long outputs of its agents in the workspace are
removed. When all sessions exceed the limit in bytes, the oldest are removed. Outputs of agents without a session are removed
when they are as old as a session that is archived, and what a killed program has left of a session after a day.
"""

import logging
import os
import re
import stat
import threading
import time
from collections.abc import Set as AbstractSet
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from freeact_sub.errors import SessionError
from freeact_sub.sessions.records import StoredSession, Swept
from freeact_sub.sessions.store import FILES, FORK_NOTE, PAST, SESSION_ID, VARIABLES, home_of_copy, stats_below
from freeact_sub.system.removal import remove

if TYPE_CHECKING:
    from freeact_sub.sessions.sqlite.store import SqliteStore

DAY_SECONDS: Final = 86_400
LARGE: Final = (VARIABLES, FILES, PAST)
"""Folders that an archived session does not keep."""
STRAY_SECONDS: Final = DAY_SECONDS
"""The least time that outputs of agents without a session stay, because such an agent may still be working elsewhere.
Folders and copies without a session stay as long, because a fork may be about to be made."""
MARK: Final = "swept"
"""A file that was last modified at the last sweep."""
BLOCK_BYTES: Final = 512
"""The unit of `st_blocks`: code writes the outputs, and a file with holes is larger than what it takes."""
OUTPUTS: Final = (".freeact", "outputs")
"""Where in a workspace agents write long outputs and logs, each in a folder by its id."""
AGENT_ID: Final = re.compile(r"agent-[0-9a-f]{8}")

logger = logging.getLogger(__name__)


def is_due(store: "SqliteStore") -> bool:
    """Whether the last sweep was more than a day ago, or there was none."""
    try:
        return time.time() - (store.folder / MARK).stat().st_mtime > DAY_SECONDS
    except OSError:
        return True


def sweep(
    store: "SqliteStore",
    workspace: Path,
    *,
    archive_after_days: float | None,
    max_bytes: int | None,
    stop: threading.Event,
) -> Swept:
    """Sweeps all sessions: see `SessionStore.sweep`."""
    swept, sessions = Swept(), store.sessions()[::-1]
    before = 0.0 if archive_after_days is None else time.time() - archive_after_days * DAY_SECONDS
    for session in sessions:
        old = session.updated < before
        if old and not session.archived and not stop.is_set() and _archive(store, session):
            swept.archived.append(session.session_id)
    agents = store.agents()
    known, long_ago = {agent_id for ids in agents.values() for agent_id in ids}, min(before, time.time() - STRAY_SECONDS)
    for each in {workspace, *(session.workspace for session in sessions)}:
        _remove_strays(each, known, long_ago, stop)
    _remove_copies(store, time.time() - STRAY_SECONDS)
    store.drop_remains(time.time() - STRAY_SECONDS, stop)
    sizes = {session.session_id: _size(store, session, agents.get(session.session_id, [])) for session in sessions}
    total = sum(sizes.values()) + store.database_bytes
    for session in sessions:
        if max_bytes is None or total <= max_bytes or stop.is_set():
            break
        size = store.database_bytes
        if _remove(store, session):
            swept.removed.append(session.session_id)
            total -= sizes[session.session_id] + size - store.database_bytes
    if store.folder.is_dir():
        (store.folder / MARK).touch(mode=0o600)
    return swept


def remove_session(store: "SqliteStore", session_id: str) -> None:
    """Removes a session, with the long outputs of its agents. Raises: see `SessionStore.remove`."""
    session = store.find(session_id)
    agents = _agents(store, session)
    store.drop(session.session_id)
    _remove_outputs(session.workspace, agents)
    home = home_of_copy(store, session.workspace)
    if home is not None and (home / FORK_NOTE).is_file() and not _is_used(store, home, _real_workspaces(store)):
        remove(str(home))


def _archive(store: "SqliteStore", session: StoredSession) -> bool:
    try:
        _check_unused(store, session)
        agents = _agents(store, session)
        store.archive(session.session_id, LARGE)
        _remove_outputs(session.workspace, agents)
    except SessionError as error:  # it may be open
        logger.info("not archived: %s", error)
        return False
    return True


def _remove(store: "SqliteStore", session: StoredSession) -> bool:
    try:
        _check_unused(store, session)
        remove_session(store, session.session_id)
    except SessionError as error:
        logger.info("not removed: %s", error)
        return False
    return True


def _check_unused(store: "SqliteStore", session: StoredSession) -> None:
    """Raises SessionError if it was used, or removed, since the sweep began."""
    if store.find(session.session_id).updated != session.updated:
        raise SessionError(f"the session {session.session_id} has been used since")


def _size(store: "SqliteStore", session: StoredSession, agents: list[str]) -> int:
    """The bytes of a session on disk, with the long outputs of its agents."""
    size, folder = store.size_bytes(session.session_id), _outputs(session.workspace)
    for agent_id in filter(AGENT_ID.fullmatch, agents if folder is not None else ()):
        size += sum(min(found.st_size, found.st_blocks * BLOCK_BYTES) for found in stats_below(f"{folder}/{agent_id}"))
    return size


def _agents(store: "SqliteStore", session: StoredSession) -> list[str]:
    """The agents whose outputs are removed with the session: those that no other session, such as a fork, has too."""
    agents = store.agents()
    others = {other.session_id for other in store.sessions() if not other.archived} - {session.session_id}
    kept = {agent_id for other in others for agent_id in agents.get(other, ())}
    return [each for each in agents.get(session.session_id, ()) if AGENT_ID.fullmatch(each) and each not in kept]


def _remove_outputs(workspace: Path, agents: list[str]) -> None:
    """Removes the outputs of agents."""
    folder = _outputs(workspace)
    for agent_id in agents if folder is not None else ():
        remove(f"{folder}/{agent_id}")


def _remove_strays(workspace: Path, known: AbstractSet[str], before: float, stop: threading.Event) -> None:
    """Removes the outputs of agents without a session that were last written before a time."""
    folder = _outputs(workspace)
    for path in folder.iterdir() if folder is not None else ():
        if AGENT_ID.fullmatch(path.name) and path.name not in known and not stop.is_set():
            with suppress(FileNotFoundError):  # another program removes it
                written = [path.lstat().st_mtime, *(found.st_mtime for found in stats_below(str(path)))]
                if max(written) < before:
                    remove(str(path))


def _is_used(store: "SqliteStore", home: Path, workspaces: AbstractSet[Path]) -> bool:
    """Whether a session works in the folder of a copy, anywhere below it, or in the folder of all copies.

    One that works further above, as in the user's home, keeps no copy: it would keep all of them for ever.
    """
    copies, home = _real(store.copies), _real(home)
    return any(each == copies or each.is_relative_to(home) for each in workspaces)


def _real_workspaces(store: "SqliteStore") -> set[Path]:
    return {_real(workspace) for workspace in store.workspaces()}


def _real(path: Path) -> Path:
    return Path(os.path.realpath(path))  # `resolve` raises for links in a circle


def _remove_copies(store: "SqliteStore", before: float) -> None:
    """Removes the copies of workspaces in which no session works. Args: before: those that were made before this time."""
    workspaces = _real_workspaces(store)
    with suppress(FileNotFoundError):
        for path in store.copies.iterdir():
            is_old = SESSION_ID.fullmatch(path.name) and path.lstat().st_mtime < before
            if is_old and not _is_used(store, path, workspaces):
                remove(str(path))


def _outputs(workspace: Path) -> Path | None:
    """The folder of agents' outputs. None: there is none, or a link, which code may have made, leads to it."""
    folder = workspace
    for name in OUTPUTS:
        folder /= name
        try:
            if not stat.S_ISDIR(folder.lstat().st_mode):
                return None
        except OSError:
            return None
    return folder
