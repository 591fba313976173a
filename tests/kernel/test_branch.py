"""Branches: kernels that start as copy-on-write forks of a live one; what they have, and when they can be made."""

import asyncio

import psutil
import pytest
from support.branches import branched, host, like, text_of
from support.elsewhere import CANNOT_FORK
from support.kernels import no_host, open_kernel, run_cell, spec
from support.waiting import AWAITS_ON, eventually

from freeact_sub.cells import CellError, DisplayData, ExecuteResult, StreamText
from freeact_sub.errors import ApprovalDeniedError
from freeact_sub.kernels.kernel import AuditSettings

pytestmark = [pytest.mark.kernel, pytest.mark.skipif(CANNOT_FORK, reason="kernels are forked on Linux only")]


# --- what a branch has, and what it does not share


async def test_a_branch_has_the_variables_imports_functions_and_state_of_the_shell(kernel):
    await text_of(
        kernel, "import math as m, os\nfrom json import dumps\nx = [1]\ndef f(): return x, m.pi\nclass C: pass\nc = C()"
    )
    await text_of(kernel, "os.environ['MINE'] = 'yes'; os.chdir('/')\n%alias_magic t timeit\nx")
    async with branched(kernel) as branch:
        code = "(f(), dumps(1), type(c) is C, os.environ['MINE'], os.getcwd(), _, Out[2] is x, In[-1] == _ih[3])"
        assert await text_of(branch, code) == "(([1], 3.141592653589793), '1', True, 'yes', '/', [1], True, True)\n"
        assert (await run_cell(branch, "1")).reply.execution_count == 4
        assert (await run_cell(kernel, "1")).reply.execution_count == 3
        assert "1 +- " not in await text_of(branch, "%t -n 1 -r 1 -q -o 1")


async def test_neither_sees_what_the_other_does(kernel):
    await text_of(kernel, "import json, os\nx = {'a': [1]}; here = os.getcwd()")
    async with branched(kernel) as one, branched(kernel) as two:
        change = "x['a'].append({0}); json.mark = {0}; os.environ['MARK'] = '{0}'; os.chdir('/'); y{0} = 1"
        for number, each in enumerate((kernel, one, two)):
            await text_of(each, change.format(number))
            if each is kernel:
                await text_of(kernel, "os.chdir(here)")
        show = "print(x, json.mark, os.environ['MARK'], [n for n in dir() if n[0] == 'y'], os.getcwd() == here)"
        for number, each in enumerate((kernel, one, two)):
            assert await text_of(each, show) == f"{{'a': [1, {number}]}} {number} {number} ['y{number}'] {each is kernel}\n"
        assert len({await text_of(each, "os.getpid()") for each in (kernel, one, two)}) == 3


async def test_open_files_stay_open_each_at_its_own_position_and_connections_are_not_shared(kernel, tmp_path):
    (tmp_path / "file").write_text("abcdef")
    code = """
import os, socket, subprocess
file, raw = open('file'), open('file', 'rb', buffering=0)
file.read(1), raw.read(2)
one, two = socket.socketpair()
cat = subprocess.Popen(['cat'], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
log = open('log', 'w'); log.write('kernel ')
"""
    await text_of(kernel, code)
    async with branched(kernel) as branch:
        assert await text_of(branch, "file.read(), raw.read()") == "('bcdef', b'cdef')\n"
        assert await text_of(kernel, "file.read(), raw.read()") == "('bcdef', b'cdef')\n"
        for use in ("one.send(b'x')", "cat.stdin.write(b'x'); cat.stdin.flush()"):
            [error] = [output for output in (await run_cell(branch, use)).outputs if isinstance(output, CellError)]
            assert error.ename == "OSError"
        await text_of(branch, "one.close(); del one, two, cat; import gc; gc.collect(); 1")
        # were the pipe open in the branch as well, `cat` would never see its end
        assert await text_of(kernel, "two.send(b'y'), one.recv(1), cat.communicate(b'z')[0]") == "(1, b'y', b'z')\n"
        assert await text_of(branch, "1") == "1\n"


