"""Saved variables whose workspace is another folder from now on, because a session continues in a copy of it."""

from pathlib import Path

from freeact_sub.errors import KernelSnapshotError
from freeact_sub.kernels.snapshots.files import MANIFEST, Manifest, SavedPart, Stored
from freeact_sub.system.safe_files import put_file, read_file

MAX_BYTES = 32 * 2**20


def move_workspace(store: Path, old: Path, new: Path) -> None:
    """Make the variables in a folder of ours those of a kernel that has worked in the copy, and not in the original.

    Their kernel's rights, working folder, search path and modules name the copy then, so that its next kernel neither
    enters the original nor may do more than this one.

    Raises:
        KernelSnapshotError: They cannot be read.
        OSError: They cannot be written.
    """
    manifest = store / MANIFEST
    try:
        stored = Stored.model_validate_json(read_file(manifest, MAX_BYTES))
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
