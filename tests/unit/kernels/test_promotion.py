"""What a branch has changed in its copy of a workspace, and how it is taken over; the copies are made by hand."""

import errno
import json
import os
import random
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from support.elsewhere import CANNOT_FORK
from support.thorough import THOROUGH

from freeact_sub.errors import KernelBranchError, WorkspaceConflictError
from freeact_sub.kernels.files import NotUndoneError, OwnFiles, lay_over, own_files, places, promote, recover
from freeact_sub.kernels.files.layer import OPAQUE
from freeact_sub.kernels.files.own_files import stamps
from freeact_sub.system.private_folders import KernelFolder

FILES = {"a/one": "1", "a/two": "2", "b/deep/three": "3", "four": "4", ".git/config": "[core]"}


def write(root, files):
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


def tree(root):
    """Every file, link and empty folder with its content, settings of freeact left out."""
    found = {}
    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root))
        if name.split("/")[0] == ".freeact":
            continue
        if path.is_symlink():
            found[name] = f"-> {os.readlink(path)}"
        elif path.is_dir():
            if not any(path.iterdir()):
                found[f"{name}/"] = ""
        elif path.is_file():
            found[name] = path.read_text()
    return found


async def no_overlay(settings):
    """This process has no mounts of its own for an overlay."""
    return f"{settings['workspace']}: there are none"


@pytest.fixture
def workspace(tmp_path):
    (tmp_path / "ws").mkdir()
    write(tmp_path / "ws", FILES)
    return tmp_path / "ws"


@pytest.fixture
def private(tmp_path):
    (tmp_path / "private").mkdir()
    folder = KernelFolder(tmp_path / "private")
    yield folder
    folder.give_up()


@pytest.fixture
async def copy(workspace, private):
    """A copy of all files."""
    own = await lay_over(workspace, private, os.getpid(), None, lay=no_overlay)
    assert own.kind == "copy"
    assert tree(own.root) == tree(workspace)
    return own


@pytest.fixture
def layer(workspace, private):
    """What an overlay leaves in its upper folder."""
    (private.path / "up").mkdir()
    descriptor = os.open(workspace, os.O_RDONLY)
    own = OwnFiles(kind="overlay", root=private.path / "ws", workspace=workspace, folder=private, before=stamps(descriptor))
    os.close(descriptor)
    own.up = private.path / "up"
    return own


async def test_a_copy_tells_what_was_changed_and_it_is_taken_over(copy, workspace):
    assert copy.look().paths == ()
    write(copy.root, {"a/one": "new", "new/file": "n"})
    (copy.root / "a/two").unlink()
    (copy.root / "empty").mkdir()
    (copy.root / "link").symlink_to("/etc/passwd")
    (copy.root / "four").chmod(0o755)
    changes = copy.look()
    assert (changes.added, changes.changed, changes.deleted) == (
        ("empty/", "link", "new/file"),
        ("a/one", "four"),
        ("a/two",),
    )
    assert promote(copy, changes) == changes
    assert tree(workspace) == tree(copy.root)
    assert (workspace / "four").stat().st_mode & 0o777 == 0o755
    assert promote(copy, copy.look()).paths == ()
    write(copy.root, {"a/one": "again", "new/file": "again"})
    (copy.root / "link").unlink()
    assert set(promote(copy, copy.look()).paths) == {"a/one", "new/file", "link"}
    assert tree(workspace) == tree(copy.root)
    assert os.listdir(workspace / ".freeact") == [".gitignore"]


@pytest.mark.skipif(CANNOT_FORK, reason="layers are laid where kernels are forked")
def test_a_layer_tells_what_was_changed(layer, workspace):
    write(layer.up, {"a/one": "1", "b/file": "new", "four/inside": "a folder now"})
    try:
        os.setxattr(layer.up / "b", OPAQUE, b"y")
        os.mknod(layer.up / "a/two", stat.S_IFCHR, 0)
    except OSError as error:
        pytest.skip(f"no overlay could be here: {error}")
    changes = layer.look()
    assert changes.added == ("b/file", "four/inside")
    assert changes.changed == ()
    assert changes.deleted == ("a/two", "b/deep", "b/deep/three", "four")
    promote(layer, changes)
    assert tree(workspace) == {
        ".git/config": "[core]",
        "a/one": "1",
        "b/file": "new",
        "four/inside": "a folder now",
    }


