"""Files of a workspace as they were, whatever stands in the workspace; with a real git."""

import asyncio
import errno
import os
import shutil
import subprocess

import pytest

from freeact_sub.kernels.files import states
from freeact_sub.kernels.files.states import MAX_FILE_BYTES, ShadowError, ShadowFiles, line_counts, unified

pytestmark = pytest.mark.process


@pytest.fixture
def workspace(tmp_path):
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


@pytest.fixture
async def files(workspace):
    files = ShadowFiles(workspace)
    yield files
    await files.aclose()


def seen(folder):
    """All that is below a folder, but for the user's repository."""
    return {
        path.relative_to(folder).as_posix(): os.readlink(path) if path.is_symlink() else path.read_bytes()
        for path in folder.rglob("*")
        if (path.is_symlink() or path.is_file()) and not {".git", ".freeact"}.intersection(path.parts)
    }


async def test_files_are_what_they_were_and_back_again(files, workspace):
    (workspace / "kept.txt").write_bytes(b"one\r\ntwo\n")
    (workspace / "run.sh").write_text("#!/bin/sh")
    (workspace / "run.sh").chmod(0o755)
    (workspace / "secret").write_text("s")
    (workspace / "secret").chmod(0o600)
    (workspace / "folder").mkdir()
    (workspace / "folder" / "inner \n ü").write_bytes(bytes(range(256)))
    (workspace / "link").symlink_to("kept.txt")
    (workspace / "turns").mkdir()
    (workspace / "turns" / "a").write_text("a")
    first, before = await files.record(), seen(workspace)
    (workspace / "kept.txt").write_text("changed")
    (workspace / "secret").write_text("other")
    (workspace / "run.sh").unlink()
    (workspace / "folder" / "inner \n ü").unlink()
    (workspace / "folder").rmdir()
    (workspace / "link").unlink()
    (workspace / "link").write_text("no link")
    (workspace / "turns" / "a").unlink()
    (workspace / "turns").rmdir()
    (workspace / "turns").write_text("a file now")
    (workspace / "new").mkdir()
    (workspace / "new" / "file").write_text("new")
    second, after = await files.record(), seen(workspace)
    done, failed = await files.restore(second, first)
    assert (seen(workspace), failed) == (before, [])
    assert set(done) == {"kept.txt", "secret", "run.sh", "folder/inner \n ü", "link", "turns", "turns/a", "new/file"}
    assert not (workspace / "new").exists()
    assert os.access(workspace / "run.sh", os.X_OK)
    assert (workspace / "secret").stat().st_mode & 0o777 == 0o600
    assert await files.record() == first
    await files.restore(first, second)
    assert seen(workspace) == after


async def test_settings_of_the_workspace_are_not_obeyed_and_its_repositories_are_not_touched(files, workspace, tmp_path):
    marker = tmp_path / "marker"
    evil = tmp_path / "evil.sh"
    evil.write_text(f"#!/bin/sh\ntouch {marker}\ncat\n")
    evil.chmod(0o755)

    def repository(folder):
        folder.mkdir(exist_ok=True)
        for arguments in (
            ["init", "-q"],
            ["-c", "user.name=u", "-c", "user.email=e", "commit", "-q", "--allow-empty", "-m", "m"],
        ):
            subprocess.run(["git", *arguments], cwd=folder, check=True, capture_output=True)
        for name in (
            "core.fsmonitor",
            "filter.evil.clean",
            "filter.evil.smudge",
            "filter.evil.process",
            "core.sshCommand",
            "diff.external",
        ):
            subprocess.run(["git", "config", name, str(evil)], cwd=folder, check=True)
        for hook in ("pre-commit", "post-checkout", "post-index-change"):
            (folder / ".git" / "hooks").mkdir(exist_ok=True)
            (folder / ".git" / "hooks" / hook).symlink_to(evil)
        (folder / ".gitattributes").write_text("* filter=evil text=auto eol=crlf ident working-tree-encoding=UTF-16\n")
        (folder / "a.txt").write_bytes(b"$Id$\nx\n")

    repository(workspace)
    repository(workspace / "inner")
    (workspace / "empty").mkdir()
    subprocess.run(["git", "init", "-q"], cwd=workspace / "empty", check=True)

    def of_repositories():
        return {str(path): path.read_bytes() for path in workspace.rglob(".git/**/*") if path.is_file()}

    repositories, before = of_repositories(), seen(workspace)
    first = await files.record()
    (workspace / "a.txt").write_text("other")
    (workspace / "b.txt").write_text("b")
    await files.restore(await files.record(), first)
    assert seen(workspace) == before
    assert of_repositories() == repositories
    assert not marker.exists()


