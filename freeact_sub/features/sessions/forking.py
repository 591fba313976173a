"""`fork_session`: a new session that begins at a prompt of another one, in its own copy of the workspace.

The copy is made first, then the session, with one commit. So a program that is killed on the way leaves no session, and a
copy that the next sweep removes. Nothing is written to the original session or its workspace.
"""

import asyncio
import contextlib
import json
import os
import shutil
import stat
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from freeact_sub.cells import CELL_TOOL
from freeact_sub.config.schema import Config, own_folders
from freeact_sub.errors import KernelSnapshotError, SessionError
from freeact_sub.features.sessions.variables import prompts_of, use_variables_before
from freeact_sub.kernels.files.layer import Copying, CopyLimitError
from freeact_sub.kernels.files.places import opened_workspace
from freeact_sub.kernels.files.states import LEFT_OUT, ShadowError, ShadowFiles, workspace_mark
from freeact_sub.kernels.snapshots import MANIFEST, move_workspace
from freeact_sub.sessions import (
    FILES,
    FORK_NOTE,
    PAST,
    VARIABLES,
    ForkPoint,
    SessionReader,
    SessionStore,
    StoredRun,
    StoredSession,
    home_of_copy,
    new_session_id,
    session_store,
)
from freeact_sub.system.closing import carry_out
from freeact_sub.system.removal import remove
from freeact_sub.system.safe_files import link_or_copy, target_in_copy
from freeact_sub.text import counted

MAX_FILES: Final = 100_000
MAX_BYTES: Final = 4 * 2**30
"""Size limit of a copy of a workspace; blocks that the file system shares count nothing."""
LINKED: Final = (".venv", "venv", "node_modules")
"""Folders of packages, to which the copy has a link."""
NOT_COPIED: Final = frozenset(LEFT_OUT) - {*LINKED, ".freeact"}
SECONDS: Final = 600.0
UNDO_WAS_OFF: Final = "no state was stored before the next prompt"
NEWS: Final = (
    "[This conversation was forked after prompt {at}. Your workspace is {new} from now on, a copy of {old} as it was then: "
    "where the conversation names a path in {old}, use the same path in {new}.{missing}]"
)


@dataclass(frozen=True, kw_only=True)
class SessionFork:
    """A session that `fork_session` has made."""

    session_id: str
    """The new session, which `Agent.resume` continues."""
    at: int
    """The prompt of the original after which the fork begins."""
    workspace: Path
    """The fork's copy of the workspace, removed with the session."""
    next_prompt: str
    """The text of the prompt that followed in the original. Empty: there was none."""
    missing: str
    """A sentence on differences from the state at that time. Empty: there are none."""


async def fork_session(
    session_id: str, at: int | None = None, *, store: SessionStore | None = None, is_mine: bool = False
) -> SessionFork:
    """Make a new session that begins at a prompt of another one: conversation, variables and files.

    It works in its own copy of the workspace, which is in the state folder of the user. The original stays as it is.

    Args:
        session_id: The original, by its id or an unambiguous beginning of it.
        at: The number of the prompt, as `sessions show` counts them: 1 is the first one; 0: before it. The state is that in
            which the next prompt was asked. -1: before the last one, as `/rewind 1` is, and so on. None: the last one.
        store: The store of the original. None: that of the default settings.
        is_mine: An agent of this program has the session open, and does not work.

    Raises:
        SessionError: There is no such session or prompt, the session is open, or it or its workspace cannot be copied.
    """
    store = store or session_store()
    making = await asyncio.to_thread(_Fork, store, session_id, at)
    given_up = threading.Event()
    work = asyncio.create_task(making.make(given_up, is_mine=is_mine), name=f"forks {session_id}")
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        given_up.set()
        work.cancel()
        await asyncio.wait({work}, timeout=SECONDS)
        raise


def session_to_resume(
    session_id: str, config: Config | None, at: int | None, store: SessionStore | None = None
) -> tuple[Config, str]:
    """Return the settings and the session for `Agent.resume`. Blocks; with `at`, another thread makes the fork."""
    store = store or session_store(None if config is None else config.sessions)
    if at is not None:
        with ThreadPoolExecutor(1) as thread:  # an event loop may run in this one
            session_id = thread.submit(lambda: asyncio.run(fork_session(session_id, at, store=store))).result().session_id
    stored = store.find(session_id)
    return config or Config(workspace=stored.workspace), stored.session_id