async def test_what_the_workspace_has_changed_too_is_named_and_nothing_is_written(copy, workspace):
    write(copy.root, {"a/one": "mine", "a/two": "both", "new": "mine", "other": "x"})
    (copy.root / "four").unlink()
    write(workspace, {"a/one": "yours", "a/two": "both", "new": "yours", "four": "yours"})
    before = tree(workspace)
    with pytest.raises(WorkspaceConflictError) as caught:
        promote(copy, copy.look())
    assert caught.value.conflicts == ("a/one", "four", "new")
    assert tree(workspace) == before


async def test_no_link_leads_the_host_out_of_the_workspace(copy, workspace, tmp_path):
    outside = tmp_path / "outside"
    write(outside, {"deep/three": "secret"})
    write(copy.root, {"b/deep/three": "written", "a/new": "x"})
    os.mkfifo(copy.root / "pipe")
    changes = copy.look()
    assert changes.left_out == ("pipe",)
    for folder in ("b/deep", "b"):
        (workspace / folder / "three").unlink(missing_ok=True)
    (workspace / "b/deep").rmdir()
    (workspace / "b").rmdir()
    (workspace / "b").symlink_to(outside)
    with pytest.raises(WorkspaceConflictError, match="b/deep/three"):
        promote(copy, changes)
    assert tree(outside) == {"deep/three": "secret"}
    # a folder of the copy is a link when its file is read
    (copy.root / "a/new").unlink()
    (copy.root / "a/one").unlink()
    (copy.root / "a/two").unlink()
    (copy.root / "a").rmdir()
    (copy.root / "a").symlink_to(outside / "deep")
    write(outside, {"deep/new": "secret"})
    with pytest.raises((OSError, WorkspaceConflictError)):
        promote(copy, changes)
    assert not (workspace / "a/new").exists()


async def test_what_freeact_and_git_obey_is_left_out(copy, workspace):
    write(copy.root, {".git/config": "evil", "lib/.Git/hooks/x": "evil", ".freeact/config.toml": "evil", "mcp.json": "{}"})
    copy.kept = ("hooks/pre-commit",)
    write(copy.root, {"hooks/pre-commit": "evil", "fine": "1"})
    changes = promote(copy, copy.look())
    assert changes.paths == ("fine",)
    assert changes.left_out == (
        ".freeact/config.toml",
        ".git/config",
        "hooks/pre-commit",
        "lib/.Git/hooks/x",
        "mcp.json",
    )
    assert tree(workspace) == {**FILES, "fine": "1"}


@pytest.mark.parametrize("step", range(9))
async def test_a_disk_that_is_full_at_any_step_leaves_the_workspace_as_it_was(copy, workspace, monkeypatch, step):
    write(copy.root, {"a/one": "new", "x/y/z": "n", "b/deep/three": "new"})
    (copy.root / "four").unlink()
    changes, before, left = copy.look(), tree(workspace), [step]

    def fails(function):
        def call(*arguments, **options):
            left[0] -= 1
            if left[0] == -1:
                raise OSError(errno.ENOSPC, "no space left on device")
            return function(*arguments, **options)

        return call

    monkeypatch.setattr(places, "pour", fails(places.pour))
    real = {name: getattr(os, name) for name in ("rename", "link")}
    for name, function in real.items():
        monkeypatch.setattr(places.os, name, fails(function))
    with pytest.raises(OSError, match="no space"):
        promote(copy, changes)
    for name, function in real.items():
        setattr(os, name, function)
    assert tree(workspace) == before
    assert os.listdir(workspace / ".freeact") == [".gitignore"]
    monkeypatch.undo()
    promote(copy, changes)
    assert tree(workspace) == tree(copy.root)


