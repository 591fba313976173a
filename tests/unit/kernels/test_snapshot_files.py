"""Files of variables that code of a model may have written, or changed: what the host makes of them."""

import hashlib
import json
import os
import threading

import pytest
from pydantic import ValidationError
from support.tables import each

from freeact_sub.errors import KernelSnapshotError
from freeact_sub.kernels import snapshots as files
from freeact_sub.kernels.rights import KernelRights


def named(content):
    """The name of a file with this content."""
    return hashlib.blake2b(content, digest_size=16).hexdigest()


BIG, SMALL, OTHER = named(b"big" * 100), named(b"small"), named(b"other")
NEVER = threading.Event()
RIGHTS = KernelRights(mode="full", walled=False)


@pytest.fixture
def source(tmp_path):
    """A snapshot as a kernel writes it."""
    folder = tmp_path / "source"
    write(folder, {BIG: b"big" * 100, SMALL: b"small"})
    return folder


def write(folder, contents, **changes):
    folder.mkdir(exist_ok=True)
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    groups = [{"names": {f"v{name[0]}": "v: list"}, "file": name, "data": [0, 4], "blocks": [[0, 4]]} for name in contents]
    manifest = {
        "format": 1,
        "python": "cpython-311",
        "files": {name: len(content) for name, content in contents.items()},
        "groups": groups,
        "lost": [{"name": "lock", "type": "_thread.lock", "reason": "no", "cell": 3}],
        "modules": {"np": "numpy"},
        "submodules": [],
        "path": [],
        "folder": None,
        "sources": {},
        "imported": {"files": {}, "folders": {}},
    } | changes
    (folder / "manifest.json").write_text(json.dumps(manifest))


def take(source, store, max_bytes=10_000, given_up=NEVER):
    return files.take(source, files.Store(store, RIGHTS, max_bytes=max_bytes), given_up)


def test_files_are_moved_and_an_old_snapshot_goes(source, tmp_path):
    store = tmp_path / "a" / "store"
    manifest, written = take(source, store)
    assert written == 305
    assert {variable.name for variable in manifest.kept} == {"np", f"v{BIG[0]}", f"v{SMALL[0]}"}
    assert [(lost.name, lost.cell) for lost in manifest.not_kept] == [("lock", 3)]
    assert sorted(os.listdir(store)) == sorted([BIG, SMALL, "manifest.json"])
    assert store.joinpath(BIG).stat().st_mode & 0o777 == 0o400
    again = tmp_path / "again"
    write(again, {BIG: b"big" * 100, OTHER: b"other"})
    assert take(again, store)[1] == 5
    assert sorted(os.listdir(store)) == sorted([BIG, OTHER, "manifest.json"])
    assert BIG in os.listdir(again)  # what is there already stays where it is, and goes with the kernel's folder


def test_a_snapshot_is_placed_and_stays(source, tmp_path):
    store, target = tmp_path / "store", tmp_path / "target"
    take(source, store)
    target.mkdir()
    files.place(store, target, RIGHTS, NEVER)
    assert sorted(os.listdir(target)) == sorted(os.listdir(store))
    for name in os.listdir(target):
        (target / name).unlink()
    assert len(os.listdir(store)) == 3


@pytest.mark.parametrize("make", ["link", "hard link", "pipe", "folder", "longer"])
def test_what_is_no_file_of_the_kernels_own_is_refused_and_the_snapshot_before_stays(source, tmp_path, make):
    store, secret = tmp_path / "store", tmp_path / "secret"
    take(source, store)
    before = {path.name: path.read_bytes() for path in store.iterdir()}
    secret.write_bytes(b"other")
    secret.chmod(0o644)
    bad = tmp_path / "bad"
    write(bad, {OTHER: b"other"})
    (bad / OTHER).unlink()
    if make == "link":
        (bad / OTHER).symlink_to(secret)
    elif make == "hard link":
        (bad / OTHER).hardlink_to(secret)
    elif make == "pipe":
        os.mkfifo(bad / OTHER)
    elif make == "folder":
        (bad / OTHER).mkdir()
    else:
        (bad / OTHER).write_bytes(b"other and more")
    with pytest.raises((KernelSnapshotError, OSError)):
        take(bad, store)
    assert {path.name: path.read_bytes() for path in store.iterdir() if path.is_file() and not path.is_symlink()} == before
    assert secret.stat().st_mode & 0o777 == 0o644
    assert secret.read_bytes() == b"other"


