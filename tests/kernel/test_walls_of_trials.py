"""The wall around a trial: code that asks nobody changes nothing outside of its copy of the workspace."""

import asyncio
import fcntl
import os
from pathlib import Path

import psutil
import pytest
from support.elsewhere import CANNOT_FORK
from support.sandbox import NEEDS_A_WALL
from support.trials import asking, tree
from support.waiting import eventually

pytestmark = [
    pytest.mark.kernel,
    pytest.mark.skipif(CANNOT_FORK, reason="kernels are branched on Linux only"),
    NEEDS_A_WALL,
]

ATTACKED = """
import ctypes, fcntl, os, signal, stat, time
L = ctypes.CDLL(None, use_errno=True)
def tried(result):
    print(result if result == -1 else f'DONE {result}')
folder = b'%s'
def served():
    return os.sched_getaffinity(parent), os.sched_getscheduler(parent), os.getpriority(0, parent)
def unless(_):
    return -1 if served() == before else 0
def piped():
    r, w = os.pipe()
    os.write(w, b'evil')
    return r
def sent():
    r, w = os.pipe()
    L.fcntl(r, 8, parent), L.fcntl(r, 10, 9), L.fcntl(r, 4, 0o20000), L.write(w, b'x', 1)
    return -1
"""
OPENED = """
theirs, here, locked = (os.open(path, os.O_RDONLY) for path in ('w', '.', 'w'))
fcntl.flock(locked, fcntl.LOCK_EX)
L.mmap.restype = ctypes.c_void_p
mapped = L.mmap(None, 4096, 1, 1, opened, ctypes.c_long(0))
"""
LOW_LEVEL = {
    "open to write": "L.open(folder + b'/x', 1)",
    "truncate": "L.truncate(folder + b'/x', 0)",
    "creat": "L.creat(folder + b'/made', 0o666)",
    "remove": "L.unlink(folder + b'/x')",
    "rename": "L.rename(folder + b'/x', folder + b'/y')",
    "rename into the workspace": "L.rename(folder + b'/x', b'y')",
    "link": "L.link(folder + b'/x', folder + b'/y')",
    "link into the workspace": "L.link(folder + b'/x', b'y')",
    "symlink": "L.symlink(b'/x', folder + b'/y')",
    "make a folder": "L.mkdir(folder + b'/made', 0o777)",
    "remove a folder": "L.rmdir(folder + b'/sub')",
    "permissions": "L.chmod(folder + b'/x', 0o777)",
    "permissions of an open file": "L.fchmod(opened, 0o777)",
    "permissions of an open folder": "L.fchmod(held, 0o777)",
    "owner": "L.chown(folder + b'/x', 1, 1)",
    "times": "L.utimensat(-100, folder + b'/x', None, 0)",
    "attribute": "L.setxattr(folder + b'/x', b'user.a', b'b', 1, 0)",
    "below an open folder": "L.openat(held, b'x', 1)",
    "make a file below an open folder": "L.openat(held, b'made', 0o101, 0o666)",
    "a pipe of another program": "L.open(folder + b'/pipe', 0o4001)",
    "write through /proc": "L.open(f'/proc/self/fd/{opened}'.encode(), 1)",
    "the terminal of another program": "L.open(b'TERMINAL', 1)",
    "the terminal of the program": "L.open(b'/dev/tty', 1)",
    "space for an open file": "L.fallocate(opened, 0, 0, 100)",
    "the length of an open file": "L.ftruncate(opened, 0)",
    "copy into an open file": "L.copy_file_range(theirs, None, opened, None, 4, 0)",
    "send into an open file": "L.sendfile(opened, theirs, None, 4)",
    "splice into an open file": "L.splice(piped(), None, opened, None, 4, 0)",
    "share the blocks of an open file": "L.ioctl(opened, 0x40049409, theirs)",
    "flags of an open file": "L.ioctl(opened, 0x40086602, b'\\x20' + bytes(7))",
    "attribute of an open file": "L.fsetxattr(opened, b'user.a', b'b', 1, 0)",
    "remove an attribute": "L.fremovexattr(opened, b'user.a')",
    "write what was opened to be read": "L.write(opened, b'x', 1)",
    "change a mapping": "L.mprotect(ctypes.c_void_p(mapped), 4096, 3)",
    "exchange with a file outside": "L.renameat2(-100, b'w', -100, folder + b'/x', 2)",
    "a lease": "L.fcntl(opened, 1024, 0)",
    "the root of the kernel": "L.open(b'/proc/%d/root/etc/passwd' % parent, 0)",
    "the memory of the kernel": "L.open(b'/proc/%d/mem' % parent, 2)",
    "the environment of the kernel": "L.open(b'/proc/%d/environ' % parent, 0)",
    "its chance to be killed": "L.open(b'/proc/%d/oom_score_adj' % parent, 1)",
    "its pages": "L.open(b'/proc/%d/clear_refs' % parent, 1)",
    "its name": "L.open(b'/proc/%d/comm' % parent, 1)",
    "where its pages are": "L.syscall(256, parent, 8, b'\\x01' + bytes(7), b'\\x01' + bytes(7))",
    "move its pages": "L.syscall(279, parent, 0, None, None, None, 0)",
    "its locks": "L.syscall(274, parent, bytes(8), bytes(8))",
    "its descriptors": "L.syscall(438, L.syscall(434, parent, 0), 1, 0)",
    "free its memory": "L.syscall(448, L.syscall(434, parent, 0), 0)",
    "its group": "L.setpgid(parent, 0)",
    "a signal with a value": "L.syscall(129, parent, 18, bytes(128))",
    "a signal by its descriptor": "L.syscall(424, L.syscall(434, parent, 0), 18, None, 0)",
    "a signal by input": "sent()",
    "a signal to the kernel": "L.kill(parent, 9)",
    "a signal to its group": "L.killpg(parent, 9)",
    "a signal to its thread": "L.tgkill(parent, parent, 9)",
    "trace the kernel": "L.ptrace(16, parent, 0, 0)",
    "a network socket": "L.socket(2, 1, 0)",
    "a datagram socket": "L.socket(2, 2, 0)",
    "a socket of IPv6": "L.socket(10, 1, 0)",
    "a netlink socket": "L.socket(16, 3, 0)",
    "a raw socket": "L.socket(17, 3, 0)",
    "a socket of a virtual machine": "L.socket(40, 1, 0)",
    "a socket for ciphers": "L.socket(38, 5, 0)",
    "a name for a socket": "L.bind(L.socket(1, 1, 0), b'\\x01\\x00\\x00of-a-trial', 13)",
    "a datagram socket of this machine": "L.socket(1, 2, 0)",
    "connect to a socket": "L.connect(L.socket(1, 1, 0), b'\\x01\\x00' + folder + b'/s', 100)",
    "mount": "L.mount(b'none', b'/mnt', b'tmpfs', 0, None)",
    "make the root writable": "L.mount(b'none', b'/', None, 32 | 4096, None)",
    "unmount": "L.umount2(b'.', 2)",
    "other namespaces": "L.unshare(0x10020000)",
    "the namespace of the kernel": "L.setns(L.open(b'/proc/%d/ns/mnt' % parent, 0), 0)",
    "another root": "L.chroot(b'/')",
    "shared memory": "L.shmget(1234, 100, 0o1666)",
    "a semaphore": "L.semget(1234, 1, 0o1666)",
    "a queue": "L.msgget(1234, 0o1666)",
    "a named queue": "L.mq_open(b'/q', 0o102, 0o666, None)",
    "a key": "L.syscall(248, b'user', b'a', b'b', 1, -3)",
    "io_uring": "L.syscall(425, 8, None)",
    "bpf": "L.syscall(321, 0, None, 0)",
    "the settings of the system": "L.open(b'/proc/sys/kernel/hostname', 1)",
    "groups of processes": "L.open(b'/sys/fs/cgroup/cgroup.procs', 1)",
    "the log of the system": "L.open(b'/dev/kmsg', 1)",
    "the keys of the system": "L.open(b'/proc/sysrq-trigger', 1)",
    "watch all files": "L.syscall(300, 4, 0)",
    "swap": "L.swapon(folder + b'/x', 0)",
    "the name of the system": "L.sethostname(b'x', 1)",
    "a limit of the kernel": "L.prlimit(parent, 7, b'\\x00' * 16, None)",
    "the processors of the kernel": "unless(L.sched_setaffinity(parent, 8, b'\\x01' + bytes(7)))",
    "the scheduling of the kernel": "unless(L.sched_setscheduler(parent, 3, bytes(4)))",
    "the priority of the kernel": "unless(L.setpriority(0, parent, 7))",
    "a device": "L.mknod(b'device', 0o020666, 0x103)",
    "the time": "L.settimeofday(b'\\x00' * 16, None)",
}  # fmt: skip
ALONE = {
    "shared memory of another name": "f = L.open(b'/dev/shm/of-a-trial', 0o102, 0o666); print(f)",
    "a program that writes": "import _posixsubprocess\nprint(L.system(b'echo > %s/made'))",
    "a program that connects": "print(L.system(b'exec 3<>/dev/tcp/127.0.0.1/PORT'))",
    "a program that stays": "print(L.system(b'setsid sh -c \"sleep 100; echo > %s/late\" &'))",
    "a program that is not its child": "pid = L.syscall(56, 0x8000 | 17, 0, 0, 0, 0)\nif pid == 0:\n    L.pause(); L._exit(0)",
    "a program that changes its process id": "if L.fork() == 0:\n    L.setsid()\n    end = time.time() + 60\n    while L.fork() == 0 and time.time() < end: pass\n    L._exit(0)",
    "names": "for name in (b'a\\nb', b'\\xff', b'\\x1b[2J', b'x' * 255, b'.wh.w', b'.wh..wh..opq', b'-rf'): L.close(L.open(name, 0o101, 0o666))",
    "a white-out": "print(L.mknod(b'w2', 0o020666, 0), L.setxattr(b'.', b'trusted.overlay.opaque', b'y', 1, 0))",
    "nothing may be read": "L.chmod(b'w', 0), L.chmod(b'.', 0)",
    "files of the workspace that were open": "print(L.fchmod(theirs, 0o777), L.openat(here, b'made', 0o101, 0o666), L.flock(locked, 8))",
    "whatever is open": "for fd in range(3, 100): L.write(fd, b'evil', 4) if stat.S_ISREG(os.fstat(fd).st_mode) else 0",
    "a forked process": "pid = L.fork()\nif pid == 0:\n    L.unlink(folder + b'/x'); os._exit(0)\nos.waitpid(pid, 0)",
}


