"""`ShadowFiles`: earlier states of a workspace's files, stored by git, written back by us (`stage.py`).

Git knows of a mode only whether a file is executable, and knows no empty folders, FIFOs and sockets. So beside git's tree
each state has a table that maps each path to the mode that the system gives it, kind and permission bits in one number.

`ShadowRepository` runs git in a private folder. It does not touch the user's repository and obeys nothing in the workspace
except `.gitignore`: git runs with our environment and settings only, and only reads files. It converts nothing
(`info/attributes`), starts nothing and runs no hooks. The changes of a file between two states are a unified diff for
people, or numbers of lines.
"""

import asyncio
import contextlib
import difflib
import hashlib
import json
import os
import re
import shutil
import signal
import stat
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from freeact_sub.errors import FreeactError
from freeact_sub.kernels.files.stage import ROOT, FileChange, Stage, folders_above, is_content
from freeact_sub.system.private_folders import make_folder, remove_soon
from freeact_sub.system.process import state_folder
from freeact_sub.system.removal import remove
from freeact_sub.system.safe_files import target_in_copy
from freeact_sub.text import lines_to_compare, whole_line

SETTINGS: Final = {
    "core.hooksPath": os.devnull,
    "core.fsmonitor": "false",
    "core.untrackedCache": "false",
    "core.autocrlf": "false",
    "core.safecrlf": "false",
    "core.fileMode": "true",
    "core.symlinks": "true",
    "core.compression": "1",
    "core.bigFileThreshold": "1m",
    "advice.addEmbeddedRepo": "false",
    "gc.auto": "0",
    "maintenance.auto": "false",
    "diff.ignoreSubmodules": "all",
}
ATTRIBUTES: Final = b"* -text -eol -ident -filter -working-tree-encoding -diff -merge -export-subst\n"
LEFT_OUT: Final = (".freeact", "__pycache__", "node_modules", ".venv", "venv", ".ipynb_checkpoints")
MAX_FILES: Final = 100_000
MAX_BYTES: Final = 2**30
"""Size limit of all new and changed files."""
MAX_LIST_BYTES: Final = 16 * 2**20
MAX_KEPT_BYTES: Final = 2 * 2**30
"""Size limit of all states; above it the earlier ones are forgotten."""
ONE_PACK: Final = ("-c", "core.bigFileThreshold=1")
"""Options with which git writes one file, not one for each; later changes are small."""
SUBMODULE: Final = "160000"
READ_BYTES: Final = 2**16


class ShadowError(FreeactError):
    """A failure to store or restore the files of the workspace; the message names the reason."""


class TooLargeError(ShadowError):
    """A workspace with too many files or bytes to be stored; it is not examined again."""