async def test_branches_draw_different_random_numbers(kernel):
    await text_of(kernel, "import random, numpy as np, uuid, tempfile\nrandom.seed(1); np.random.seed(1)")
    async with branched(kernel) as one, branched(kernel) as two:
        code = "print(random.random(), np.random.random(), uuid.uuid4())"
        texts = [(await text_of(each, code)).split() for each in (kernel, one, two)]
    assert all(len(set(values)) == 3 for values in zip(*texts, strict=True))


async def test_output_of_every_kind_is_the_branchs_own(kernel):
    setup = """
import logging, sys, subprocess, os
from IPython.display import HTML, display
handler = logging.StreamHandler(sys.stderr); logger = logging.getLogger('mine'); logger.addHandler(handler)
import matplotlib.pyplot as plt
saved = sys.stdout
"""
    await text_of(kernel, setup)
    async with branched(kernel) as branch:
        code = """
print('printed'); print('saved', file=saved); logger.error('logged'); os.system('echo low'); display(HTML('<b>x</b>'))
!echo shell
plt.plot([1, 2]); plt.show()
1 / 0
"""
        ran = await run_cell(branch, code)
        text = "".join(output.text for output in ran.outputs if isinstance(output, StreamText))
        for word in ("printed", "saved", "logged", "shell"):
            assert word in text
        kinds = {kind for output in ran.outputs if isinstance(output, DisplayData) for kind in output.data}
        assert {"text/html", "image/png"} <= kinds
        assert [output.ename for output in ran.outputs if isinstance(output, CellError)] == ["ZeroDivisionError"]
        ran = await run_cell(branch, "6 * 7")
        assert [output.data["text/plain"] for output in ran.outputs if isinstance(output, ExecuteResult)] == ["42"]
        ran = await run_cell(kernel, "print('kernel'); logger.error('here')")
        assert sorted(ran.text.split()) == ["here", "kernel"]


async def test_a_kernel_can_be_branched_whose_messages_were_large(kernel):
    """Sent without a copy they would be kept by a thread of pyzmq, with which no kernel is branched."""
    large = "print('x' * 100_000)"
    assert await text_of(kernel, large)
    async with branched(kernel) as branch:
        assert await text_of(branch, large)
        async with branched(branch) as inner:
            assert await text_of(inner, "1") == "1\n"


async def test_output_of_processes_that_a_branch_forks_arrives_there(kernel):
    code = "import multiprocessing\np = multiprocessing.get_context('fork').Process(target=print, args=('from the fork',))\np.start(); p.join()"
    async with branched(kernel) as branch:
        text = await text_of(branch, code)
        await eventually(lambda: "from the fork" in text + branch.unread)
        assert "fork" not in await text_of(kernel, "1")


async def test_a_time_limit_and_an_interrupt_reach_the_branch_only(kernel):
    async with branched(kernel) as branch:
        assert (await run_cell(branch, "while True: pass", limit=0.3)).status == "timeout"
        assert (await run_cell(branch, AWAITS_ON, limit=0.3)).status == "timeout"
        assert await text_of(branch, "x = 1; x") == "1\n"
        waiting = asyncio.create_task(run_cell(kernel, "!sleep 1.5; echo done"))
        assert (await run_cell(branch, "!sleep 1000", limit=0.3)).status == "timeout"
        assert (await waiting).text.strip() == "done"


# --- while a cell of the kernel waits


