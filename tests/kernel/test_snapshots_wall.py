"""Variables of kernels behind a wall: saved and brought back without a way out of it."""

import pytest
from support.branches import text_of
from support.kernels import open_kernel, run_cell

from freeact_sub.config.schema import KernelConfig
from freeact_sub.kernels.wall.sandbox import policy_for, support

MACHINE = support()
pytestmark = [
    pytest.mark.kernel,
    pytest.mark.skipif(MACHINE.landlock < 6 or not MACHINE.seccomp or not MACHINE.view, reason="needs the whole wall"),
]


@pytest.mark.parametrize("mode", ["auto", "plan"])
async def test_a_kernel_is_saved_and_the_hosts_folder_is_out_of_its_reach(provider, tmp_path, mode):
    store = tmp_path / "store"
    workspace = tmp_path / "work"
    workspace.mkdir()
    policy = policy_for(mode, KernelConfig(sandbox="auto", max_file_bytes=4 << 20), workspace)
    async with open_kernel(provider, workspace, sandbox=policy) as kernel:
        await text_of(
            kernel, "import numpy as np\nx = [1]; y = [x]; a = np.zeros(100_000); b = a[:10]; big = np.zeros(1_000_000)"
        )
        report = await kernel.snapshot(store)
        assert [variable.name for variable in report.lost] == ["big"]  # larger than the wall lets a file be
        assert "File too large" in report.lost[0].reason
        ran = await run_cell(kernel, f"__import__('os').listdir({str(store)!r})")
        assert ran.status == "error"
    async with open_kernel(provider, workspace, sandbox=policy) as new:
        back = await new.restore(store)
        assert {variable.name for variable in back.restored} == {"np", "x", "y", "a", "b"}
        assert await text_of(new, "a[3] = 1; (y[0] is x, float(b[3]))") == "(True, 1.0)\n"
        assert (await new.snapshot(store)).written_bytes > 0
    before = {path.name: path.read_bytes() for path in store.iterdir()}
    async with open_kernel(provider, workspace, sandbox=policy) as another:
        await another.restore(store)
        await text_of(another, "a[:] = 7")
    assert {path.name: path.read_bytes() for path in store.iterdir()} == before
