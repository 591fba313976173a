"""The wall with nothing else in the way: attempts to get out of real kernels, each in every mode in which it must fail."""

import asyncio
import ctypes
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from support.kernels import no_host, open_kernel, run_cell, spec

from freeact_sub.cells import CellError
from freeact_sub.config import KernelConfig
from freeact_sub.errors import KernelStartError
from freeact_sub.kernels import ForkKernelProvider, LocalKernelProvider
from freeact_sub.kernels.sandbox import (
    Limits,
    SandboxPolicy,
    Support,
    check,
    policy_for,
    support,
    unenforced,
    wall_script,
    wire,
)

MACHINE = support()
NEEDED = "needs Linux with Landlock 6, seccomp and mount namespaces"
pytestmark = [
    pytest.mark.kernel,
    pytest.mark.skipif(MACHINE.landlock < 6 or not MACHINE.seccomp or not MACHINE.view, reason=NEEDED),
]

MIB = 2**20
LIMITED = KernelConfig(sandbox="auto", memory_bytes=1024 * MIB, max_file_bytes=4 * MIB)
WALLED = ("plan", "auto")
ALL = ("plan", "ask", "auto", "full")
PROVIDERS = {"local": LocalKernelProvider, "fork": lambda: ForkKernelProvider(spares=0)}
SECRET = "the-secret-of-the-host"

PREPARED = """
import ctypes, errno, os, resource, shutil, signal, socket, struct, subprocess, sys, tempfile
from pathlib import Path
libc = ctypes.CDLL(None, use_errno=True)
def called(result):
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result
def run(*command):
    subprocess.run(command, check=True, capture_output=True)
"""


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """Code that tries to get out; OUTSIDE, HOST, SIBLING, PORT and the like stand for what the test has put up."""

    code: str
    modes: tuple[str, ...]
    errors: tuple[str, ...] = ("PermissionError",)


def outside(code: str, *errors: str) -> Attempt:
    """An attempt that a mode with walled files must stop."""
    return Attempt(code=code, modes=WALLED, errors=errors or ("PermissionError",))


def others(code: str, *errors: str) -> Attempt:
    """An attempt that every mode must stop."""
    return Attempt(code=code, modes=ALL, errors=errors or ("PermissionError",))


GONE = ("PermissionError", "FileNotFoundError")
"""What is outside is not there at all, in the view."""
READ_ONLY = ("PermissionError", "OSError")