async def test_files_on_another_file_system_than_the_stage_are_taken_over(copy, workspace, monkeypatch):
    def to_another(function):
        def call(*arguments, src_dir_fd=None, dst_dir_fd=None, **options):
            if src_dir_fd != dst_dir_fd:
                raise OSError(errno.EXDEV, "Invalid cross-device link")
            return function(*arguments, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd, **options)

        return call

    write(copy.root, {"a/one": "new", "x/y/z": "n", "b/deep/three": "new"})
    (copy.root / "four").unlink()
    (copy.root / "link").symlink_to("a/one")
    for name in ("rename", "link"):
        monkeypatch.setattr(places.os, name, to_another(getattr(os, name)))
    promote(copy, copy.look())
    assert tree(workspace) == tree(copy.root)
    assert os.listdir(workspace / ".freeact") == [".gitignore"]


FULL = """
import asyncio, ctypes, errno, json, os, sys
from pathlib import Path

sys.path[:0] = sys.argv[2:]
from test_promotion import FILES, no_overlay, tree, write
from freeact_sub.kernels.files import lay_over, promote
from freeact_sub.system.private_folders import KernelFolder

here = Path(sys.argv[1])
private, workspace, settings = (here / name for name in ("private", "ws", "settings"))
LIBC = ctypes.CDLL(None, use_errno=True)
REMOUNT = 32

def mounted(folder, options, flags=0):
    if LIBC.mount(b"tmpfs", bytes(folder), b"tmpfs", flags, options.encode()):
        raise OSError(ctypes.get_errno(), "mount")

def leave(folder, what, room):
    "Leaves room for so many pages, or files, in a folder that is a file system of its own."
    found = os.statvfs(folder)
    if what == "files":
        mounted(folder, f"size=1m,nr_inodes={found.f_files - found.f_ffree + room}", REMOUNT)
    elif found.f_bfree > room:
        with open(folder / ".gitignore", "wb") as file:
            os.posix_fallocate(file.fileno(), 0, (found.f_bfree - room) * found.f_bsize)

found = []
for what, full in (("pages", workspace), ("files", workspace), ("pages", settings)):
    for room in range(60):
        for folder in (private, workspace, settings):
            folder.mkdir(exist_ok=True)
        mounted(workspace, "size=1m,nr_inodes=1000")
        mounted(settings, "size=1m,nr_inodes=1000")
        write(workspace, {**FILES, ".gitignore": ""})
        folder = KernelFolder(private)
        copy = asyncio.run(lay_over(workspace, folder, os.getpid(), None, lay=no_overlay))
        write(copy.root, {"a/one": "n" * 9000, "x/y/z": "n" * 5000, "b/deep/three": "new"})
        (copy.root / "four").unlink()
        leave(full, what, room)
        changes, before = copy.look(), tree(workspace)
        try:
            promote(copy, changes)
            told = "done"
        except OSError as error:
            told = errno.errorcode[error.errno]
        left = [path.name for path in workspace.glob(".freeact/*")] + [path.name for path in settings.rglob("*.json")]
        after = {**tree(copy.root), ".gitignore": before[".gitignore"]}
        now = tree(workspace)
        state = "before" if now == before else "after" if now == after else "half"
        found.append((what, full.name, room, told, state, left))
        folder.give_up()
        for folder in (workspace, settings):
            LIBC.umount2(bytes(folder), 2)
        if told == "done":
            break
print(json.dumps(found))
"""


@pytest.mark.process
def test_a_disk_that_is_full_leaves_the_workspace_as_it_was(tmp_path):
    """A file system with room for one more page, or file, at each attempt: the workspace's, and that of the journal."""
    here = Path(__file__).parent
    folders = [str(here), str(here.parent.parent)]
    command = ["unshare", "-rm", sys.executable, "-c", FULL, str(tmp_path), *folders]
    environment = {**os.environ, "XDG_CONFIG_HOME": str(tmp_path / "settings")}
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240, check=False)
    if ran.returncode and "unshare" in ran.stderr:
        pytest.skip(f"no mounts of its own here: {ran.stderr}")
    assert ran.stderr == ""
    found = json.loads(ran.stdout)
    wrong = [each for each in found if (each[3], each[4]) not in (("ENOSPC", "before"), ("done", "after"))]
    assert wrong == []
    assert [each for each in found if each[5] not in ([], [".gitignore"])] == [], "nothing staged is left, and no journal"
    attempts = [each[3] for each in found]
    assert (attempts.count("done"), attempts.count("ENOSPC") > 10) == (3, True), "each was full at first, at every step"


