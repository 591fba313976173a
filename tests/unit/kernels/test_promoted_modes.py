"""Permissions of what is taken over from a branch; the copies are made by hand."""

import errno
import os

import pytest

from freeact_sub.kernels.workspaces import lay_over, promote, promotion
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
    (workspace / "b/deep").chmod(0o700)
    for path in ("b/deep/three", "b/deep", "b"):
        (copy.root / path).unlink() if path == "b/deep/three" else (copy.root / path).rmdir()
    write(copy.root, {"a/one": "new"})

    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(promotion.os, "link", full)
    with pytest.raises(OSError, match="No space"):
        promote(copy, copy.look())
    assert (workspace / "b/deep/three").read_text() == "3"
    assert (workspace / "b/deep").stat().st_mode & 0o777 == 0o700
