"""What runs later outside of the wall stays as it is: environments, editable installs, programs of MCP servers, `PATH`."""

import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest
from support.kernels import open_kernel, run_cell
from support.places import OURS, PLACES, TESTS, Place, environment
from support.sandbox import NEEDS_A_WALL, PREPARED, sandboxed
from support.thorough import THOROUGH

import freeact_sub
from freeact_sub import Agent, Config
from freeact_sub.config.schema import KernelConfig, McpServerConfig
from freeact_sub.kernels.forkserver.fork_provider import ForkKernelProvider
from freeact_sub.kernels.wall.programs import is_in
from freeact_sub.kernels.wall.sandbox import find_kept, pinned, policy_for, source_notice
from freeact_sub.testing import ScriptedModel

pytestmark = [pytest.mark.kernel, NEEDS_A_WALL]

ATTACK = (
    PREPARED
    + """
worked = []
def attempt(name, work):
    try: work()
    except (OSError, subprocess.CalledProcessError, shutil.Error): return
    worked.append(name)
def renameat2(a, b):
    called(libc.syscall(316 if os.uname().machine == 'x86_64' else 276, -100, os.fsencode(a), -100, os.fsencode(b), 2))
def change_through_link(path):
    os.link(path, 'linked'); open('linked', 'a').write('#')
def again(path):
    os.rename(path, str(path) + '-moved'); shutil.copytree(str(path) + '-moved', path, symlinks=True)
def replaced(path):
    Path('mine').write_text('import os'); os.rename('mine', path)
def exchanged(path):
    os.makedirs('my-folder', exist_ok=True); renameat2('my-folder', path)
for path in map(Path, FILES):
    attempt(f'append {path}', lambda: open(path, 'a').write('#'))
    attempt(f'remove {path}', lambda: path.unlink())
    attempt(f'replace {path}', lambda: replaced(path))
    attempt(f'rename {path}', lambda: path.rename('moved'))
    attempt(f'hard link {path}', lambda: change_through_link(path))
    attempt(f'mode {path}', lambda: path.chmod(0o777))
    attempt(f'sed {path}', lambda: run('sed', '-i', 's/a/b/', str(path)))
    attempt(f'a link in its place {path}', lambda: (path.unlink(), path.symlink_to('/bin/sh')))
for path in map(Path, FOLDERS):
    attempt(f'new file {path}', lambda: (path / 'sitecustomize.py').write_text('x'))
    attempt(f'new bytecode {path}', lambda: (path / '__pycache__').mkdir())
    attempt(f'new link {path}', lambda: (path / 'new').symlink_to('/bin/sh'))
    attempt(f'move {path}', lambda: again(path))
    attempt(f'mv {path}', lambda: run('sh', '-c', f'mv {path} {path}-moved && cp -r {path}-moved {path}'))
    attempt(f'exchange {path}', lambda: exchanged(path))
    attempt(f'rmtree {path}', lambda: shutil.rmtree(path))
for path in map(Path, MISSING):
    attempt(f'made {path}', lambda: (path.parent.mkdir(parents=True, exist_ok=True), path.write_text('x')))
Path('ordinary.txt').write_text('x')
print(json.dumps(worked))
"""
)


