"""The files of a snapshot, on their way from a kernel's private folder into the host's folder, and back.

Code of a model may have written what is in a kernel's folder, and may change it at any moment. So the host never follows a
link there, keeps regular files alone that have one name, and reads nothing of them but the manifest, whose form it checks
and which it writes anew. It never unpickles.
"""

import contextlib
import errno
import os
import re
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field

from freeact_sub.errors import KernelSnapshotError
from freeact_sub.kernels.snapshots.report import LostVariable, Variable
from freeact_sub.system.safe_files import opened_folder

MANIFEST: Final = "manifest.json"
MAX_MANIFEST_BYTES: Final = 32 * 2**20
MAX_RESULT_BYTES: Final = 32 * 2**20
FILE_NAME: Final = re.compile(r"[0-9a-f]{32}")
COPY_BYTES: Final = 4 * 2**20
READ_ONLY: Final = 0o400
"""Kernels get a second name of a file of ours, and must not change it."""

Name = Annotated[str, Field(max_length=1000)]
Text = Annotated[str, Field(max_length=2000)]
Digest = Annotated[str, Field(pattern=rf"^{FILE_NAME.pattern}$")]
Size = Annotated[int, Field(ge=0, le=2**50)]


class _Written(BaseModel):
    """A part of what a kernel writes."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Group(_Written):
    """Variables that share objects, and where they are in a file."""

    names: dict[Name, Text]
    """The variables, with one line for each."""
    file: Digest
    data: tuple[Size, Size] = Field(strict=False)
    blocks: list[Annotated[tuple[Size, Size], Field(strict=False)]]


class Lost(_Written):
    """See `LostVariable`."""

    name: Name
    type: Text
    reason: Text
    cell: int | None


class Manifest(_Written):
    """The manifest of `guest/saved/write.py`."""

    format: int
    python: Name
    files: dict[Digest, Size]
    groups: list[Group]
    lost: list[Lost]
    modules: dict[Name, Name]
    submodules: list[Name]
    path: list[Annotated[str, Field(max_length=10_000)]]
    folder: Annotated[str, Field(max_length=10_000)] | None
    sources: dict[Name, str]

    @property
    def kept(self) -> tuple[Variable, ...]:
        """The variables in it."""
        modules = [Variable(name=name, line=f"{name}: module {module}") for name, module in self.modules.items()]
        return (*modules, *(Variable(name=name, line=line) for group in self.groups for name, line in group.names.items()))

    @property
    def not_kept(self) -> tuple[LostVariable, ...]:
        """The variables that are not in it."""
        return tuple(LostVariable(**lost.model_dump()) for lost in self.lost)


class Result(_Written):
    """The report of `guest/saved/read.py`."""

    restored: dict[Name, Text]
    lost: dict[Name, Text]


def known_files(store: Path) -> list[str]:
    """The names of the files in a folder of ours."""
    with contextlib.suppress(FileNotFoundError):
        return [name for name in os.listdir(store) if FILE_NAME.fullmatch(name)]  # noqa: PTH208  # names are enough
    return []


def take(source: Path, store: Path, max_bytes: int, given_up: threading.Event) -> tuple[Manifest, int]:
    """Moves a snapshot from a kernel's folder into a folder of ours, in place of the one there.

    Until the manifest is replaced, the old one with its files is whole; files that no manifest names go afterwards.

    Args:
        source: The folder in which the kernel has written.
        store: A folder of ours, of this agent alone; it is made if need be.
        max_bytes: More is refused.
        given_up: Once it is set, the work ends at the next piece.

    Returns:
        The manifest, and how many bytes were not there before.

    Raises:
        KernelSnapshotError: It is not what a kernel writes.
        ValidationError: Its manifest is none.
        OSError: There is no room, or the folder is gone.
    """
    store.mkdir(mode=0o700, parents=True, exist_ok=True)
    with opened_folder(source) as here, opened_folder(store) as there:
        try:
            manifest = Manifest.model_validate_json(_content(here, MANIFEST, MAX_MANIFEST_BYTES))
        except FileNotFoundError as error:
            raise KernelSnapshotError(
                "what saves the variables has ended before its time: perhaps memory is short"
            ) from error
        if {group.file for group in manifest.groups} - manifest.files.keys() or sum(manifest.files.values()) > max_bytes:
            raise KernelSnapshotError("the kernel has written a manifest that does not fit its files")
        known, written = set(known_files(store)), 0
        for name, size in manifest.files.items():
            if name not in known:
                _move(name, size, here, there, given_up)
                written += size
        _write_manifest(there, manifest)
        for name in known - manifest.files.keys():
            os.unlink(name, dir_fd=there)
    return manifest, written


def place(store: Path, target: Path, given_up: threading.Event) -> Manifest:
    """Puts a snapshot into a kernel's folder: second names of our files, or copies where that cannot be.

    Args:
        store: The folder of ours.
        target: An empty folder in the kernel's.
        given_up: See `take`.

    Raises:
        KernelSnapshotError: There is no snapshot, or it cannot be read.
        OSError: There is no room.
    """
    with opened_folder(target) as there:
        try:
            with opened_folder(store) as here:
                content = _content(here, MANIFEST, MAX_MANIFEST_BYTES)
                manifest = Manifest.model_validate_json(content)
                for name in manifest.files:
                    with contextlib.suppress(FileNotFoundError):  # its variables are named as lost then
                        _link(name, here, there, given_up)
        except FileNotFoundError as error:
            raise KernelSnapshotError(f"no variables are saved in {store}") from error
        handle = os.open(MANIFEST, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=there)
        with os.fdopen(handle, "wb") as file:
            file.write(content)
    return manifest


def result(folder: Path, name: str) -> Result:
    """Read a kernel's report on a restore.

    Raises:
        KernelSnapshotError: It is not what a kernel writes.
    """
    with opened_folder(folder) as here:
        return Result.model_validate_json(_content(here, name, MAX_RESULT_BYTES))


def new_folder(scratch: Path, name: str) -> Path:
    """Makes a folder in a kernel's scratch folder, which is made too if it is not there.

    Raises:
        OSError: There is something of this name, or the scratch folder is not one.
    """
    with contextlib.suppress(FileExistsError):
        scratch.mkdir(mode=0o700)
    with opened_folder(scratch) as here:
        os.mkdir(name, 0o700, dir_fd=here)  # pathlib knows no folder's descriptor
    return scratch / name


def _content(folder: int, name: str, max_bytes: int) -> bytes:
    with _regular(folder, name) as handle:
        size = os.fstat(handle).st_size
        if size > max_bytes:
            raise KernelSnapshotError(f"{name} of a snapshot is larger than {max_bytes:,} bytes")
        with open(handle, "rb", closefd=False) as file:
            return file.read(max_bytes)


def _move(name: str, size: int, here: int, there: int, given_up: threading.Event) -> None:
    try:
        os.rename(name, name, src_dir_fd=here, dst_dir_fd=there)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        _copy(name, size, here, there, given_up)
        return
    try:
        with _regular(there, name) as handle:
            facts = os.fstat(handle)
            _check(facts.st_nlink == 1 and facts.st_size == size)
            os.fchmod(handle, READ_ONLY)
    except BaseException:
        os.unlink(name, dir_fd=there)
        raise


def _copy(name: str, size: int, here: int, there: int, given_up: threading.Event) -> None:
    """Copies a file under another name first, so that it is whole or not there."""
    part = f"{name}.part"
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    with _regular(here, name) as source:
        target = os.open(part, flags, 0o600, dir_fd=there)
        try:
            done = 0
            while data := os.read(source, COPY_BYTES):
                done += len(data)
                _check(done <= size and not given_up.is_set())
                _write_all(target, data)
            _check(done == size)
            os.fchmod(target, READ_ONLY)
            os.rename(part, name, src_dir_fd=there, dst_dir_fd=there)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(part, dir_fd=there)
            raise
        finally:
            os.close(target)


def _check(is_right: bool) -> None:
    if not is_right:
        raise KernelSnapshotError("a file of the snapshot is not what its manifest says, or nobody waits for it any more")


def _link(name: str, here: int, there: int, given_up: threading.Event) -> None:
    try:
        os.link(name, name, src_dir_fd=here, dst_dir_fd=there, follow_symlinks=False)
    except FileNotFoundError:
        raise
    except OSError:  # another file system, or one without links
        with _regular(here, name) as handle:
            size = os.fstat(handle).st_size
        _copy(name, size, here, there, given_up)


def _write_manifest(folder: int, manifest: Manifest) -> None:
    new = f"{MANIFEST}.new"
    handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=folder)
    try:
        _write_all(handle, manifest.model_dump_json().encode())
    finally:
        os.close(handle)
    os.rename(new, MANIFEST, src_dir_fd=folder, dst_dir_fd=folder)


def _write_all(handle: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(handle, view) :]


@contextmanager
def _regular(folder: int, name: str) -> Iterator[int]:
    """Opens a regular file to read it; never waits for a pipe."""
    handle = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise KernelSnapshotError("the kernel has put something else in place of a file of its snapshot")
        yield handle
    finally:
        os.close(handle)
