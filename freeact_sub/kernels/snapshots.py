"""`Snapshots`: a live kernel saves its variables for the host, and a new one reads them.

The kernel writes into a folder in its scratch folder, which is all that it may write; the host moves the files into a folder
of its own. The kernel forks for it between two cells (`guest/saved/snapshots.py`), and runs its next cell while the fork
works.

Code of a model may have written a kernel's folder, and may change it at any moment. So the host never follows a link there,
takes regular files alone that have one name, and reads nothing of them but the manifest, whose form it checks and which it
writes anew. It never unpickles.

Of other files it makes copies, in both directions: a process that has a file open, or owns it, can change it under any name,
and other sessions, moments and kernels with more rights rely on the host's. It names each by the digest of its own copy.

The host also finds changes of the modules that variables need, and gives saved variables another workspace when a session
continues in a copy of it.
"""

import asyncio
import contextlib
import fcntl
import hashlib
import json
import os
import re
import stat
import threading
import uuid
from collections.abc import AsyncIterator, Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from freeact_sub.errors import KernelError, KernelSnapshotError
from freeact_sub.kernels.files.layer import FICLONE, write_all
from freeact_sub.kernels.guest.saved.imported import DIGEST_BYTES, candidates, digest_of
from freeact_sub.kernels.handover import own_cell
from freeact_sub.kernels.rights import KernelRights, more_than
from freeact_sub.kernels.snapshot_reports import LeftOut, LostVariable, RestoreReport, SnapshotReport, Variable
from freeact_sub.kernels.wire.client import KernelClient
from freeact_sub.system.closing import carry_out
from freeact_sub.system.removal import remove
from freeact_sub.system.safe_files import opened_folder, put_file, read_file

NEW: Final = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
COPY_BYTES: Final = 4 * 2**20


@contextmanager
def regular(folder: int, name: str) -> Iterator[int]:
    """Open a regular file to read it; never waits for a pipe."""
    handle = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise KernelSnapshotError("the kernel has put something else in place of a file of its snapshot")
        yield handle
    finally:
        os.close(handle)


def copy(source: int, target: int, size: int, given_up: threading.Event) -> None:
    """Copy the content of a file; share its blocks where the file system can.

    Raises:
        KernelSnapshotError: It is not of this size, or nobody waits for it any more.
        OSError: There is no room.
    """
    with contextlib.suppress(OSError):
        fcntl.ioctl(target, FICLONE, source)
        return
    for data in pieces(source, size, given_up):
        write_all(target, data)


def pieces(handle: int, size: int, given_up: threading.Event) -> Iterator[bytes]:
    """Yield the content of a file, which must be of this size."""
    done = 0
    while data := os.read(handle, COPY_BYTES):
        done += len(data)
        check(done <= size and not given_up.is_set())
        yield data
    check(done == size)


@contextmanager
def new(folder: int, name: str) -> Iterator[int]:
    """Make a file, to write and read it. Raises: FileExistsError: there is something of this name."""
    handle = os.open(name, NEW, 0o600, dir_fd=folder)
    try:
        yield handle
    finally:
        os.close(handle)


def check(is_right: bool) -> None:
    """Refuse a file. Raises: KernelSnapshotError."""
    if not is_right:
        raise KernelSnapshotError("a file of the snapshot is not what its manifest says, or nobody waits for it any more")


Name = Annotated[str, Field(max_length=1000)]
PathText = Annotated[str, Field(max_length=10_000)]


class Modules(BaseModel):
    """The report of `guest/saved/imported.py` on the modules outside of Python's own folders."""

    model_config = ConfigDict(extra="forbid", strict=True)

    files: dict[PathText, Annotated[str, Field(pattern=r"^([0-9a-f]{32})?$")]]
    """Digests of files that were imported, or could have been. Empty: there was no file."""
    folders: dict[PathText, list[Name]]
    """Names that were looked up in each folder."""

    def changed(self) -> str:
        """Return changed code that an import would run now, in a few words, for `LeftOut.more`. Empty: none."""
        for path, digest in self.files.items():
            if digest_of(path) != digest:
                return f"it runs {path}, which has changed since" if os.path.lexists(path) else f"{path} is gone since"
        for folder, names in self.folders.items():
            for path in sorted(candidates(folder, set(names))):
                if path not in self.files:
                    return f"it runs {path}, which was not there"
        return ""