def processes():
    return {child.pid for child in psutil.Process().children(recursive=True)}


async def test_nothing_outside_is_changed_by_code_that_asks_nobody(tmp_path):
    workspace, outside = tmp_path / "workspace", tmp_path / "outside"
    workspace.mkdir()
    (workspace / "w").write_text("kept")
    terminal, of_program = os.openpty()
    os.set_blocking(terminal, False)
    (outside / "sub").mkdir(parents=True)
    (outside / "x").write_text("kept")
    os.mkfifo(outside / "pipe")
    reading = os.open(outside / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    heard = []

    async def hear(reader, writer):
        heard.append(await reader.read(1))
        writer.close()

    server = await asyncio.start_server(hear, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    folder = str(outside)
    setup = (
        ATTACKED % folder
        + f"opened = os.open('{folder}/x', os.O_RDONLY); held = os.open('{folder}', os.O_RDONLY); parent = os.getpid(); before = served()\n"
        + OPENED
    )
    low_level = {name: code.replace("TERMINAL", os.ttyname(of_program)) for name, code in LOW_LEVEL.items()}
    lines = "\n".join(f"print({name!r}, end=': '); tried({code})" for name, code in low_level.items())
    alone = [code.replace("%s", folder).replace("PORT", str(port)) for code in ALONE.values()]
    async with asking(workspace, setup, lines, *alone, kernel={"spares": 0}) as question:
        (await question()).approve()
        request, before, files, ours = await question(), tree(outside), tree(workspace), processes()
        effects = await request.effects_ready()
        assert effects.status == "done", effects
        said = dict(line.split(": ", 1) for line in effects.output.strip().splitlines())
        assert {name for name, told in said.items() if told != "-1"} == set()
        assert said.keys() == LOW_LEVEL.keys()
        assert tree(outside) == before
        request.deny()
        for _ in alone:
            request = await question()
            effects = await request.effects_ready()
            assert effects.status in ("done", "stopped"), effects
            assert (tree(outside), tree(workspace)) == (before, files)
            request.deny()
        assert await question() is None
        assert tree(outside) == before
        await eventually(lambda: processes() <= ours)
        with open(workspace / "w") as file, pytest.raises(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # the kernel has it
        with pytest.raises(BlockingIOError):
            os.read(terminal, 1)
        assert not Path("/dev/shm/of-a-trial").exists()
        assert os.read(reading, 1) == b""
        assert not heard
    for descriptor in (reading, terminal, of_program):
        os.close(descriptor)
    server.close()


PREPARE = "import ctypes, os, resource, socket, sys\nM = sys.modules\nnothing = lambda *a, **k: None\nbegin = M['freeact_detach'].become_kernel\n"
SWITCHED_OFF = {
    "files and the filter": "for m, f in (('freeact_wall', 'restrict_files'), ('freeact_layer', 'join'), ('freeact_seccomp', 'install'), ('freeact_seccomp', 'refuse_names'), ('freeact_guest.trial', 'ask_more')): setattr(M[m], f, nothing)",
    "files only": "M['freeact_wall'].restrict_files = nothing",
    "a filter that lets all pass": "M['freeact_seccomp'].program = lambda *a, **k: [(6, 0, 0, 0x7FFF0000)]",
    "limits": "resource.setrlimit = nothing",
    "all of it": "M['freeact_detach'].become_kernel = lambda app, requests, request, kept: begin(app, requests, {**request, 'trial': None, 'wall': None, 'joins': None, 'moved': None}, kept)\nM['freeact_guest.trial'].before = nothing",
    "the namespaces": "M['freeact_detach'].become_kernel = lambda app, requests, request, kept: begin(app, requests, {**request, 'joins': None}, kept)",
    "an open file": "kept = os.open(OUTSIDE + '/x', 1)\nM['freeact_guest.trial'].reason_against = lambda *a: ''\nM['freeact_detach'].leave_descriptor = nothing",
    "a connection": "kept = socket.socket()\nctypes.CDLL(None).connect(kept.fileno(), ADDRESS, 16)\nM['freeact_guest.trial'].reason_against = lambda *a: ''\nM['freeact_detach'].leave_descriptor = nothing",
    "shared memory": "import mmap\nkept = mmap.mmap(os.open(OUTSIDE + '/x', 2), 4)\nM['freeact_guest.trial'].reason_against = lambda *a: ''",
    "a process from before": "leave = M['freeact_detach'].leave_descriptors\ndef early(*a):\n    if os.fork() == 0:\n        import time\n        time.sleep(2); ctypes.CDLL(None).open(OUTSIDE.encode() + b'/early', 0o101, 0o644); os._exit(0)\n    leave(*a)\nM['freeact_detach'].leave_descriptors = early",
}  # fmt: skip
"""Code of a cell that was approved, which changes what the walls of later trials are made of."""
UNSEEN = """
L = ctypes.PyDLL(None)
L.open(OUTSIDE.encode() + b'/made', 0o101, 0o644)
L.connect(L.socket(2, 1, 0), ADDRESS, 16)
L.kill(VICTIM, 15)
if isinstance(kept, int): L.write(kept, b'evil', 4)
elif isinstance(kept, socket.socket): L.send(kept.fileno(), b'evil', 4, 0)
elif kept is not None: kept[:] = b'evil'
"""


@pytest.mark.parametrize("what", SWITCHED_OFF)
async def test_code_in_a_kernel_does_not_switch_off_the_walls_of_later_trials(what, tmp_path):
    workspace, outside = tmp_path / "workspace", tmp_path / "outside"
    workspace.mkdir()
    outside.mkdir()
    (outside / "x").write_text("kept")
    connected, heard = [], []

    async def hear(reader, writer):
        connected.append(1)
        heard.append(await reader.read(4))
        writer.close()

    server = await asyncio.start_server(hear, "127.0.0.1", 0)
    address = b"\2\0" + server.sockets[0].getsockname()[1].to_bytes(2, "big") + b"\x7f\0\0\1" + bytes(8)
    victim = await asyncio.create_subprocess_exec("sleep", "600")
    setup = f"OUTSIDE, ADDRESS, VICTIM, kept = {str(outside)!r}, {address!r}, {victim.pid}, None\n"
    async with asking(workspace, setup + PREPARE + SWITCHED_OFF[what], UNSEEN, "open('after', 'w')") as question:
        (await question()).approve()
        request = await question()
        effects = await request.effects_ready()
        if effects.status == "refused":
            assert "the copy for the trial is not behind its wall: " in effects.reason
        request.deny()
        await (await question()).effects_ready()
        assert {path.name: path.read_text() for path in outside.iterdir()} == {"x": "kept"}
        assert (len(connected), heard) == (1 if what == "a connection" else 0, [])
        assert victim.returncode is None
    victim.kill()
    await victim.wait()
    server.close()
