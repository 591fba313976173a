"""Variables of kernels behind a wall: saved and brought back without a way out of it."""

import pytest
from support.branches import text_of
from support.kernels import open_kernel, run_cell

from freeact_sub.config.schema import KernelConfig
from freeact_sub.features.sessions.variables import keep_variables
from freeact_sub.kernels.wall.sandbox import policy_for, support
from freeact_sub.sessions import VARIABLES
from freeact_sub.sessions.sqlite import copy_files

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


REWRITE = """
import builtins, ctypes, os
libc, builtins.rewritten = ctypes.CDLL(None), []
for number in os.listdir("/proc/self/fd"):
    path = f"/proc/self/fd/{number}"
    if "/saved-" in os.path.realpath(path):
        os.fchmod(int(number), 0o600)
        rewritten.append(libc.write(libc.open(path.encode(), os.O_RDWR), b"payload", 7))
"""
PLANT = f"""
class Payload:
    def __reduce__(self):
        return (exec, ({REWRITE!r},))
payload = Payload()
"""


async def test_what_rewrites_its_saved_variables_while_they_are_read_reaches_no_other_session_and_no_earlier_moment(
    provider, tmp_path
):
    workspace, original, fork = tmp_path / "work", tmp_path / "original", tmp_path / "fork"
    workspace.mkdir()
    walled = policy_for("auto", KernelConfig(sandbox="auto"), workspace)
    store = fork / VARIABLES / "root"
    async with open_kernel(provider, workspace) as kernel:
        await text_of(kernel, "rows = [1, 2]; large = bytes(100_000)")
        await kernel.snapshot(original / VARIABLES / "root")
        keep_variables(original / VARIABLES, "root", 1)
        copy_files(original, fork)
    async with open_kernel(provider, workspace, sandbox=walled) as kernel:
        await kernel.restore(store)
        await text_of(kernel, PLANT)
        await kernel.snapshot(store)
    before = {path: path.read_bytes() for folder in (original, fork) for path in folder.rglob("*") if path.is_file()}
    assert len(before) == 12  # `large`, the rest and a manifest: of now and before prompt 1, in each session
    async with open_kernel(provider, workspace, sandbox=walled) as kernel:
        await kernel.restore(store)
        assert await text_of(kernel, "rewritten") == "[7, 7]\n"
    assert {path: path.read_bytes() for path in before} == before
