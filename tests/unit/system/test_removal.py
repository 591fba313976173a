"""Folders that code of a model has filled are removed, whatever it has put there, and nothing else is."""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from support.tables import each
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


@each(("depth", "name"), [(1500, "d"), (5000, "d"), (300, "long name " * 20), (40, "-0")])
@pytest.mark.slow
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


@pytest.mark.process
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


@pytest.mark.slow
def test_what_is_large_is_removed_in_the_background():
    folder = make_folder()
    for number in range(12_000):
        os.close(os.open(folder / f"{number}", os.O_CREAT))
    remove_soon(folder)
    wait_until(lambda: not folder.exists())


MOUNTED = """
import ctypes, logging, os, socket, sys
from pathlib import Path
from freeact_sub.kernels.wall.repositories import find_repositories
from freeact_sub.kernels.files.own_files import found_in
from freeact_sub.errors import FreeactError
from freeact_sub.system.private_folders import make_folder, remove_soon, sweep
from freeact_sub.system.safe_files import work_folders
from freeact_sub.system import safe_files
from freeact_sub.system.removal import remove

BIND, RECURSIVE = 4096, 16384
libc = ctypes.CDLL(None, use_errno=True)

def mount(source, target, kind=None, flags=0, data=None):
    words = [word and os.fsencode(str(word)) for word in (source, target, kind)]
    if libc.mount(*words, flags, data and data.encode()):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(target))

def hanging(target):
    \"\"\"A file system of which nobody answers a question.\"\"\"
    handle = os.open("/dev/fuse", os.O_RDWR)
    mount("never", target, "fuse", 0, f"fd={handle},rootmode=40000,user_id=0,group_id=0")

top = Path.cwd()
kept = top / "kept"
(kept / "inner").mkdir(parents=True)
for path in (kept / "file", kept / "inner/file"):
    path.write_text("kept")
os.chmod(kept, 0o711)

KINDS = {
    "same disk": lambda place: mount(kept, place, flags=BIND),
    "everything": lambda place: mount("/", place, flags=BIND | RECURSIVE),
    "home": lambda place: mount(Path.home(), place, flags=BIND | RECURSIVE),
    "memory": lambda place: (mount("x", place, "tmpfs"), (place / "file").write_text("kept")),
    "processes": lambda place: mount("/proc", place, flags=BIND | RECURSIVE),
    "itself": lambda place: mount(place, place, flags=BIND),
    "two": lambda place: (mount(kept, place, flags=BIND), mount(kept / "inner", place, flags=BIND)),
    "never answers": hanging,
}
said = []
logging.getLogger("freeact_sub.system.private_folders").addHandler(type("Said", (logging.Handler,), {
    "emit": lambda self, record: said.append(record.getMessage())})())
for kind, make in KINDS.items():
    for depth in ("", "a/b/c"):
        folder = make_folder()
        place = folder / depth / "mounted"
        place.mkdir(parents=True)
        (folder / depth / "file").write_text("goes")
        for parent in (folder, *place.parents[:1]):
            (parent / "other").mkdir(exist_ok=True)
        try:
            make(place)
        except OSError as error:
            print("not tried:", kind, error)
            continue
        if not depth:
            safe_files.ANSWER_SECONDS = 0.1 if kind == "never answers" else 60
            assert any(entry.name == "file" for _, entries in work_folders(folder) for entry in entries)
            complete = find_repositories([folder]).complete
            assert not complete or kind != "never answers"
            if kind != "never answers":
                handle = os.open(folder, os.O_RDONLY)
                try:
                    found_in(handle)
                except (FreeactError, OSError):
                    pass
                os.close(handle)
        assert not remove(str(folder)), kind
        assert len(os.listdir(folder)) == 1, "all else goes"
        (folder / "owner").write_text("999999999 1")
        assert folder not in sweep()
        remove_soon(folder)
        assert len(said) >= 2 and all("something is mounted at" in line and str(folder) in line for line in said), said
        said.clear()
        where = next(line.split()[4] for line in open("/proc/self/mountinfo") if line.split()[4].startswith(str(folder)))
        for _ in range(2 if kind == "two" else 1):
            assert libc.umount2(os.fsencode(where), 2) == 0
        assert remove(str(folder)), kind
assert (kept / "file").read_text() == (kept / "inner/file").read_text() == "kept"
assert kept.stat().st_mode & 0o777 == 0o711, "what is mounted keeps its mode"

# the folder itself, and a file
place = top / "fa-mounted"
place.mkdir()
mount(kept, place, flags=BIND)
assert not remove(str(place)) and (place / "file").exists()
folder = make_folder()
(folder / "file").touch()
mount(kept / "file", folder / "file", flags=BIND)
assert not remove(str(folder)) and (kept / "file").read_text() == "kept"
assert libc.umount2(os.fsencode(folder / "file"), 2) == 0
assert remove(str(folder)) and (kept / "file").read_text() == "kept"
print("done")
"""


@pytest.mark.slow
def test_what_is_mounted_in_a_folder_is_not_touched(tmp_path):
    alone = ["unshare", "--user", "--map-root-user", "--mount", "--propagation", "private"]
    if not shutil.which("unshare") or subprocess.run([*alone, "true"], check=False, capture_output=True).returncode:
        pytest.skip("this system lets nobody mount in a namespace")
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    ran = subprocess.run(
        [*alone, sys.executable, "-c", MOUNTED], cwd=tmp_path, check=False, timeout=240, env=environment, capture_output=True
    )
    assert ran.stdout.endswith(b"done\n"), ran.stdout.decode() + ran.stderr.decode()