ATTEMPTS = {
    # writing
    "open": outside("open(OUTSIDE + '/new', 'w')", *GONE),
    "open to append": outside("open(OUTSIDE + '/file', 'a')", *GONE),
    "os.open": outside("os.open(OUTSIDE + '/new', os.O_CREAT | os.O_WRONLY)", *GONE),
    "os.truncate": outside("os.truncate(OUTSIDE + '/file', 0)", *GONE),
    "os.remove": outside("os.remove(OUTSIDE + '/file')", *GONE),
    "os.mkdir": outside("os.mkdir(OUTSIDE + '/folder')", *GONE),
    "shutil.copy": outside("Path(tempfile.gettempdir(), 'x').write_text('x'); shutil.copy(tempfile.gettempdir() + '/x', OUTSIDE + '/new')", *GONE),
    "rename": outside("Path(tempfile.gettempdir(), 'x').write_text('x'); os.rename(tempfile.gettempdir() + '/x', OUTSIDE + '/new')", *GONE, "OSError"),
    "hard link": outside("os.link(OUTSIDE + '/file', tempfile.gettempdir() + '/link')", *GONE, "OSError"),
    "libc.open": outside("called(libc.open(OUTSIDE.encode() + b'/new', os.O_CREAT | os.O_WRONLY, 0o600))", *GONE),
    "system file": outside("open('/usr/freeact-test', 'w')", *READ_ONLY),
    "/etc": outside("open('/etc/freeact-test', 'w')", *READ_ONLY),
    "subprocess": outside("run('touch', OUTSIDE + '/new')", "CalledProcessError"),
    "shell": outside("run('sh', '-c', 'echo x > ' + OUTSIDE + '/new')", "CalledProcessError"),
    "symlink in the workspace": outside("open('way-out/new', 'w')", *GONE),
    "own symlink": outside("os.symlink(OUTSIDE, tempfile.gettempdir() + '/s'); open(tempfile.gettempdir() + '/s/new', 'w')", *GONE),
    "/proc/self/root": outside("open('/proc/self/root' + OUTSIDE + '/new', 'w')", *GONE),
    "/proc/self/fd": outside("f = os.open('/', os.O_PATH); open(f'/proc/self/fd/{f}' + OUTSIDE + '/new', 'w')", *GONE),
    "/proc/self/fd of the log": Attempt(code="open('/proc/self/fd/3/../../etc/x', 'w')", modes=WALLED, errors=(*GONE, "NotADirectoryError")),
    "/proc/1/root": outside("open('/proc/1/root' + OUTSIDE + '/new', 'w')", *GONE),
    "remount": outside("called(libc.mount(None, b'/usr', None, 32, None))"),
    "new namespace": outside("called(libc.unshare(0x10020000))"),
    "terminal of the host": outside("[open(f'/dev/pts/{n}', 'w') for n in range(3)]", *GONE),
    "the workspace in plan": Attempt(code="open('new', 'w')", modes=("plan",), errors=READ_ONLY),
    "mode of a system file": outside("os.chmod('/usr', 0o755)", *READ_ONLY),
    "time of a file of Python": outside("os.utime(os.__file__)", *READ_ONLY),
    "mode of the workspace in plan": Attempt(code="os.chmod('.', 0o755)", modes=("plan",), errors=READ_ONLY),
    "mode of the settings": outside("os.chmod('.freeact', 0o755)", *READ_ONLY),
    "System V memory": outside("called(libc.shmget(SHM_KEY, 1, 0))", "FileNotFoundError"),
    "settings of the host": Attempt(code="open('.freeact/config.toml', 'w')", modes=WALLED, errors=READ_ONLY),
    "settings moved away": Attempt(code="os.rename('.freeact', 'other')", modes=WALLED, errors=READ_ONLY),
    # reading
    "key in the home directory": outside("open(HOME + '/.ssh/id_ed25519').read()", *GONE),
    "key by a subprocess": outside("run('cat', HOME + '/.ssh/id_ed25519')", "CalledProcessError"),
    "password hashes": outside("open('/etc/shadow').read()", *GONE),
    "environment of the host": others("open(f'/proc/{HOST}/environ', 'rb').read()"),
    "environment of the parent": others("open(f'/proc/{os.getppid()}/environ', 'rb').read()"),
    "environment by a subprocess": others("run('cat', f'/proc/{HOST}/environ')", "CalledProcessError"),
    # the network
    "socket": outside("socket.create_connection(('127.0.0.1', PORT))", "OSError"),
    "IPv6 socket": outside("socket.socket(socket.AF_INET6)", "OSError"),
    "datagram": outside("socket.socket(socket.AF_INET, socket.SOCK_DGRAM)", "OSError"),
    "netlink": outside("socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)", "OSError"),
    "ctypes socket": outside("called(libc.socket(2, 1, 0))", "OSError"),
    "socket by a subprocess": outside("run('bash', '-c', f'exec 3<>/dev/tcp/127.0.0.1/{PORT}')", "CalledProcessError"),
    "io_uring": outside("called(libc.syscall(425, 1, ctypes.create_string_buffer(120)))"),
    "Unix socket of another program": outside("socket.socket(socket.AF_UNIX).connect(OUTSIDE + '/socket')", *GONE),
    "abstract socket of another program": others("socket.socket(socket.AF_UNIX).connect('\\0' + ABSTRACT)"),
    # host, fork server, siblings
    **{
        f"{name} of {whom}": others(code.replace("PID", pid))
        for whom, pid in {"the host": "HOST", "the parent": "os.getppid()", "a sibling": "SIBLING"}.items()
        for name, code in {
            "kill": "os.kill(PID, signal.SIGCONT)",
            "pidfd": "signal.pidfd_send_signal(os.pidfd_open(PID), signal.SIGCONT)",
            "ptrace": "called(libc.ptrace(0x4206, PID, None, None))",
            "memory": "open(f'/proc/{PID}/mem', 'r+b')",
            "process_vm_readv": "b = ctypes.create_string_buffer(16); v = struct.pack('QQ', ctypes.addressof(b), 8); called(libc.process_vm_readv(PID, v, 1, v, 1, 0))",
            "open files": "os.readlink(f'/proc/{PID}/fd/0')",
            "limits": "resource.prlimit(PID, resource.RLIMIT_CORE, (0, 0))",
        }.items()
    },
    "sibling's sockets": others(
        "found = 0\nfor n in range(1, 6):\n    s = socket.socket(socket.AF_UNIX)\n    try: s.connect(f'{FOLDER}/k-{n}'); found += 1\n    except OSError as e: error = e\nassert not found\nraise error",
        *GONE,
    ),
    "sibling's key": others("open(FOLDER + '/kernel.json').read()", *GONE),
    # limits
    "raise a limit": others("soft, hard = resource.getrlimit(resource.RLIMIT_DATA)\nresource.setrlimit(resource.RLIMIT_DATA, (hard, hard * 2))", "ValueError", "PermissionError"),
    "fill the memory": others("bytearray(2 * 2**30)", "MemoryError"),
    "fill the memory in a subprocess": others("run(sys.executable, '-I', '-S', '-c', 'bytearray(2 * 2**30)')", "CalledProcessError"),
    "fill the disk": others("open(tempfile.gettempdir() + '/big', 'wb').write(bytes(5 * 2**20))", "OSError"),
    "set-uid": others("assert open('/proc/self/status').read().split('NoNewPrivs:')[1].split()[0] == '1'; raise PermissionError"),
    "kernel modules": others("called(libc.syscall(SYS_INIT_MODULE, None, 0, b''))"),
    "keyrings": others("called(libc.syscall(SYS_KEYCTL, 0, -3, 0))"),
}  # fmt: skip
NUMBERS = {"SYS_INIT_MODULE": (175, 105), "SYS_KEYCTL": (250, 219)}