class ShadowRepository:
    """Trees of files with the tables of their modes, by the git ids of both."""

    def __init__(self, folder: Path, workspace: Path) -> None:
        """Args: folder: a private folder, empty or of an earlier program."""
        self._folder = folder
        self._workspace = workspace
        self._git: str | None = None
        self._tree: str | None = None
        """The tree of the files as git knows them."""
        self._table = (b"", "")

    async def record(self) -> str:
        """Store the files as they are now, and return the ids of their tree and of the table of their modes.

        Raises:
            ShadowError: Git is missing, or there are too many files.
        """
        if self._git is None:
            await self._open()
        with contextlib.suppress(FileNotFoundError):
            (self._folder / "index.lock").unlink()  # left by a killed git
        if await self._has_changed() or self._tree is None:
            await self._forget_too_much()
            how = () if (self._folder / "index").exists() else ONE_PACK
            code, _ = await self._ended(*how, "add", "--all", "--ignore-errors")
            if code == 1:
                await self._mark_left_out()
            elif code:
                raise ShadowError(f"git add failed with exit code {code}")
            self._tree = None
        entries = await self._entries()
        if self._tree is None:
            self._tree = (await self._run("write-tree")).decode().strip()
        table = json.dumps(entries, sort_keys=True).encode()
        if table != self._table[0]:
            self._table = (table, (await self._run("hash-object", "-w", "--stdin", given=table)).decode().strip())
        return f"{self._tree}:{self._table[1]}"

    async def _entries(self) -> dict[str, int]:
        """Return the modes of all entries that are not ignored. Entries that are no longer files leave git's index."""
        root = str(self._workspace)
        listed = (await self._run("ls-files", "-z", "--cached", "--stage")).split(b"\0")[:-1]
        tracked = {
            os.fsdecode(name): facts[:6].decode() == SUBMODULE
            for facts, _, name in (each.partition(b"\t") for each in listed)
        }
        entries, unknown = await asyncio.to_thread(known, root, tracked, LEFT_OUT)
        replaced = [path for path, mode in entries.items() if path in tracked and not is_content(mode)]
        if replaced:
            names = b"".join(os.fsencode(path) + b"\0" for path in replaced)
            await self._run("update-index", "-z", "--force-remove", "--stdin", given=names)
            self._tree = None
        while unknown:
            ignored = await self.ignored(unknown)
            found, unknown = await asyncio.to_thread(found_in, root, [path for path in unknown if path not in ignored])
            entries |= found
            if len(entries) > 2 * MAX_FILES:
                raise TooLargeError(f"there are more than {2 * MAX_FILES:,} files and folders in the workspace")
        return entries

    async def changes(self, before: str, after: str) -> list[FileChange]:
        """Return the changes from the first state to the second."""
        (old_tree, _, old_table), (new_tree, _, new_table) = before.partition(":"), after.partition(":")
        for each in (old_tree, old_table, new_tree, new_table):
            if not await self._has(each):
                raise ShadowError("no earlier states of the files are kept")
        raw = await self._run("diff-tree", "-r", "-z", "--no-renames", "--raw", old_tree, new_tree)
        old, new = [json.loads(await self._run("cat-file", "blob", table)) for table in (old_table, new_table)]
        fields = raw.split(b"\0")
        facts = [each.decode().lstrip(":").split() for each in fields[:-1:2]]
        diff = dict(zip(map(os.fsdecode, fields[1::2]), facts, strict=True))
        repositories = {path for path, (old_mode, mode, *_) in diff.items() if SUBMODULE in (old_mode, mode)}
        return differences_of_entries(old, new, diff, repositories)

    async def ignored(self, paths: Sequence[str]) -> set[str]:
        """Return the paths that the present `.gitignore` excludes."""
        names = b"".join(os.fsencode(path) + b"\0" for path in paths)
        code, named = await self._ended("check-ignore", "-z", "--no-index", "--stdin", given=names)
        if code not in (0, 1):
            raise ShadowError(f"git check-ignore failed with exit code {code}")
        return set(map(os.fsdecode, named.split(b"\0")[:-1]))

    async def contents(self, blobs: Sequence[str]) -> AsyncGenerator[bytes, None]:
        """Yield the contents of files, in this order."""
        async with self._answers("--batch") as (reader, writer):
            for blob in blobs:
                writer.write(f"{blob}\n".encode())
                header = await reader.readline()
                try:
                    size = int(header.split()[2])
                except (IndexError, ValueError) as error:
                    raise ShadowError("git has lost the content of a file") from error
                yield await reader.readexactly(size)
                await reader.readexactly(1)

    async def sizes(self, blobs: Sequence[str]) -> list[int]:
        """Return the sizes of files in bytes, in this order."""
        sizes = []
        async with self._answers("--batch-check=%(objectsize)") as (reader, writer):
            for blob in blobs:
                writer.write(f"{blob}\n".encode())
                sizes.append(int(await reader.readline()))
        return sizes

    @contextlib.asynccontextmanager
    async def _answers(self, how: str) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        """Yield streams from and to a git that answers each name of a blob. Args: how: option of `git cat-file`."""
        async with self._started("cat-file", how) as process:
            if process.stdout is None or process.stdin is None:
                raise ShadowError("git has no standard streams")
            yield process.stdout, process.stdin

    async def _open(self) -> None:
        self._table = (b"", "")
        self._git = git_outside(self._workspace)
        info = self._folder / "info"
        is_new = not (info / "exclude").exists()
        try:
            if is_new:
                await self._run("init", "--quiet", "--template=")
                info.mkdir(exist_ok=True)
            left_out = b"".join(b"%s\n" % name for name in self._left_out())
            for name, content in (("attributes", ATTRIBUTES), ("exclude", left_out)):
                (info / name).unlink(missing_ok=True)  # a fork of the session has the same file
                (info / name).write_bytes(content)
        except BaseException:
            self._git = None
            if is_new:
                remove(str(self._folder))  # locks of a killed git would stop the next one
                self._folder.mkdir(mode=0o700)
            raise

    def _left_out(self) -> Iterator[bytes]:
        yield from map(str.encode, LEFT_OUT)
        if state_folder().is_relative_to(self._workspace):
            name = os.fsencode(state_folder().relative_to(self._workspace))
            yield b"/" + re.sub(rb"([\\*?\[ ])", rb"\\\1", name)

    async def _has(self, tree: str) -> bool:
        code, _ = await self._ended("cat-file", "-e", tree)
        return code == 0

    async def _forget_too_much(self) -> None:
        """Begin anew if the states take too much space."""
        counted = dict(line.split(": ") for line in (await self._run("count-objects", "-v")).decode().splitlines())
        if (int(counted["size"]) + int(counted["size-pack"])) * 1024 > MAX_KEPT_BYTES:
            await asyncio.to_thread(remove, str(self._folder))
            self._folder.mkdir(mode=0o700)
            await self._open()

    async def _has_changed(self) -> bool:
        """Return whether files have changed since git read them. It looks at each, but reads none.

        Raises:
            TooLargeError: They are too many, or too large.
        """
        async with self._started("ls-files", "-z", "--modified", "--others", "--exclude-standard") as process:
            listed = b""
            while process.stdout is not None and (piece := await process.stdout.read(READ_BYTES)):
                listed += piece
                if len(listed) > MAX_LIST_BYTES:
                    raise TooLargeError(f"there are more than {MAX_FILES:,} files in the workspace")
            if await process.wait():
                (self._folder / "index").unlink(missing_ok=True)  # if it is damaged, the next record makes it anew
                raise ShadowError("git cannot read its own index of the files")
        names = listed.split(b"\0")[:-1]
        if len(names) > MAX_FILES:
            raise TooLargeError(f"there are {len(names):,} files in the workspace, more than {MAX_FILES:,}")
        size = await asyncio.to_thread(_size_of, os.fsencode(self._workspace), names)
        if size > MAX_BYTES:
            raise TooLargeError(f"the workspace has {size:,} bytes of files, more than {MAX_BYTES:,}")
        return bool(names)

    async def _mark_left_out(self) -> None:
        """Mark entries that git could not store, such as unreadable files, like repositories: undo leaves them."""
        names = (await self._run("ls-files", "-z", "--others", "--exclude-standard")).split(b"\0")[:-1]
        marks = b"".join(b"%s %s\t%s\0" % (SUBMODULE.encode(), b"1" * 40, name.rstrip(b"/")) for name in names)
        await self._run("update-index", "-z", "--index-info", given=marks)

    async def _run(self, *arguments: str, given: bytes = b"") -> bytes:
        """Run git to its end, and return its output. Args: given: its input."""
        code, output = await self._ended(*arguments, given=given)
        if code:
            raise ShadowError(f"git {arguments[0]} failed with exit code {code}")
        return output

    async def _ended(self, *arguments: str, given: bytes = b"") -> tuple[int | None, bytes]:
        async with self._started(*arguments) as process:
            output, _ = await process.communicate(given)
        return process.returncode, output

    @contextlib.asynccontextmanager
    async def _started(self, *arguments: str) -> AsyncIterator[asyncio.subprocess.Process]:
        settings = [word for name, value in SETTINGS.items() for word in ("-c", f"{name}={value}")]
        process = await asyncio.create_subprocess_exec(
            self._git or "git",
            *settings,
            *arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            cwd=self._workspace,
            env=self._environment(),
            start_new_session=True,
        )
        try:
            yield process
        finally:
            if process.stdin is not None:
                process.stdin.close()
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
            while process.stdout is not None and await process.stdout.read(READ_BYTES):
                pass  # unread output would keep asyncio from noticing the end
            await process.wait()

    def _environment(self) -> Mapping[str, str]:
        return {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": str(self._folder),
            "LC_ALL": "C",
            "GIT_DIR": str(self._folder),
            "GIT_WORK_TREE": str(self._workspace),
            "GIT_INDEX_FILE": str(self._folder / "index"),
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_SYSTEM": os.devnull,
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_ATTR_NOSYSTEM": "1",
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_NO_LAZY_FETCH": "1",
            "GIT_OPTIONAL_LOCKS": "0",
        }


