"""Permissions of what is taken over from a branch; the copies are made by hand."""

import errno
import os
import stat

import pytest

from freeact_sub.errors import WorkspaceConflictError
from freeact_sub.kernels.files import lay_over, places, promote
from freeact_sub.system.private_folders import KernelFolder


def write(root, files):
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


async def no_overlay(settings):
    """This process has no mounts of its own for an overlay."""
    return f"{settings['workspace']}: there are none"


@pytest.fixture
def workspace(tmp_path):
    write(tmp_path / "ws", {"a/one": "1", "b/deep/three": "3", "four": "4"})
    (tmp_path / "ws/b/deep").chmod(0o700)
    return tmp_path / "ws"


@pytest.fixture
async def copy(workspace, tmp_path):
    (tmp_path / "private").mkdir()
    folder = KernelFolder(tmp_path / "private")
    yield await lay_over(workspace, folder, os.getpid(), None, lay=no_overlay)
    folder.give_up()


MODES = {
    "a/one": 0o600,
    "four": 0o640,
    "new": 0o700,
    "new/inner": 0o750,
    "new/inner/secret": 0o400,
    "shared": 0o777,
    "shared/script": 0o755,
    "closed": 0o500,
    "closed/file": 0o600,
    "empty": 0o700,
}


async def test_files_and_new_folders_have_the_permissions_that_they_have_in_the_branch(copy, workspace):
    write(copy.root, {"a/one": "new", "new/inner/secret": "s", "shared/script": "s", "closed/file": "f"})
    (copy.root / "empty").mkdir()
    for name, mode in MODES.items():
        (copy.root / name).chmod(mode)
    promote(copy, copy.look())
    assert {name: oct((workspace / name).stat().st_mode & 0o777) for name in MODES} == {n: oct(m) for n, m in MODES.items()}


async def test_a_folder_that_comes_back_has_the_permissions_that_it_had(copy, workspace, monkeypatch):
    for path in ("b/deep/three", "b/deep", "b"):
        (copy.root / path).unlink() if path == "b/deep/three" else (copy.root / path).rmdir()
    write(copy.root, {"a/one": "new"})

    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(places.os, "link", full)
    with pytest.raises(OSError, match="No space"):
        promote(copy, copy.look())
    assert (workspace / "b/deep/three").read_text() == "3"
    assert (workspace / "b/deep").stat().st_mode & 0o777 == 0o700


async def test_permissions_of_folders_are_taken_over(copy, workspace):
    (copy.root / "a").chmod(0o700)
    (copy.root / "b").chmod(0o500)
    (copy.root / "b/deep").chmod(0o750)
    (copy.root / "a/new").touch()
    changes = copy.look()
    assert (changes.added, changes.changed, changes.deleted) == (("a/new",), ("a/", "b/", "b/deep/"), ())
    (workspace / "b/deep").chmod(0o750)
    assert promote(copy, changes).changed == ("a/", "b/")
    assert [stat.S_IMODE((workspace / name).stat().st_mode) for name in ("a", "b", "b/deep")] == [0o700, 0o500, 0o750]
    assert promote(copy, copy.look()).paths == ()
    (copy.root / "a").chmod(0o711)
    (workspace / "a").chmod(0o755)
    with pytest.raises(WorkspaceConflictError, match="a/"):
        promote(copy, copy.look())
    assert stat.S_IMODE((workspace / "a").stat().st_mode) == 0o755
    (workspace / "b").chmod(0o700)


async def test_permissions_of_a_folder_that_was_taken_over_are_too(copy, workspace):
    (copy.root / "new").mkdir()
    (copy.root / "new/file").touch()
    promote(copy, copy.look())
    (copy.root / "new").chmod(0o700)
    assert promote(copy, copy.look()).changed == ("new/",)
    assert stat.S_IMODE((workspace / "new").stat().st_mode) == 0o700