async def test_what_git_ignores_and_the_programs_own_files_stay(files, workspace):
    (workspace / ".gitignore").write_text("*.log\n")
    first = await files.record()
    (workspace / "a.log").write_text("log")
    (workspace / ".freeact").mkdir()
    (workspace / ".freeact" / "x").write_text("ours")
    (workspace / "b").write_text("b")
    done, _ = await files.restore(await files.record(), first)
    assert done == ["b"]
    assert (workspace / "a.log").exists()
    assert (workspace / ".freeact" / "x").exists()


async def test_no_link_leads_a_write_elsewhere(files, workspace, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "f").write_text("outside")
    (workspace / "d").mkdir()
    (workspace / "d" / "f").write_text("before")
    (workspace / "e").mkdir()
    (workspace / "e" / "f").write_text("before")
    first = await files.record()
    (workspace / "d" / "f").write_text("after")
    (workspace / "d" / "g").write_text("new")
    (workspace / "e" / "f").write_text("after")
    second = await files.record()
    for path in workspace.glob("d/*"):
        path.unlink()
    (workspace / "d").rmdir()
    (workspace / "d").symlink_to(outside)  # meanwhile, by code that goes on
    (outside / "g").write_text("outside")
    (workspace / "e" / "f").unlink()
    (workspace / "e" / "f").symlink_to(outside / "f")
    done, failed = await files.restore(second, first)
    assert sorted(failed) == ["d/f", "d/g"]
    assert done == ["e/f"]
    assert seen(outside) == {"f": b"outside", "g": b"outside"}
    assert (workspace / "e" / "f").read_text() == "before"
    assert not (workspace / "e" / "f").is_symlink()