@pytest.fixture
async def world(tmp_path, monkeypatch):
    """What kernels try to reach: files outside, a home with a key, listeners, and a workspace with a way out."""
    for name in ("workspace/.freeact", "outside", "home/.ssh"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "outside/file").write_text(SECRET)
    (tmp_path / "home/.ssh/id_ed25519").write_text(SECRET)
    (tmp_path / "workspace/way-out").symlink_to(tmp_path / "outside")
    monkeypatch.chdir(tmp_path)
    with socket.socket() as listener, socket.socket(socket.AF_UNIX) as by_path, socket.socket(socket.AF_UNIX) as abstract:
        listener.bind(("127.0.0.1", 0))
        by_path.bind("outside/socket")
        abstract.bind(f"\0freeact-test-{os.getpid()}")
        for item in (listener, by_path, abstract):
            item.listen()
        libc = ctypes.CDLL(None)
        segment = libc.shmget(shm_key := os.getpid(), 4096, 0o1600)
        yield {
            "SHM_KEY": shm_key,
            "OUTSIDE": str(tmp_path / "outside"),
            "HOME": str(tmp_path / "home"),
            "HOST": os.getpid(),
            "PORT": listener.getsockname()[1],
            "ABSTRACT": f"freeact-test-{os.getpid()}",
            **{name: values[os.uname().machine == "aarch64"] for name, values in NUMBERS.items()},
        }
        libc.shmctl(segment, 0, None)


@pytest.fixture(params=PROVIDERS)
async def provider(request):
    provider = PROVIDERS[request.param]()
    yield provider
    await provider.aclose()


def sandboxed(mode: str, workspace: Path, config: KernelConfig = LIMITED) -> dict[str, SandboxPolicy | None]:
    return {"sandbox": policy_for(mode, config, workspace)}


