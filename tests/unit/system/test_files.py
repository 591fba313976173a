"""Files where other programs write as well: no link, pipe or size is a trap."""

import os

import pytest
from support.tables import each

from freeact_sub.cells import StreamText
from freeact_sub.kernels.wire.output import CellOutputBuffer
from freeact_sub.system.safe_files import MAX_BYTES, beneath, make_folder, read_file, replace_file


@each("trap", ["pipe", "folder", "device", "large"])
def test_what_is_no_plain_file_is_not_read_and_not_waited_for(tmp_path, trap):
    path = tmp_path / "file"
    match trap:
        case "pipe":
            os.mkfifo(path)
        case "folder":
            path.mkdir()
        case "device":
            path.symlink_to("/dev/zero")
        case _:
            path.write_bytes(b"x" * (MAX_BYTES + 1))
    with pytest.raises(OSError):
        read_file(path)


def test_a_file_is_replaced_whole_and_keeps_its_mode(tmp_path):
    path = tmp_path / "new" / "file"
    replace_file(path, b"one", mode=0o600)
    assert (path.read_bytes(), path.stat().st_mode & 0o777) == (b"one", 0o600)
    path.chmod(0o640)
    replace_file(path, b"two")
    assert (path.read_bytes(), path.stat().st_mode & 0o777) == (b"two", 0o640)
    assert [item.name for item in path.parent.iterdir()] == ["file"]


def touch(path, mode, root):
    with open(path, mode, opener=beneath(root)):
        pass


def test_folders_are_made_on_the_way_to_what_is_written(tmp_path):
    path = tmp_path / "a" / "b" / "log"
    for _ in range(2):
        with open(path, "a", opener=beneath(tmp_path)) as file:
            file.write("x")
    with open(path, "rb", opener=beneath(tmp_path)) as file:
        assert file.read() == b"xx"
    with pytest.raises(FileNotFoundError):
        touch(tmp_path / "c" / "log", "rb", tmp_path)
    assert not (tmp_path / "c").exists()
    with pytest.raises(ValueError):
        touch("/etc/passwd", "r", tmp_path)


def test_what_the_program_makes_in_a_workspace_is_nothing_for_git(tmp_path):
    own, users = tmp_path / "own", tmp_path / "users"
    users.mkdir()
    for folder in (own, users):
        touch(folder / "outputs" / "agent" / "log", "a", tmp_path)
    assert sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob(".gitignore")) == [
        "own/.gitignore",
        "users/outputs/.gitignore",
    ]
    assert (own / ".gitignore").read_text() == "*\n"
    (own / ".gitignore").write_text("mine")
    touch(own / "outputs" / "agent" / "log", "a", tmp_path)
    make_folder(own)
    make_folder(tmp_path / "new")
    assert (own / ".gitignore").read_text() == "mine"
    assert (tmp_path / "new" / ".gitignore").read_text() == "*\n"


@each("planted", ["a", "a/b", "a/b/log"])
@each("mode", ["x", "a", "w", "r"])
def test_no_link_is_followed(tmp_path, planted, mode):
    outside, root = tmp_path / "outside", tmp_path / "root"
    (outside / "b").mkdir(parents=True)
    for name in ("log", "b/log"):
        (outside / name).write_text("mine")
    (root / planted).parent.mkdir(parents=True)
    (root / planted).symlink_to({"a": outside, "a/b": outside / "b", "a/b/log": outside / "log"}[planted])
    with pytest.raises(OSError):
        touch(root / "a" / "b" / "log", mode, root)
    assert sorted(item.name for item in outside.iterdir()) == ["b", "log"]
    assert {(outside / name).read_text() for name in ("log", "b/log")} == {"mine"}


def test_a_pipe_in_the_place_of_a_log_does_not_stop_the_host(tmp_path):
    os.mkfifo(tmp_path / "log")
    with pytest.raises(OSError):
        touch(tmp_path / "log", "a", tmp_path)


@pytest.mark.parametrize("planted", [".freeact", ".freeact/outputs", ".freeact/outputs/agent/cell.txt"])
async def test_a_planted_link_does_not_lead_a_cells_output_elsewhere(tmp_path, planted):
    outside, root = tmp_path / "outside", tmp_path / "root"
    outside.mkdir()
    (root / planted).parent.mkdir(parents=True)
    (root / planted).symlink_to(outside / "cell.txt" if planted.endswith("txt") else outside)
    buffer = CellOutputBuffer(model_chars=300, file=root / ".freeact/outputs/agent/cell.txt", root=root)
    buffer.add(StreamText(name="stdout", text="x" * 1000))
    assert list(outside.iterdir()) == []
    assert buffer.file is None
    assert buffer.total_chars == 1000


async def test_the_output_of_a_cell_never_goes_into_a_file_that_is_there(tmp_path):
    (tmp_path / "cell.txt").write_text("mine")
    buffer = CellOutputBuffer(model_chars=300, file=tmp_path / "cell.txt", root=tmp_path)
    buffer.add(StreamText(name="stdout", text="x" * 1000))
    assert (tmp_path / "cell.txt").read_text() == "mine"
