"""A Python without ipykernel runs kernels with ours; one that cannot says why in a sentence."""

import json
import subprocess
import sys

import pytest
from support.kernels import no_host, open_kernel, run_cell, spec
from support.sandbox import NEEDS_A_WALL, PROVIDERS, sandboxed

from freeact_sub.config.schema import KernelConfig
from freeact_sub.errors import UnusablePythonError
from freeact_sub.pythons import about
from freeact_sub.pythons.about import NoIpykernelError, installed_in

pytestmark = pytest.mark.kernel


@pytest.fixture(autouse=True, scope="module")
def fork_servers():
    """How they start is what is tested here."""


@pytest.fixture(params=PROVIDERS)
async def provider(request):
    provider = PROVIDERS[request.param]()
    yield provider
    await provider.aclose()


@pytest.fixture(scope="module")
def bare(tmp_path_factory):
    """A virtual environment with nothing in it but a module that ours has too."""
    folder = tmp_path_factory.mktemp("bare") / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    [packages] = folder.glob("lib/python*/site-packages")
    (packages / "wcwidth.py").write_text("ours = False\ndef wcwidth(c): return 1\ndef wcswidth(s, n=None): return len(s)\n")
    (packages / "wcwidth-0.9.dist-info").mkdir()
    return folder


CODE = """
import importlib.metadata, importlib.util, subprocess, sys
import wcwidth
print(sys.prefix, importlib.metadata.version("ipykernel"), wcwidth.ours)
print([importlib.util.find_spec(name) for name in ("freeact_sub", "pydantic_ai", "pandas")])
print(subprocess.run([sys.executable, "-c", "import ipykernel"], capture_output=True).returncode)
"""


@pytest.mark.parametrize("mode", [pytest.param("auto", marks=NEEDS_A_WALL), "full"])
async def test_a_python_without_ipykernel_runs_cells_with_ours_and_nothing_else_of_ours(provider, mode, bare, tmp_path):
    python = str(bare / "bin/python")
    how = sandboxed(mode, tmp_path, KernelConfig(python=python))
    async with open_kernel(provider, tmp_path, python=python, **how) as kernel:
        text = (await run_cell(kernel, CODE)).text
    first, specs, other = text.splitlines()
    assert first == f"{bare} {installed_in(sys.executable).packages['ipykernel']} False"
    assert (specs, other) == ("[None, None, None]", "1")


def fake(tmp_path, **said):
    """A Python that says this of itself."""
    facts = {"own": [], "editable": [], "version": "3.12.0", "abi": installed_in(sys.executable).abi, "packages": {}, **said}
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\necho '{json.dumps(facts)}'\n")
    python.chmod(0o755)
    return str(python)


@pytest.mark.parametrize(
    ("said", "kind", "why"),
    [
        ({"version": "3.10.14"}, UnusablePythonError, r"cannot run cells: it is Python 3\.10\.14, and cells need 3\.11"),
        ({"packages": {"ipykernel": "5.5.6"}}, UnusablePythonError, r"its ipykernel 5\.5\.6 is too old: install 6 or newer"),
        (
            {"abi": "cpython-399-other"},
            NoIpykernelError,
            r"has no ipykernel, and that of freeact-sub works only in Python 3",
        ),
        (
            {"packages": {"traitlets": "4.0"}},
            NoIpykernelError,
            r"does not work with its traitlets 4\.0 \(it needs >=5.*install",
        ),
        ({"packages": {"tornado": "not a version"}}, NoIpykernelError, r"does not work with its tornado not a version"),
    ],
)
def test_a_python_that_cannot_run_cells_says_why(tmp_path, said, kind, why):
    with pytest.raises(kind, match=why) as error:
        installed_in(fake(tmp_path, **said))
    assert "\n" not in str(error.value)


def test_what_is_there_is_not_lent(tmp_path):
    assert installed_in(fake(tmp_path, packages={"ipykernel": "6.29.5"})).lent is None
    lent = installed_in(fake(tmp_path / "..", packages={"traitlets": "5.14.0"})).lent
    assert lent is not None
    assert {"ipykernel", "zmq", "IPython", "cloudpickle"} <= set(lent.modules)
    assert "traitlets" not in lent.modules + lent.packages


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("#!/bin/sh\necho 'it is broken' >&2\nexit 3\n", "it is broken"),
        ("#!/bin/sh\nexit 3\n", "it ended with exit code 3"),
        ("#!/bin/sh\necho hello\n", "it is not Python"),
        ("#!/bin/sh\nexec sleep 1000\n", "it was not ready after 0.5 s"),
        ("no program", "Exec format error"),
    ],
)
def test_a_broken_python_is_one_sentence(tmp_path, script, why, monkeypatch):
    monkeypatch.setattr(about, "ASK_SECONDS", 0.5 if "sleep" in script else 60)
    python = tmp_path / "python"
    python.write_text(script)
    python.chmod(0o755)
    with pytest.raises(UnusablePythonError, match=f"python cannot run cells: {why}$"):
        installed_in(str(python))


async def test_a_python_that_is_removed_while_kernels_run_is_one_sentence(provider, tmp_path):
    folder = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    python = folder / "bin/python"
    async with open_kernel(provider, tmp_path, python=str(python)) as kernel:
        python.unlink()
        assert (await run_cell(kernel, "1 + 1")).text == "2\n"
    other = PROVIDERS["local"]()
    with pytest.raises(UnusablePythonError, match="cannot run cells: it does not exist"):
        await other.start(spec(tmp_path, python=str(python)), no_host)
    await other.aclose()