def attack(workspace: Path, place: Place, kind: str, **settings: Any) -> dict[str, Any]:
    """What a kernel in the workspace could change, and the notices of its start."""
    paths = {"FILES": place.files, "FOLDERS": place.folders, "MISSING": place.missing}
    code = "import json\n" + "".join(f"{name} = {[*map(str, value)]!r}\n" for name, value in paths.items()) + ATTACK
    settings = {"readable": [sysconfig.get_path("purelib"), OURS], **place.settings, **settings}
    python = place.python or workspace / ".venv/bin/python"
    isolated = () if workspace in place.script.parents else ("-P",)
    ran = subprocess.run(
        [python, *isolated, place.script, workspace, kind, json.dumps(settings, default=str), code],
        env={**os.environ, "PYTHONPATH": str(TESTS), **place.env},
        cwd=workspace,
        check=False,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def outer_python(tmp_path_factory):
    return environment(tmp_path_factory.mktemp("outer") / "env") / "bin/python"


KINDS = ("fork", "local")
STARTS = [(name, kind) for at, name in enumerate(PLACES) for kind in (KINDS if THOROUGH else KINDS[at % 2 :][:1])]
"""Each place with one kind of kernel, in turn; with both if `THOROUGH=1`."""


@pytest.mark.slow
@pytest.mark.parametrize(("name", "kind"), STARTS)
def test_a_kernel_cannot_change_what_runs_later(name, kind, tmp_path, outer_python):
    workspace = tmp_path / "around/workspace"
    workspace.mkdir(parents=True)
    place = PLACES[name](workspace, outer_python)
    answer = attack(workspace, place, kind)
    assert (answer["status"], answer["text"]) == ("ok", "[]\n")
    assert (workspace / "ordinary.txt").exists()
    assert any("does not cover" in notice for notice in answer["notices"]) == place.is_open, answer["notices"]
    if place.sources:
        [notice] = [notice for notice in answer["notices"] if f"cannot change {place.sources}" in notice]
        assert "Mode `ask` can change it" in notice
        assert "run this program from an environment of its own" in notice
    if place.is_open:
        refused = attack(workspace, place, kind, sandbox="required", max_processes=0)
        assert refused["status"] == "refused"
        assert "cannot enforce the sandbox" in refused["text"]


async def test_what_a_branch_has_changed_of_it_is_not_taken_over(tmp_path):
    for name in ("tools/server.py", ".venv/pyvenv.cfg", ".venv/bin/tool", "ordinary"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("as it was")
    servers = {"a": McpServerConfig(command="python", args=(str(tmp_path / "tools/server.py"),))}
    code = """
import os, shutil
for name in ('tools/server.py', 'tools/new.py', '.venv/new.pth', 'ordinary'): open(name, 'w').write('changed')
os.remove('.venv/bin/tool'); os.symlink('/bin/sh', '.venv/bin/tool')
"""
    async with Agent(Config(workspace=tmp_path, mode="auto", mcp_servers=servers), model=ScriptedModel([])) as agent:
        branch = await (await agent.branch()).branch(own_files=True)
        assert (await branch.execute(code)).text == ""
        changes = await agent.promote(branch)
    assert (changes.added, changes.changed, changes.deleted) == ((), ("ordinary",), ())
    assert set(changes.left_out) == {"tools/server.py", "tools/new.py", ".venv/new.pth", ".venv/bin/tool"}
    assert (tmp_path / ".venv/bin/tool").read_text() == (tmp_path / "tools/server.py").read_text() == "as it was"
    assert not (tmp_path / "tools/new.py").exists()


async def test_an_environment_that_has_just_been_made_is_kept_from_the_next_kernel(tmp_path):
    """A spare that was started before does not know of it, and is not used."""
    provider = ForkKernelProvider(spares=1)
    make = "import os; os.makedirs('new/bin'); open('new/pyvenv.cfg', 'w').close()"
    try:
        async with open_kernel(provider, tmp_path, **sandboxed("auto", tmp_path)) as kernel:
            assert (await run_cell(kernel, make)).status == "ok"
            await provider.refilled()
        async with open_kernel(provider, tmp_path, **sandboxed("auto", tmp_path)) as kernel:
            for change in (
                "open('new/pyvenv.cfg', 'w')",
                "open('new/bin/python', 'w')",
                "import os; os.rename('new', 'old')",
            ):
                assert (await run_cell(kernel, change)).status == "error"
    finally:
        await provider.aclose()


def test_a_writable_root_folder_is_a_folder_like_any_other(tmp_path):
    policy = policy_for("auto", KernelConfig(writable=(Path("/"),)), tmp_path)
    kept = find_kept(policy)
    assert any(is_in(os.path.realpath(freeact_sub.__path__[0]), path) for path in kept.kept)
    assert "/usr" not in pinned(["/usr"], [Path("/")])
    assert pinned(["/a/b/c"], [Path("/")]) == ["/a", "/a/b"]


def test_the_source_of_a_project_can_be_changed_where_nothing_starts_with_it(tmp_path):
    env = environment(tmp_path / ".venv", tmp_path / "src")
    (tmp_path / "src/pkg").mkdir(parents=True)
    source = str(tmp_path / "src")
    for python, keeps in ((sys.executable, False), (str(env / "bin/python"), True)):
        policy = policy_for("auto", KernelConfig(python=python), tmp_path)
        found = find_kept(policy)
        assert any(is_in(f"{source}/pkg/a.py", [path]) for path in found.kept) == keeps
        assert found.sources == ((source,) if keeps else ())
    steps = source_notice(source, policy).partition("To let mode `auto`, ")[2]
    assert steps == "set kernel.python to a Python in which it is not installed"