MANIFEST: Final = "manifest.json"
RESULT: Final = "restored.json"
MAX_MANIFEST_BYTES: Final = 32 * 2**20
MAX_RESULT_BYTES: Final = 32 * 2**20
FILE_NAME: Final = re.compile(r"[0-9a-f]{32}")
READ_ONLY: Final = 0o400
"""Mode of our files: forks and earlier moments of a session have second names of them."""
PART: Final = "new.part"

Text = Annotated[str, Field(max_length=2000)]
Digest = Annotated[str, Field(pattern=rf"^{FILE_NAME.pattern}$")]
Size = Annotated[int, Field(ge=0, le=2**50)]


class _Written(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class Group(_Written):
    """Variables that share objects, and their place in a file."""

    names: dict[Name, Text]
    """The variables, with one line for each."""
    file: Digest
    data: tuple[Size, Size] = Field(strict=False)
    blocks: list[Annotated[tuple[Size, Size], Field(strict=False)]]


class Lost(_Written):
    """A lost variable in a manifest, as `LostVariable`."""

    name: Name
    type: Text
    reason: Text
    cell: int | None


class Manifest(_Written):
    """The manifest of `guest/saved/files.py`."""

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
        """The variables in the manifest."""
        modules = [Variable(name=name, line=f"{name}: module {module}") for name, module in self.modules.items()]
        return (*modules, *(Variable(name=name, line=line) for group in self.groups for name, line in group.names.items()))

    def named(self, names: dict[str, str]) -> Self:
        """Return the manifest with other names of files. Args: names: of each file whose name changes, the new one."""
        groups = [group.model_copy(update={"file": names.get(group.file, group.file)}) for group in self.groups]
        files = {names.get(name, name): size for name, size in self.files.items()}
        return self.model_copy(update={"groups": groups, "files": files})

    @property
    def not_kept(self) -> tuple[LostVariable, ...]:
        """The variables that are not in the manifest."""
        return tuple(LostVariable(**lost.model_dump()) for lost in self.lost)


class SavedPart(BaseModel):
    """The files that one kernel has written."""

    rights: KernelRights
    written: Manifest

    def more(self, rights: KernelRights) -> str:
        """Return the rights that this kernel did not have. Empty: there are none.

        A module is code of the kernel that has changed it last, which may have had a wall. Behind one it does not matter.
        """
        return more_than(rights, self.rights) or ("" if rights.walled else self.written.imported.changed())

    def without(self, names: Collection[str]) -> Self:
        """Return the part without these variables, and without files that then hold nothing."""
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
    """The parts, the newest last. Each variable is in one."""

    @property
    def files(self) -> dict[str, int]:
        """The files that the manifest names."""
        return {name: size for part in self.parts for name, size in part.written.files.items()}


@dataclass(frozen=True)
class Store:
    """A folder of ours, for the snapshot of one agent alone."""

    folder: Path
    """The folder; made if need be."""
    rights: KernelRights
    keep: Collection[str] = ()
    """Variables in the folder that stay, as long as the kernel has none of these names."""
    max_bytes: int = 2**50
    """Maximum bytes of all files."""


class Result(_Written):
    """The report of `guest/saved/files.py`."""

    restored: dict[Name, Text]
    lost: dict[Name, Text]


def saved_names(store: Path) -> list[str]:
    """Return the names of the variables in a folder of ours. Empty: there are none, or its manifest cannot be read."""
    try:
        stored = Stored.model_validate_json((store / MANIFEST).read_bytes())
    except (OSError, ValueError):
        return []
    return [variable.name for part in stored.parts for variable in part.written.kept]


def known_files(store: Path) -> list[str]:
    """Return the names of the files in a folder of ours."""
    with contextlib.suppress(FileNotFoundError):
        return [name for name in os.listdir(store) if FILE_NAME.fullmatch(name)]  # noqa: PTH208  # names are enough
    return []


def take(source: Path, store: Store, given_up: threading.Event) -> tuple[Manifest, int]:
    """Move a snapshot from a kernel's folder into a folder of ours, in place of the one there.

    Until the manifest is replaced, the old one with its files is whole; files that no manifest names go afterwards.

    Args:
        source: The folder in which the kernel has written.
        store: Where to put it.
        given_up: Set to end the work at the next piece.

    Returns:
        The manifest, and how many bytes were not there before.

    Raises:
        KernelSnapshotError: A kernel does not write such files.
        ValidationError: Its manifest is none.
        OSError: There is no room, or the folder is gone.
    """
    store.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with opened_folder(source) as here, opened_folder(store.folder) as there:
        try:
            manifest = Manifest.model_validate_json(_content(here, MANIFEST, MAX_MANIFEST_BYTES))
        except FileNotFoundError as error:
            raise KernelSnapshotError(
                "the process that saves the variables ended early: the machine may be short of memory"
            ) from error
        if {group.file for group in manifest.groups} - manifest.files.keys() or (
            sum(manifest.files.values()) > store.max_bytes
        ):
            raise KernelSnapshotError("the kernel has written a manifest that does not fit its files")
        known, names = set(known_files(store.folder)), dict[str, str]()
        for name, size in manifest.files.items():
            if name not in known:
                names[name] = _take_file(name, size, here, there, given_up)
        written = sum(manifest.files[name] for name in names)
        manifest = manifest.named(names)
        stored = _stored(there, manifest, store)
        _write_manifest(there, stored)
        for name in known - stored.files.keys():
            os.unlink(name, dir_fd=there)
    return manifest, written


def _stored(there: int, manifest: Manifest, store: Store) -> Stored:
    """Return the new content of the folder: the new part, and parts of the earlier ones, as far as there is room."""
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
    store: Path, target: Path, rights: KernelRights | None, given_up: threading.Event
) -> tuple[list[SavedPart], list[tuple[SavedPart, str]]]:
    """Put a snapshot into a kernel's folder: copies of our files.

    Args:
        store: The folder of ours.
        target: An empty folder in the kernel's.
        rights: The kernel's: variables of a kernel with less rights are left out, and those that need a module that has
            changed since. None: all are placed.
        given_up: As for `take`.

    Returns:
        The parts in the kernel's folder, and those left out, with the kernel's further rights (`LeftOut.more`).

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
                        _place_file(name, here, there, given_up)
        except FileNotFoundError as error:
            raise KernelSnapshotError(f"no variables are saved in {store}") from error
        except ValidationError as error:
            is_cut = error.errors()[0]["type"] == "json_invalid"
            why = "are damaged: their list is no JSON" if is_cut else "were saved by another version of this program"
            raise KernelSnapshotError(f"the variables in {store} {why}") from error
        handle = os.open(MANIFEST, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=there)
        with os.fdopen(handle, "wb") as file:
            file.write(json.dumps([part.written.model_dump(mode="json") for part in parts]).encode())
    return parts, left_out


def read_result(folder: Path) -> Result:
    """Read a kernel's report on a restore.

    Raises:
        KernelSnapshotError: A kernel does not write such a report.
    """
    with opened_folder(folder) as here:
        return Result.model_validate_json(_content(here, RESULT, MAX_RESULT_BYTES))


def new_folder(scratch: Path, name: str) -> Path:
    """Make a folder in a kernel's scratch folder, which is made too if it is not there.

    Raises:
        OSError: There is something of this name, or the scratch folder is not one.
    """
    with contextlib.suppress(FileExistsError):
        scratch.mkdir(mode=0o700)
    with opened_folder(scratch) as here:
        os.mkdir(name, 0o700, dir_fd=here)  # pathlib knows no folder's descriptor
    return scratch / name


def _content(folder: int, name: str, max_bytes: int) -> bytes:
    with regular(folder, name) as handle:
        size = os.fstat(handle).st_size
        if size > max_bytes:
            raise KernelSnapshotError(f"{name} of a snapshot is larger than {max_bytes:,} bytes")
        with open(handle, "rb", closefd=False) as file:
            return file.read(max_bytes)


def _take_file(name: str, size: int, here: int, there: int, given_up: threading.Event) -> str:
    """Take a file, whole or not at all, and return its name with us.

    The kernel's name of it may be wrong: its memory has changed meanwhile, or its code wants a later kernel to find this in
    place of the values that that kernel has saved itself.
    """
    with contextlib.suppress(FileNotFoundError):  # a program has died meanwhile
        os.unlink(PART, dir_fd=there)
    with regular(here, name) as source, new(there, PART) as target:
        try:
            facts = os.fstat(source)
            check(facts.st_nlink == 1 and facts.st_size == size)
            copy(source, target, size, given_up)
            digest = hashlib.blake2b(digest_size=DIGEST_BYTES)
            os.lseek(target, 0, os.SEEK_SET)
            for data in pieces(target, size, given_up):
                digest.update(data)
            os.fchmod(target, READ_ONLY)
            os.rename(PART, digest.hexdigest(), src_dir_fd=there, dst_dir_fd=there)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(PART, dir_fd=there)
            raise
    with contextlib.suppress(OSError):  # its room; the kernel may have removed it
        os.unlink(name, dir_fd=here)
    return digest.hexdigest()


def _place_file(name: str, here: int, there: int, given_up: threading.Event) -> None:
    with regular(here, name) as source, new(there, name) as target:
        copy(source, target, os.fstat(source).st_size, given_up)


def _write_manifest(folder: int, stored: Stored) -> None:
    new = f"{MANIFEST}.new"
    handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=folder)
    try:
        write_all(handle, stored.model_dump_json().encode())
    finally:
        os.close(handle)
    os.rename(new, MANIFEST, src_dir_fd=folder, dst_dir_fd=folder)


def move_workspace(store: Path, old: Path, new: Path) -> None:
    """Give the variables in a folder of ours to a kernel in the copy of a workspace, as if saved there.

    Their kernel's rights, working folder, search path and modules name the copy then, so that its next kernel neither
    enters the original nor may do more than this one.

    Raises:
        KernelSnapshotError: They cannot be read.
        OSError: They cannot be written.
    """
    manifest = store / MANIFEST
    try:
        stored = Stored.model_validate_json(read_file(manifest, MAX_MANIFEST_BYTES))
    except ValueError as error:
        raise KernelSnapshotError(f"the variables in {store} cannot be read") from error
    parts = [_moved(part, str(old), str(new)) for part in stored.parts]
    put_file(manifest, Stored(parts=parts).model_dump_json().encode(), mode=0o600)


def _moved(part: SavedPart, old: str, new: str) -> SavedPart:
    def path(given: str) -> str:
        return new + given[len(old) :] if given == old or given.startswith(f"{old}/") else given

    rights = part.rights.model_copy(
        update={name: tuple(map(path, getattr(part.rights, name))) for name in ("readable", "writable")}
    )
    written: Manifest = part.written
    imported = written.imported.model_copy(
        update={
            "files": {path(name): digest for name, digest in written.imported.files.items()},
            "folders": {path(name): names for name, names in written.imported.folders.items()},
        }
    )
    changed = {
        "folder": None if written.folder is None else path(written.folder),
        "path": [path(each) for each in written.path],
        "imported": imported,
    }
    return part.model_copy(update={"rights": rights, "written": written.model_copy(update=changed)})


MAX_BYTES: Final = 4 * 2**30
SAVE_SECONDS: Final = 60.0
"""Seconds after which unsaved variables are left out. Large arrays come last."""
END_SECONDS: Final = 10.0
"""Further seconds until the kernel's fork is killed without a snapshot, because code of a type hangs."""
IN_KERNEL: Final = {"seconds": 0.2, "bytes": 8 * 2**20}
"""Limits where the kernel itself has to save, and stands still meanwhile."""
BEGIN_SECONDS: Final = 20.0
GIVE_UP_SECONDS: Final = 3.0
RESTORE_SECONDS: Final = 300.0
"""Seconds to restore, with the imports that the variables need."""
ERROR_CHARS: Final = 1000