async def test_without_git_or_with_one_that_code_can_write_nothing_is_kept(files, workspace, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(ShadowError, match="git is not installed"):
        await files.record()
    (workspace / "git").write_text("#!/bin/sh\n")
    (workspace / "git").chmod(0o755)
    monkeypatch.setenv("PATH", str(workspace))
    with pytest.raises(ShadowError, match="which an agent's code could change"):
        await files.record()


@pytest.mark.parametrize(
    ("name", "bound", "told"),
    [("MAX_FILES", 4, "5 files"), ("MAX_BYTES", 499, "500 bytes"), ("MAX_LIST_BYTES", 3, "more than 100,000 files")],
)
async def test_a_workspace_that_is_too_large_is_refused_and_not_looked_at_again(
    files, workspace, monkeypatch, name, bound, told
):
    for number in range(5):
        (workspace / str(number)).write_text("x" * 100)
    monkeypatch.setattr(states, name, bound)
    with pytest.raises(ShadowError, match=told):
        await files.record()
    monkeypatch.undo()
    with pytest.raises(ShadowError, match=told):
        await files.record()


async def test_a_cancelled_record_leaves_no_git_and_the_next_one_goes_well(files, workspace):
    (workspace / "a").write_text("a")
    for _ in range(4):
        recording = asyncio.create_task(files.record())
        await asyncio.wait({recording}, timeout=0.02)
        recording.cancel()
        await asyncio.wait({recording})
    first = await files.record()
    (workspace / "a").write_text("b")
    await files.restore(await files.record(), first)
    assert (workspace / "a").read_text() == "a"


async def test_what_has_changed_is_a_unified_diff(files, workspace):
    (workspace / "kept.txt").write_text("same\n")
    (workspace / "text.txt").write_text("one\ntwo\n")
    (workspace / "gone.txt").write_text("gone\n")
    (workspace / "data").write_bytes(b"\0\1")
    before = await files.record()
    (workspace / "text.txt").write_text("one\n2\n")
    (workspace / "gone.txt").unlink()
    (workspace / "data").write_bytes(b"\0\1\2")
    (workspace / "new.txt").write_text("same\n")
    (workspace / "large.txt").write_text("x" * (MAX_FILE_BYTES + 1))
    texts = {file.path: unified(file) for file in await files.changed(before, await files.record())}
    assert list(texts) == ["data", "gone.txt", "large.txt", "new.txt", "text.txt"]
    assert texts["text.txt"] == "--- a/text.txt\n+++ b/text.txt\n@@ -1,2 +1,2 @@\n one\n-two\n+2\n"
    assert texts["gone.txt"].endswith("+++ /dev/null\n@@ -1 +0,0 @@\n-gone\n")
    assert texts["new.txt"].startswith("--- /dev/null\n+++ b/new.txt\n")
    assert "(no text: 2 bytes before, 3 now)" in texts["data"]
    assert "(too large to be compared here)" in texts["large.txt"]
    assert await files.changed(before, before) == []
    counts = {file.path: line_counts(file) for file in await files.changed(before, await files.record())}
    assert counts == {"data": None, "gone.txt": (0, 1), "large.txt": None, "new.txt": (1, 0), "text.txt": (1, 1)}


async def test_a_workspace_that_takes_long_to_read_holds_no_prompt(files, workspace, monkeypatch):
    (workspace / "a").write_text("a")
    with monkeypatch.context() as short:
        short.setattr(states, "RECORD_SECONDS", 0)
        with pytest.raises(ShadowError, match="git still reads the workspace"):
            await files.record()
    (workspace / "a").write_text("b")
    before = await files.record()
    (workspace / "a").write_text("c")
    assert await files.restore(await files.record(), before) == (["a"], [])
    assert (workspace / "a").read_text() == "b"


@pytest.mark.parametrize("ignores", ["made.txt\n", None])
async def test_what_was_ignored_before_a_prompt_stays_and_what_is_ignored_since_goes(files, workspace, ignores):
    (workspace / ".gitignore").write_text("mine.txt\n")
    (workspace / "mine.txt").write_text("the user's")
    first = await files.record()
    (workspace / "made.txt").write_text("the agent's")
    await files.record()
    (workspace / ".gitignore").write_text(ignores) if ignores is not None else (workspace / ".gitignore").unlink()
    assert await files.restore(await files.record(), first) == ([".gitignore", "made.txt"], [])
    assert seen(workspace) == {".gitignore": b"mine.txt\n", "mine.txt": b"the user's"}


async def test_files_that_git_could_not_store_before_a_prompt_stay(files, workspace):
    (workspace / "inner").mkdir()
    (workspace / "inner" / "mine.txt").write_text("the user's")
    subprocess.run(["git", "init", "-q"], cwd=workspace / "inner", check=True)  # without a commit git stores nothing of it
    (workspace / "beside.txt").write_text("a")
    first = await files.record()
    shutil.rmtree(workspace / "inner" / ".git")
    (workspace / "beside.txt").write_text("b")
    assert await files.restore(await files.record(), first) == (["beside.txt"], [])
    assert seen(workspace) == {"inner/mine.txt": b"the user's", "beside.txt": b"a"}


async def test_a_damaged_index_is_no_earlier_state_and_is_made_anew(workspace, tmp_path):
    files = ShadowFiles(workspace, tmp_path / "kept")
    (workspace / "a.txt").write_text("a")
    first = await files.record()
    (workspace / "a.txt").write_text("b")
    (tmp_path / "kept" / "index").write_bytes(b"no index")
    with pytest.raises(ShadowError):
        await files.record()
    assert await files.restore(await files.record(), first) == (["a.txt"], [])
    await files.aclose()


async def test_states_outlive_a_start_on_a_full_disk(workspace, tmp_path, monkeypatch):
    (workspace / "a.txt").write_text("a")
    earlier = ShadowFiles(workspace, tmp_path / "kept")
    first = await earlier.record()
    await earlier.aclose()
    later = ShadowFiles(workspace, tmp_path / "kept")
    with monkeypatch.context() as patch:
        patch.setattr(states.Path, "write_bytes", _full)
        with pytest.raises(ShadowError, match="No space"):
            await later.record()
    (workspace / "a.txt").write_text("b")
    assert await later.restore(await later.record(), first) == (["a.txt"], [])
    await later.aclose()


def _full(*_):
    raise OSError(errno.ENOSPC, "No space left on device")