@pytest.mark.parametrize("mode", ALL)
@pytest.mark.parametrize("kind", PROVIDERS)
async def test_escapes(kind, mode, world, tmp_path):
    """All attempts of a mode in one kernel, beside a sibling: each fails with an ordinary exception, and has no effect."""
    workspace, provider = tmp_path / "workspace", PROVIDERS[kind]()
    escaped = {}
    try:
        async with (
            open_kernel(provider, workspace, **sandboxed(mode, workspace)) as sibling,
            open_kernel(provider, workspace, **sandboxed(mode, workspace)) as kernel,
        ):
            world["SIBLING"] = int((await run_cell(sibling, "secret = 1\nimport os; os.getpid()")).text)
            world["FOLDER"] = str(sibling.connection_file.parent)
            names = "".join(f"{name} = {value!r}\n" for name, value in world.items())
            assert (await run_cell(kernel, PREPARED + names)).status == "ok"
            for name, attempt in ATTEMPTS.items():
                if mode in attempt.modes:
                    ran = await run_cell(kernel, attempt.code)
                    raised = [output.ename for output in ran.outputs if isinstance(output, CellError)]
                    if ran.status != "error" or raised[0] not in attempt.errors:
                        escaped[name] = (ran.status, ran.text[-300:])
            assert (await run_cell(sibling, "secret")).text == "1\n"
    finally:
        await provider.aclose()
    assert escaped == {}
    if mode in WALLED:
        assert sorted(os.listdir(tmp_path / "outside")) == ["file", "socket"]
        assert (tmp_path / "outside/file").read_text() == SECRET
        assert os.listdir(workspace / ".freeact") == []


SELF_TEST = (
    *("open", "libc.open", "subprocess", "own symlink", "symlink in the workspace", "/proc/self/fd", "settings of the host"),
    *("key in the home directory", "key by a subprocess", "environment of the host", "environment by a subprocess"),
    *("socket", "datagram", "netlink", "ctypes socket", "socket by a subprocess", "Unix socket of another program"),
    *("abstract socket of another program", "kill of the host", "limits of the host", "open files of the host"),
    *(
        "kill of a sibling",
        "pidfd of a sibling",
        "ptrace of a sibling",
        "memory of a sibling",
        "sibling's key",
        "System V memory",
    ),
)


async def test_the_attempts_work_where_nothing_stops_them(world, tmp_path):
    """A test of the test: without a sandbox the same code gets out, so that it is the wall that stops it."""
    workspace, provider = tmp_path / "workspace", LocalKernelProvider()
    environment = {**KernelConfig().environment(), "TMPDIR": str(tmp_path)}
    stopped = {}
    try:
        async with (
            open_kernel(provider, workspace) as sibling,
            open_kernel(provider, workspace, environment=environment) as kernel,
        ):
            world["SIBLING"] = int((await run_cell(sibling, "import os; os.getpid()")).text)
            world["FOLDER"] = str(sibling.connection_file.parent)
            await run_cell(kernel, PREPARED + "".join(f"{name} = {value!r}\n" for name, value in world.items()))
            for name in SELF_TEST:
                ran = await run_cell(kernel, ATTEMPTS[name].code)
                if ran.status != "ok":
                    stopped[name] = ran.text[-300:]
    finally:
        await provider.aclose()
    assert stopped == {}


async def test_what_is_allowed_works_inside_the_wall(provider, tmp_path):
    code = """
import multiprocessing, os, sqlite3, subprocess, tempfile, threading
from pathlib import Path
Path("made").write_text("x")
Path("made").rename("moved")
with tempfile.NamedTemporaryFile("w") as file:
    file.write("x")
    assert file.name.startswith(os.environ["TMPDIR"])
with multiprocessing.get_context("fork").Pool(2) as pool:
    print(pool.map(abs, [-1, -2]))
with multiprocessing.get_context("spawn").Manager() as manager:
    print(manager.list([3]))
print(subprocess.run(["sh", "-c", "cat moved | tr x y; ls / > /dev/null && echo there"], capture_output=True, text=True, check=True).stdout)
child = subprocess.Popen(["cat"], stdin=subprocess.PIPE); child.terminate(); print(child.wait())
!echo from the shell
import asyncio; await asyncio.sleep(0)
"""
    async with open_kernel(provider, tmp_path, **sandboxed("auto", tmp_path)) as kernel:
        ran = await run_cell(kernel, code)
        assert ran.status == "ok", ran.text
        for text in ("[1, 2]", "[3]", "ythere", "-15", "from the shell"):
            assert text in ran.text
        assert (await run_cell(kernel, "while True: pass", limit=0.3)).status == "timeout"
        assert (await run_cell(kernel, "1")).text == "1\n"
    assert (tmp_path / "moved").read_text() == "x"


