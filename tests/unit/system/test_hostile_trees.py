"""Whatever tree of files code leaves, what the host does with it ends, raises nothing of its own, and touches nothing outside."""

import os
import socket
import tempfile
import threading
from contextlib import suppress
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from support.thorough import THOROUGH

from freeact_sub.approvals.access import MAX_FILES, TooManyError, files_below
from freeact_sub.errors import FreeactError
from freeact_sub.kernels.files.own_files import found_in
from freeact_sub.kernels.rights import KernelRights
from freeact_sub.kernels.snapshots import Store, place, take
from freeact_sub.kernels.wall import repositories
from freeact_sub.kernels.wall.repositories import find_repositories
from freeact_sub.system.removal import remove
from freeact_sub.system.safe_files import files_in, read_file, work_folders

KINDS = ["file", "folder", "deep", "link", "loop", "outside", "pipe", "socket", "hard", "unreadable", "sparse"]
NAMES = st.sampled_from(
    [b"a", b"b", b".git", b"config", b"HEAD", b"objects", b"refs", b"commondir", b"manifest.json", b"pyvenv.cfg"]
) | st.binary(min_size=1, max_size=12).map(lambda name: name.replace(b"/", b"-").replace(b"\0", b"-"))
RIGHTS = KernelRights(mode="ask", walled=False)
STEPS = st.lists(st.tuples(st.sampled_from(KINDS), NAMES, st.integers(0, 30)), max_size=25)
GITDIR = [
    b"gitdir: ../a\n",
    b"gitdir: .\n",
    b"[include]\n\tpath = config\n",
    b"[core]\n\tworktree = ..\n\thooksPath = .\n",
    b"\xff\0{",
    b"{}",
]


def make(root: bytes, outside: bytes, steps: list[tuple[str, bytes, int]]) -> None:
    """Takes the steps as far as they can be taken; each is in one of the folders that there are by then."""
    folders = [root]
    for kind, name, number in steps:
        folder = folders[number % len(folders)]
        path = os.path.join(folder, name)
        with suppress(OSError):
            if kind in ("file", "sparse"):
                with open(path, "xb") as file:  # never what a hard link leads to
                    file.write(GITDIR[number % len(GITDIR)])
                    file.truncate(10**10 if kind == "sparse" else None)
            elif kind in ("folder", "unreadable"):
                os.mkdir(path)
                folders.append(path)
                if kind == "unreadable":
                    os.chmod(path, 0)
            elif kind == "deep":
                at = path
                for _ in range(3 * number):
                    os.mkdir(at)
                    at = os.path.join(at, name[:3] or b"d")
                folders.append(os.path.dirname(at))
            elif kind == "link":
                os.symlink(os.path.relpath(folders[-1], folder), path)
            elif kind == "loop":
                os.symlink(name, path)
            elif kind == "outside":
                os.symlink(outside, path)
            elif kind == "pipe":
                os.mkfifo(path)
            elif kind == "socket":
                with socket.socket(socket.AF_UNIX) as bound:
                    bound.bind(path)
            elif kind == "hard":
                os.link(os.path.join(outside, b"kept"), path)


@settings(deadline=None, max_examples=400 if THOROUGH else 5)
@given(STEPS)
def test_what_walks_reads_copies_and_removes_a_tree_holds_whatever_is_in_it(steps):
    with tempfile.TemporaryDirectory() as name:
        top = Path(name)
        root, outside, store, target = (top / part for part in ("root", "outside", "store", "target"))
        for folder in (root, outside, store, target):
            folder.mkdir()
        (outside / "kept").write_text("kept")
        make(os.fsencode(root), os.fsencode(outside), steps)

        list(work_folders(root))
        found = find_repositories([root])
        assert all(path.startswith(str(root)) for path in found.kept)
        with suppress(TooManyError):
            assert sum(1 for _ in files_below(str(root))) <= 2 * MAX_FILES
        descriptor = os.open(root, os.O_RDONLY)
        try:
            with suppress(OSError, FreeactError):
                found_in(descriptor)
        finally:
            os.close(descriptor)
        for path in list(root.rglob("*"))[:50] if len(steps) < 10 else ():
            with suppress(OSError):
                read_file(path)
        files_in(root, ".json")
        with suppress(FreeactError, OSError, ValueError):
            take(root, Store(store, RIGHTS, max_bytes=10**6), threading.Event())
        with suppress(FreeactError, OSError, ValueError):
            place(root, target, RIGHTS, threading.Event())

        assert remove(str(root))
        assert not root.exists()
        assert [path.name for path in outside.iterdir()] == ["kept"]
        assert (outside / "kept").read_text() == "kept"


def test_settings_that_take_long_to_read_hide_no_repository(tmp_path, monkeypatch):
    for name in ("0", "1", "z/inner"):
        (tmp_path / name / ".git/objects").mkdir(parents=True)
        (tmp_path / name / ".git/config").write_text('[a]\n\tb = "" ""\n[core]\n\thooksPath = ../hooks\n')
        (tmp_path / name / "hooks").mkdir()
    assert find_repositories([tmp_path]).complete
    monkeypatch.setattr(repositories, "SETTINGS_SECONDS", -1)
    found = find_repositories([tmp_path])
    assert not found.complete
    assert {f"{tmp_path}/{name}/.git" for name in ("0", "1", "z/inner")} <= set(found.kept)
