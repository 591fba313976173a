"""Variables whose modules have changed since they were saved: code behind a wall may have done it, so a person is asked."""

import py_compile

import pytest
import pytest_asyncio
from support.kernels import open_kernel, run_cell
from support.sandbox import NEEDS_A_WALL

from freeact_sub.config.schema import KernelConfig
from freeact_sub.kernels.forkserver.fork_provider import ForkKernelProvider
from freeact_sub.kernels.wall.sandbox import policy_for

pytestmark = [pytest.mark.kernel, NEEDS_A_WALL, pytest.mark.asyncio(loop_scope="module")]

CLASS = "class Point:\n    def __init__(self, x):\n        self.x = x\n"
USES = "import helper, pkg.inner, late\nfrom pkg.inner import Point\npoint, other, plain = Point(3), helper.Point(4), 5"
SHOWS = "print(point.x, other.x, plain, pkg.inner.__name__)"
ESCAPES = CLASS + "open('escaped', 'w').close()\n"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared_provider(tmp_path_factory):
    provider = ForkKernelProvider(spares=0)
    async with open_kernel(provider, tmp_path_factory.mktemp("first")):
        pass  # its server is of the module, too
    yield provider
    await provider.aclose()


def options(workspace, mode):
    return {"mode": mode, "sandbox": policy_for(mode, KernelConfig(sandbox="auto"), workspace)}


@pytest_asyncio.fixture(loop_scope="module")
async def workspace(tmp_path, shared_provider):
    """In it variables were saved that need modules of its own, in mode ask."""
    workspace = tmp_path / "work"
    (workspace / "pkg").mkdir(parents=True)
    (workspace / "elsewhere").mkdir()
    (workspace / "data").mkdir()
    for name in ("helper", "pkg/inner", "elsewhere/late"):
        (workspace / f"{name}.py").write_text(CLASS)
    (workspace / "pkg/__init__.py").write_text("")
    async with open_kernel(shared_provider, workspace, **options(workspace, "ask")) as kernel:
        ran = await run_cell(kernel, "import sys\nsys.path[:0] = ['.', 'elsewhere']\n" + USES)
        assert ran.status == "ok", ran.text
        await kernel.snapshot(tmp_path / "store")
    return workspace


async def in_auto(provider, workspace, files):
    """Code behind the wall writes files; None: it removes one."""
    code = "import os, pathlib\n" + "".join(
        f"os.remove({path!r})\n"
        if text is None
        else f"pathlib.Path({path!r}).parent.mkdir(exist_ok=True)\npathlib.Path({path!r}).write_bytes({text!r})\n"
        for path, text in files.items()
    )
    async with open_kernel(provider, workspace, **options(workspace, "auto")) as kernel:
        ran = await run_cell(kernel, code)
        assert ran.status == "ok", ran.text


EVIL = ESCAPES.encode()


@pytest.mark.parametrize(
    ("files", "named"),
    [
        ({"helper.py": EVIL}, "helper.py, which has changed since"),
        ({"pkg/__init__.py": EVIL}, "pkg/__init__.py, which has changed since"),
        ({"pkg/inner.py": EVIL}, "pkg/inner.py, which has changed since"),
        ({"elsewhere/late.py": EVIL}, "elsewhere/late.py, which has changed since"),
        ({"late.py": EVIL}, "late.py, which was not there"),
        ({"helper/__init__.py": EVIL}, "helper, which was not there"),
        ({"pkg/inner/__init__.py": EVIL}, "inner, which was not there"),
        ({"helper.py": None, "helper.pyc": b"?"}, "helper.py is gone since"),
    ],
)
async def test_a_person_is_asked_before_what_code_behind_a_wall_has_changed_runs(
    shared_provider, tmp_path, workspace, files, named
):
    await in_auto(shared_provider, workspace, files)
    async with open_kernel(shared_provider, workspace, **options(workspace, "ask")) as kernel:
        report = await kernel.restore(tmp_path / "store")
        (left_out,) = report.left_out
        assert left_out.more.endswith(named)
        assert (left_out.saved_in, left_out.continue_in) == ("mode ask", "mode auto")
        assert {"point", "other", "plain", "helper", "pkg"} <= {variable.name for variable in left_out.variables}
        assert report.restored == ()
        assert not list(workspace.rglob("escaped"))
        await run_cell(kernel, "new = 1")
        await kernel.snapshot(tmp_path / "store", keep={variable.name for variable in left_out.variables})
    async with open_kernel(shared_provider, workspace, **options(workspace, "ask")) as kernel:
        report = await kernel.restore(tmp_path / "store")
        assert {variable.name for variable in report.restored} == {"new"}
        assert len(report.left_out) == 1
        assert "plain" in {
            variable.name for variable in (await kernel.restore(tmp_path / "store", allow_more=True)).restored
        }
    async with open_kernel(shared_provider, workspace, **options(workspace, "auto")) as kernel:
        report = await kernel.restore(tmp_path / "store")
        assert report.left_out == ()
        assert "plain" in {variable.name for variable in report.restored}


async def test_where_nothing_that_they_need_has_changed_they_come_back(shared_provider, tmp_path, workspace):
    await in_auto(shared_provider, workspace, {"other.py": EVIL, "json.py": EVIL, "helper.csv": b"1", "data/x.py": EVIL})
    for mode in ("ask", "auto"):
        async with open_kernel(shared_provider, workspace, **options(workspace, mode)) as kernel:
            report = await kernel.restore(tmp_path / "store")
            assert report.left_out == ()
            assert (await run_cell(kernel, SHOWS)).text == "3 4 5 pkg.inner\n"
    assert not list(workspace.rglob("escaped"))


async def test_what_was_compiled_of_another_source_does_not_run(shared_provider, tmp_path, workspace):
    evil, cached = workspace / "evil.py", workspace / "__pycache__"
    evil.write_text(ESCAPES)
    target = next(cached.glob("helper.*.pyc"))
    py_compile.compile(str(evil), str(target), invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
    async with open_kernel(shared_provider, workspace, **options(workspace, "ask")) as kernel:
        report = await kernel.restore(tmp_path / "store")
        assert report.left_out == ()
        assert (await run_cell(kernel, SHOWS)).status == "ok"
    assert not list(workspace.rglob("escaped"))


async def test_a_module_counts_as_it_was_imported_and_not_as_it_is_when_variables_are_saved_again(
    shared_provider, tmp_path, workspace
):
    async with open_kernel(shared_provider, workspace, **options(workspace, "ask")) as kernel:
        await kernel.restore(tmp_path / "store")
        await kernel.snapshot(tmp_path / "store")
        await in_auto(shared_provider, workspace, {"helper.py": CLASS.encode() + b"# other\n"})
        await kernel.snapshot(tmp_path / "store")
        async with open_kernel(shared_provider, workspace, **options(workspace, "ask")) as other:
            assert (await other.restore(tmp_path / "store")).left_out
        await run_cell(kernel, "import importlib; importlib.reload(helper)")
        await kernel.snapshot(tmp_path / "store")
    async with open_kernel(shared_provider, workspace, **options(workspace, "ask")) as kernel:
        assert (await kernel.restore(tmp_path / "store")).left_out == ()
