"""What git obeys in a workspace stays as it is: kernels in `auto` with nothing but the wall in their way."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from support.branches import branched, text_of
from support.kernels import no_host, open_kernel, run_cell, spec
from support.sandbox import LIMITED, NEEDS_A_WALL, PREPARED, PROVIDERS, replace_config, sandboxed

from freeact_sub.kernels.forkserver.fork_provider import ForkKernelProvider
from freeact_sub.kernels.wall import repositories
from freeact_sub.kernels.wall.repositories import find_repositories

pytestmark = [
    pytest.mark.kernel,
    NEEDS_A_WALL,
    pytest.mark.skipif(shutil.which("git") is None, reason="needs git"),
]


@pytest.fixture(params=PROVIDERS)
async def provider(request):
    provider = PROVIDERS[request.param]()
    yield provider
    await provider.aclose()


def git(folder: Path, *arguments: str) -> str:
    who = ["-c", "user.name=x", "-c", "user.email=x@example.org", "-c", "protocol.file.allow=always"]
    command = ["git", *who, *arguments]
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout


def repository(folder: Path) -> Path:
    """A repository with one commit."""
    folder.mkdir(parents=True, exist_ok=True)
    git(folder, "init", "-q", "-b", "main")
    git(folder, "config", "maintenance.auto", "false")  # else it goes on in the background
    (folder / "file").write_text("x")
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", "x")
    return folder


def contents(*roots: Path) -> dict[str, bytes]:
    """All that git obeys in the roots, as bytes by path."""
    found = {}
    for root in roots:
        for folder, names, files in os.walk(root):
            for name in (*names, *files):
                path = Path(folder, name)
                shown = os.readlink(path).encode() if path.is_symlink() else path.read_bytes() if path.is_file() else b""
                found[str(path)] = shown
    return found


REPOSITORY = """
G, T = Path(GIT), Path(GIT).parent
evil = '[core]\\n\\tfsmonitor = "touch PWN; false"\\n'
def rename(path):
    os.rename(path, f'{path}-moved')
def again(path):
    try: os.rename(path, f'{path}-moved')
    finally: shutil.copytree(f'{path}-moved', path)
def renameat2(a, b):
    called(libc.syscall(316 if os.uname().machine == 'x86_64' else 276, -100, os.fsencode(a), -100, os.fsencode(b), 2))
def openat2(path):
    how = struct.pack('=QQQ', os.O_WRONLY | os.O_CREAT, 0o600, 0)
    called(libc.syscall(437, -100, os.fsencode(path), how, 24))
def link_and_write():
    os.link(G / 'config', T / 'linked'); (T / 'linked').write_text(evil)
def in_folder():
    os.chdir(G)
    try: Path('config').write_text(evil)
    finally: os.chdir(HERE)
def by_descriptor():
    f = os.open(G, os.O_RDONLY)
    os.open('commondir', os.O_CREAT | os.O_WRONLY, dir_fd=f)
def link_in_its_place():
    os.symlink('elsewhere', T / 'link')
    os.rename(T / 'link', G)
def exchanged():
    os.makedirs(T / 'mine', exist_ok=True)
    renameat2(T / 'mine', G)
HERE = os.getcwd()
ATTEMPTS = {
    'config': lambda: (G / 'config').write_text(evil),
    'config replaced': lambda: (Path('c').write_text(evil), os.rename('c', G / 'config')),
    'new file': lambda: (G / 'commondir').write_text('..'),
    'config.worktree': lambda: (G / 'config.worktree').write_text(evil),
    'attributes': lambda: (G / 'info/attributes').write_text('* filter=x'),
    'hook': lambda: (G / 'hooks/pre-commit').write_text('touch PWN'),
    'mode': lambda: os.chmod(G, 0o777),
    'rename': lambda: rename(G),
    'rename and copy': lambda: again(G),
    'exchange': exchanged,
    'mv': lambda: run('sh', '-c', f'mv {G} {G}-moved && cp -r {G}-moved {G}'),
    'remove': lambda: shutil.rmtree(G),
    'git config': lambda: run('git', '-C', T, 'config', 'core.fsmonitor', 'touch PWN; false'),
    'git init': lambda: run('git', 'init', '-q', '--template=', '--shared=all', T),
    'git worktree add': lambda: run('git', '-C', T, 'worktree', 'add', '-f', 'new-tree'),
    'hard link': link_and_write,
    'in the folder': in_folder,
    'by descriptor': by_descriptor,
    'openat2': lambda: openat2(G / 'config'),
    'link in its place': link_in_its_place,
    'rename of the folder above': lambda: again(T),
    'rename of the one above that': lambda: again(T.parent),
    'bind': lambda: called(libc.mount(b'/tmp', os.fsencode(G), None, 4096, None)),
    'unmount': lambda: called(libc.umount2(os.fsencode(G), 2)),
    'a writable mount': lambda: called(libc.mount(None, os.fsencode(G), None, 32 | 4096, None)),
    'through /proc': lambda: open(f'/proc/self/root{G}/config', 'w'),
}
worked = []
for name, attempt in ATTEMPTS.items():
    try:
        attempt()
        worked.append(name)
    except (OSError, subprocess.CalledProcessError, shutil.Error):
        pass