_Value = TypeVar("_Value")


class Snapshots:
    """The snapshots of one kernel, one at a time."""

    def __init__(self, client: KernelClient) -> None:
        """Args: client: the kernel's, whose owner passes the replies on to `receive`."""
        self._client = client
        self._replies: dict[str, asyncio.Queue[dict[str, Any]]] = {}
        self._one_at_a_time = asyncio.Lock()

    def receive(self, content: dict[str, Any]) -> None:
        """Receive a reply of the kernel; one without a waiting caller is dropped."""
        replies = self._replies.get(str(content.get("id")))
        if replies is not None:
            replies.put_nowait(content)

    def lose(self, reason: str) -> None:
        """Note that the kernel has ended, or is being closed."""
        for replies in self._replies.values():
            replies.put_nowait({"state": "lost", "reason": reason})

    async def save(self, scratch: Path, store: Store) -> SnapshotReport:
        """Save the variables, for `BranchingKernel.snapshot`. Args: scratch: the kernel's."""
        async with self._one_at_a_time, _folder_in(scratch) as folder:
            known = await _in_thread(lambda _: known_files(store.folder))
            begun = await self._saved(folder, known, store.max_bytes)
            manifest, written = await _in_thread(lambda given_up: take(folder, store, given_up))
        return SnapshotReport(
            kept=manifest.kept,
            lost=manifest.not_kept,
            size_bytes=sum(manifest.files.values()),
            written_bytes=written,
            pause_seconds=float(begun.get("pause", 0.0)),
            not_forked=str(begun.get("reason", "")),
        )

    async def restore(self, scratch: Path, store: Path, rights: KernelRights | None) -> RestoreReport:
        """Restore variables, for `BranchingKernel.restore`. Args: scratch: the kernel's. rights: None: any."""
        async with self._one_at_a_time, _folder_in(scratch) as folder:
            parts, others = await _in_thread(lambda given_up: place(store, folder, rights, given_up))
            try:
                await own_cell(
                    self._client, f"freeact.saved.files.restore({str(folder)!r}, get_ipython().user_ns)", RESTORE_SECONDS
                )
            except KernelError as error:
                raise KernelSnapshotError(f"the variables could not be read: {error}") from error
            result = await _in_thread(lambda _: read_result(folder))
        types = {variable.name: variable.type for part in parts for variable in part.written.kept}
        unread = [
            LostVariable(name=name, type=types.get(name, ""), reason=reason, cell=None)
            for name, reason in result.lost.items()
        ]
        return RestoreReport(
            restored=tuple(Variable(name=name, line=line) for name, line in result.restored.items()),
            lost=(*(lost for part in (*parts, *(part for part, _ in others)) for lost in part.written.not_kept), *unread),
            left_out=tuple(
                LeftOut(
                    variables=kept,
                    saved_in=part.rights.name,
                    more=more,
                    continue_in=part.rights.name if rights is None or more_than(rights, part.rights) else "mode auto",
                )
                for part, more in others
                if (kept := part.written.kept)
            ),
        )

    async def _saved(self, folder: Path, known: list[str], max_bytes: int) -> dict[str, Any]:
        """Let the kernel write into a folder, and return how that began."""
        snapshot_id = uuid.uuid4().hex
        replies = self._replies[snapshot_id] = asyncio.Queue()
        request = {"folder": str(folder), "known": known, "seconds": SAVE_SECONDS, "bytes": max_bytes, "here": IN_KERNEL}
        try:
            async with self._client.between_cells():
                self._client.send_control("freeact_snapshot", {"id": snapshot_id, "op": "begin", **request})
                begun = await _next(replies, BEGIN_SECONDS, "begun")
            ended = await _next(replies, SAVE_SECONDS + END_SECONDS, "ended")
        except BaseException:
            await carry_out(self._give_up(snapshot_id, replies))
            raise
        finally:
            del self._replies[snapshot_id]
        if ended.get("problem"):
            raise KernelSnapshotError(f"the variables are not saved: {str(ended['problem'])[:ERROR_CHARS]}")
        return begun

    async def _give_up(self, snapshot_id: str, replies: asyncio.Queue[dict[str, Any]]) -> None:
        """Let the kernel end its saver, and wait a little: a kernel that has ended has ended it, too."""
        if self._client.lost_reason is not None:
            return
        self._client.send_control("freeact_snapshot", {"id": snapshot_id, "op": "end"})
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(GIVE_UP_SECONDS):
                while (await replies.get()).get("state") not in ("ended", "lost"):
                    pass


