"""Trials in real kernels: what a cell would do is seen before it may run, and nothing of it happens."""

import asyncio
import contextlib
import os
import sys
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
import pytest
from support.agents import cell, of_kind, task
from support.sandbox import NEEDS_A_WALL
from support.waiting import eventually

from freeact_sub import Agent, Config
from freeact_sub.calls import CodeAction
from freeact_sub.events import ApprovalDecided, ApprovalRequest, CodeExecutionOutput, KernelLost
from freeact_sub.testing import ScriptedModel

pytestmark = [
    pytest.mark.kernel,
    pytest.mark.skipif(sys.platform != "linux", reason="kernels are branched on Linux only"),
    NEEDS_A_WALL,
]
ON = {"enabled": True, "seconds": 60}


@asynccontextmanager
async def asking(workspace, *cells, effects=ON, **config):
    """An agent that runs these cells, and a function that reads on to the next question about one."""
    model = ScriptedModel([*map(cell, cells), "done"])
    async with Agent(Config(workspace=workspace, effects=effects, **config), model=model) as agent:
        run, events = agent.run("root"), []

        async def question():
            async for event in run:
                events.append(event)
                if isinstance(event, ApprovalRequest):
                    if isinstance(event.call, CodeAction):
                        return event
                    event.deny()
            return None

        question.events = events
        yield question


def tree(folder: Path):
    """All files below a folder with content, permissions and time."""
    return {
        str(path.relative_to(folder)): (
            path.lstat().st_mode,
            path.lstat().st_mtime_ns,
            path.read_bytes() if path.is_file() else b"",
        )
        for path in sorted(folder.rglob("*"))
        if ".freeact" not in path.parts
    }


SHOW = "print(sorted(name for name in dir() if name[0] != '_' and name not in ('In', 'Out', 'exit', 'quit', 'agent')), x, random.random(), np.random.random())"
SETUP = "import random, os, numpy as np\nx = [1]; random.seed(3); np.random.seed(3); big = np.zeros(3_000_000)"

CELLS = {
    "variables": ("x.append(2); y = {'k': 1}", {"x": "list 2 [1, 2]", "y": "dict 1 {'k': 1}"}, {}),
    "a large array": ("big[7] = 1", {"big": "numpy.ndarray 3000000"}, {}),
    "a deleted variable": ("del y", {"y": ""}, {}),
    "files": ("open('a.txt', 'a').write('three\\n'); open('new/n', 'w').write('n')", {}, {"a.txt": "+three", "new/n": "+n"}),
    "a deletion": ("os.remove('gone.txt')", {}, {"gone.txt": "-gone"}),
    "a renaming": ("os.rename('a.txt', 'b.txt')", {}, {"a.txt": "-three", "b.txt": "+three"}),
    "permissions": ("os.chmod('b.txt', 0o600)", {}, {"b.txt": "mode 644 -> 600"}),
    "bytes": ("open('b', 'wb').write(bytes(9))", {}, {"b": "9 bytes"}),
    "a link": ("os.symlink('b.txt', 'link')", {}, {"link": "+link to b.txt"}),
    "an error in the middle": ("x.append(3); open('half', 'w').close(); 1 / 0", {"x": "list 3 [1, 2, 3]"}, {"half": ""}),
    "a program that may run": ("!ls", {}, {}),
    "a magic": ("%cd -q new\n%cd -q ..", {}, {}),
    "a temporary file": ("import tempfile\nwith tempfile.NamedTemporaryFile() as file: file.write(b'x')", {"tempfile": "module tempfile", "file": None}, {}),
    "random numbers": ("r = (random.random(), np.random.random()); print(r)", {"r": None}, {}),
}  # fmt: skip