@pytest.fixture
async def cut_off(copy, workspace, monkeypatch):
    """A promotion that fails in the middle of what it does, on a disk that lets nobody undo it; how it was before."""
    write(copy.root, {"a/one": "new", "x/y/z": "n", "b/deep/three": "new"})
    (copy.root / "a/two").unlink()
    before, real, left = tree(workspace), os.rename, [3]

    def rename(*arguments, **options):
        left[0] -= 1
        if left[0] < 0:
            raise OSError(errno.EROFS, "read-only file system")
        real(*arguments, **options)

    with monkeypatch.context() as patched:
        patched.setattr(os, "rename", rename)
        with pytest.raises(NotUndoneError, match=r"read-only file system.*are in \.freeact"):
            promote(copy, copy.look())
    assert tree(workspace) != before
    return before


async def test_what_could_not_be_undone_is_kept_and_put_back_later(cut_off, workspace):
    assert recover(workspace) == 1
    assert tree(workspace) == cut_off
    assert os.listdir(workspace / ".freeact") == [".gitignore"]


async def test_it_is_put_back_too_where_the_workspace_was_moved(cut_off, workspace, tmp_path):
    workspace.rename(tmp_path / "moved")
    (tmp_path / "other").mkdir()
    assert (recover(tmp_path / "other"), recover(tmp_path / "moved")) == (0, 1)
    assert tree(tmp_path / "moved") == cut_off


async def test_what_cannot_be_put_back_is_kept_until_it_can(cut_off, workspace):
    (workspace / "a").rename(workspace / "away")
    (workspace / "a").write_text("in the way")
    assert recover(workspace) == 0
    kept = {path.read_text() for path in (workspace / ".freeact").rglob("*") if path.is_file()}
    assert {"1", "2"} <= kept, "a file of the user's is never lost"
    (workspace / "a").unlink()
    (workspace / "away").rename(workspace / "a")
    assert recover(workspace) == 1
    assert tree(workspace) == cut_off
    assert os.listdir(workspace / ".freeact") == [".gitignore"]


async def test_a_copy_of_a_copy_knows_what_was_changed_before(copy, workspace, tmp_path):
    write(copy.root, {"a/one": "first", "new": "n"})
    (tmp_path / "second").mkdir()
    folder = KernelFolder(tmp_path / "second")
    own = await lay_over(workspace, folder, os.getpid(), copy, lay=no_overlay)
    write(own.root, {"a/two": "second"})
    changes = own.look()
    assert (changes.added, changes.changed) == (("new",), ("a/one", "a/two"))
    promote(own, changes)
    assert tree(workspace) == tree(own.root)
    folder.give_up()


async def test_a_workspace_that_is_too_large_to_copy_is_refused(workspace, private, monkeypatch):
    monkeypatch.setattr(own_files, "MAX_FILES", 3)
    with pytest.raises(KernelBranchError, match="too many files"):
        await lay_over(workspace, private, os.getpid(), None, lay=no_overlay)


@pytest.mark.parametrize("seed", range(200 if THOROUGH else 10))
async def test_whatever_a_branch_writes_the_workspace_becomes_its_copy(copy, workspace, seed):
    draw = random.Random(seed)
    names = [*FILES, "a", "b", "b/deep", "new", "new/x", "a/link"]
    for _ in range(12):
        path = copy.root / draw.choice([name for name in names if not name.startswith(".git")])
        try:
            match draw.randrange(4):
                case 0:
                    write(copy.root, {str(path.relative_to(copy.root)): draw.choice("12345")})
                case 1:
                    path.unlink()
                case 2:
                    path.rename(copy.root / draw.choice(["moved", "a/moved", "b"]))
                case 3:
                    path.symlink_to(draw.choice(["/etc", "a", "gone"]))
        except OSError:
            continue  # such a program fails in a kernel as well
    promote(copy, copy.look())
    assert tree(workspace) == tree(copy.root)