def git_outside(workspace: Path) -> str:
    """Return the path of git, which no agent's code can change. Raises: ShadowError: There is none."""
    git = shutil.which("git")
    if git is None:
        raise ShadowError("git is not installed")
    if not os.path.isabs(git) or Path(git).resolve().is_relative_to(workspace):  # `PATH` may hold anything
        raise ShadowError(f"git is {git}, which an agent's code could change")
    return git


def _size_of(root: bytes, names: list[bytes]) -> int:
    size = 0
    for name in names:
        with contextlib.suppress(OSError):  # in the index, but gone
            size += os.lstat(os.path.join(root, name)).st_size  # of each kind of name
    return size


def known(root: str, tracked: Mapping[str, bool], left_out: Collection[str]) -> tuple[dict[str, int], list[str]]:
    """Look at files that git tracks and at the folders above them.

    Args:
        root: The workspace.
        tracked: Paths, and whether each is a repository of its own, which is left alone.
        left_out: Names that are never looked at.

    Returns:
        The modes, and the other folders and special files in these folders.
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
    """Look at folders and special files that git does not track. Return the modes, and the entries of the folders."""
    entries = {path: mode for path in paths if (mode := _mode_of(root, path))}
    folders = [path for path, mode in entries.items() if stat.S_ISDIR(mode)]
    return entries, [path for folder in folders for path in _others(root, folder, ())]


def _mode_of(root: str, path: str) -> int:
    try:
        return os.lstat(os.path.join(root, path)).st_mode  # a path for each file takes long
    except (OSError, ValueError):
        return 0


def _others(root: str, folder: str, left_out: Collection[str]) -> list[str]:
    """Return the folders and special files in a folder. The user's repository is none of them."""
    try:
        with os.scandir(os.path.join(root, folder)) as found:
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
        diff: Git's words on each path: its old and new mode, its old and new blob, a letter.
        repositories: Paths at which one of them has a repository, which is left alone with its content.
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