@pytest.mark.parametrize("call", ["agent.mcp.host.ask(n=3)", "await agent.mcp.host.ask(n=3)"])
async def test_three_branches_at_once_of_a_kernel_whose_cell_waits_for_them(provider, tmp_path, call):
    texts = []

    async def answer(arguments):
        async def one(number):
            async with branched(kernel) as branch:
                assert await text_of(branch, f"local.append({number}); local") == f"[0, {number}]\n"
                # what the cell has put in place for its time is gone, and its clean-up is not done here
                ran = await run_cell(branch, "import gc, os; gc.collect(); print('own'); os.path.exists('left')")
                texts.append(ran.text)
                return number

        return await asyncio.gather(*map(one, range(arguments["n"])))

    code = f"""
import contextlib, io
local = [0]
with contextlib.redirect_stdout(io.StringIO()) as caught:
    try:
        value = {call}
    finally:
        open('left', 'a').close()
print(value, local, repr(caught.getvalue()))
"""
    async with open_kernel(provider, tmp_path, host(answer), mcp_servers=("host",)) as kernel:
        for _ in range(2):
            assert await text_of(kernel, code) == "[0, 1, 2] [0] ''\n"
            (tmp_path / "left").unlink()
        assert texts == ["own\nFalse\n"] * 6


async def test_requests_of_a_branch_go_to_its_own_host_also_through_what_the_kernel_had_kept(provider, tmp_path):
    async def kernel_host(arguments):
        return "kernel"

    async def branch_host(arguments):
        return f"branch {arguments['n']}"

    async with open_kernel(provider, tmp_path, host(kernel_host), mcp_servers=("host",)) as kernel:
        await text_of(kernel, "kept, mine = agent.mcp.host.ask, agent; kept(n=0)")
        async with branched(kernel, host(branch_host)) as branch, branched(kernel, mcp_servers=()) as without:
            code = "print(kept(n=1), mine.mcp.host.ask(n=2), agent.mcp.host.ask(n=3))"
            assert await text_of(branch, code) == "branch 1 branch 2 branch 3\n"
            assert await text_of(branch, "print(await kept(n=4))") == "branch 4\n"
            assert await text_of(kernel, "kept(n=0)") == "'kernel'\n"
            assert "has no 'host'" in (await run_cell(without, "agent.mcp.host.ask()")).text


async def test_an_interrupt_of_the_waiting_cell_leaves_its_branch_alone(provider, tmp_path):
    made = asyncio.get_running_loop().create_future()

    async def answer(arguments):
        made.set_result(await kernel.branch(like(kernel), no_host))
        await asyncio.Event().wait()

    async with open_kernel(provider, tmp_path, host(answer), mcp_servers=("host",)) as kernel:
        cell = asyncio.create_task(run_cell(kernel, "x = 1; agent.mcp.host.ask()"))
        branch = await asyncio.wait_for(made, 120)
        await kernel.interrupt()
        assert (await cell).status == "interrupted"
        assert await text_of(branch, "x") == "1\n"
        await branch.aclose()
        assert await text_of(kernel, "x") == "1\n"


async def test_a_branch_of_a_branch_and_so_on_also_from_waiting_cells_and_after_the_first_has_gone(provider, tmp_path):
    kernels, texts = [], []

    async def answer(arguments):
        if arguments["n"] == 0:
            return
        kernels.append(await kernels[-1].branch(like(kernels[0]), host(answer)))
        texts.append(
            await text_of(kernels[-1], f"path.append({arguments['n']}); agent.mcp.host.ask(n={arguments['n'] - 1}); path")
        )
        return

    kernels.append(await provider.start(spec(tmp_path, mcp_servers=("host",)), host(answer)))
    await text_of(kernels[0], "path = []; agent.mcp.host.ask(n=4); 1")
    assert texts == ["[4, 3, 2, 1]\n", "[4, 3, 2]\n", "[4, 3]\n", "[4]\n"]
    for kernel in kernels[:-1]:
        await kernel.aclose()
    async with branched(kernels[-1]) as last:
        await kernels[-1].aclose()
        assert await text_of(last, "path") == "[4, 3, 2, 1]\n"


# --- memory


