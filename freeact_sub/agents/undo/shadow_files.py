"""`ShadowFiles`: earlier states of a workspace's files, stored by git (`git.py`), written back by us.

An agent's code may be changing the workspace meanwhile. So a file is reached folder by folder without following links, and a
link at the end is replaced.
"""

import asyncio
import contextlib
import hashlib
import os
import secrets
import stat
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from freeact_sub.agents.undo.differences import MAX_FILE_BYTES, ChangedFile
from freeact_sub.agents.undo.git import FileChange, ShadowError, ShadowRepository, TooLargeError
from freeact_sub.system.private_folders import make_folder, remove_soon

RECORD_SECONDS: Final = 15.0
"""How long a prompt waits."""
READ_SECONDS: Final = 180.0
CLOSE_SECONDS: Final = 5.0
RESTORE_SECONDS: Final = 120.0
LINK: Final = "120000"
EXECUTABLE: Final = "100755"
FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class ShadowFiles:
    """States of a workspace's files."""

    def __init__(self, workspace: Path, folder: Path | None = None) -> None:
        """Args: folder: keeps them beyond this program. None: they go with it, or are swept by a later start."""
        self._workspace = workspace
        self._mark = hashlib.sha256(os.fsencode(workspace)).hexdigest()[:16]
        """Stands before each state: a session may go on in another workspace."""
        self._kept = folder
        self._folder: Path | None = None
        self._repository: ShadowRepository | None = None
        self._too_large: TooLargeError | None = None
        self._recording: asyncio.Task[str] | None = None

    def begin(self) -> asyncio.Task[str]:
        """Stores the files in the background: the first time git reads all of them."""
        self._recording = asyncio.create_task(self._record(), name="files of the workspace")
        return self._recording

    async def record(self) -> str:
        """Stores the files as they are now, and returns a state for `restore`.

        Raises:
            ShadowError: They cannot be stored, or git still reads them.
        """
        try:
            async with asyncio.timeout(RECORD_SECONDS):
                if self._recording is not None:  # of an earlier moment
                    await asyncio.wait({self._recording})
                return await asyncio.shield(self.begin())
        except TimeoutError as error:
            raise ShadowError(f"git still reads the workspace after {RECORD_SECONDS:g} s") from error

    async def _record(self) -> str:
        if self._too_large is not None:
            raise self._too_large  # another attempt would cost each prompt as much
        try:
            if self._repository is None:
                shadow = self._kept
                if shadow is None:
                    self._folder = make_folder()
                    shadow = self._folder / "git"
                shadow.mkdir(mode=0o700, parents=True, exist_ok=True)
                self._repository = ShadowRepository(shadow, self._workspace)
            async with asyncio.timeout(READ_SECONDS):
                return f"{self._mark}:{await self._opened.record()}"
        except TooLargeError as error:
            self._too_large = error
            raise
        except TimeoutError as error:
            self._too_large = TooLargeError(f"git has not read the workspace within {READ_SECONDS:g} s")
            raise self._too_large from error
        except OSError as error:
            raise ShadowError(f"the files cannot be kept: {error}") from error

    async def restore(self, now: str, before: str) -> tuple[list[str], list[str]]:
        """Restores the files to an earlier state.

        Args:
            now: The present state, just recorded.
            before: The state to restore.

        Returns:
            The paths that were changed, and those that could not be.

        Raises:
            ShadowError: Not everything was restored in time.
        """
        async with _in_time("the files were not all brought back"):
            return await self._restore(await self._changes(now, before))

    async def _changes(self, before: str, after: str) -> list[FileChange]:
        trees = [tree for mark, _, tree in (state.partition(":") for state in (before, after)) if mark == self._mark]
        if len(trees) < 2:  # one of them is of elsewhere
            raise ShadowError("the kept files belong to another workspace")
        return await self._opened.changes(*trees)

    async def _restore(self, changes: list[FileChange]) -> tuple[list[str], list[str]]:
        ignores = [change for change in changes if Path(change.path).name == ".gitignore"]
        if not ignores:
            return await self._apply(changes)
        first, _ = await self._apply(ignores)  # what they name now may have been there before
        stay = await self._opened.ignored()
        rest = [change for change in changes if change.path not in first and (change.mode or change.path not in stay)]
        done, failed = await self._apply(rest)
        return [*first, *done], failed

    async def _apply(self, changes: list[FileChange]) -> tuple[list[str], list[str]]:
        done: list[str] = []
        failed: list[str] = []
        for change in changes:
            if not change.mode:
                (done if await asyncio.to_thread(_removed, self._workspace, change.path) else failed).append(change.path)
        written = [change for change in changes if change.mode]
        async with contextlib.aclosing(self._opened.contents([change.blob for change in written])) as contents:
            for change in written:
                content = await anext(contents)
                was_put = await asyncio.to_thread(_was_put, self._workspace, change, content)
                (done if was_put else failed).append(change.path)
        return done, failed

    async def changed_paths(self, before: str, now: str) -> list[str]:
        """Return which files have changed from one moment to another, without their contents. Args: see `record`.

        Raises:
            ShadowError: It cannot be read.
        """
        async with _in_time("the files were not compared"):
            return [change.path for change in await self._changes(before, now)]

    async def changed(self, before: str, now: str) -> list[ChangedFile]:
        """Return what has changed from one moment to another. Args: see `record`.

        Raises:
            ShadowError: It cannot be read.
        """
        async with _in_time("the files were not compared"):
            new = {change.path: change.blob for change in await self._changes(before, now) if change.mode}
            old = {change.path: change.blob for change in await self._changes(now, before) if change.mode}
            blobs = [*dict.fromkeys([*old.values(), *new.values()])]
            sizes = dict(zip(blobs, await self._opened.sizes(blobs), strict=True))
            small = [blob for blob in blobs if sizes[blob] <= MAX_FILE_BYTES]
            async with contextlib.aclosing(self._opened.contents(small)) as contents:
                texts = {blob: await anext(contents) for blob in small}
        return [
            ChangedFile(
                path=path,
                before=texts.get(old[path], b"") if path in old else None,
                after=texts.get(new[path], b"") if path in new else None,
                is_large=any(blob not in texts for blob in (old.get(path), new.get(path)) if blob is not None),
            )
            for path in sorted(old.keys() | new.keys())
        ]

    async def aclose(self) -> None:
        """Removes all states that are not to be kept."""
        if self._recording is not None:
            self._recording.cancel()
            done, _ = await asyncio.wait({self._recording}, timeout=CLOSE_SECONDS)
            for recording in done:
                recording.cancelled() or recording.exception()  # whoever waited for it has it, or is gone
        folder, self._folder, self._repository = self._folder, None, None
        if folder is not None:
            remove_soon(folder)

    @property
    def _opened(self) -> ShadowRepository:
        if self._repository is None:
            raise ShadowError("no files are kept")
        return self._repository