print(worked)
"""


async def attempts(kernel, git_folder: Path) -> str:
    await run_cell(kernel, PREPARED)
    return (await run_cell(kernel, f"GIT = {str(git_folder)!r}\n{REPOSITORY}")).text


async def test_a_repository_in_the_workspace_stays_as_it_is(provider, tmp_path):
    workspace = repository(tmp_path / "workspace")
    before = contents(workspace / ".git")
    async with open_kernel(provider, workspace, **sandboxed("auto", workspace)) as kernel:
        assert await attempts(kernel, workspace / ".git") == "[]\n"
        assert "On branch main" in (await run_cell(kernel, "!git status")).text
    assert contents(workspace / ".git") == before
    assert not (workspace / "PWN").exists()


async def test_a_repository_deep_in_the_workspace_stays_too_and_so_do_the_folders_above_it(provider, tmp_path):
    workspace = tmp_path / "workspace"
    inner = repository(workspace / "vendor/library")
    before = contents(inner / ".git")
    async with open_kernel(provider, workspace, **sandboxed("auto", workspace)) as kernel:
        assert await attempts(kernel, inner / ".git") == "[]\n"
        ran = await run_cell(
            kernel, "(T / 'file').write_text('y'); (T / 'new').mkdir(); os.rename(T / 'file', T / 'new/file')"
        )
        assert ran.status == "ok", ran.text
    assert contents(inner / ".git") == before
    assert (inner / "new/file").read_text() == "y"


async def test_a_branch_cannot_change_it_either(tmp_path):
    workspace, provider = repository(tmp_path / "workspace"), ForkKernelProvider(spares=0)
    before = contents(workspace / ".git")
    try:
        async with open_kernel(provider, workspace, **sandboxed("auto", workspace)) as kernel:
            await text_of(kernel, "1")
            async with branched(kernel) as branch:
                assert await attempts(branch, workspace / ".git") == "[]\n"
    finally:
        await provider.aclose()
    assert contents(workspace / ".git") == before


async def test_a_workspace_in_a_repository_and_writable_folders_around_the_workspace(provider, tmp_path):
    """The `.git` above, where it can be written, and the workspace itself, which is no mount of its own then."""
    outer = repository(tmp_path / "outer")
    workspace = repository(outer / "inner/workspace")
    git(outer, "config", "core.hooksPath", "inner/workspace/hooks")
    (workspace / "hooks").mkdir()
    (workspace / "hooks/pre-commit").write_text("true")
    before = contents(outer / ".git", workspace / ".git", workspace / "hooks")
    for writable in ((), (outer,)):
        config = replace_config(LIMITED, writable=writable)
        async with open_kernel(provider, workspace, **sandboxed("auto", workspace, config)) as kernel:
            for folder in (workspace / ".git", outer / ".git"):
                assert await attempts(kernel, folder) == "[]\n"
            ran = await run_cell(kernel, f"open({str(workspace / 'hooks/pre-commit')!r}, 'w')")
            assert ran.status == "error"
    assert contents(outer / ".git", workspace / ".git", workspace / "hooks") == before


async def test_what_a_repository_names_elsewhere_stays_too(provider, tmp_path):
    """Files and links that lead to a repository, bare ones, submodules, worktrees, included settings, hooks, programs."""
    workspace = repository(tmp_path / "workspace")
    library = repository(tmp_path / "library")
    git(workspace, "submodule", "add", "-q", str(library), "modules/sub")
    git(workspace, "worktree", "add", "-q", "trees/other")
    git(workspace, "init", "-q", "--bare", "bare")
    (workspace / "separate").mkdir()
    git(workspace / "separate", "init", "-q", "--separate-git-dir", str(workspace / "data"))
    linked = repository(workspace / "linked")
    (linked / ".git").rename(workspace / "behind-the-link")
    (linked / ".git").symlink_to("../behind-the-link")
    for name in ("shared.config", "more.config", "tools/filter.sh", "tools/hook.sh", "hooks/pre-push", "mcp-elsewhere.json"):
        (workspace / name).parent.mkdir(exist_ok=True)
        (workspace / name).write_text("")
    git(workspace, "config", "include.path", "../shared.config")
    git(workspace, "config", "-f", "shared.config", "includeIf.onbranch:main.path", "more.config")
    git(workspace, "config", "-f", "more.config", "core.hooksPath", "hooks")
    git(workspace, "config", "filter.x.clean", "sh ./tools/filter.sh %f")
    (workspace / ".git/hooks/post-commit").symlink_to("../../tools/hook.sh")
    (workspace / "mcp.json").symlink_to("mcp-elsewhere.json")
    files = (
        *("modules/sub/.git", "trees/other/.git", ".gitmodules", "bare/config", "data/config", "separate/.git"),
        *(
            ".git/modules/modules/sub/config",
            ".git/worktrees/other/commondir",
            "behind-the-link/config",
            "mcp-elsewhere.json",
        ),
        *("shared.config", "more.config", "tools/filter.sh", "tools/hook.sh", "hooks/pre-push"),
    )
    links_and_folders = (
        "linked/.git",
        "mcp.json",
        "bare",
        "data",
        "behind-the-link",
        "hooks",
        ".git",
        "modules/sub",
        "tools",
    )
    code = f"""
