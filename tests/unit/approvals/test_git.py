"""git: what is asked about, and the tracked files that it shows."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from freeact_sub.approvals import Policy, decide, git_files
from freeact_sub.calls import FileWrite, ShellCommand
from freeact_sub.modes import MODES

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="needs git")


def ruling(command, policy):
    return decide(ShellCommand(command=command, wall=True), policy)


def run_git(folder: Path, *args: str) -> None:
    """git, in preparation of the folder."""
    names = {f"GIT_{role}_{part}": "a@b" for role in ("AUTHOR", "COMMITTER") for part in ("NAME", "EMAIL")}
    env = {"PATH": os.environ["PATH"], "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_ALLOW_PROTOCOL": "file", **names}
    subprocess.run(["git", *args], cwd=folder, env=env, capture_output=True, timeout=240, check=True)


@pytest.fixture
def work(tmp_path):
    """A repository with a submodule and another work tree, `../other`."""
    inner, folder = tmp_path / "inner", tmp_path / "work"
    for path in (inner, folder):
        path.mkdir()
        run_git(path, "init", "-q", "-b", "main")
        (path / "a.txt").write_text("one\n")
        run_git(path, "add", ".")
        run_git(path, "commit", "-qm", "one")
    run_git(folder, "submodule", "add", "-q", str(inner), "sub")
    run_git(folder, "worktree", "add", "-q", "../other")
    return folder


SHOWS = ("git diff", "git diff HEAD -- a.txt", "git diff --unified=1 HEAD")


@pytest.mark.parametrize("place", ["work", "work/sub", "other"])
@pytest.mark.process
def test_a_tracked_secret_is_asked_about_where_git_shows_the_work_tree(work, tmp_path, place):
    policy, folder = Policy(workspace=work if place.startswith("work") else tmp_path / place), tmp_path / place
    (folder / ".env").write_text("x")
    assert {ruling(line, policy).verdict for line in (*SHOWS, "git status", "git log -p")} == {"allow"}
    run_git(folder, "add", ".")
    for line in SHOWS:
        assert (ruling(line, policy).verdict, "reads" in ruling(line, policy).part) == ("ask", True)
    assert {ruling(line, policy).verdict for line in ("git status", "git diff --stat", "git log --oneline -5")} == {"allow"}
    assert ruling("cd $x && git diff", policy).verdict == "ask"


@pytest.mark.parametrize("damage", [b"DIRC\0\0\0\4\0\0\0\0", b"x" * 40, b"DIRC\0\0\0\2\0\0\1\0"])
@pytest.mark.process
def test_an_index_that_cannot_be_read_is_asked_about(work, damage):
    (work / ".git/index").write_bytes(damage)
    assert "the index" in ruling("git diff", Policy(workspace=work)).rule


@pytest.mark.process
def test_a_look_at_a_repository_has_a_bound(work, monkeypatch):
    monkeypatch.setattr(git_files, "LOOK_SECONDS", -1.0)
    found = ruling("git diff", Policy(workspace=work))
    assert (found.verdict, found.rule) == ("ask", "which files git shows is not known: there are too many files to check")


@pytest.mark.parametrize(
    "command",
    [
        *("git blame a", "git branch x", "git branch -D x", "git tag x", "git log --output=x", "git diff --output=x"),
        *("git -c core.pager=x log", "git --exec-path=x log", "git -C x log", "git --git-dir=x log", "git -p log", "git grep -O x", "git fetch", "git push"),
        *("git config -l", "git stash list -p", "git stash", "git add a", "git commit -m x", "git checkout x"),
    ],
)  # fmt: skip
def test_other_forms_of_git_are_asked_for(command):
    assert ruling(command, Policy(workspace=Path("/work space"))).verdict == "ask"


@pytest.mark.parametrize(
    "path", ["x/HEAD", "HEAD", ".git", "x/.git", ".git/config", "x/.git/hooks/y", ".git/commondir", "x/../HEAD"]
)
def test_a_folder_that_git_may_obey_is_not_made_unasked(path):
    policy = {mode: Policy(workspace=Path("/work space"), mode=mode) for mode in MODES}
    assert decide(FileWrite(path=path, operation="create"), policy["ask"]).verdict == "ask"
    assert ruling(f"echo x > {path}", policy["ask"]).verdict == "ask"
    assert decide(FileWrite(path=path, operation="rename"), policy["plan"]).verdict == "deny"