MAX_FILE_BYTES: Final = 200_000
MAX_FILE_LINES: Final = 5_000
"""Maximum lines of a file to compare: `difflib` takes time with the square of the lines."""


@dataclass(frozen=True, kw_only=True)
class ChangedFile:
    """A file in both states."""

    path: str
    before: bytes | None
    """The first content. None: there was none."""
    after: bytes | None
    """The second content. None: there is none."""
    is_large: bool = False
    """Whether the file was too large to be read."""


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
"""Seconds that a prompt waits."""
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
        """Store the files in the background: the first time git reads all of them."""
        self._recording = asyncio.create_task(self._record(), name="files of the workspace")
        return self._recording

    async def record(self) -> str:
        """Store the files as they are now, and return a state for `restore`.

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
        """Restore the files to an earlier state.

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
        """Make the new entries; return those that could not be made."""
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
        """Return the files that have changed between two states of `record`, without their contents.

        Raises:
            ShadowError: It cannot be read.
        """
        async with _in_time("the files were not compared"):
            return [change.path for change in await self._changes(before, now) if not change.is_implied]

    async def changed(self, before: str, now: str) -> list[ChangedFile]:
        """Return the changes between two states of `record`.

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
        """Remove all states that are not to be kept."""
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
    """Return the prefix of each state of a workspace's files: a session may go on in another one."""
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