class _Fork:
    """One fork. Making it blocks: it reads the session."""

    def __init__(self, store: SessionStore, session_id: str, at: int | None) -> None:
        self._store, self._stored = store, store.find(session_id)
        with store.reader(self._stored.session_id) as reader:
            self._root_id, self._at, self._next = _place(reader, self._stored, at)
            calls = reader.calls(self._root_id) if self._next is not None else []
            runs = reader.runs(self._root_id)
            self._last = self._next.root_run - 1 if self._next is not None else runs[-1].root_run if runs else 0
            """The last run of the root in the fork."""
            until = 0 if self._next is None else self._next.number
            since = float("inf") if self._next is None else self._next.root_run
            self._changed = {run.agent_id for run in reader.runs() if run.root_run >= since} - {self._root_id}
            """Children that have worked since: their variables of that time are not kept."""
        self._had_cells = any(call.name == CELL_TOOL and call.run < until for call in calls)
        self.session_id = new_session_id()
        self._home = store.copies / self.session_id
        self._workspace = self._home / (self._stored.workspace.name or "workspace")
        self._originals = (self._stored.workspace, *originals_of(store, self._stored))
        self._missing: list[str] = []

    async def make(self, given_up: threading.Event, *, is_mine: bool) -> SessionFork:
        try:
            await self._in_thread(lambda: copy_workspace(self._originals, self._workspace, given_up))
            await self._restore_files()
            await self._in_thread(lambda: self._store.fork(self._stored.session_id, is_mine=is_mine, point=self._point()))
        except BaseException:
            await self._in_thread(self._remove)
            raise
        prompt = "" if self._next is None else self._next.prompt
        return SessionFork(
            session_id=self.session_id,
            at=self._at,
            workspace=self._workspace,
            next_prompt=prompt,
            missing=self._sentence,
        )

    async def _in_thread(self, work: Callable[[], Any]) -> None:
        await carry_out(asyncio.to_thread(work), timeout_seconds=SECONDS)

    def _remove(self) -> None:
        with contextlib.suppress(SessionError):  # it is not there yet
            self._store.remove(self.session_id)
        remove(str(self._home))

    @property
    def _sentence(self) -> str:
        return f"Not as after prompt {self._at}: {'; '.join(self._missing)}." if self._missing else ""

    def _point(self) -> ForkPoint:
        following = self._next
        return ForkPoint(
            new_id=self.session_id,
            workspace=self._workspace,
            last=None if following is None else self._last,
            head=None if following is None else following.head,
            states=(f"{workspace_mark(self._stored.workspace)}:", f"{workspace_mark(self._workspace)}:"),
            prepare=self._prepare,
        )

    async def _restore_files(self) -> None:
        if self._next is None:
            return
        mark, _, state = (self._next.files or "").partition(":")
        kept, git = self._store.folder_of(self._stored.session_id) / FILES, self._home / "git"
        problem = ""
        if not state:
            problem = UNDO_WAS_OFF
        elif mark != workspace_mark(self._stored.workspace):
            problem = "they were in another workspace then"
        elif not kept.is_dir():
            problem = "their states were removed"
        if problem:
            self._missing.append(f"the files are those of now ({problem})")
            return
        try:
            await self._in_thread(lambda: shutil.copytree(kept, git, symlinks=True, copy_function=link_or_copy))
            files = ShadowFiles(self._workspace, git, originals=self._originals)
            try:
                _, failed = await files.restore(await files.record(), f"{workspace_mark(self._workspace)}:{state}")
            finally:
                await files.aclose()
        except (ShadowError, OSError, shutil.Error) as error:
            self._missing.append(f"the files are those of now ({error})")
        else:
            if failed:
                self._missing.append(f"these files could not be written: {', '.join(failed[:10])}")
        finally:
            await self._in_thread(lambda: remove(str(git)))

    def _prepare(self, folder: Path) -> None:
        """Restore the variables in the new session's folder. Raises: OSError."""
        if self._next is not None:
            is_kept = use_variables_before(folder, self._root_id, self._next.number)
            if not is_kept and self._had_cells:
                self._missing.append("there are no variables (those of then are not kept)")
        for agent_id in self._changed:
            remove(str(folder / VARIABLES / agent_id))
        for snapshot in (*folder.glob(f"{VARIABLES}/*/"), *folder.glob(f"{PAST}/*/*/")):
            if not (snapshot / MANIFEST).exists():
                continue
            try:
                move_workspace(snapshot, self._stored.workspace, self._workspace)
            except (KernelSnapshotError, OSError):
                remove(str(snapshot))  # it would lead its kernel into the original
        missing = f" {self._sentence}" if self._missing else ""
        news = NEWS.format(at=self._at, new=self._workspace, old=self._stored.workspace, missing=missing)
        originals = [str(each) for each in self._originals]
        note = {"last": [self._root_id, self._last], "news": news, "missing": self._sentence, "originals": originals}
        (self._home / FORK_NOTE).write_text(json.dumps(note), encoding="utf-8")


