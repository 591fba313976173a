"""Code that an agent leaves in the workspace does not run by itself: not in a kernel, an MCP server or a start of the program.

An agent writes wherever it can what Python, the program, a kernel or a server would import or start. Then all of these are
started anew, in the workspace. `test_later_code.py` tries what can be changed; here it is whether something runs.
"""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from support.places import OURS, TESTS, environment, packages_of
from support.sandbox import NEEDS_A_WALL
from support.thorough import sample

pytestmark = [pytest.mark.kernel, pytest.mark.slow, NEEDS_A_WALL]

PLANT = """
import os, py_compile, shutil, subprocess, sys
from pathlib import Path
planted = []
def payload(name):
    return f'\\nimport os as _os\\ntry: _os.close(_os.open({MARK!r} + "/{name}", 65))\\nexcept OSError: pass\\n'
def plant(name, work):
    try: work()
    except (OSError, subprocess.CalledProcessError, shutil.Error): return
    planted.append(name)
def script(path, name):
    path.unlink(missing_ok=True)
    path.write_text(f'#!/bin/sh\\n: > {MARK}/{name}\\n')
    path.chmod(0o755)
def bytecode(source, name):
    new = Path('payload.py'); new.write_text(payload(name))
    target = source.parent / '__pycache__' / f'{source.stem}.{sys.implementation.cache_tag}.pyc'
    py_compile.compile('payload.py', str(target), invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
root = Path.cwd()
found = [Path(folder, name) for folder, _, names in os.walk(root) for name in names]
folders = sorted({path.parent for path in found})
for path in found:
    name = str(path.relative_to(root)).replace('/', '-')
    if path.suffix in ('.py', '.pth'):
        text = payload('append-' + name) if path.suffix == '.py' else f'import os; os.close(os.open({MARK!r} + "/pth", 65))\\n'
        plant(f'append {path}', lambda: open(path, 'a').write(text))
    if path.suffix == '.py' and 'freeact_sub' in str(path):
        plant(f'bytecode {path}', lambda: bytecode(path, 'pyc-' + name))
    if path.parent.name == 'bin':
        plant(f'script {path}', lambda: script(path, 'bin-' + name))
    if path.name == 'pyvenv.cfg':
        plant(f'home {path}', lambda: path.write_text(f'home = {root}/fake\\n'))
MODULES = ('sitecustomize', 'usercustomize', 'conftest', 'json', 'ast', 'asyncio', 'typing', 're', 'site', 'runpy', 'zmq', 'traitlets',
           'ipykernel', 'ipykernel_launcher', 'IPython', 'tornado', 'debugpy', 'pydantic', 'pydantic_ai', 'mcp', 'httpx2', 'socket',
           'signal', 'struct', 'freeact_sub', 'jupyter_client', 'pandas', 'numpy', 'cloudpickle', 'uvloop', 'readline')
for folder in folders:
    for module in MODULES:
        name = f'{module}-{folder.name}'
        if not (folder / f'{module}.py').exists() and not (folder / module).exists():
            plant(f'module {folder}/{module}', lambda: (folder / f'{module}.py').write_text(payload(name)))
    plant(f'new pth {folder}', lambda: (folder / 'new.pth').write_text(f'import os; os.close(os.open({MARK!r} + "/new-pth", 65))\\n'))
for name in ('.venv', 'k', 'repo', 'src', 'tools', 'bin'):
    if Path(name).exists():
        plant(f'folder {name}', lambda: (os.rename(name, name + '-moved'), shutil.copytree(name + '-moved', name, symlinks=True)))
for name in ('python', 'python3', 'git', 'sh', 'env', 'uv', 'node', 'ps'):
    plant(f'program {name}', lambda: script(root / name, 'program-' + name))
texts = {'.env': f'PYTHONSTARTUP={root}/sitecustomize.py\\nPYTHONPATH={root}\\nLD_PRELOAD={root}/x.so\\n', '.envrc': f'touch {MARK}/envrc\\n',
         '.python-version': '3.0', 'ipython_config.py': payload('ipython-config'), 'jupyter_config.py': payload('jupyter-config')}
for name, text in texts.items():
    plant(f'settings {name}', lambda: Path(name).write_text(text))
print(len(planted))
print(planted[:200])
"""


@dataclass(frozen=True, kw_only=True)
class Started:
    """A workspace with the programs that are started in it."""

    python: Path
    kernel: dict[str, Any] = field(default_factory=dict)


