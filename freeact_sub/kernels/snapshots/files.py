"""The files of a snapshot, on their way from a kernel's private folder into the host's folder, and back.

Code of a model may have written what is in a kernel's folder, and may change it at any moment. So the host never follows a
link there, keeps regular files alone that have one name, and reads nothing of them but the manifest, whose form it checks
and which it writes anew. It never unpickles.
"""

import contextlib
import errno
import json
import os
import re
import stat
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from freeact_sub.errors import KernelSnapshotError
from freeact_sub.kernels.snapshots.modules import Modules
from freeact_sub.kernels.snapshots.report import LostVariable, Variable
from freeact_sub.kernels.snapshots.rights import Rights, more_than
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
    imported: Modules

    @property
    def kept(self) -> tuple[Variable, ...]:
        """The variables in it."""
        modules = [Variable(name=name, line=f"{name}: module {module}") for name, module in self.modules.items()]
        return (*modules, *(Variable(name=name, line=line) for group in self.groups for name, line in group.names.items()))

    @property
    def not_kept(self) -> tuple[LostVariable, ...]:
        """The variables that are not in it."""
        return tuple(LostVariable(**lost.model_dump()) for lost in self.lost)


class SavedPart(BaseModel):
    """The files that one kernel has written."""

    rights: Rights
    """The kernel's."""
    written: Manifest

    def more(self, rights: Rights) -> str:
        """Return the rights that this kernel did not have. Empty: there are none.

        A module is code of the kernel that has changed it last, which may have had a wall. Behind one it does not matter.
        """
        return more_than(rights, self.rights) or ("" if rights.walled else self.written.imported.changed())

    def without(self, names: Collection[str]) -> Self:
        """The part without these variables, and without the files of which nothing is left."""
        written = self.written
        groups = [
            group.model_copy(update={"names": left})
            for group in written.groups
            if (left := {name: line for name, line in group.names.items() if name not in names})
        ]
        files = {group.file: written.files[group.file] for group in groups}
        modules = {name: module for name, module in written.modules.items() if name not in names}
        changed = {"groups": groups, "files": files, "modules": modules, "lost": []}
        return self.model_copy(update={"written": written.model_copy(update=changed)})


class Stored(BaseModel):
    """The manifest of a folder of ours."""

    parts: list[SavedPart] = Field(min_length=1)
    """The newest is the last. Of each variable there is one."""

    @property
    def files(self) -> dict[str, int]:
        """The files that it names."""
        return {name: size for part in self.parts for name, size in part.written.files.items()}


@dataclass(frozen=True)
class Store:
    """A folder of ours, of one agent alone, as a snapshot is to be put into it."""

    folder: Path
    """It is made if need be."""
    rights: Rights
    """Those of the kernel."""
    keep: Collection[str] = ()
    """Variables in the folder that stay, as long as the kernel has none of these names."""
    max_bytes: int = 2**50
    """More is refused."""


class Result(_Written):
    """The report of `guest/saved/read.py`."""

    restored: dict[Name, Text]
    lost: dict[Name, Text]


def saved_names(store: Path) -> list[str]:
    """The names of the variables in a folder of ours. Empty: there are none, or its manifest cannot be read."""
    try:
        stored = Stored.model_validate_json((store / MANIFEST).read_bytes())
    except (OSError, ValueError):
        return []
    return [variable.name for part in stored.parts for variable in part.written.kept]


def known_files(store: Path) -> list[str]:
    """The names of the files in a folder of ours."""
    with contextlib.suppress(FileNotFoundError):
        return [name for name in os.listdir(store) if FILE_NAME.fullmatch(name)]  # noqa: PTH208  # names are enough
    return []


