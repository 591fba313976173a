"""Trials in real kernels: what a cell would do is seen before it may run, and nothing of it happens."""

import asyncio
import contextlib
import os
import sys

import psutil
import pytest
from support.agents import cell, of_kind, task
from support.elsewhere import CANNOT_FORK
from support.sandbox import NEEDS_A_WALL
from support.trials import ON, asking, tree
from support.waiting import eventually

from freeact_sub import Agent, Config
from freeact_sub.calls import CodeAction
from freeact_sub.events import ApprovalDecided, ApprovalRequest, CodeExecutionOutput, KernelLost
from freeact_sub.testing import ScriptedModel

pytestmark = [
    pytest.mark.kernel,
    pytest.mark.skipif(CANNOT_FORK, reason="kernels are branched on Linux only"),
    NEEDS_A_WALL,
]
SHOW = "print(sorted(name for name in dir() if name[0] != '_' and name not in ('In', 'Out', 'exit', 'quit', 'agent')), x, random.random(), np.random.random())"
SETUP = "import random, os, numpy as np\nx = [1]; random.seed(3); np.random.seed(3); big = np.zeros(3_000_000)"

CELLS = {
    "variables": ("x.append(2); y = {'k': 1}", {"x": "list 2 [1, 2]", "y": "dict 1 {'k': 1}"}, {}),
    "a large array": ("big[7] = 1", {"big": "numpy.ndarray 3000000"}, {}),
    "a deleted variable": ("del y", {"y": ""}, {}),
    "files": ("open('a.txt', 'a').write('three\\n'); open('new/n', 'w').write('n')", {}, {"a.txt": "+three", "new/n": "+n"}),
    "a deletion": ("os.remove('gone.txt')", {}, {"gone.txt": "-gone"}),
    "a renaming": ("os.rename('a.txt', 'b.txt')", {}, {"a.txt": "-three", "b.txt": "+three"}),
    "a file into a folder": ("os.rename('b.txt', 'new/b.txt'); os.rename('new/b.txt', 'b.txt'); os.link('b.txt', 'new/linked')", {}, {"new/linked": "+three"}),
    "a folder": ("os.rename('new', 'old'); os.rename('old', 'new'); os.remove('new/linked')", {}, {"new/linked": "-three"}),
    "permissions": ("os.chmod('b.txt', 0o600)", {}, {"b.txt": "mode 644 -> 600"}),
    "bytes": ("open('b', 'wb').write(bytes(9))", {}, {"b": "9 bytes"}),
    "a link": ("os.symlink('b.txt', 'link')", {}, {"link": "+link to b.txt"}),
    "an absolute link": ("os.symlink(os.path.abspath('b.txt'), 'far'); open('far', 'a').write('four\\n')", {}, {"far": "+link to ", "b.txt": "+four"}),
    "an error in the middle": ("x.append(3); open('half', 'w').close(); 1 / 0", {"x": "list 3 [1, 2, 3]"}, {"half": ""}),
    "a program that may run": ("!ls", {}, {}),
    "options of libraries": ("import decimal; decimal.getcontext().prec = 3; np.set_printoptions(precision=2)", {"decimal": None}, {}),
    "their use": ("third = (decimal.Decimal(1) / 3, np.array([1 / 3])); print(third)", {"third": None}, {}),
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
    assert "(Decimal('0.333'), array([0.33]))" in outputs
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
    "memory": ("a = bytearray(3 << 30)", "it needs more than 1 GiB of memory"),
}  # fmt: skip


async def test_a_trial_ends_where_somebody_would_have_to_be_asked(tmp_path):
    servers = {"files": {"command": sys.executable, "args": ["-c", "1"]}}
    codes = [f"import os; open('before', 'w').close(); print('before')\n{code}" for code, _ in STOPS.values()]
    async with asking(tmp_path, *codes, mcp_servers=servers) as question:
        for name, (_, reason) in STOPS.items():
            request = await question()
            effects = await request.effects_ready()
            assert effects.reason.startswith(reason), (name, effects)
            assert effects.status == "stopped", name
            assert "MemoryError" not in effects.output
            if name != "its own end":
                assert effects.output.startswith("before\n"), name
            assert {file.path for file in effects.files} == {"before"}, "what it does after its stop is no effect of it"
            request.deny("no")
        assert await question() is None
        assert not {event.reason for event in of_kind(question.events, ApprovalDecided)} - {"no"}
    assert [path for path in os.listdir(tmp_path) if path != ".freeact"] == []