async def test_of_a_kernel_with_a_gigabyte_nothing_is_copied_when_it_is_branched(kernel):
    await text_of(kernel, "import numpy as np\ndata = np.full(2**27, 1.0); data.nbytes")
    async with branched(kernel) as branch:
        assert await text_of(branch, "float(data[::4096].sum())") == "32768.0\n"
        assert psutil.Process(branch.pid).memory_full_info().uss < 64 * 2**20


# --- with an audit hook


def asked_by(name, log, allow=True):
    """A host that notes what is asked."""

    async def handle(method, params, clock):
        if method != "check":
            return
        log.append((name, params.get("path") or params.get("command")))
        if not allow:
            raise ApprovalDeniedError(f"{name} says no")
        return

    return handle


async def test_a_branch_asks_its_own_host_by_its_own_settings_and_what_its_origin_was_allowed_counts_no_more(
    provider, tmp_path
):
    log, settings = [], AuditSettings(writable=(tmp_path,))
    outside = tmp_path.parent / f"{tmp_path.name}-outside"
    outside.mkdir()
    write = f"open({str(outside / 'file')!r}, 'w').close()"
    async with open_kernel(provider, tmp_path, asked_by("kernel", log), audit=settings) as kernel:
        await text_of(kernel, f"import os, tempfile\n{write}\ndef work(): {write}")
        assert [name for name, _ in log] == ["kernel"]
        log.clear()
        narrow = AuditSettings(writable=(tmp_path,), asked=((".*/", "asked"),))
        async with (
            branched(kernel, asked_by("one", log, allow=False), audit=narrow) as one,
            branched(kernel, asked_by("two", log), audit=None) as two,
        ):
            assert log == []  # what a branch does for itself is no question
            ran = await run_cell(one, "work()")
            assert "one says no" in ran.text
            assert "one says no" in (await run_cell(one, "open('asked', 'w')")).text
            assert "one says no" in (await run_cell(one, "os.system('true')")).text
            await text_of(one, "open('free', 'w').close(); open(tempfile.gettempdir() + '/mine', 'w').close()")
            assert [name for name, _ in log] == ["one"] * 3
            await text_of(two, "work(); os.system('true')")
            await text_of(kernel, "open('asked', 'w').close(); work()")
            assert [name for name, _ in log] == ["one"] * 3 + ["kernel"]


async def test_a_branch_may_ask_though_its_origin_does_not_and_its_forked_processes_ask_through_it(provider, tmp_path):
    log, settings = [], AuditSettings(writable=(tmp_path,))
    fork = "import multiprocessing, os\np = multiprocessing.get_context('fork').Process(target=os.system, args=('exit {}',)); p.start(); p.join(); p.exitcode"
    async with open_kernel(provider, tmp_path, asked_by("kernel", log)) as kernel:
        await text_of(kernel, fork.format(1))
        async with branched(kernel, asked_by("one", log), audit=settings) as one:
            await text_of(one, fork.format(2))
            async with branched(one, asked_by("two", log), audit=settings) as two:  # `one` has a thread for such questions
                await text_of(two, fork.format(3))
                await text_of(one, fork.format(4))
    assert log == [("one", "exit 2"), ("two", "exit 3"), ("one", "exit 4")]


async def test_a_branch_is_not_made_in_the_middle_of_a_question(provider, tmp_path):
    asked, allowed = asyncio.Event(), asyncio.Event()

    async def handle(method, params, clock):
        asked.set()
        await allowed.wait()

    async with open_kernel(provider, tmp_path, handle, audit=AuditSettings()) as kernel:
        cell = asyncio.create_task(run_cell(kernel, "x = 1\nopen('file', 'w').close()\nx = 2"))
        await asked.wait()
        branching = asyncio.create_task(kernel.branch(like(kernel), no_host))
        done, _ = await asyncio.wait({branching}, timeout=0.3)
        assert not done
        allowed.set()
        assert (await cell).status == "ok"
        branch = await branching
        assert await text_of(branch, "x") == "2\n"
        await branch.aclose()
