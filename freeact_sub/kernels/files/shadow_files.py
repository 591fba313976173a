"""`ShadowFiles`: earlier states of a workspace's files, stored by git (`git.py`), written back by us (`stage.py`).

What has changed of a file between two states is a unified diff for people, or numbers of lines.
"""

import asyncio
import contextlib
import difflib
import hashlib
import os
import stat
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from freeact_sub.kernels.files import FileChange, Stage, is_content
from freeact_sub.kernels.files.git import ShadowError, ShadowRepository, TooLargeError
from freeact_sub.system.private_folders import make_folder, remove_soon
from freeact_sub.system.safe_files import target_in_copy
from freeact_sub.text import lines_to_compare, whole_line

MAX_FILE_BYTES: Final = 200_000
MAX_FILE_LINES: Final = 5_000
"""`difflib` takes time with the square of the lines."""


@dataclass(frozen=True, kw_only=True)
class ChangedFile:
    """A file in both states."""

    path: str
    before: bytes | None
    """None: there was none."""
    after: bytes | None
    """None: there is none."""
    is_large: bool = False
    """It was not read."""


def unified(file: ChangedFile) -> str:
    """Return the diff of one file; a sentence where it is not text, or too large."""
    old = "/dev/null" if file.before is None else whole_line(f"a/{file.path}")
    new = "/dev/null" if file.after is None else whole_line(f"b/{file.path}")
    before, after = file.before or b"", file.after or b""
    head = f"--- {old}\n+++ {new}\n"
    old_lines, new_lines = _lines(before, after)
    if file.is_large or max(len(old_lines), len(new_lines)) > MAX_FILE_LINES:
        return f"{head}(too large to be compared here)\n"
    if b"\0" in before + after:
        return f"{head}(no text: {len(before):,} bytes before, {len(after):,} now)\n"
    lines = difflib.unified_diff(old_lines, new_lines, old, new, lineterm="")
    return "".join(f"{whole_line(line)}\n" for line in lines) or f"{head}(empty, or only the mode has changed)\n"


def line_counts(file: ChangedFile) -> tuple[int, int] | None:
    """Return the numbers of added and removed lines. None: the file is not text, or is too large."""
    before, after = file.before or b"", file.after or b""
    old_lines, new_lines = _lines(before, after)
    if file.is_large or b"\0" in before + after or max(len(old_lines), len(new_lines)) > MAX_FILE_LINES:
        return None
    parts = difflib.SequenceMatcher(None, old_lines, new_lines).get_opcodes()
    changed = [(new_end - new, old_end - old) for kind, old, old_end, new, new_end in parts if kind != "equal"]
    return sum(came for came, _ in changed), sum(went for _, went in changed)


def _lines(before: bytes, after: bytes) -> tuple[list[str], list[str]]:
    return lines_to_compare(before.decode(errors="replace"), after.decode(errors="replace"))


RECORD_SECONDS: Final = 15.0
"""How long a prompt waits."""
READ_SECONDS: Final = 180.0
CLOSE_SECONDS: Final = 5.0
RESTORE_SECONDS: Final = 120.0


class ShadowFiles:
    """States of a workspace's files."""

    def __init__(self, workspace: Path, folder: Path | None = None, *, originals: Sequence[Path] = ()) -> None:
        """Look after the states of a workspace.

        Args:
            workspace: The workspace.
            folder: Keeps them beyond this program. None: they go with it, or are swept by a later start.
            originals: The folders of which the workspace is a copy: earlier states have links into them.
        """
        self._workspace, self._originals = workspace, originals
        self._mark = workspace_mark(workspace)
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
        return await self._opened.changes(*self._trees(before, after))

    def _trees(self, *states: str) -> list[str]:
        trees = [tree for mark, _, tree in (state.partition(":") for state in states) if mark == self._mark]
        if len(trees) < len(states):  # one of them is of elsewhere
            raise ShadowError("the kept files belong to another workspace")
        return trees

    async def _restore(self, changes: list[FileChange]) -> tuple[list[str], list[str]]:
        ignores = [
            change
            for change in changes
            if Path(change.path).name == ".gitignore" and is_content(change.mode or change.before)
        ]
        if not ignores:
            return await self._apply(changes)
        first, _ = await self._apply(ignores)  # what they name now may have been there before
        stay = await self._opened.ignored([change.path for change in changes if not change.mode])
        rest = [change for change in changes if change.path not in first and change.path not in stay]
        done, failed = await self._apply(rest)
        return [*first, *done], failed

    async def _apply(self, changes: list[FileChange]) -> tuple[list[str], list[str]]:
        stage = Stage(self._workspace)
        try:
            await asyncio.to_thread(stage.__enter__)
            failed = await self._staged(stage, changes)
            rest = [change for change in changes if change.path not in failed]
            failed |= await asyncio.to_thread(stage.take_over, rest, whole=False)
        finally:
            await asyncio.to_thread(stage.__exit__)
        done = [change.path for change in changes if change.path not in failed and not change.is_implied]
        return done, [change.path for change in changes if change.path in failed]

    async def _staged(self, stage: Stage, changes: list[FileChange]) -> set[str]:
        """Makes what is new; returns what could not be made."""
        failed = set()
        written = [change for change in changes if change.blob and change.mode]
        async with contextlib.aclosing(self._opened.contents([change.blob for change in written])) as contents:
            for change in written:
                content = await anext(contents)
                if not await asyncio.to_thread(self._made, stage, change, content):
                    failed.add(change.path)
        for change in changes:
            if stat.S_ISFIFO(change.mode) and change.is_other_kind:
                stage.new_pipe(change.path, change.mode)
        return failed

    def _made(self, stage: Stage, change: FileChange, content: bytes) -> bool:
        try:
            if stat.S_ISLNK(change.mode):
                stage.new_link(change.path, target_in_copy(os.fsdecode(content), self._originals, self._workspace))
            else:
                with stage.new_file(change.path, change.mode) as number, os.fdopen(number, "wb", closefd=False) as file:
                    file.write(content)
        except (OSError, ValueError):
            return False
        return True

    async def changed_paths(self, before: str, now: str) -> list[str]:
        """Return which files have changed from one moment to another, without their contents. Args: see `record`.

        Raises:
            ShadowError: It cannot be read.
        """
        async with _in_time("the files were not compared"):
            return [change.path for change in await self._changes(before, now) if not change.is_implied]

    async def changed(self, before: str, now: str) -> list[ChangedFile]:
        """Return what has changed from one moment to another. Args: see `record`.

        Raises:
            ShadowError: It cannot be read.
        """
        async with _in_time("the files were not compared"):
            changes = await self._changes(before, now)
            new = {change.path: change.blob for change in changes if is_content(change.mode)}
            old = {change.path: change.old_blob for change in changes if is_content(change.before)}
            blobs = [*dict.fromkeys(blob for blob in (*old.values(), *new.values()) if blob)]
            sizes = dict(zip(blobs, await self._opened.sizes(blobs), strict=True))
            small = [blob for blob in blobs if sizes[blob] <= MAX_FILE_BYTES]
            async with contextlib.aclosing(self._opened.contents(small)) as contents:
                texts = {blob: await anext(contents) for blob in small}
        return [
            ChangedFile(
                path=path,
                before=texts.get(old[path], b"") if path in old else None,
                after=texts.get(new[path], b"") if path in new else None,
                is_large=any(blob not in texts for blob in (old.get(path), new.get(path)) if blob),
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


def workspace_mark(workspace: Path) -> str:
    """What stands before each state of a workspace's files: a session may go on in another one."""
    return hashlib.sha256(os.fsencode(workspace)).hexdigest()[:16]


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