REFUSALS = {
    "shared memory": ("import mmap; m = mmap.mmap(-1, 100)", "it shares memory", "m.close(); del m"),
    "memory of a file without a name": ("import ctypes, os; f = os.memfd_create('x'); os.truncate(f, 9); L = ctypes.CDLL(None); L.mmap.restype = ctypes.c_void_p; a = L.mmap(None, 9, 3, 1, f, 0); os.close(f)", "it shares memory", "L.munmap(ctypes.c_void_p(a), 9)"),
    "a file of the workspace, mapped to be read": ("f = os.open('mapped', os.O_RDWR | os.O_CREAT); a = L.mmap(None, 9, 1, 1, f, 0); os.close(f)", "it shares memory, which a copy would change as well: /", "L.munmap(ctypes.c_void_p(a), 9)"),
    "a file that was replaced": ("open('old', 'w').close(); open('new', 'w').close(); f = open('old'); os.replace('new', 'old')", "a file is open that has no name any more", "f.close()"),
    "a thread": ("import threading; halt = []\ndef spin():\n    while not halt: pass\nt = threading.Thread(target=spin); t.start()", "it has other threads", "halt.append(1); t.join()"),
    "a program": ("import os, signal; pid = os.fork() or signal.pause()", "programs that it has started are still running", "os.kill(pid, 9); os.waitpid(pid, 0)"),
    "an open file": ("import tempfile; f = tempfile.TemporaryFile()", "a file is open that has no name any more", "f.close()"),
    "a connection": ("import socket; s = socket.socket()", "it has an open connection", "s.close()"),
    "a pair of sockets": ("a, b = socket.socketpair()", "it has an open connection", "a.close(); b.close()"),
    "a server": ("s = socket.socket(socket.AF_UNIX); s.bind('\\0of-a-trial'); s.listen()", "it has an open connection", "s.close()"),
    "a pipe": ("r, w = os.pipe()", "a pipe is open", "os.close(r); os.close(w)"),
    "a task": ("import asyncio\nasync def later(): await gate.wait()\ngate = asyncio.Event(); t = asyncio.create_task(later())", "and a copy would not have it: later", "gate.set(); await t"),
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


async def test_a_trial_is_honest_about_what_it_cannot_see_and_takes_no_lock_of_its_kernel(tmp_path):
    setup = (
        "import os, subprocess, multiprocessing; lock = multiprocessing.Lock()\n"
        "other = multiprocessing.get_context('spawn').Lock()  # starts a process that removes it in the end"
    )
    ended = (
        "r = [*subprocess.Popen(['ls'], stdout=subprocess.PIPE).stdout]; os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT);"
    )
    deep = "import ctypes; L = ctypes.CDLL(None)\nfor _ in range(1200): L.mkdir(b'd', 0o777); L.chdir(b'd')"
    async with asking(
        tmp_path, setup, ended, deep, "print(lock.acquire(block=False))", "lock.acquire(block=False)"
    ) as question:
        (await question()).approve()
        request = await question()
        assert (await request.effects_ready()).status == "done", "an ended program runs no more"
        request.deny()
        request = await question()
        [file] = (await request.effects_ready()).files
        assert file.note.startswith("what the cell does to files cannot be compared: ")
        request.deny()
        request = await question()
        assert (await request.effects_ready()).output == "True\n"
        request.deny()
        (await question()).approve()
        assert await question() is None
    assert of_kind(question.events, CodeExecutionOutput)[-1].text == "True", "the trial has taken its own"


def processes():
    """Those that this program has started, without its helpers that end by themselves."""
    return {child.pid for child in psutil.Process().children(recursive=True)}


@pytest.mark.parametrize("killed", ["the trial", "its kernel"])
async def test_whatever_is_killed_nothing_is_lost_and_nothing_is_left(tmp_path, killed):
    forever = "open('of-the-trial', 'w').close()\nwhile True: pass"
    setup = "import os; x = 1; print(os.getpid())"
    bound = ON if killed == "the trial" else {**ON, "seconds": 2}
    async with asking(tmp_path, setup, forever, "print('here')", effects=bound, kernel={"spares": 0}) as question:
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
    for config, reason in (
        ({"effects": {"enabled": False}}, "trials are off (setting effects.enabled)"),
        ({"mode": "plan"}, "cells are tried in mode ask only, and this is plan"),
    ):
        async with asking(tmp_path, "1", **config) as question:
            request = await question()
            assert request.effects is await request.effects_ready()
            assert (request.effects.reason, request.effects.off) == (reason, True)
            request.approve()
            assert (await request.effects_ready()).status == "refused"
            assert await question() is None
