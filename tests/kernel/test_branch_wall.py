"""A branch is behind the wall of the kernel that it is made of, and apart from it."""

import os

import psutil
import pytest
from support.branches import branched, refused, text_of
from support.kernels import open_kernel, run_cell

from freeact_sub.cells import CellError
from freeact_sub.config.schema import KernelConfig
from freeact_sub.kernels.forkserver import fork_provider
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
                narrower.setattr(fork_provider, "LANDLOCK_DOMAINS", 3)
                assert "branches are nested too deeply: Landlock allows 3 nested walls" in await refused(inner)
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


OPENED = """
import ctypes, os, pathlib, resource, socket, struct
libc = ctypes.CDLL(None, use_errno=True)
here = pathlib.Path.cwd()
spaces = os.open('/proc/self/ns/mnt', os.O_RDONLY)
"""
CAP_SYS_ADMIN = 21
CALLS = {
    "mount": "libc.mount(b'none', str(here).encode(), b'tmpfs', ctypes.c_ulong(0), None)",
    "remount": "libc.mount(b'none', b'/usr', None, ctypes.c_ulong(32 | 4096), None)",
    "unmount the copy": "libc.umount2(str(here).encode(), 2)",
    "mount_setattr": "libc.syscall(442, -100, b'/usr', 0, struct.pack('=4Q', 0, 1, 0, 0), ctypes.c_size_t(32))",
    "open_tree": "libc.syscall(428, -100, str(here.parent).encode(), 0x8001)",
    "open_tree_attr": "libc.syscall(467, -100, str(here.parent).encode(), 0x8001, None, ctypes.c_size_t(0))",
    "fsopen": "libc.syscall(430, b'tmpfs', 0)",
    "unshare": "libc.unshare(0x20000)",
    "back by a descriptor": "libc.setns(spaces, 0x20000)",
    "another kind of namespace": "libc.setns(os.open('/proc/self/ns/net', os.O_RDONLY), 0x40000000)",
    "another branch's, by its process": "libc.setns(os.pidfd_open(OTHER), 0x20000)",
    "a new namespace for networks": "libc.syscall(56 if os.uname().machine == 'x86_64' else 220, 0x40000011, 0, 0, 0, 0) or os._exit(0)",
    "any kind of namespace": "libc.setns(spaces, 0)",
    "capabilities of a file": "libc.setxattr(b'one', b'security.capability', struct.pack('<5I', 0x02000001, 0xC0, 0, 0, 0), 20, 0)",
}
OTHERS = {
    "back by another process": "os.open(f'/proc/{ORIGIN}/ns/mnt', os.O_RDONLY)",
    "the namespaces of the host": "os.open(f'/proc/{HOST}/ns/user', os.O_RDONLY)",
    "files of another branch": "os.listdir(f'/proc/{OTHER}/root' + str(here))",
    "the folder around": "(here.parent / 'new').write_text('')",
    "the view's root": "open('/new', 'w')",
    "mode of a system file": "os.chmod('/usr', 0o755)",
    "a system file": "open('/usr/freeact-test', 'w')",
    "users of the namespace": "open('/proc/self/uid_map', 'w').write('0 0 1')",
    "a setting of the system": "open('/proc/sys/kernel/core_pattern', 'w')",
    "a device": "os.mknod('device', 0o60600, os.makedev(8, 0))",
    "a set-uid file": "os.chmod('one', 0o4755)",
    "another root": "os.chroot('folder')",
    "the host": "os.kill(HOST, 0)",
    "memory of the origin": "open(f'/proc/{ORIGIN}/mem', 'rb')",
    "a limit": "resource.setrlimit(resource.RLIMIT_CORE, (1, 1))",
    "the machine's name": "socket.sethostname('x')",
    "the origin's folder": "open(ORIGINS + '/new', 'w')",
    "a sibling's copy": "open(OTHERS + '/up/one')",
}
ATTEMPT = """
def attempt():
    result = {code}
    if isinstance(result, int) and result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
try:
    attempt(); print({name!r}, 'worked')
except (OSError, ValueError):
    pass
"""


@pytest.mark.parametrize("keeps", [False, True], ids=["as a branch is", "with the capabilities of its namespace"])
async def test_nothing_new_is_reachable_from_namespaces_of_a_branchs_own(provider, tmp_path, keeps):
    """Code of the origin may change whatever the branch does at its start: then it keeps the capabilities it comes by."""
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    (workspace / "one").write_text("original")
    steal = "import sys; sys.modules['freeact_wall'].drop_capabilities = lambda: None\n" if keeps else ""
    async with open_kernel(provider, workspace, sandbox=policy_for("auto", LIMITED, workspace)) as kernel:
        await text_of(kernel, steal + OPENED)
        async with branched(kernel, own_files=True) as other, branched(kernel, own_files=True) as branch:
            if branch.own_files.kind == "copy":
                pytest.skip("no overlays here")
            assert await text_of(other, "(here / 'one').write_text('of the other')") == "12\n"
            names = {"ORIGIN": kernel.pid, "OTHER": other.pid, "HOST": os.getpid()}
            names |= {"ORIGINS": str(kernel.launcher.folder.path), "OTHERS": str(other.launcher.folder.path)}
            code = "".join(f"{name} = {value!r}\n" for name, value in names.items())
            code += "".join(ATTEMPT.format(name=name, code=each) for name, each in (CALLS | OTHERS).items())
            code += "print(open('/proc/self/status').read().split('CapEff:')[1].split()[0])"
            held = await text_of(branch, code)
            assert int(held, 16) >> CAP_SYS_ADMIN & 1 == keeps
            await text_of(branch, "os.remove(here / 'one')")
            assert await text_of(kernel, "(here / 'one').read_text()") == "'original'\n"
    assert sorted(path.name for path in workspace.iterdir()) == [".freeact", "one"]
