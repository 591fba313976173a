"""Permissions of folders that a branch has changed in its copy of a workspace."""

import os
import stat

import pytest

from freeact_sub.errors import WorkspaceConflictError
from freeact_sub.kernels.workspaces import lay_over, promote
from freeact_sub.system.private_folders import KernelFolder


@pytest.fixture
def workspace(tmp_path):
    (tmp_path / "ws/a").mkdir(parents=True)
    (tmp_path / "ws/b/deep").mkdir(parents=True)
    (tmp_path / "ws/a/one").write_text("1")
    return tmp_path / "ws"


@pytest.fixture
async def copy(workspace, tmp_path):
    (tmp_path / "private").mkdir()
    folder = KernelFolder(tmp_path / "private")

    async def no_overlay(settings):
        return "this process has no mounts of its own"

    yield await lay_over(workspace, folder, os.getpid(), None, lay=no_overlay)
    folder.give_up()


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
