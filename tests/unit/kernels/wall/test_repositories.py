"""What git obeys is found in the files that say it, as git reads them."""

import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from support.thorough import examples

from freeact_sub.kernels.wall.repositories import find_repositories
from freeact_sub.system.git_settings import read_settings

needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="needs git")


def found(*roots: Path) -> set[str]:
    """What is kept, by paths in the first root."""
    return {str(Path(path).relative_to(roots[0])) for path in find_repositories(roots).kept}


@pytest.fixture
def home(tmp_path, monkeypatch):
    for name in ("XDG_CONFIG_HOME", "GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_TEMPLATE_DIR"):
        monkeypatch.delenv(name, raising=False)
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    return folder


@pytest.fixture
def workspace(tmp_path, home):
    folder = tmp_path / "workspace"
    for name in (".git/objects", ".git/refs", "hooks", "real", "tools", "store"):
        (folder / name).mkdir(parents=True)
    for name in (".git/HEAD", "shared", 'sha"red', "a b", "real/shared", "tools/run.sh"):
        (folder / name).touch()
    (folder / "hop").symlink_to("real")
    return folder


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("[include]\n\tpath = ../shared # a comment", "shared"),
        ("[include]\n\tpath = ../shared;a comment", "shared"),
        ('[include]\n\tpath = "../shared" ; a comment', "shared"),
        ('[include]\n\tpath = "../sha\\"red"', 'sha"red'),
        ("[include]\n\tpath = ../sha\\\nred", "shared"),
        ("[include]\n\tpath = ../a b  ", "a b"),
        ("\ufeff[include]\r\n\tpath = ../shared\r\n", "shared"),
        ('[include "x]y"] path = ../shared', "shared"),
        ('[includeIf "gitdir:/a]b"]\n\tpath = ../shared', "shared"),
        ("[color]\n# \\\n[include]\n\tpath = ../shared", "shared"),
        ("[core]\n\thooksPath = hooks # a comment", "hooks"),
        ("[init]\n\ttemplateDir = hooks", "hooks"),
        ('[alias]\n\tx = !sh -c \\"tools/run.sh a\\"', "tools/run.sh"),
        ("[include]\n\tpath = ../hop/shared", "hop"),
        ("[include]\n\tpath = ../hop/shared", "real/shared"),
        ("[include]\n\tpath = ../hop/../real/shared", "hop"),
    ],
)
def test_what_settings_name(text, name, workspace):
    (workspace / ".git/config").write_text(text)
    assert name in found(workspace)


def test_each_link_on_the_way_to_a_repository_is_kept(workspace):
    (workspace / ".git").rename(workspace / "real/git")
    (workspace / ".git").write_text("gitdir: hop/git\n")
    assert found(workspace) == {".git", "hop", "real/git"}
    (workspace / ".git").unlink()
    (workspace / ".git").symlink_to("hop/git")
    assert found(workspace) == {".git", "hop", "real/git"}
    (workspace / "real/git/hooks").mkdir()
    (workspace / "real/git/hooks/pre-commit").symlink_to(workspace / "other/run.sh")
    (workspace / "other").symlink_to("tools")
    assert found(workspace) == {".git", "hop", "real/git", "other", "tools/run.sh"}


def test_a_circle_of_links_ends(workspace):
    (workspace / "a").symlink_to("b")
    (workspace / "b").symlink_to("a")
    (workspace / ".git/config").write_text("[include]\n\tpath = ../a/x\n")
    assert ".git" in found(workspace)


def test_objects_of_others_are_kept(workspace):
    (workspace / ".git/objects/info").mkdir()
    (workspace / ".git/objects/info/alternates").write_text("../../store\n")
    assert "store" in found(workspace)


@pytest.mark.parametrize("variable", ["", "XDG_CONFIG_HOME", "GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM"])
def test_what_the_user_has_set_counts_without_a_repository_too(variable, workspace, home, tmp_path, monkeypatch):
    shutil.rmtree(workspace / ".git")
    file = (
        tmp_path / "user/git/config"
        if variable == "XDG_CONFIG_HOME"
        else tmp_path / "user/config"
        if variable
        else home / ".gitconfig"
    )
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"[core]\n\thooksPath = {workspace}/hooks\n[init]\n\ttemplateDir = {workspace}/store\n")
    if variable:
        monkeypatch.setenv(variable, str(tmp_path / "user" if variable == "XDG_CONFIG_HOME" else file))
    assert found(workspace) == {"hooks", "store"}


def test_settings_of_the_user_that_stand_in_the_workspace_are_kept(workspace, home):
    (home / ".gitconfig").symlink_to(workspace / "shared")
    assert "shared" in found(workspace)
    assert found(home) == {".gitconfig"}


@pytest.mark.slow
def test_a_repository_that_is_made_right_after_a_look_is_found(workspace):
    for number in range(200):  # many within one tick of a file system's clock
        folder = workspace / f"new{number}"
        folder.mkdir()
        find_repositories([folder])
        (folder / ".git").mkdir()
        assert found(folder) == {".git"}


PIECES = ['"', "\\", "#", ";", "\n", " ", "a", "=", '\\"', "\\\\", "\\n", '[c "x]"]\n', "y=1", "[d]", "\\\n"]


@needs_git
@settings(max_examples=examples(100), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.sampled_from(PIECES), max_size=14).map("".join))
@example('"a ; b" ; c')
@example("a\\\n  b \\\\")
@pytest.mark.process
def test_settings_are_read_as_git_reads_them(tmp_path, text):
    file = tmp_path / "config"
    file.write_text(f"[a]\n x = {text}\n")
    listed = subprocess.run(["git", "config", "-f", file, "-l", "-z"], capture_output=True, text=True, check=False)
    if listed.returncode == 0:
        expected = []
        for item in listed.stdout.split("\0")[:-1]:
            name, _, value = item.partition("\n")
            expected.append((name.split(".")[0], name.rpartition(".")[2], value))
        assert list(read_settings(file.read_text())) == expected


@given(st.lists(st.sampled_from([*PIECES, "\t", "]", "[", '"', "\0", "é"]) | st.text(max_size=5), max_size=30).map("".join))
@example("[" * 50_000)
@example('["' * 50_000)
@example("[a\\" * 50_000)
@example("x=" + '"a' * 50_000)
def test_any_text_is_read(text):
    list(read_settings(text))
