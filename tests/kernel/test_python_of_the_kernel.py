"""Programs that a cell starts are those of its kernel's Python, also where that is another one than ours."""

import subprocess
import sys
import sysconfig

import pytest
from support.agents import cell, of_kind, read
from support.kernels import PROVIDERS, open_kernel, run_cell

from freeact_sub import Agent, Config
from freeact_sub.config.schema import KernelConfig
from freeact_sub.events import CodeExecutionOutput
from freeact_sub.testing import ScriptedModel

pytestmark = pytest.mark.kernel

CODE = """
import os, sys
print("prefix", sys.prefix)
!python -c "import sys; print('python', sys.prefix)"
!pip install x
%pip --version
!echo venv $VIRTUAL_ENV
print(agent.shell("pip install y; python -c 'import sys; print(sys.prefix)'", reason="r").output)
"""


@pytest.fixture(autouse=True, scope="module")
def fork_servers():
    """How they start is what is tested here."""


@pytest.fixture(scope="module")
def other_python(tmp_path_factory):
    """A virtual environment that has ipykernel, and a `pip` of its own that only says its name."""
    folder = tmp_path_factory.mktemp("other") / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    [packages] = folder.glob("lib/python*/site-packages")
    (packages / "ours.pth").write_text(sysconfig.get_path("purelib") + "\n")
    (folder / "bin" / "pip").write_text(f"#!/bin/sh\necho 'pip of {folder}'\n")
    (folder / "bin" / "pip").chmod(0o755)
    return folder


@pytest.mark.parametrize("provider", ["fork", "local"])
async def test_pip_and_python_in_a_cell_are_those_of_the_kernel(tmp_path, other_python, provider, monkeypatch):
    monkeypatch.setenv("VIRTUAL_ENV", str(tmp_path))
    kernel = KernelConfig(python=str(other_python / "bin" / "python"), provider=provider, spares=0)
    config = Config(workspace=tmp_path, mode="full", kernel=kernel)
    async with Agent(config, model=ScriptedModel([[cell(CODE)], "done"])) as agent:
        events, _ = await read(agent.run("x"))
    [end] = of_kind(events, CodeExecutionOutput)
    lines = end.text.splitlines()
    assert f"prefix {other_python}" in lines
    assert f"python {other_python}" in lines
    assert lines.count(f"pip of {other_python}") >= 2
    assert f"venv {other_python}" in lines
    assert lines.count(str(other_python)) >= 1


async def test_the_python_that_runs_us_is_first_too(tmp_path):
    code = "import os, sys\nprint(os.environ['PATH'].split(':')[0] == os.path.dirname(sys.executable))"
    config = Config(workspace=tmp_path, mode="full", kernel=KernelConfig(env={"PATH": "/usr/bin:/bin"}, spares=0))
    async with Agent(config, model=ScriptedModel([[cell(code)], "done"])) as agent:
        events, _ = await read(agent.run("x"))
    [end] = of_kind(events, CodeExecutionOutput)
    assert end.text == "True"


@pytest.mark.parametrize("name", ["fork", "local"])
async def test_a_kernel_starts_with_no_module_of_the_workspace(name, tmp_path):
    """Code behind a wall may have written them, and the next kernel may have none."""
    for module in ("ipykernel_launcher", "runpy", "ipykernel", "zmq", "sitecustomize", "json"):
        (tmp_path / f"{module}.py").write_text(f"open('imported-{module}', 'w').close()\n")
    (tmp_path / "own.py").write_text("value = 7\n")
    provider = PROVIDERS[name]()
    try:
        async with open_kernel(provider, tmp_path) as kernel:
            assert (await run_cell(kernel, "import own; own.value")).text == "7\n"
            assert list(tmp_path.glob("imported-*")) == []
    finally:
        await provider.aclose()
