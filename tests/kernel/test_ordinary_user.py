"""The wall around programs of somebody who is not root, with a user namespace and without one."""

import fcntl
import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from support.sandbox import MACHINE, NEEDS_A_WALL

from freeact_sub.config.schema import KernelConfig
from freeact_sub.kernels.files import layer
from freeact_sub.kernels.wall.sandbox import Limits, Support, find_kept, policy_for, wall_script, wire

pytestmark = [pytest.mark.kernel, NEEDS_A_WALL]


@pytest.fixture
def alone():
    """No other worker's test runs programs of this user: what is counted is all that the user runs."""
    with open(__file__, "rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@pytest.fixture
def ordinary_user(tmp_path, alone):
    """Runs a program inside a wall as somebody who is not root: `run(policy, code)`; None as policy: without a wall."""
    folder = Path(tempfile.mkdtemp(dir="/tmp"))
    wall = wall_script().parent
    for name in ("wall.py", "view.py", "seccomp.py"):
        shutil.copy(wall / name, folder)
    workspace = folder / "around/workspace"
    for path in (workspace, folder / "kernel"):
        path.mkdir(parents=True)
    python, who = sys.executable, {}
    if os.getuid() == 0:
        who = {"user": 65534, "group": 65534, "extra_groups": []}
        for path in (folder, workspace.parent, workspace, folder / "kernel"):
            os.chown(path, 65534, 65534)
        candidates = [path for path in (sys.executable, "/usr/bin/python3") if Path(path).exists()]
        lent = f"import ctypes, sys; sys.exit(sys.version_info[:2] != {sys.version_info[:2]})"  # our ipykernel works there
        test = ["/bin/sh", "-c", f'exec "$0" -I -S -c "{lent}"']
        usable = [
            path
            for path in candidates
            if not subprocess.run([*test, path], capture_output=True, check=False, **who).returncode
        ]
        if not usable:
            pytest.skip("no Python here that an ordinary user can run")
        python = usable[0]

    def command(machine: Support, code: str, **values: object) -> list[str]:
        policy = policy_for("auto", KernelConfig(sandbox="auto", python=python), workspace)
        policy = replace(policy, readable=(*policy.readable, Path("/proc")), **values)
        content = wire(policy, machine, folder / "kernel", workspace, find_kept(policy))
        wall = [python, "-I", "-S", str(folder / "wall.py"), json.dumps(content)]
        return [*wall, python, "-I", "-S", "-c", code]

    def run(machine: Support, code: str, **values: object) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command(machine, code, **values),
            capture_output=True,
            text=True,
            cwd=workspace,
            timeout=240,
            check=False,
            **who,
        )

    run.workspace, run.who, run.folder, run.python, run.command = workspace, who, folder, python, command
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


@pytest.mark.parametrize("machine", [VIEW, NO_VIEW], ids=["with a view", "without a view"])
def test_an_ordinary_user_connects_to_no_unix_socket_by_path_and_leaves_no_set_uid_file(ordinary_user, machine):
    code = """
import os, socket, stat
if os.path.exists("own"): os.remove("own")
listener = socket.socket(socket.AF_UNIX); listener.bind("own"); listener.listen()
for how in (lambda: socket.socket(socket.AF_UNIX).connect("own"), lambda: socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM),
            lambda: socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM), lambda: socket.socket(socket.AF_UNIX, socket.SOCK_RAW),
            lambda: os.mknod("made", stat.S_IFREG | 0o4755), lambda: os.chmod("own", 0o4755)):
    try:
        how(); print("worked")
    except PermissionError:
        print("refused")
os.chmod(".", os.stat(".").st_mode | stat.S_ISGID)  # folders that a team shares
"""
    ran = ordinary_user(machine, code)
    assert ran.stderr == ""
    # from Landlock 9 on it is the path that counts
    assert ran.stdout.split() == ["refused"] * 6 if MACHINE.landlock < 9 else ["worked"] * 4 + ["refused"] * 2