def take(source: Path, store: Store, given_up: threading.Event) -> tuple[Manifest, int]:
    """Moves a snapshot from a kernel's folder into a folder of ours, in place of the one there.

    Until the manifest is replaced, the old one with its files is whole; files that no manifest names go afterwards.

    Args:
        source: The folder in which the kernel has written.
        store: Where to put it.
        given_up: Once it is set, the work ends at the next piece.

    Returns:
        The manifest, and how many bytes were not there before.

    Raises:
        KernelSnapshotError: It is not what a kernel writes.
        ValidationError: Its manifest is none.
        OSError: There is no room, or the folder is gone.
    """
    store.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with opened_folder(source) as here, opened_folder(store.folder) as there:
        try:
            manifest = Manifest.model_validate_json(_content(here, MANIFEST, MAX_MANIFEST_BYTES))
        except FileNotFoundError as error:
            raise KernelSnapshotError(
                "what saves the variables has ended before its time: perhaps memory is short"
            ) from error
        if {group.file for group in manifest.groups} - manifest.files.keys() or (
            sum(manifest.files.values()) > store.max_bytes
        ):
            raise KernelSnapshotError("the kernel has written a manifest that does not fit its files")
        stored = _stored(there, manifest, store)
        known, written = set(known_files(store.folder)), 0
        for name, size in manifest.files.items():
            if name not in known:
                _move(name, size, here, there, given_up)
                written += size
        _write_manifest(there, stored)
        for name in known - stored.files.keys():
            os.unlink(name, dir_fd=there)
    return manifest, written


def _stored(there: int, manifest: Manifest, store: Store) -> Stored:
    """What the folder is to hold: the new part, and of the earlier ones what is to stay, as far as there is room."""
    parts = [SavedPart(rights=store.rights, written=manifest)]
    with contextlib.suppress(FileNotFoundError, ValidationError):  # the first one, or one that nobody can read
        earlier = Stored.model_validate_json(_content(there, MANIFEST, MAX_MANIFEST_BYTES)) if store.keep else None
        for part in reversed(earlier.parts if earlier is not None else []):
            known = {variable.name for each in parts for variable in each.written.kept}
            gone = {
                variable.name for variable in part.written.kept if variable.name in known or variable.name not in store.keep
            }
            rest = part.without(gone)
            longer = Stored(parts=[rest, *parts])
            if rest.written.kept and sum(longer.files.values()) <= store.max_bytes:
                parts = longer.parts
    while len(parts) > 1 and len(Stored(parts=parts).model_dump_json()) > MAX_MANIFEST_BYTES:
        del parts[0]
    return Stored(parts=parts)


def place(
    store: Path, target: Path, rights: Rights | None, given_up: threading.Event
) -> tuple[list[SavedPart], list[tuple[SavedPart, str]]]:
    """Puts a snapshot into a kernel's folder: second names of our files, or copies where that cannot be.

    Args:
        store: The folder of ours.
        target: An empty folder in the kernel's.
        rights: The kernel's: what a kernel with less rights has saved is left out, and what needs a module that has
            changed since. None: nothing is.
        given_up: See `take`.

    Returns:
        What is in the kernel's folder now, and what is left out, with what the kernel may do more (`LeftOut.more`).

    Raises:
        KernelSnapshotError: There is no snapshot, or it cannot be read.
        OSError: There is no room.
    """
    with opened_folder(target) as there:
        try:
            with opened_folder(store) as here:
                stored = Stored.model_validate_json(_content(here, MANIFEST, MAX_MANIFEST_BYTES))
                more = ["" if rights is None else part.more(rights) for part in stored.parts]
                parts = [part for part, reason in zip(stored.parts, more, strict=True) if not reason]
                left_out = [(part, reason) for part, reason in zip(stored.parts, more, strict=True) if reason]
                for name in {name for part in parts for name in part.written.files}:
                    with contextlib.suppress(FileNotFoundError):  # its variables are named as lost then
                        _link(name, here, there, given_up)
        except FileNotFoundError as error:
            raise KernelSnapshotError(f"no variables are saved in {store}") from error
        except ValidationError as error:
            raise KernelSnapshotError(f"the variables in {store} were saved by another version of this program") from error
        handle = os.open(MANIFEST, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=there)
        with os.fdopen(handle, "wb") as file:
            file.write(json.dumps([part.written.model_dump(mode="json") for part in parts]).encode())
    return parts, left_out


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


def _write_manifest(folder: int, stored: Stored) -> None:
    new = f"{MANIFEST}.new"
    handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=folder)
    try:
        _write_all(handle, stored.model_dump_json().encode())
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