async def test_effects_are_what_the_cell_then_does_and_nothing_happens_before(tmp_path):
    for name in ("a.txt", "gone.txt"):
        (tmp_path / name).write_text("one\ntwo\n" if name == "a.txt" else "gone\n")
    (tmp_path / "new").mkdir()
    codes = [code for code, *_ in CELLS.values()]
    outputs = []
    async with asking(tmp_path, SETUP, *codes, SHOW) as question:
        first = await question()
        assert first.effects is None
        assert {change.name for change in (await first.effects_ready()).variables} >= {"x", "big"}
        first.approve()
        for name, (code, variables, files) in CELLS.items():
            request, before = await question(), tree(tmp_path)
            assert request.call.code == code
            effects = await request.effects_ready()
            assert effects is request.effects
            assert tree(tmp_path) == before, name
            assert effects.status == "done", (name, effects.reason)
            shown = {change.name: change.after for change in effects.variables}
            assert {key: shown[key] for key in variables if variables[key] is not None} == {
                key: value for key, value in variables.items() if value is not None
            }, name
            assert shown.keys() == variables.keys(), name
            assert {file.path for file in effects.files} == files.keys(), name
            for file in effects.files:
                assert files[file.path] in f"{file.diff} {file.note}", name
            outputs.append(effects.output.strip("\n"))
            request.approve()
        request = await question()
        outputs.append((await request.effects_ready()).output.strip("\n"))
        request.approve()
        assert await question() is None
    assert [ran.text for ran in of_kind(question.events, CodeExecutionOutput)][1:] == outputs
    assert "[1, 2, 3]" in outputs[-1]


async def test_a_cell_is_tried_again_when_the_workspace_has_changed_and_with_other_code(tmp_path):
    code, rows = "print(open('rows').read()); open('out', 'w').write('made');", tmp_path / "rows"
    rows.write_text("one")
    async with asking(tmp_path, code) as question:
        request = await question()
        first = await request.effects_ready()
        assert (first.output, first.outdated_by) == ("one\n", ())
        assert await request.effects_ready() is first
        other = await request.effects_ready("z = 1")
        assert [change.name for change in other.variables] == ["z"]
        assert not other.files
        assert await request.effects_ready("z = 1") is request.effects is other
        rows.write_text("two")
        second = await request.effects_ready()
        assert (second.output, second.outdated_by) == ("two\n", ())
        assert second.shows_as(first), "the output is no part of it"
        (tmp_path / "out").write_text("there by now")
        third = await request.effects_ready()
        assert third.outdated_by == ("out",)
        assert [file.diff for file in third.files] == ["--- a/out\n+++ b/out\n@@ -1 +1 @@\n-there by now\n+made"]
        assert not third.shows_as(first)
        assert await request.effects_ready() is third
        request.approve()
        assert await question() is None
    assert (tmp_path / "out").read_text() == "made"


STOPS = {
    "a connection": ("import socket; socket.create_connection(('localhost', 9))", "it wanted to connect to localhost"),
    "an address": ("import socket; socket.socket().connect(('127.0.0.1', 9))", "it wanted to use the network"),
    "a web page": ("import urllib.request as u; u.urlopen('http://example.com')", "it wanted to connect to example.com"),
    "a file outside": ("open('/tmp/of-a-trial', 'w')", "it wanted to create /tmp/of-a-trial"),
    "a program": ("!make test", "it wanted to run: make test"),
    "a child": ("agent.task('do it')", "it wanted to start a child: do it"),
    "a child, awaited": ("await agent.task('do it')", "it wanted to start a child: do it"),
    "a model": ("agent.ask('why?')", "it wanted to ask a model: why?"),
    "an MCP server": ("agent.mcp.files.read(path='x')", "it wanted to call an MCP server: files"),
    "outside the sandbox": ("agent.shell('ls', reason='x')", "it wanted to run outside the sandbox: ls"),
    "a person": ("input('name? ')", "it wanted to read what you type: name?"),
    "one that goes on": ("try: agent.ask('why?')\nexcept BaseException: pass\nopen('on', 'w').close()", "it wanted to ask a model: why?"),
    "a thread": ("import threading; t = threading.Thread(target=lambda: open('/etc/of-a-trial', 'w')); t.start(); t.join()", "it wanted to create /etc/of-a-trial"),
    "its own end": ("os.kill(os.getpid(), 9)", "its process is gone"),
    "a daemon": ("import subprocess; subprocess.Popen(['ls', '-R', '/'], stdout=subprocess.PIPE)", "it leaves a program running"),
    "memory": ("a = bytearray(3 << 30)", ""),
}  # fmt: skip