def test_an_ordinary_user_cannot_change_what_git_obeys(ordinary_user):
    """Behind a user namespace: folders, files and links, and what stands above them."""
    make = """
mkdir -p .git/hooks vendor/library/.git data/objects data/refs; touch .git/config vendor/library/.git/config data/HEAD
mkdir -p pointed linked behind; echo 'gitdir: ../data' > pointed/.git; ln -s ../behind linked/.git; touch behind/config
"""
    subprocess.run(["sh", "-c", make], cwd=ordinary_user.workspace, check=True, **ordinary_user.who)
    code = """
import os
folders = (".git", "vendor", "vendor/library", "vendor/library/.git", "data", "pointed", "linked", "behind")
attempts = [(os.rename, name, "moved") for name in (*folders, "pointed/.git", "linked/.git", ".git/config")]
attempts += [(os.remove, name) for name in ("pointed/.git", "linked/.git", ".git/config", "behind/config", "data/HEAD")]
attempts += [(open, name, "w") for name in (".git/new", "behind/config", "data/config", "pointed/.git", "linked/.git/x")]
attempts += [(os.link, ".git/config", "link"), (os.chmod, ".git", 0o777), (os.rmdir, "vendor/library/.git")]
for function, *arguments in attempts:
    try:
        function(*arguments)
        print("worked", arguments)
    except OSError:
        pass
open("vendor/library/new", "w").close()
print("done")
"""
    ran = ordinary_user(VIEW, code)
    assert (ran.stdout, ran.stderr) == ("done\n", "")


@pytest.mark.parametrize("sealed", [False, True])
def test_an_ordinary_user_gets_a_copy_on_write_of_the_workspace(ordinary_user, sealed):
    """As a branch with files of its own does; what it writes is found in the private folder, with what it has deleted.

    In a trial nothing else is to be written, whatever the wall of its kernel leaves open.
    """
    run = ordinary_user
    shutil.copy(Path(layer.__file__), run.folder)
    subprocess.run(["sh", "-c", "mkdir d; echo one > d/one; echo two > two"], cwd=run.workspace, check=True, **run.who)
    kernel = run.folder / "kernel"
    code = f"""
import ctypes, os, sys
libc, here = ctypes.CDLL(None, use_errno=True), os.getcwd()
print(os.getpid(), flush=True)
sys.stdin.readline()
opened = [(os.open({str(kernel)!r} + '/' + name, os.O_RDONLY), kind) for name, kind in (('k-user', 0x10000000), ('k-mnt', 0x20000))]
for descriptor, kind in opened:
    if libc.setns(descriptor, kind):
        raise OSError(ctypes.get_errno(), "setns")
os.chdir(here)
open({str(kernel)!r} + "/own", "w").close()
open("d/one", "a").write("more"); os.remove(here + "/two"); open("new", "w").write("new")
print(sorted(os.listdir(here)), repr(open("d/one").read()), flush=True)
for refused in (lambda: open("../x", "w"), lambda: os.mknod("d/device", 0o60600, os.makedev(8, 0)),
                lambda: os.setxattr("d/one", "security.capability", b"\\1\\0\\0\\2" + bytes(16))):
    try:
        print("worked", refused())
    except OSError:
        pass
if not (libc.umount2(here.encode(), 2) and libc.mount(b"none", here.encode(), b"tmpfs", ctypes.c_ulong(0), None)):
    print("worked")
"""
    options = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "cwd": run.workspace, **run.who}
    with subprocess.Popen(run.command(VIEW, code), **options) as walled:
        found = kernel.stat()
        settings = {"pid": int(walled.stdout.readline()), "workspace": str(run.workspace), "folder": str(kernel)}
        settings |= {"identity": [found.st_dev, found.st_ino], "origin": None, "covers": True, "sealed": sealed}
        lay = f"import runpy, sys; sys.path.append({str(run.folder)!r}); import wall; wall.load('view'); sys.exit(runpy.run_path({str(run.folder / 'layer.py')!r})['reason_against']({settings!r}) or 0)"
        command = [run.python, "-I", "-S", "-c", lay]
        laid = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, **run.who)
        told, _ = walled.communicate("go\n", timeout=120)
    if "overlay" in laid.stderr or "mount" in laid.stderr:
        pytest.skip(f"no overlays for ordinary users here: {laid.stderr}")
    assert laid.stderr == ""
    assert told == "['d', 'new'] 'one\\nmore'\n"
    assert sorted(path.name for path in run.workspace.iterdir()) == ["d", "two"]
    assert (run.workspace / "d/one").read_text() == "one\n"
    assert stat.S_ISCHR((kernel / layer.CHANGES / "two").lstat().st_mode)
    assert (kernel / "own").exists()