def installed(w: Path, python: str) -> Started:
    """The program is installed in the environment of the project."""
    env = environment(w / ".venv", python=python)
    shutil.copytree(OURS / "freeact_sub", packages_of(env) / "freeact_sub", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(OURS / "tools", packages_of(env) / "freeact_sub/tools/definitions")
    (packages_of(env) / "ours.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    return Started(python=env / "bin/python")


def editable(w: Path, python: str) -> Started:
    """The program is installed in editable form, from a checkout in the workspace."""
    env = environment(w / ".venv", python=python)
    shutil.copytree(OURS / "freeact_sub", w / "repo/freeact_sub", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(OURS / "tools", w / "repo/tools")
    (packages_of(env) / "ours.pth").write_text(f"{w / 'repo'}\n{sysconfig.get_path('purelib')}\n")
    return Started(python=env / "bin/python")


def python_of_the_kernel(w: Path, python: str) -> Started:
    """The kernels' Python is in the workspace, the program is not."""
    return Started(
        python=environment(w.parent / "host", python=python) / "bin/python",
        kernel={"python": str(environment(w / "k", python=python) / "bin/python")},
    )


PLACES = (installed, editable, python_of_the_kernel)


def started(
    w: Path, place: Started, mode: str, provider: str, mark: Path, who: dict[str, Any]
) -> tuple[subprocess.CompletedProcess[str], subprocess.CompletedProcess[str]]:
    """Runs `planted.py`, and after it the program once more."""
    (w / "tools").mkdir(exist_ok=True)
    shutil.copy(TESTS / "support/plain_mcp_server.py", w / "tools/server.py")
    server = {
        "command": str(place.python),
        "args": ["-P", "tools/server.py"],
        "env": {"PID_FILE": os.devnull},
        "cwd": str(w),
    }
    kernel = {"readable": [sysconfig.get_path("purelib"), str(OURS)], **place.kernel}
    code = f"MARK = {str(mark)!r}\n{PLANT}"
    words = [str(w), mode, provider, json.dumps(kernel), json.dumps({"a": server}), code]
    environment = {"PATH": os.environ["PATH"], "HOME": str(w.parent), "PYTHONDONTWRITEBYTECODE": "1"}
    commands = ([TESTS / "support/planted.py", *words], ["-m", "freeact_sub", "--version"])
    first, second = (
        subprocess.run(
            [place.python, "-P", *command],
            env=environment | variables,
            check=False,
            cwd=w,
            capture_output=True,
            text=True,
            timeout=400,
            **who,
        )
        for command, variables in zip(commands, ({"PYTHONPATH": str(TESTS)}, {}), strict=True)
    )
    return first, second


@pytest.mark.parametrize(
    ("make", "mode", "provider"),
    sample(list(product(PLACES, ["auto", "plan"], ["fork", "local"])), 3),
)
def test_what_an_agent_leaves_in_the_workspace_does_not_run_by_itself(make, mode, provider, tmp_path):
    check(make, mode, provider, tmp_path, sys.executable, {})


@pytest.mark.skipif(os.getuid() != 0, reason="all tests here run as an ordinary user")
@pytest.mark.parametrize("make", sample(PLACES, 1))
def test_nor_does_it_where_all_runs_as_an_ordinary_user(make):
    who = {"user": 65534, "group": 65534, "extra_groups": []}
    folder = Path(tempfile.mkdtemp(dir="/tmp"))
    try:
        os.chown(folder, 65534, 65534)
        check(make, "auto", "fork", folder, python_of_an_ordinary_user(who), who)
    finally:
        shutil.rmtree(folder)


def python_of_an_ordinary_user(who: dict[str, Any]) -> str:
    """A Python that somebody who is not root can run, of the version for which our packages are."""
    test = f"import sys; sys.path.append({sysconfig.get_path('purelib')!r}); import zmq; print(sys.version_info[:2])"
    for python in (sys.executable, "/usr/bin/python3"):
        try:
            told = subprocess.run([python, "-I", "-c", test], capture_output=True, text=True, check=True, cwd="/", **who)
        except (OSError, subprocess.CalledProcessError):
            continue
        if told.stdout.strip() == str(sys.version_info[:2]):
            return python
    pytest.skip("no Python here that an ordinary user can run with our packages")


def check(
    make: Callable[[Path, str], Started], mode: str, provider: str, folder: Path, python: str, who: dict[str, Any]
) -> None:
    workspace, mark = folder / "around/workspace", folder / "marks"
    workspace.mkdir(parents=True)
    mark.mkdir()
    place = make(workspace, python)
    if who:
        subprocess.run(["chown", "-R", "65534:65534", folder], check=True)
    ran, version = started(workspace, place, mode, provider, mark, who)
    if mode == "full":
        assert os.listdir(mark)
        return
    assert ran.returncode == 0, ran.stderr[-3000:]
    agents = json.loads(ran.stdout.splitlines()[-1])
    assert [text[:3] for agent in agents for text in agent["texts"]] == ["ok:"] * 3, agents
    assert os.listdir(mark) == []
    planted = int(agents[0]["texts"][0].split()[1])
    assert (planted > 0) == (mode == "auto")
    assert version.stdout.startswith("freeact-sub"), version.stderr


def test_without_a_wall_it_does(tmp_path):
    """A test of the test."""
    check(installed, "full", "fork", tmp_path, sys.executable, {})
