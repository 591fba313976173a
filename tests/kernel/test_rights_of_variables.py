"""Variables that code with few rights has saved are not read by a kernel with more, and are not lost by that."""

import pytest
import pytest_asyncio
from support.kernels import open_kernel, run_cell
from support.sandbox import NEEDS_A_WALL

from freeact_sub.config.schema import KernelConfig
from freeact_sub.errors import KernelSnapshotError
from freeact_sub.kernels.forkserver.fork_provider import ForkKernelProvider
from freeact_sub.kernels.wall.sandbox import policy_for

pytestmark = [
    pytest.mark.kernel,
    NEEDS_A_WALL,
    pytest.mark.asyncio(loop_scope="module"),
]

PLANT = """
class Payload:
    def __reduce__(self):
        return (exec, ("open({path!r}, 'a').close()",))
payload, rows = Payload(), [1, 2]
"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared_provider(tmp_path_factory):
    provider = ForkKernelProvider(spares=0)
    async with open_kernel(provider, tmp_path_factory.mktemp("first")):
        pass  # its server is of the module, too
    yield provider
    await provider.aclose()


def settings(folder, mode, **kernel):
    workspace = folder / "work"
    workspace.mkdir(exist_ok=True)
    writable = tuple(folder / name for name in kernel.pop("writable", ()))
    for path in writable:
        path.mkdir(exist_ok=True)
    config = KernelConfig(**{"sandbox": "auto", "writable": writable, **kernel})
    return workspace, {"mode": mode, "sandbox": policy_for(mode, config, workspace)}


PLAN, AUTO, ASK = {"mode": "plan"}, {"mode": "auto"}, {"mode": "ask"}
ONLINE, OFF = {"mode": "auto", "network": True}, {"mode": "auto", "sandbox": "off"}
WIDE = {"mode": "auto", "writable": ("more",)}


@pytest.mark.parametrize(
    ("saved", "read", "more"),
    [
        (PLAN, ASK, "it has no wall around its files and its network"),
        (AUTO, OFF, "it has no wall around its files and its network"),
        (AUTO, ONLINE, "it has the network"),
        (AUTO, WIDE, "it writes in"),
        (ASK, AUTO, ""),
        (OFF, AUTO, ""),
    ],
)
async def test_a_kernel_reads_what_a_kernel_of_no_less_rights_has_saved(shared_provider, tmp_path, saved, read, more):
    store, escaped = tmp_path / "store", tmp_path / "work" / "escaped"
    workspace, options = settings(tmp_path, **saved)
    async with open_kernel(shared_provider, workspace, **options) as kernel:
        await run_cell(kernel, PLANT.format(path=str(escaped)))
        await kernel.snapshot(store)
    workspace, options = settings(tmp_path, **read)
    async with open_kernel(shared_provider, workspace, **options) as kernel:
        report = await kernel.restore(store)
        assert (await run_cell(kernel, "rows")).status == ("error" if more else "ok")
        assert escaped.exists() is not bool(more)
        if more:
            (left_out,) = report.left_out
            assert more in left_out.more
            assert left_out.saved_in == f"mode {saved['mode']}"
            assert {variable.name for variable in left_out.variables} == {"Payload", "payload", "rows"}
            again = await kernel.restore(store, allow_more=True)
            assert {variable.name for variable in again.restored} == {"Payload", "payload", "rows"}
        else:
            assert not report.left_out


async def test_an_import_and_a_search_path_of_a_walled_kernel_are_left_out_as_well(shared_provider, tmp_path):
    store, workspace = tmp_path / "store", settings(tmp_path, **AUTO)[0]
    code = (
        "import pathlib, sys\npathlib.Path('inner').mkdir()\n"
        f"pathlib.Path('inner/evil.py').write_text(\"open({str(tmp_path / 'escaped')!r}, 'w')\")\n"
        "sys.path.append(str(pathlib.Path('inner').resolve()))\nimport types\nevil = types.ModuleType('evil')\n"
        "sys.modules['evil'] = evil\nimport os\nos.chdir('inner')\n"
    )
    async with open_kernel(shared_provider, workspace, **settings(tmp_path, **AUTO)[1]) as kernel:
        assert (await run_cell(kernel, code)).status == "ok"
        await kernel.snapshot(store)
    async with open_kernel(shared_provider, workspace, **settings(tmp_path, **ASK)[1]) as kernel:
        report = await kernel.restore(store)
        assert report.restored == ()
        where = await run_cell(kernel, "import os, sys; print(os.getcwd(), any(p.endswith('inner') for p in sys.path))")
    assert where.text == f"{workspace} False\n"
    assert not (tmp_path / "escaped").exists()


async def test_what_was_left_out_stays_saved_beside_what_comes_after_it_with_the_rights_of_each(shared_provider, tmp_path):
    store = tmp_path / "store"
    workspace, plan = settings(tmp_path, **PLAN)
    ask = settings(tmp_path, **ASK)[1]
    async with open_kernel(shared_provider, workspace, **plan) as kernel:
        await run_cell(kernel, "import math\nx, y, big = 1, [2], bytearray(200_000)\npair = (y, y)")
        await kernel.snapshot(store)
    async with open_kernel(shared_provider, workspace, **ask) as kernel:
        (left_out,) = (await kernel.restore(store)).left_out
        keep = {variable.name for variable in left_out.variables}
        assert keep == {"math", "x", "y", "big", "pair"}
        await run_cell(kernel, "x, z = 7, 9")
        await kernel.snapshot(store, keep=keep)
        await kernel.snapshot(store, keep=keep)
    async with open_kernel(shared_provider, workspace, **ask) as kernel:
        report = await kernel.restore(store)
        assert {variable.name for variable in report.restored} == {"x", "z"}
        (left_out,) = report.left_out
        assert {variable.name for variable in left_out.variables} == {"math", "y", "big", "pair"}
    async with open_kernel(shared_provider, workspace, **plan) as kernel:
        report = await kernel.restore(store)
        assert not report.left_out
        ran = await run_cell(kernel, "print(x, y, z, len(big), pair[0] is pair[1] is y, math.floor(1.5))")
        assert ran.text == "7 [2] 9 200000 True 1\n"
        await kernel.snapshot(store)
    async with open_kernel(shared_provider, workspace, **ask) as kernel:  # what a walled kernel has read, it has written
        assert (await kernel.restore(store)).restored == ()
        await kernel.snapshot(store)
    async with open_kernel(shared_provider, workspace, **plan) as kernel:
        report = await kernel.restore(store)
        assert (report.restored, report.left_out) == ((), ())


async def test_a_manifest_that_nobody_can_read_is_no_snapshot(shared_provider, tmp_path):
    store = tmp_path / "store"
    workspace, ask = settings(tmp_path, **ASK)
    async with open_kernel(shared_provider, workspace, **ask) as kernel:
        await run_cell(kernel, "x = 1")
        await kernel.snapshot(store)
        for damaged in ('{"format": 1}', "{", '{"parts": []}', '{"parts": [{"rights": null, "written": null}]}'):
            (store / "manifest.json").write_text(damaged)
            with pytest.raises(KernelSnapshotError, match="were saved by another version|are damaged: "):
                await kernel.restore(store)
            await kernel.snapshot(store, keep={"x"})
            assert (await kernel.restore(store)).restored[0].name == "x"