async def _next(replies: asyncio.Queue[dict[str, Any]], seconds: float, expected: str) -> dict[str, Any]:
    try:
        async with asyncio.timeout(seconds):
            reply = await replies.get()
    except TimeoutError as error:
        raise KernelSnapshotError(f"the variables are not saved: that took more than {seconds:g} s") from error
    if reply.get("state") != expected:
        raise KernelSnapshotError(f"the variables are not saved: the kernel has ended: {reply.get('reason')}")
    return reply


async def _in_thread(work: Callable[[threading.Event], _Value]) -> _Value:
    """Do work on files in a thread. A cancel stops the work and waits for it."""
    given_up = threading.Event()
    task = asyncio.ensure_future(asyncio.to_thread(work, given_up))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        given_up.set()
        await carry_out(asyncio.wait({task}))
        raise
    except OSError as error:
        raise KernelSnapshotError(f"files of variables: {error}") from error
    except ValidationError as error:
        raise KernelSnapshotError(f"the kernel has written no snapshot: {error.errors()[0]['msg']}") from error


@contextlib.asynccontextmanager
async def _folder_in(scratch: Path) -> AsyncIterator[Path]:
    folder = await _in_thread(lambda _: new_folder(scratch, f"saved-{uuid.uuid4().hex}"))
    try:
        yield folder
    finally:
        await carry_out(asyncio.to_thread(remove, str(folder)))
