"""What code may write unasked is looked up once, and stays known as long as its folder is as it was."""

import os

import pytest

from freeact_sub.kernels.guest.writable import Files


@pytest.fixture
def files(tmp_path):
    (tmp_path / "a").mkdir()
    return Files([str(tmp_path)], [(".*", r"(?ai:[^/]*\.key)"), (".*", r"(?ai:id_rsa[^/]*)")])


def believed(files, path):
    """Whether the hook's first test finds the path."""
    return path in files.free and files.free[path].until > 0


def test_paths_stay_known_while_their_folder_is_as_it_was(files, tmp_path):
    paths = [f"{tmp_path}/a/{number}" for number in range(3)]
    assert all(map(files.are_free, paths))
    files.forget()
    assert not any(believed(files, path) for path in paths)
    assert files.are_free(f"{tmp_path}/a/another")
    assert all(believed(files, path) for path in paths)


@pytest.mark.parametrize("change", ["a link", "a folder", "rules"])
def test_nothing_stays_known_of_a_folder_that_has_changed(files, tmp_path, change):
    path = f"{tmp_path}/a/1"
    assert files.are_free(path)
    files.forget()
    if change == "a link":
        os.symlink("/etc/passwd", path)
    elif change == "a folder":
        (tmp_path / "a").rmdir()
        os.symlink("/etc", tmp_path / "a")
    else:
        files.ask_about([(".*", "1")])
    files.are_free(f"{tmp_path}/a/another")
    assert not believed(files, path)
    assert not files.are_free(path)


@pytest.mark.parametrize("name", ["x.key", "X.KEY", "a.b.key", ".key", "id_rsa", "ID_RSA.pub", ".", "..", ""])
def test_names_that_rules_are_about_are_never_free(files, tmp_path, name):
    assert not files.are_free(f"{tmp_path}/a/{name}")
    assert files.are_free(f"{tmp_path}/a/x{name}x")