@pytest.mark.parametrize("mode", ["ask", "full"])
async def test_files_and_network_are_free_where_a_person_or_nobody_guards_them(mode, world, provider, tmp_path):
    names = "".join(f"{name} = {value!r}\n" for name, value in world.items())
    async with open_kernel(provider, tmp_path, **sandboxed(mode, tmp_path)) as kernel:
        ran = await run_cell(
            kernel, f"{PREPARED}{names}\nopen(OUTSIDE + '/new', 'w')\nsocket.create_connection(('127.0.0.1', PORT))"
        )
    assert ran.status == "ok"
    assert (tmp_path / "outside/new").exists()


async def test_auto_has_the_network_if_it_is_configured_and_configured_folders(world, provider, tmp_path):
    config = replace_config(LIMITED, network=True, readable=(tmp_path / "home",), writable=(tmp_path / "outside",))
    names = "".join(f"{name} = {value!r}\n" for name, value in world.items())
    workspace = tmp_path / "workspace"
    async with open_kernel(provider, workspace, **sandboxed("auto", workspace, config)) as kernel:
        await run_cell(kernel, PREPARED + names)
        good = "socket.create_connection(('127.0.0.1', PORT)); open(HOME + '/.ssh/id_ed25519'); open(OUTSIDE + '/new', 'w')"
        assert (await run_cell(kernel, good)).status == "ok"
        assert "Read-only file system" in (await run_cell(kernel, "open(HOME + '/x', 'w')")).text
        assert (await run_cell(kernel, "socket.socket(socket.AF_VSOCK)")).status == "error"


async def test_a_spare_belongs_to_one_policy(tmp_path):
    provider = ForkKernelProvider(spares=1)
    try:
        first = await provider.start(spec(tmp_path, **sandboxed("auto", tmp_path)), no_host)
        await provider.refilled()
        second = await provider.start(spec(tmp_path, **sandboxed("plan", tmp_path)), no_host)
        third = await provider.start(spec(tmp_path, **sandboxed("auto", tmp_path)), no_host)
        assert (await run_cell(second, "open('x', 'w')")).status == "error"
        assert (await run_cell(third, "open('x', 'w')")).status == "ok"
        await asyncio.gather(*(kernel.aclose() for kernel in (first, second, third)))
    finally:
        await provider.aclose()


async def test_a_kernel_dies_with_what_started_it_in_its_namespace_too(provider, tmp_path):
    async with open_kernel(provider, tmp_path, **sandboxed("auto", tmp_path)) as kernel:
        parent = int((await run_cell(kernel, "import os; os.getppid()")).text)
        os.kill(parent, 9)
        await asyncio.wait_for(kernel.wait_lost(), 5)


async def test_what_is_missing_is_told_once_or_refused(tmp_path):
    old = Support(landlock=2, seccomp=True)
    policy = policy_for("auto", LIMITED, tmp_path)
    assert policy is not None
    missing = unenforced(policy, old)
    assert [any(word in what for what in missing) for word in ("signals", "truncation", "settings")] == [True] * 3
    assert check(policy, old) == missing
    with pytest.raises(KernelStartError, match="cannot enforce the sandbox of mode `auto`: signals"):
        check(replace(policy, required=True), old)
    whole = Support(landlock=6, seccomp=True, view=True)
    assert check(replace(policy, required=True), whole) == ()
    assert unenforced(policy, replace(whole, view=False)) == missing[-2:]
    assert unenforced(policy, replace(whole, root=True)) == ()  # nobody has asked for a bound on processes
    assert "processes" in unenforced(replace(policy, required=True), replace(whole, root=True))[0]
    wanted = policy_for("auto", replace_config(LIMITED, max_processes=1024), tmp_path)
    assert "processes" in unenforced(wanted, replace(whole, root=True))[0]
    none = unenforced(policy, Support())
    assert "files" in none[0]
    assert "network" in none[1]
    assert policy_for("plan", KernelConfig(sandbox="off"), tmp_path) is None


