"""Folders that code of a model has filled are removed, whatever it has put there, and nothing else is."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from support.waiting import wait_until

from freeact_sub.system.private_folders import make_folder, remove_soon, sweep
from freeact_sub.system.removal import remove

NOBODY = 65534


def make_deep(folder: Path, depth: int, name: str = "d") -> None:
    """Folders in each other; a path to the innermost would be longer than the system takes."""
    at = os.open(folder, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir(name, dir_fd=at)
        inner = os.open(name, os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = inner
    os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=at))
    os.close(at)


@pytest.mark.parametrize(("depth", "name"), [(1500, "d"), (5000, "d"), (300, "long name " * 20), (40, "-0")])
def test_depth_and_long_paths_cost_neither_stack_nor_descriptors(tmp_path, depth, name):
    folder = tmp_path / "folder"
    folder.mkdir()
    make_deep(folder, depth, name)
    make_deep(folder, 3, "another")
    assert remove(str(folder))
    assert not folder.exists()


def test_no_link_is_followed(tmp_path):
    outside = tmp_path / "outside"
    (outside / "inner").mkdir(parents=True)
    (outside / "inner/kept").touch()
    folder = tmp_path / "folder"
    (folder / "a/b").mkdir(parents=True)
    (folder / "link").symlink_to(outside)
    (folder / "a/b/link").symlink_to(outside / "inner")
    (folder / "a/loop").symlink_to(folder)
    os.link(outside / "inner/kept", folder / "a/hard")
    os.mkfifo(folder / "a/pipe")
    assert remove(str(folder))
    assert (outside / "inner/kept").exists()

    link = tmp_path / "link"
    link.symlink_to(outside)
    assert not remove(str(link))
    assert (outside / "inner/kept").exists()


def test_what_is_not_there_is_gone_and_a_bound_is_kept(tmp_path):
    assert remove(str(tmp_path / "nothing"))
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "owner").touch()
    for number in range(50):
        (folder / f"{number}").touch()
    assert not remove(str(folder), entries=49, last="owner")
    assert len(list(folder.iterdir())) == 2
    assert (folder / "owner").exists(), "in whatever order the system names what is there"
    assert remove(str(folder), last="owner")


LOCKED = """
import os, sys
from freeact_sub.system.removal import remove
if os.getuid() == 0:
    os.setgid({nobody}); os.setuid({nobody})
os.makedirs("folder/a/b/c"); open("folder/a/b/file", "w").close(); os.makedirs("folder/e/f")
for path in ("folder/a/b/c", "folder/a/b", "folder/a", "folder/e/f", "folder/e"):
    os.chmod(path, 0)
assert remove("folder"), os.listdir("folder")
assert not os.path.exists("folder")
"""


def test_folders_that_cannot_be_read_are_removed_by_their_owner():
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o777)
        program = LOCKED.format(nobody=NOBODY)
        subprocess.run([sys.executable, "-c", program], cwd=folder, check=True, timeout=240, env=os.environ)


def test_a_folder_that_is_full_or_deep_does_not_keep_the_sweep_from_the_others():
    folders = [make_folder() for _ in range(3)]
    make_deep(folders[1], 2000)
    for number in range(3):
        (folders[number] / "owner").write_text("999999999 1", encoding="ascii")
    (folders[2] / "owner").unlink()
    make_deep(folders[2], 1, "owner")  # what code puts where a file was
    try:
        assert set(sweep()) == set(folders[:2])
        assert not any(folder.exists() for folder in folders[:2])
    finally:
        assert remove(str(folders[2]))


def test_what_is_large_is_removed_in_the_background():
    folder = make_folder()
    for number in range(12_000):
        os.close(os.open(folder / f"{number}", os.O_CREAT))
    remove_soon(folder)
    wait_until(lambda: not folder.exists())