def _place(reader: SessionReader, stored: StoredSession, at: int | None) -> tuple[str, int, StoredRun | None]:
    """Return the root, the number of the prompt, and the next one."""
    root = next((agent for agent in reader.agents() if agent.parent_id is None), None)
    if root is None:
        raise SessionError(f"the session {stored.session_id} has no prompt yet: ask something in it first")
    prompts = prompts_of(reader, root.agent_id)
    place = len(prompts) if at is None else at + len(prompts) if at < 0 else at
    if not 0 <= place <= len(prompts):
        raise SessionError(
            f"the session {stored.session_id} has {counted(len(prompts), 'prompt')}, so a fork cannot begin after {at}"
            ": give the number of one of them, 0 for before the first, or -1 for before the last"
        )
    return root.agent_id, place, prompts[place] if place < len(prompts) else None


def fork_note(store: SessionStore, stored: StoredSession, last: tuple[str | None, int]) -> Mapping[str, Any]:
    """Return notes for people and the model about a fork: `news`, `missing`. Empty: it is none, or has gone on since.

    Args:
        store: The store of the session.
        stored: The session.
        last: Its root and the root's last run: another session may have begun in the same copy.

    Raises:
        SessionError: The copy of the workspace is gone.
    """
    if not works_in_copy(store, stored):
        return {}
    if not stored.workspace.is_dir():
        raise SessionError(
            f"the session {stored.session_id} worked in {stored.workspace}, which is gone: bring that folder back first"
        )
    note = _note(store, stored)
    return note if note.get("last") == [*last] else {}


def missing_in(store: SessionStore, session_id: str) -> str:
    """Return a sentence on differences of a fork from the past. Empty: there are none. Reads files."""
    return str(_note(store, store.find(session_id)).get("missing", ""))


def originals_of(store: SessionStore, stored: StoredSession) -> tuple[Path, ...]:
    """Return the original of a session's workspace, if that is a copy, and the originals of that. Reads files."""
    return tuple(map(Path, _note(store, stored).get("originals", ())))


def _note(store: SessionStore, stored: StoredSession) -> dict[str, Any]:
    home = home_of_copy(store, stored.workspace)
    if home is None:
        return {}
    try:
        note: dict[str, Any] = json.loads((home / FORK_NOTE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return note


def works_in_copy(store: SessionStore, stored: StoredSession) -> bool:
    """Whether a session works in its own copy of a workspace."""
    return home_of_copy(store, stored.workspace) is not None


class _WorkspaceCopying(Copying):
    """Copying of a workspace: without caches and our own folders, with links to folders of packages."""

    def __init__(self, originals: Sequence[Path], target: Path, given_up: threading.Event) -> None:
        super().__init__(MAX_FILES, MAX_BYTES)
        self._originals, self._target, self._given_up = originals, target, given_up
        self._own = {(found.st_dev, found.st_ino) for found in _stats(own_folders())}
        self._path: list[str] = []

    def entry(self, source: int, target: int, name: str, depth: int) -> None:
        """Copy an entry of a folder. Folders of installed packages become links; our own folders are left out."""
        if self._given_up.is_set():
            raise CopyLimitError("it was cancelled")
        if name in NOT_COPIED:
            return
        found = os.stat(name, dir_fd=source, follow_symlinks=False)
        if stat.S_ISDIR(found.st_mode) and (found.st_dev, found.st_ino) in self._own:
            return
        self._path.append(name)
        try:
            if name in LINKED and (stat.S_ISDIR(found.st_mode) or stat.S_ISLNK(found.st_mode)):
                packages = self._originals[0].joinpath(*self._path)
                os.symlink(os.path.realpath(packages), name, dir_fd=target)  # in a copy they are a link themselves
            else:
                super().entry(source, target, name, depth)
        finally:
            self._path.pop()

    def link_target(self, target: str) -> str:
        """Return the target of a symbolic link in the copy. Args: target: where the link leads."""
        return target_in_copy(target, self._originals, self._target)


def _stats(folders: tuple[Path, ...]) -> Iterator[os.stat_result]:
    for folder in folders:
        with contextlib.suppress(OSError):
            yield folder.stat()


def copy_workspace(originals: Sequence[Path], target: Path, given_up: threading.Event) -> None:
    """Copy a workspace into a new folder; links into the workspace lead into the copy.

    Args:
        originals: The workspace, and those of which it is a copy itself.
        target: The new folder.
        given_up: Set to end the work.

    Raises:
        SessionError: It is too large, or cannot be read or written.
    """
    workspace = originals[0]
    try:
        target.parent.mkdir(mode=0o700, parents=True)
        target.mkdir()
        with opened_workspace(workspace) as source, opened_workspace(target) as copy:
            _WorkspaceCopying(originals, target, given_up).folder(source, copy)
    except (OSError, CopyLimitError) as error:
        raise SessionError(f"the workspace {workspace} cannot be copied for a fork: {error}") from error