async def test_the_notice_comes_once_and_required_starts_nothing(tmp_path):
    notices: list[str] = []
    provider = LocalKernelProvider(on_notice=notices.append)
    required = replace_config(LIMITED, sandbox="required", max_processes=0)
    try:
        async with open_kernel(provider, tmp_path, **sandboxed("auto", tmp_path)):
            assert notices == []
        for _ in range(2):
            async with open_kernel(
                provider, tmp_path, **sandboxed("auto", tmp_path, replace_config(LIMITED, max_processes=9999))
            ):
                pass
        async with open_kernel(provider, tmp_path, **sandboxed("auto", tmp_path, required)):
            pass
        policy = policy_for("auto", replace_config(required, max_processes=10), tmp_path)
        if MACHINE.root:
            with pytest.raises(KernelStartError, match="number of processes"):
                await provider.start(spec(tmp_path, sandbox=policy), no_host)
    finally:
        await provider.aclose()
    assert len(notices) == (1 if MACHINE.root else 0)


async def test_a_wall_that_cannot_be_built_is_no_kernel(provider, tmp_path):
    policy = SandboxPolicy(mode="auto", walled=True, readable=(Path("/usr"),), writable=(), limits=Limits())
    with pytest.raises(KernelStartError, match="sandbox|wall|No such file|cannot"):
        await provider.start(spec(tmp_path, sandbox=policy), no_host)


async def test_what_is_written_may_lie_in_what_is_only_read_and_the_other_way_round(provider, tmp_path):
    inner = tmp_path / "readable/workspace"
    for path in (inner / "venv", tmp_path / "elsewhere"):
        path.mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    config = replace_config(LIMITED, readable=(tmp_path / "readable", inner / "venv", tmp_path / "link"))
    code = f"import os\nopen('x', 'w')\nopen('venv/x', 'w')\nprint(os.listdir('..'), os.listdir({str(tmp_path / 'link')!r}))\nopen('../x', 'w')"
    async with open_kernel(provider, inner, **sandboxed("auto", inner, config)) as kernel:
        ran = await run_cell(kernel, code)
    assert "['workspace'] []" in ran.text
    assert [output.ename for output in ran.outputs if isinstance(output, CellError)] in (["OSError"], ["PermissionError"])
    assert (inner / "venv/x").exists()
    assert not (tmp_path / "readable/x").exists()


@pytest.fixture
def ordinary_user(tmp_path):
    """Runs a program inside a wall as somebody who is not root: `run(policy, code)`; None as policy: without a wall."""
    folder = Path(tempfile.mkdtemp(dir="/tmp"))
    guest = wall_script().parent
    for name in ("wall.py", "seccomp.py"):
        shutil.copy(guest / name, folder)
    for name in ("workspace", "kernel"):
        (folder / name).mkdir()
    python, who = sys.executable, {}
    if os.getuid() == 0:
        who = {"user": 65534, "group": 65534, "extra_groups": []}
        for path in (folder, folder / "workspace", folder / "kernel"):
            os.chown(path, 65534, 65534)
        candidates = [path for path in (sys.executable, "/usr/bin/python3") if Path(path).exists()]
        test = ["/bin/sh", "-c", 'exec "$0" -I -S -c "import ctypes"']
        usable = [
            path
            for path in candidates
            if not subprocess.run([*test, path], capture_output=True, check=False, **who).returncode
        ]
        if not usable:
            pytest.skip("no Python here that an ordinary user can run")
        python = usable[0]

    def run(machine: Support, code: str, **values: object) -> subprocess.CompletedProcess[str]:
        policy = policy_for("auto", KernelConfig(sandbox="auto", python=python), folder / "workspace")
        policy = replace(policy, readable=(*policy.readable, Path("/proc")), **values)
        content = wire(policy, machine, folder / "kernel", folder / "workspace")
        wall = [python, "-I", "-S", str(folder / "wall.py"), json.dumps(content)]
        return subprocess.run(
            [*wall, python, "-I", "-S", "-c", code],
            capture_output=True,
            text=True,
            cwd=folder / "workspace",
            timeout=60,
            check=False,
            **who,
        )

    yield run
    shutil.rmtree(folder)


VIEW, NO_VIEW = Support(landlock=MACHINE.landlock, seccomp=True, view=True), Support(landlock=MACHINE.landlock, seccomp=True)


@pytest.mark.parametrize("machine", [VIEW, NO_VIEW], ids=["with a view", "without a view"])
def test_an_ordinary_user_forks_up_to_the_limit(ordinary_user, machine):
    code = """
import os
reader, writer = os.pipe()
made = 0
try:
    for made in range(200):
        if os.fork() == 0:
            os.close(writer)
            os.read(reader, 1)  # until the parent has ended
            os._exit(0)
except BlockingIOError:
    print("stopped", made)
"""
    ran = ordinary_user(machine, code, limits=Limits(processes=50))
    assert ran.stderr == ""
    assert 10 <= int(ran.stdout.split()[1]) <= 50