async def test_a_trial_ends_where_somebody_would_have_to_be_asked(tmp_path):
    servers = {"files": {"command": sys.executable, "args": ["-c", "1"]}}
    codes = [f"import os; open('before', 'w').close(); print('before')\n{code}" for code, _ in STOPS.values()]
    async with asking(tmp_path, *codes, mcp_servers=servers) as question:
        for name, (_, reason) in STOPS.items():
            request = await question()
            effects = await request.effects_ready()
            assert effects.reason.startswith(reason), (name, effects)
            if reason:
                assert effects.status == "stopped", name
            else:
                assert (effects.status, effects.cell) == ("done", "error")
                assert "MemoryError" in effects.output
            if name != "its own end":
                assert effects.output.startswith("before\n"), name
            assert "before" in {file.path for file in effects.files}, name
            request.deny("no")
        assert await question() is None
        assert not {event.reason for event in of_kind(question.events, ApprovalDecided)} - {"no"}
    assert [path for path in os.listdir(tmp_path) if path != ".freeact"] == []


ATTACKED = """
import ctypes, os, signal
L = ctypes.CDLL(None, use_errno=True)
def tried(result):
    print(result if result == -1 else f'DONE {result}')
folder = b'%s'
def served():
    return os.sched_getaffinity(parent), os.sched_getscheduler(parent), os.getpriority(0, parent)
def unless(_):
    return -1 if served() == before else 0
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
    "the root of the kernel": "L.open(b'/proc/%d/root/etc/passwd' % parent, 0)",
    "the memory of the kernel": "L.open(b'/proc/%d/mem' % parent, 2)",
    "the environment of the kernel": "L.open(b'/proc/%d/environ' % parent, 0)",
    "a signal to the kernel": "L.kill(parent, 9)",
    "a signal to its group": "L.killpg(parent, 9)",
    "a signal to its thread": "L.tgkill(parent, parent, 9)",
    "trace the kernel": "L.ptrace(16, parent, 0, 0)",
    "a network socket": "L.socket(2, 1, 0)",
    "a datagram socket": "L.socket(2, 2, 0)",
    "a socket of IPv6": "L.socket(10, 1, 0)",
    "a netlink socket": "L.socket(16, 3, 0)",
    "a raw socket": "L.socket(17, 3, 0)",
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
    "its name": "L.sethostname(b'x', 1)",
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
    "a forked process": "pid = L.fork()\nif pid == 0:\n    L.unlink(folder + b'/x'); os._exit(0)\nos.waitpid(pid, 0)",
}


async def test_nothing_outside_is_changed_by_code_that_asks_nobody(tmp_path):
    workspace, outside = tmp_path / "workspace", tmp_path / "outside"
    workspace.mkdir()
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
        + f"opened = os.open('{folder}/x', os.O_RDONLY); held = os.open('{folder}', os.O_RDONLY); parent = os.getpid(); before = served()"
    )
    lines = "\n".join(f"print({name!r}, end=': '); tried({code})" for name, code in LOW_LEVEL.items())
    alone = [code.replace("%s", folder).replace("PORT", str(port)) for code in ALONE.values()]
    async with asking(workspace, setup, lines, *alone) as question:
        (await question()).approve()
        request, before = await question(), tree(outside)
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
            assert tree(outside) == before
            request.deny()
        assert await question() is None
        assert tree(outside) == before
        assert not Path("/dev/shm/of-a-trial").exists()
        assert os.read(reading, 1) == b""
        assert not heard
    os.close(reading)
    server.close()


REFUSALS = {
    "shared memory": ("import mmap; m = mmap.mmap(-1, 100)", "it shares memory", "m.close(); del m"),
    "a thread": ("import threading; e = threading.Event(); t = threading.Thread(target=e.wait); t.start()", "it has other threads", "e.set(); t.join()"),
    "a program": ("import os; pid = os.fork() or os.read(os.pipe()[0], 1)", "programs that it has started are still running", "os.kill(pid, 9); os.waitpid(pid, 0)"),
    "an open file": ("import tempfile; f = tempfile.TemporaryFile()", "a file without a name is open for writing", "f.close()"),
    "a connection": ("import socket; s = socket.socket()", "it has an open connection", "s.close()"),
}  # fmt: skip


async def test_a_kernel_that_cannot_be_copied_says_why_and_the_cell_is_asked_as_ever(tmp_path):
    steps = [code for setup, _, clean in REFUSALS.values() for code in (setup, "1", clean)]
    async with asking(tmp_path, *steps) as question:
        for name, (_, reason, _) in REFUSALS.items():
            (await question()).approve()
            request = await question()
            effects = await request.effects_ready()
            assert effects.status == "refused", (name, effects)
            assert reason in effects.reason, name
            request.approve()
            (await question()).approve()
        assert await question() is None


async def test_a_trial_ends_with_the_question_and_one_that_nobody_looks_at_is_not_made(tmp_path):
    async with asking(tmp_path, "print('started')\nwhile True: pass", "1", effects={**ON, "seconds": 500}) as question:
        request = await question()
        looking = asyncio.create_task(request.effects_ready())
        await eventually(lambda: any("cell in a trial" in task.get_name() for task in asyncio.all_tasks()))
        request.deny()
        assert (await looking).reason == "the question is closed"
        request = await question()
        request.approve()
        assert await question() is None


def processes():
    """Those that this program has started, without its helpers that end by themselves."""
    return {child.pid for child in psutil.Process().children(recursive=True)}


@pytest.mark.parametrize("killed", ["the trial", "its kernel"])
async def test_whatever_is_killed_nothing_is_lost_and_nothing_is_left(tmp_path, killed):
    forever = "open('of-the-trial', 'w').close()\nwhile True: pass"
    setup = "import os; x = 1; print(os.getpid())"
    async with asking(tmp_path, setup, forever, "print('here')", effects={**ON, "seconds": 2}) as question:
        (await question()).approve()
        request, before = await question(), processes()
        [kernel] = [int(ran.text) for ran in of_kind(question.events, CodeExecutionOutput)]
        looking = asyncio.create_task(request.effects_ready())
        await eventually(lambda: any("cell in a trial" in task.get_name() for task in asyncio.all_tasks()))
        for pid in processes() - before if killed == "the trial" else {kernel}:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, 9)
        effects = await looking
        assert effects.status == "stopped"
        assert effects.reason.startswith("its process is gone" if killed == "the trial" else "it takes longer than 2 s")
        request.deny("no")
        request = await question()
        assert (await request.effects_ready()).output.strip() == "here"
        request.approve()
        assert await question() is None
        assert len(of_kind(question.events, KernelLost)) == (killed == "its kernel")
        assert "of-the-trial" not in os.listdir(tmp_path)
        await eventually(lambda: len(processes()) <= len(before) + (killed == "its kernel"))


async def test_agents_that_ask_at_once_are_all_tried(tmp_path):
    children = 4
    script = {"root": [[task(f"child {number}") for number in range(children)], "done"]}
    script |= {f"child {number}": [cell(f"print({number}); made = {number}"), "done"] for number in range(children)}
    seen = {}

    async def decide(event):
        effects = await event.effects_ready()
        seen[event.call.code] = (effects.status, effects.output, [change.after for change in effects.variables])
        event.approve()

    async with Agent(Config(workspace=tmp_path, effects=ON), model=ScriptedModel(script)) as agent:
        run, deciding = agent.run("root"), []
        async for event in run:
            if isinstance(event, ApprovalRequest) and isinstance(event.call, CodeAction):
                deciding.append(asyncio.create_task(decide(event)))
            elif isinstance(event, ApprovalRequest):
                event.approve()
        assert (await run.result()).status == "completed"
        await asyncio.gather(*deciding)
    assert seen == {f"print({n}); made = {n}": ("done", f"{n}\n", [f"int {n}"]) for n in range(children)}


async def test_what_is_off_is_said(tmp_path):
    async with asking(tmp_path, "1", effects={}) as question:
        request = await question()
        assert (await request.effects_ready()).reason == "trials are off (setting effects.enabled)"
        request.approve()
        assert (await request.effects_ready()).status == "refused"
        assert await question() is None