@each(
    "changes",
    [
        {"files": {"../" + "b" * 29: 5}},
        {"files": {"b" * 32: -1}},
        {"groups": "none"},
        {"sources": {"x": 1}},
        {"more": 1},
        {"groups": [{"names": {}, "file": "d" * 32, "data": [0, 1], "blocks": []}]},
    ],
)
def test_a_manifest_of_another_form_is_refused(tmp_path, changes):
    write(tmp_path / "bad", {BIG: b"big"}, **changes)
    with pytest.raises((KernelSnapshotError, ValidationError)):
        take(tmp_path / "bad", tmp_path / "store")
    assert os.listdir(tmp_path / "store") == []


def test_a_manifest_that_is_a_link_or_a_pipe_is_not_read(source, tmp_path):
    (source / "manifest.json").rename(tmp_path / "manifest.json")
    (source / "manifest.json").symlink_to(tmp_path / "manifest.json")
    with pytest.raises(OSError, match="symbolic"):
        take(source, tmp_path / "store")
    (source / "manifest.json").unlink()
    os.mkfifo(source / "manifest.json")
    with pytest.raises(KernelSnapshotError, match="something else"):
        take(source, tmp_path / "store")


def test_more_than_the_bound_is_refused(source, tmp_path):
    with pytest.raises(KernelSnapshotError):
        take(source, tmp_path / "store", max_bytes=304)


def test_files_are_copied_whole_or_not_at_all(source, tmp_path):
    store = tmp_path / "store"
    given_up = threading.Event()
    given_up.set()
    with pytest.raises(KernelSnapshotError):
        take(source, store, given_up=given_up)
    assert os.listdir(store) == []
    (store / "new.part").write_bytes(b"half")  # of a program that has died
    (store / "new.part").chmod(0o400)
    take(source, store)
    assert sorted(os.listdir(store)) == sorted([BIG, SMALL, "manifest.json"])


def test_no_kernel_has_a_file_of_the_store(source, tmp_path):
    store, target = tmp_path / "store", tmp_path / "target"
    with (source / BIG).open("r+b") as kept_open:
        take(source, store)
        kept_open.write(b"BAD")
    target.mkdir()
    files.place(store, target, RIGHTS, NEVER)
    for name in (BIG, SMALL):
        (target / name).write_bytes(b"BAD")
    assert (store / BIG).read_bytes() == b"big" * 100
    assert (store / SMALL).read_bytes() == b"small"


def test_a_file_has_the_name_of_its_content_whatever_the_kernel_says(source, tmp_path):
    store, target = tmp_path / "store", tmp_path / "target"
    (source / BIG).write_bytes(b"BAD" * 100)  # so that a later kernel, which saves BIG, finds this
    manifest, written = take(source, store)
    bad = named(b"BAD" * 100)
    assert (manifest.files, written) == ({bad: 300, SMALL: 5}, 305)
    assert sorted(os.listdir(store)) == sorted([bad, SMALL, "manifest.json"])
    target.mkdir()
    (placed,), _ = files.place(store, target, RIGHTS, NEVER)
    assert [group.file for group in placed.written.groups] == [bad, SMALL]


def test_a_folder_in_place_of_the_kernels_must_be_one(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "scratch").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match=r"."):
        files.new_folder(tmp_path / "scratch", "saved-1")
    assert os.listdir(tmp_path / "elsewhere") == []
    assert files.new_folder(tmp_path / "new", "saved-1").is_dir()
