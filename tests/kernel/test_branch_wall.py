"""A branch is behind the wall of the kernel that it is made of, and apart from it."""

import os

import psutil
import pytest
from support.branches import branched, refused, text_of
from support.kernels import open_kernel, run_cell

from freeact_sub.cells import CellError
from freeact_sub.config.schema import KernelConfig
from freeact_sub.kernels.forkserver import launchers
from freeact_sub.kernels.wall.sandbox import policy_for, support

MACHINE = support()
pytestmark = [
    pytest.mark.kernel,
    pytest.mark.skipif(MACHINE.landlock < 6 or not MACHINE.seccomp or not MACHINE.view, reason="needs the whole wall"),
]


LIMITED = KernelConfig(sandbox="auto", memory_bytes=4 << 30, max_file_bytes=4 << 20, cpu_seconds=1000)
OUT = {
    "signal": "os.kill({pid}, 0)",
    "ptrace": "called(libc.ptrace(0x4206, {pid}, None, None))",
    "memory": "open('/proc/{pid}/mem', 'rb')",
    "environment": "open('/proc/{pid}/environ', 'rb').read()",
}


@pytest.mark.parametrize("mode", ["auto", "ask", "plan"])
async def test_a_branch_is_behind_the_wall_of_its_kernel_and_apart_from_it_and_from_other_branches(
    provider, tmp_path, mode, monkeypatch
):
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    (tmp_path / "secret").write_text("x")
    policy = policy_for(mode, LIMITED, workspace)
    setup = """
import ctypes, os, resource, socket, tempfile
libc = ctypes.CDLL(None, use_errno=True)
def called(result):
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
kept = tempfile.NamedTemporaryFile('w', delete=False); kept.write('kept'); kept.close()
limits = lambda: [resource.getrlimit(getattr(resource, n)) for n in dir(resource) if n.startswith('RLIMIT')]
before = limits()
"""
    async with open_kernel(provider, workspace, sandbox=policy) as kernel:
        await text_of(kernel, setup)
        async with branched(kernel) as one, branched(kernel) as two, branched(one) as inner:
            with monkeypatch.context() as narrower:
                narrower.setattr(launchers, "LANDLOCK_DOMAINS", 3)
                assert "a branch of too many branches: Landlock has 3 walls" in await refused(inner)
            for each, others in {one: (kernel, two), two: (kernel, one, inner), inner: (kernel, one, two)}.items():
                assert await text_of(each, "limits() == before") == "True\n"
                assert "NoNewPrivs:\t1" in await text_of(each, "print(open('/proc/self/status').read())")
                for other in others:
                    for name, attempt in OUT.items():
                        ran = await run_cell(each, attempt.format(pid=other.pid))
                        assert [o.ename for o in ran.outputs if isinstance(o, CellError)] == ["PermissionError"], name
                for pid in (os.getpid(), psutil.Process(each.pid).ppid()):
                    assert (await run_cell(each, f"os.kill({pid}, 0)")).status == "error"
                code = "import tempfile; f = tempfile.NamedTemporaryFile(); f.name.startswith(os.environ['TMPDIR'])"
                assert await text_of(each, code) == "True\n"
                assert await text_of(each, "open(kept.name).read()") == "'kept'\n"
                names = set(os.listdir(each.launcher.folder.path))
                assert not [name for name in names if name.startswith("k-") or name == "kernel.json"]
                if mode != "ask":
                    await stays_inside(each, others, tmp_path)
            assert await text_of(kernel, "open(kept.name).read()") == "'kept'\n"


async def stays_inside(each, others, tmp_path):
    """Files and network of a kernel whose files are walled."""
    for attempt in (
        f"open({str(tmp_path / 'secret')!r})",
        f"open({str(tmp_path / 'new')!r}, 'w')",
        "open(kept.name, 'w')",
        "socket.socket(socket.AF_INET)",
        *(f"open({str(other.launcher.folder.path / 'kernel.log')!r})" for other in others),
    ):
        assert (await run_cell(each, attempt)).status == "error", attempt


async def test_code_in_the_kernel_cannot_lead_the_host_astray_by_links(provider, tmp_path):
    """The folder of a branch is where the kernel may write: what it puts there is not followed by the host."""
    workspace, outside = tmp_path / "workspace", tmp_path / "outside"
    workspace.mkdir()
    outside.mkdir()
    for name in ("k-1", "kernel.json", "kernel.log"):
        (outside / name).write_text("precious")
    policy = policy_for("auto", LIMITED, workspace)
    replace = f"""
import os, threading, time
def work(folder=os.path.dirname(os.environ['TMPDIR'])):
    for entry in os.scandir(folder):
        if entry.is_dir(follow_symlinks=False) and entry.name != 'tmp':
            os.rename(entry.path, entry.path + '-moved')
            os.symlink({str(outside)!r}, entry.path)
            return True
"""
    async with open_kernel(provider, workspace, sandbox=policy) as kernel:
        await text_of(kernel, replace)
        async with branched(kernel) as branch:
            assert await text_of(kernel, "work()") == "True\n"
            assert "precious" not in branch.launcher.log_tail()
            assert await text_of(branch, "1") == "1\n"
    assert {name: (outside / name).read_text() for name in os.listdir(outside)} == dict.fromkeys(
        ("k-1", "kernel.json", "kernel.log"), "precious"
    )
