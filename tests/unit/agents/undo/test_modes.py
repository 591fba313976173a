"""Modes, folders and special files of a workspace as they were, and as they are after a redo; with a real git."""

import os
import socket
import stat

import pytest

from freeact_sub.kernels.files import stage
from freeact_sub.kernels.files.states import ShadowFiles

pytestmark = pytest.mark.process


@pytest.fixture
def workspace(tmp_path):
    folder = tmp_path / "work"
    folder.mkdir(mode=0o750)
    for name, mode in (("private", 0o600), ("open", 0o644), ("shared", 0o664), ("script", 0o700), ("sealed", 0o400)):
        (folder / name).write_text(name)
        (folder / name).chmod(mode)
    for name, mode in (("full", 0o750), ("empty", 0o700), ("full/inner", 0o500), ("deep", 0o711), ("deep/deeper", 0o755)):
        (folder / name).mkdir()
        (folder / name).chmod(mode)
    (folder / "full" / "inner" / "file").write_text("file")
    os.mkfifo(folder / "pipe")
    (folder / "pipe").chmod(0o620)
    (folder / "link").symlink_to("open")
    (folder / ".gitignore").write_text("ignored\n")
    return folder


@pytest.fixture
async def files(workspace):
    files = ShadowFiles(workspace)
    yield files
    await files.aclose()


def seen(workspace):
    """Kind, mode and content of all that is in a workspace."""
    found = {".": oct(workspace.lstat().st_mode)}
    for path in workspace.rglob("*"):
        if ".freeact" in path.parts:
            continue
        mode = path.lstat().st_mode
        content = path.read_bytes() if stat.S_ISREG(mode) else os.readlink(path) if stat.S_ISLNK(mode) else b""
        found[path.relative_to(workspace).as_posix()] = (oct(mode), content)
    return found


def replaced_by_fifo(path):
    path.unlink()
    os.mkfifo(path)


def replaced_by_socket(path):
    path.unlink()
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(path))


def replaced_by_folder(path):
    path.unlink()
    path.mkdir()


def replaced_by_link(path):
    path.unlink()
    path.symlink_to("private")


def replaced_by_file(path):
    path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
    path.write_text("file")


def rewritten(path):
    path.write_text("other")
    path.chmod(0o666)


def moved_in(path):
    (path / "new").write_text("n")
    path.chmod(0o777)


CHANGES = {
    "a private file is removed": ("private", lambda path: path.unlink()),
    "a private file is opened": ("private", lambda path: path.chmod(0o644)),
    "a private file is written again and opened": ("private", rewritten),
    "a file is closed": ("open", lambda path: path.chmod(0o600)),
    "a file is made executable": ("open", lambda path: path.chmod(0o755)),
    "a script is no more executable": ("script", lambda path: path.chmod(0o600)),
    "the right of the group goes": ("shared", lambda path: path.chmod(0o644)),
    "a sealed file is removed": ("sealed", lambda path: path.unlink()),
    "a file becomes a FIFO": ("private", replaced_by_fifo),
    "a file becomes a socket": ("private", replaced_by_socket),
    "a file becomes a folder": ("private", replaced_by_folder),
    "a file becomes a link": ("script", replaced_by_link),
    "a link becomes a file": ("link", replaced_by_file),
    "a FIFO is removed": ("pipe", lambda path: path.unlink()),
    "a FIFO is opened": ("pipe", lambda path: path.chmod(0o666)),
    "a FIFO becomes a file": ("pipe", replaced_by_file),
    "an empty folder is removed": ("empty", lambda path: path.rmdir()),
    "an empty folder is opened": ("empty", lambda path: path.chmod(0o777)),
    "an empty folder becomes a file": ("empty", replaced_by_file),
    "an empty folder gets a file": ("empty", moved_in),
    "an inner empty folder is removed": ("deep/deeper", lambda path: path.rmdir()),
    "a full folder is opened": ("full", lambda path: path.chmod(0o777)),
    "a closed folder is opened": ("full/inner", lambda path: path.chmod(0o755)),
    "the workspace is opened": (".", lambda path: path.chmod(0o777)),
    "a folder comes": ("came", lambda path: path.mkdir(mode=0o700)),
    "folders come": ("came", lambda path: (path / "inner").mkdir(parents=True)),
    "a FIFO comes": ("came", os.mkfifo),
    "a private file comes": ("came", lambda path: path.touch(mode=0o600)),
}


@pytest.mark.parametrize("change", CHANGES)
async def test_a_change_is_taken_back_and_made_again(files, workspace, change):
    name, make = CHANGES[change]
    first, before = await files.record(), seen(workspace)
    make(workspace / name)
    second, after = await files.record(), seen(workspace)
    assert before != after
    told = await files.changed_paths(first, second)
    done, failed = await files.restore(second, first)
    assert (seen(workspace), failed) == (before, [])
    assert done
    assert set(told) == set(done)
    assert await files.record() == first
    if "socket" not in change:
        _, failed = await files.restore(first, second)
        assert (seen(workspace), failed) == (after, [])
        assert await files.record() == second


async def test_a_folder_with_all_that_is_in_it_comes_back_with_its_modes(files, workspace):
    first, before = await files.record(), seen(workspace)
    (workspace / "full" / "inner" / "file").unlink()
    (workspace / "full" / "inner").rmdir()
    (workspace / "full").rmdir()
    done, failed = await files.restore(await files.record(), first)
    assert (seen(workspace), done, failed) == (before, ["full/inner/file"], [])


async def test_a_socket_that_was_removed_is_named_as_lost(files, workspace):
    replaced_by_socket(workspace / "private")
    first = await files.record()
    (workspace / "private").unlink()
    assert await files.restore(await files.record(), first) == ([], ["private"])


async def test_what_is_ignored_keeps_its_mode_and_its_folders(files, workspace):
    (workspace / "ignored").mkdir()
    (workspace / "ignored" / "inner").mkdir()
    os.mkfifo(workspace / "ignored" / "pipe")
    first = await files.record()
    (workspace / "ignored").chmod(0o700)
    (workspace / "ignored" / "inner").rmdir()
    (workspace / "ignored" / "pipe").unlink()
    (workspace / ".gitignore").write_text("nothing")
    (workspace / "ignored" / "made").mkdir()
    after = seen(workspace / "ignored")
    assert await files.restore(await files.record(), first) == ([".gitignore"], [])
    assert seen(workspace / "ignored") == after


async def test_a_private_file_is_at_no_moment_open_to_others(files, workspace, monkeypatch):
    first = await files.record()
    (workspace / "private").unlink()
    second = await files.record()
    modes = []

    class System:
        def __getattr__(self, name):
            real = getattr(os, name)
            if name not in ("fchmod", "link", "close"):
                return real

            def noted(*arguments, **options):
                modes.extend(path.lstat().st_mode & 0o777 for path in workspace.glob(".freeact/promoted-*/new-*"))
                return real(*arguments, **options)

            return noted

    with monkeypatch.context() as patch:
        patch.setattr(stage, "os", System())
        await files.restore(second, first)
    assert modes
    assert set(modes) == {0o600}