@pytest.mark.parametrize("machine", [VIEW, NO_VIEW], ids=["with a view", "without a view"])
def test_an_ordinary_user_has_no_capability_and_no_way_out(ordinary_user, machine):
    code = """
import ctypes, os, resource, signal, socket
status = dict(line.split(":", 1) for line in open("/proc/self/status").read().splitlines())
print(*(status[name].strip() for name in ("CapEff", "CapPrm", "CapInh", "CapAmb", "NoNewPrivs", "Seccomp")))
def attempt(name, function):
    try:
        print(name, "worked", function())
    except (OSError, ValueError) as error:
        print(name, type(error).__name__)
PARENT = os.getppid()
libc = ctypes.CDLL(None, use_errno=True)
def clone():
    if libc.syscall(56 if os.uname().machine == "x86_64" else 220, 0x10000000 | 17, 0, 0, 0, 0) < 0:
        raise OSError(ctypes.get_errno(), "")
    os._exit(0)
attempt("home", lambda: os.listdir(HOME))
attempt("parent", lambda: open(f"/proc/{PARENT}/environ").read())
attempt("kill", lambda: os.kill(PARENT, signal.SIGCONT))
attempt("limit", lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (-1, -1)))
attempt("network", lambda: socket.socket())
attempt("namespace", clone)
a, b = socket.socketpair()
a.send(b"x"); print("pair", b.recv(1))
open("made", "w").write("x")
print("done")
""".replace("HOME", repr(str(Path.home())))
    ran = ordinary_user(machine, code)
    assert ran.stderr == ""
    none = "0" * 16
    assert ran.stdout.splitlines() == [
        f"{none} {none} {none} {none} 1 2",
        *("home FileNotFoundError" if machine.view else "home PermissionError", "parent PermissionError"),
        *("kill PermissionError", "limit ValueError", "network OSError", "namespace PermissionError", "pair b'x'", "done"),
    ]


def test_without_a_view_no_unix_socket_can_be_connected_to_at_all(ordinary_user):
    code = """
import socket
import os
if os.path.exists("own"): os.remove("own")
listener = socket.socket(socket.AF_UNIX); listener.bind("own"); listener.listen()
for how in (lambda: socket.socket(socket.AF_UNIX).connect("own"), lambda: socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM),
            lambda: socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)):
    try:
        how(); print("worked")
    except PermissionError:
        print("refused")
"""
    if MACHINE.landlock < 9:  # from there on Landlock looks at the path
        assert ordinary_user(NO_VIEW, code).stdout.split() == ["refused"] * 3
    assert ordinary_user(VIEW, code).stdout.split() == ["worked"] * 3


def replace_config(config: KernelConfig, **values: object) -> KernelConfig:
    return KernelConfig(**{**config.model_dump(), **values})


@pytest.mark.parametrize("kind", PROVIDERS)
async def test_a_kernel_somebody_else_has_connected_to_while_it_started_is_not_used(kind, tmp_path):
    """The sockets have a path for a moment: whoever gets in then is found out."""
    provider, connected, stop = PROVIDERS[kind](), [], asyncio.Event()
    temporary = Path(tempfile.gettempdir())

    async def intrude() -> None:
        while not stop.is_set():
            for path in temporary.glob("fa-*/**/k-2"):
                if str(path) not in before:
                    intruder = socket.socket(socket.AF_UNIX)
                    connected.append(intruder)
                    try:
                        intruder.connect(str(path))
                    except OSError:
                        continue
                    return
            await asyncio.sleep(0)

    before = {str(path) for path in temporary.glob("fa-*/**/k-2")}
    intruding = asyncio.create_task(intrude())
    try:
        with pytest.raises(KernelStartError, match="somebody else"):
            await provider.start(spec(tmp_path, **sandboxed("full", tmp_path)), no_host)
    finally:
        stop.set()
        await intruding
        for intruder in connected:
            intruder.close()
        await provider.aclose()