import os, shutil
from pathlib import Path
worked = []
for name in {files!r}:
    for attempt in (lambda: open(name, 'a'), lambda: os.remove(name), lambda: os.chmod(name, 0o777)):
        try: attempt(); worked.append(name)
        except OSError: pass
for name in {(*files, *links_and_folders)!r}:
    for attempt in (lambda: os.rename(name, 'moved'), lambda: os.rename('mine', name)):
        Path('mine').write_text('x')
        try: attempt(); worked.append(name)
        except OSError: pass
print(worked)
_ = Path('tools/new').write_text('x')
"""
    async with open_kernel(provider, workspace, **sandboxed("auto", workspace)) as kernel:
        ran = await run_cell(kernel, code)
    assert ran.text == "[]\n"
    assert git(workspace / "trees/other", "status", "--short") == ""


async def test_a_spare_does_not_know_of_a_later_repository_and_is_not_used(tmp_path):
    provider = ForkKernelProvider(spares=1)
    try:
        first = await provider.start(spec(tmp_path, **sandboxed("auto", tmp_path)), no_host)
        await provider.refilled()
        inner = repository(tmp_path / "inner")
        before = contents(inner / ".git")
        second = await provider.start(spec(tmp_path, **sandboxed("auto", tmp_path)), no_host)
        assert await attempts(second, inner / ".git") == "[]\n"
        for kernel in (first, second):
            await kernel.aclose()
    finally:
        await provider.aclose()
    assert contents(inner / ".git") == before


async def test_past_the_bound_it_is_told(tmp_path, monkeypatch):
    for number in range(30):
        (tmp_path / f"folder-{number}").mkdir()
    (tmp_path / "node_modules/a/b/.git").mkdir(parents=True)
    assert find_repositories([tmp_path]).kept == (str(tmp_path / "node_modules/a/b/.git"),)
    monkeypatch.setattr(repositories, "MAX_FOLDERS", 20)
    notices: list[str] = []
    provider = ForkKernelProvider(spares=0, on_notice=notices.append)
    try:
        async with open_kernel(provider, tmp_path, **sandboxed("auto", tmp_path)):
            pass
    finally:
        await provider.aclose()
    assert len(notices) == 1
    assert "repositories of git that were not found" in notices[0]


def test_a_repository_that_leads_in_circles_or_to_a_pipe_is_searched_all_the_same(tmp_path):
    repository(tmp_path)
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "a").mkdir()
    (tmp_path / "a/.git").write_text("gitdir: ../a/.git\n")
    (tmp_path / "b").mkdir()
    os.mkfifo(tmp_path / "b/.git")
    git(tmp_path, "config", "include.path", "config")
    found = find_repositories([tmp_path])
    assert found.kept == tuple(str(tmp_path / name) for name in (".git", "a/.git", "b/.git"))
    assert found.complete
