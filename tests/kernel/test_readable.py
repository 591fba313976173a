"""What kernels in `plan` and `auto` can read of the Python that runs them, and no more."""

import json
import subprocess
import sys

import pytest
from support.kernels import open_kernel, run_cell
from support.sandbox import LIMITED, NEEDS_A_WALL, PROVIDERS, replace_config, sandboxed

from freeact_sub.config.schema import KernelConfig
from freeact_sub.kernels.wall.sandbox import policy_for
from freeact_sub.pythons.about import installed_in

pytestmark = pytest.mark.kernel


@pytest.fixture(params=PROVIDERS)
async def provider(request):
    provider = PROVIDERS[request.param]()
    yield provider
    await provider.aclose()


def test_what_a_python_consists_of_is_read_and_editable_installs_are_named(tmp_path, monkeypatch):
    environment, elsewhere = tmp_path / "environment", tmp_path / "elsewhere"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    [packages] = environment.glob("lib/python*/site-packages")
    for name in ("pth/src", "finder/src/package", "other", "plain"):
        (elsewhere / name).mkdir(parents=True)
    (packages / "a.pth").write_text(f"# comment\nimport sys\n{elsewhere}/pth/src\n/does/not/exist\n")
    (packages / "__editable___b_finder.py").write_text(
        f"x = 1\nMAPPING: dict[str, str] = {{'package': '{elsewhere}/finder/src/package'}}\n"
    )
    for name, folder, kind in (
        ("a", "pth", "editable"),
        ("b", "finder", "editable"),
        ("c", "other", "editable"),
        ("d", "plain", "x"),
    ):
        (packages / f"{name}-1.dist-info").mkdir()
        content = {"url": f"file://{elsewhere}/{folder}", "dir_info": {kind: True}}
        (packages / f"{name}-1.dist-info/direct_url.json").write_text(json.dumps(content))
    monkeypatch.setenv("PYTHONPATH", str(elsewhere))
    monkeypatch.chdir(elsewhere)
    config = KernelConfig(python=str(environment / "bin/python"))
    policy = policy_for("auto", config, tmp_path / "workspace")
    assert {str(path) for path in policy.not_readable} == {
        f"{elsewhere}/{name}" for name in ("pth/src", "finder/src/package", "other")
    }
    for path in (packages, environment / "bin/python"):
        assert any(path.is_relative_to(folder) for folder in policy.readable)
    for path in (elsewhere, environment):
        assert not any(path.is_relative_to(folder) for folder in policy.readable)
    readable = replace_config(config, readable=policy.not_readable)
    assert policy_for("auto", readable, tmp_path / "workspace").not_readable == ()


@NEEDS_A_WALL
async def test_code_reads_no_more_than_python_and_what_is_named(provider, tmp_path, monkeypatch):
    """Not the folder of the script that uses the library; what is installed from elsewhere once it is named."""
    program, workspace = tmp_path / "program", tmp_path / "workspace"
    for folder in (program, workspace):
        folder.mkdir()
    (program / "beside.py").write_text("value = 7")
    monkeypatch.syspath_prepend(str(program))
    installed_in.cache_clear()
    code = f"import sys; sys.path.append({str(program)!r}); import json, sqlite3, ssl, IPython, beside; beside.value"
    async with open_kernel(provider, workspace, **sandboxed("auto", workspace)) as kernel:
        assert "No module named 'beside'" in (await run_cell(kernel, code)).text
    config = replace_config(LIMITED, readable=(program,))
    async with open_kernel(provider, workspace, **sandboxed("auto", workspace, config)) as kernel:
        assert (await run_cell(kernel, code)).text == "7\n"