@contextlib.asynccontextmanager
async def _in_time(problem: str) -> AsyncIterator[None]:
    """Bound the work inside. Raises: ShadowError: It took too long, or failed; the message begins with the problem."""
    try:
        async with asyncio.timeout(RESTORE_SECONDS):
            yield
    except TimeoutError as error:
        raise ShadowError(f"{problem} within {RESTORE_SECONDS:g} s") from error
    except (OSError, EOFError, ValueError) as error:  # git died, or its output is malformed
        raise ShadowError(f"{problem}: {error}") from error


def _was_put(root: Path, change: FileChange, content: bytes) -> bool:
    """Writes a file or a link; returns whether it worked."""
    *folders, name = Path(change.path).parts
    try:
        with _folder(root, folders, make=True) as at:
            new = f".{name[:100]}.{secrets.token_hex(4)}"
            try:
                if change.mode == LINK:
                    os.symlink(content, os.fsencode(new), dir_fd=at)
                else:
                    _write(at, name, new, content, executable=change.mode == EXECUTABLE)
                os.rename(new, name, src_dir_fd=at, dst_dir_fd=at)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(new, dir_fd=at)
                raise
    except (OSError, ValueError):
        return False
    return True


def _write(at: int, name: str, new: str, content: bytes, *, executable: bool) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(new, flags, 0o777 if executable else 0o666, dir_fd=at), "wb") as file:
        file.write(content)
        with contextlib.suppress(OSError):  # an existing file keeps its mode
            mode = os.stat(name, dir_fd=at, follow_symlinks=False).st_mode
            if stat.S_ISREG(mode) and bool(mode & stat.S_IXUSR) == executable:
                os.fchmod(file.fileno(), stat.S_IMODE(mode) & 0o777)


def _removed(root: Path, path: str) -> bool:
    """Removes a file and the folders that become empty; returns whether it is gone."""
    *folders, name = Path(path).parts
    try:
        with _folder(root, folders, make=False) as at:
            os.unlink(name, dir_fd=at)
    except FileNotFoundError:
        return True
    except (OSError, ValueError):
        return False
    while folders:
        name = folders.pop()
        try:
            with _folder(root, folders, make=False) as at:
                os.rmdir(name, dir_fd=at)
        except OSError:
            break
    return True


@contextmanager
def _folder(root: Path, folders: list[str], *, make: bool) -> Iterator[int]:
    """Opens a folder below the workspace without following a link."""
    at = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for name in folders:
            if make:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(name, dir_fd=at)
            inner = os.open(name, FOLDER, dir_fd=at)
            os.close(at)
            at = inner
        yield at
    finally:
        os.close(at)
