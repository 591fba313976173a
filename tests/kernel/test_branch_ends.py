"""When a live kernel is not branched, and what ends when kernels, branches, servers and hosts end or give up."""

import asyncio
import os
import signal
import sys

import psutil
import pytest
from support.branches import branched, host, like, refused, text_of
from support.elsewhere import CANNOT_FORK
from support.kernels import no_host, open_kernel, run_cell, spec
from support.waiting import WORKS_ON, eventually, is_running, turns

from freeact_sub.config.schema import KernelConfig
from freeact_sub.errors import KernelBranchError, KernelStartError
from freeact_sub.kernels.forkserver import brancher
from freeact_sub.kernels.local import LocalKernelProvider
from freeact_sub.kernels.wall.sandbox import policy_for

pytestmark = [pytest.mark.kernel, pytest.mark.skipif(CANNOT_FORK, reason="kernels are forked on Linux only")]


# --- what is refused


async def test_other_threads_are_named_and_once_they_have_ended_it_can_be_branched(kernel):
    await text_of(
        kernel, "import threading\ngo = threading.Event(); t = threading.Thread(target=go.wait, name='worker'); t.start()"
    )
    assert "threads" in (reason := await refused(kernel))
    assert reason.endswith(": worker")
    await text_of(kernel, "go.set(); t.join()")
    async with branched(kernel) as branch:
        assert await text_of(branch, "t.is_alive()") == "False\n"


async def test_idle_threads_of_scripts_and_of_asyncio_are_no_reason_and_work_on_in_both(kernel):
    await text_of(kernel, "%%bash\necho one")
    thread = "import asyncio; print(await asyncio.to_thread(lambda: 7))"
    await text_of(kernel, thread)
    await text_of(kernel, "%%bash --bg --out later\ncat")
    assert "run_forever" in await refused(kernel), "somebody may still read what it has put out"
    await text_of(kernel, "del later")
    async with branched(kernel) as branch:
        for one in (kernel, branch):
            assert await text_of(one, "%%bash\necho two") == "two\n"
            assert await text_of(one, thread) == "7\n"


async def test_a_request_of_another_thread_cannot_be_answered_by_a_branch(provider, tmp_path):
    async def answer(arguments):
        return await refused(kernel)

    code = "import asyncio\nprint(await asyncio.to_thread(lambda: agent.mcp.host.ask()))"
    async with open_kernel(provider, tmp_path, host(answer), mcp_servers=("host",)) as kernel:
        assert "threads" in await text_of(kernel, code)


async def test_openmp_starts_its_threads_anew_in_both_and_one_that_cannot_is_refused(kernel):
    code = """
import ctypes, os
try:
    gomp = ctypes.CDLL('libgomp.so.1')
    gomp.omp_pause_resource_all
except (OSError, AttributeError):
    print('none')
else:
    def parallel():
        gomp.GOMP_parallel(ctypes.CDLL(None).getpid, None, 2, 0)
    def threads():
        return len(os.listdir('/proc/self/task'))
    before = threads()
    parallel()
    print(threads() - before)
"""
    if "none" in (found := await text_of(kernel, code)):
        pytest.skip("no libgomp of GCC 9 on this machine")
    assert found == "1\n"
    async with branched(kernel) as branch:
        for each in (branch, kernel):
            await text_of(each, "before = threads()")
            assert await text_of(each, "parallel(); threads() - before") == "1\n"
    await text_of(kernel, "gomp.GOMP_parallel_start(ctypes.CDLL(None).getpid, None, 2)")  # and it is in the middle of it
    assert (await refused(kernel)).endswith("it has threads of GNU OpenMP, which do not survive a fork")


async def test_threads_of_openblas_are_no_reason(provider, tmp_path):
    environment = {**KernelConfig().environment(), "OPENBLAS_NUM_THREADS": "2"}
    async with open_kernel(provider, tmp_path, environment=environment) as kernel:
        await text_of(kernel, "import numpy as np\na = np.ones((400, 400)); float((a @ a)[0, 0])")
        async with branched(kernel) as branch:
            assert await text_of(branch, "float((a @ a)[0, 0])") == "400.0\n"
        assert await text_of(kernel, "float((a @ a)[0, 0])") == "400.0\n"


def test_a_gpu_is_known_by_its_device():
    assert brancher.uses_gpu(["/dev/null", "/dev/nvidiactl"])
    assert brancher.uses_gpu(["/dev/kfd"])
    assert not brancher.uses_gpu(["/dev/null", "pipe:[1]", "/tmp/dev/nvidia"])


async def test_what_cannot_be_another_than_the_kernels_own_is_refused_by_name(kernel, tmp_path):
    (tmp_path / "other").mkdir()
    for name, value in {
        "environment": {"A": "b"},
        "sandbox": policy_for("auto", KernelConfig(), tmp_path),
        "python": "/usr/bin/python3",
    }.items():
        assert f"the same {name} " in await refused(kernel, **{name: value})
    with pytest.raises(KernelBranchError, match="the same workspace"):
        await kernel.branch(spec(tmp_path / "other"), no_host)


async def test_a_kernel_in_a_subprocess_and_one_that_has_ended_are_refused(provider, tmp_path):
    local = LocalKernelProvider()
    async with open_kernel(local, tmp_path) as kernel:
        assert "provider = 'fork'" in await refused(kernel)
    await local.aclose()
    async with open_kernel(provider, tmp_path) as kernel:
        os.kill(kernel.pid, signal.SIGKILL)
        await asyncio.wait_for(kernel.wait_lost(), 60)
        assert "has ended" in await refused(kernel)


@pytest.mark.parametrize("code", [WORKS_ON, "while True: pass"])
async def test_a_kernel_that_is_busy_is_refused_in_time_with_the_end_of_its_log_and_no_branch_comes_later(
    kernel, tmp_path, code
):
    busy = f"import sys; print('at work', file=sys.__stderr__, flush=True); open('begun', 'w').close(); {code}"
    cell = asyncio.create_task(run_cell(kernel, busy if ";" in code else busy.replace("; while", "\nwhile")))
    await eventually((tmp_path / "begun").exists)
    with pytest.raises(KernelBranchError, match="within 0.5 s: it has to be idle, or its cell to wait: at work") as caught:
        await kernel.branch(like(kernel, start_timeout_seconds=0.5), no_host)
    assert caught.value.log.endswith("at work")
    await kernel.interrupt()
    await cell
    assert await text_of(kernel, "1") == "1\n"
    assert psutil.Process(kernel.pid).children() == []


async def test_a_kernel_that_has_used_up_its_memory_says_so_and_can_be_branched_when_there_is_room_again(kernel):
    """A branch without memory would hang: a thread that cannot begin tells nobody."""
    limit = """
import resource
limits = resource.getrlimit(resource.RLIMIT_AS)
used = int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (4 << 20), limits[1]))
"""
    await text_of(kernel, limit)
    assert "kernel.memory_bytes" in await refused(kernel)
    await text_of(kernel, "resource.setrlimit(resource.RLIMIT_AS, limits)")
    async with branched(kernel) as branch:
        assert await text_of(branch, "limits == resource.getrlimit(resource.RLIMIT_AS)") == "True\n"


@pytest.mark.parametrize("waits", [False, True])
async def test_what_goes_wrong_as_a_kernel_forks_is_told_and_no_error_of_its_cell(provider, tmp_path, waits):
    async def answer(arguments):
        return await refused(kernel)

    broken = "import sys; sys.modules['freeact_brancher'].uses_gpu = lambda paths: paths['a list']"
    async with open_kernel(provider, tmp_path, host(answer), mcp_servers=("host",)) as kernel:
        await text_of(kernel, broken)
        told = await text_of(kernel, "print(agent.mcp.host.ask())") if waits else await refused(kernel)
        assert "could not be forked: TypeError" in told


async def test_what_goes_wrong_as_the_server_is_to_get_a_branch_is_told_and_leaves_nothing(kernel):
    await text_of(
        kernel,
        "import os, sys; brancher = sys.modules['freeact_brancher']; home, own = os.getpid(), brancher.prctl\n"
        "def prctl(*arguments):\n"
        "    if os.getpid() != home: return own(*arguments)\n"
        "    brancher.prctl = own; raise RuntimeError('not today')\n"
        "brancher.prctl = prctl",
    )
    assert "RuntimeError('not today')" in await refused(kernel)
    assert psutil.Process(kernel.pid).children() == []
    async with branched(kernel) as branch:
        assert await text_of(branch, "1") == "1\n"


async def test_a_branch_is_not_given_away_while_another_one_is_forked(kernel):
    await text_of(
        kernel,
        "import sys, time; brancher = sys.modules['freeact_brancher']; fork = brancher.fork_reporting\n"
        "forked = get_ipython().kernel.control_handlers['freeact_branch'].__self__.forked\n"
        "def late(life):\n"
        "    first, until = list(forked), time.monotonic() + 0.5\n"
        "    while list(forked) == first and time.monotonic() < until: time.sleep(0.01)\n"
        "    return fork(life)\n"
        "brancher.fork_reporting = late",
    )

    async def says(number):
        async with branched(kernel) as branch:
            return await text_of(branch, f"print({number})")

    assert await asyncio.gather(*map(says, range(3))) == ["0\n", "1\n", "2\n"]


async def test_a_branch_that_ends_before_it_is_a_kernel_is_told_of_with_the_end_of_its_log(kernel):
    await text_of(
        kernel,
        "import os, sys\n"
        "def seed(): print('no kernel today', file=sys.__stderr__, flush=True); os._exit(3)\n"
        "sys.modules['freeact_detach'].seed = seed",
    )
    assert "exit code 3: no kernel today" in await refused(kernel)
    assert await text_of(kernel, "1") == "1\n"


async def test_a_kernel_cannot_have_another_process_taken_for_its_branch(kernel):
    server = kernel.launcher.server
    sleeper = int(await text_of(kernel, "import subprocess; subprocess.Popen(['sleep', '1000']).pid"))
    for pid in (os.getpid(), kernel.pid, psutil.Process(kernel.pid).ppid(), sleeper, 1 << 30):
        with pytest.raises(KernelStartError, match="no branch"):
            await server.adopt(pid, kernel.pid)
    assert await text_of(kernel, "1") == "1\n"


# --- ends


def below(kernel) -> list[int]:
    """All processes of the fork server of a kernel, itself included."""
    server = psutil.Process(kernel.launcher.server.pid)
    return [server.pid, *(process.pid for process in server.children(recursive=True))]


DAEMON = "import subprocess; subprocess.Popen('setsid sleep 1000 > /dev/null 2>&1 & echo $!', shell=True, stdout=subprocess.PIPE).communicate()[0].decode().strip()"


async def test_a_killed_kernel_leaves_its_branch_and_what_that_has_started_alone(kernel):
    await text_of(kernel, "x = 1")
    async with branched(kernel) as branch:
        mine, its = [int((await text_of(each, DAEMON)).strip("'\n")) for each in (kernel, branch)]
        sleeper = int(await text_of(branch, "subprocess.Popen(['sleep', '1000']).pid"))
        assert psutil.Process(branch.pid).ppid() == psutil.Process(kernel.pid).ppid()
        os.kill(kernel.pid, signal.SIGKILL)
        await asyncio.wait_for(kernel.wait_lost(), 60)
        await kernel.aclose()
        assert not is_running(mine)
        assert is_running(its)
        assert is_running(sleeper)
        assert await text_of(branch, "x") == "1\n"
        async with branched(branch) as second:
            assert await text_of(second, "x") == "1\n"
    await eventually(lambda: not any(map(is_running, (its, sleeper))))


async def test_a_killed_branch_takes_its_daemons_and_nothing_else(kernel):
    async with branched(kernel) as one, branched(kernel) as two:
        mine, its = [int((await text_of(each, DAEMON)).strip("'\n")) for each in (kernel, one)]
        cell = asyncio.create_task(run_cell(one, "!sleep 1000"))
        os.kill(one.pid, signal.SIGKILL)
        assert (await asyncio.wait_for(cell, 120)).status == "kernel_lost"
        assert "signal 9" in one.lost_reason
        assert not is_running(its)
        assert is_running(mine)
        assert [await text_of(each, "1") for each in (kernel, two)] == ["1\n", "1\n"]


@pytest.mark.parametrize("victim", ["server", "guard"])
async def test_a_killed_server_takes_kernels_and_branches_and_their_daemons(kernel, victim):
    async with branched(kernel) as one, branched(one) as two:
        daemon = int((await text_of(two, DAEMON)).strip("'\n"))
        pids = [daemon, *below(kernel)]
        server = kernel.launcher.server.pid
        os.kill(server if victim == "guard" else psutil.Process(server).children()[0].pid, signal.SIGKILL)
        for each in (kernel, one, two):
            await asyncio.wait_for(each.wait_lost(), 60)
        await kernel.aclose()
    await eventually(lambda: not any(map(is_running, pids)))


HOST = """
import asyncio, os, sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from support.kernels import no_host, run_cell, spec
from freeact_sub.kernels.forkserver.fork_provider import ForkKernelProvider

async def main():
    kernel = await ForkKernelProvider(spares=0).start(spec(Path(sys.argv[2])), no_host)
    branch = await kernel.branch(spec(Path(sys.argv[2])), no_host)
    daemon = (await run_cell(branch, sys.argv[3])).text.strip("'\\n")
    print(kernel.pid, branch.pid, daemon, kernel.launcher.server.pid, kernel.launcher.folder.path.parent, flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


async def test_a_killed_host_leaves_no_process_and_no_folder(tmp_path):
    tests = os.path.dirname(os.path.dirname(__file__))
    arguments = [sys.executable, "-c", HOST, tests, str(tmp_path), DAEMON]
    process = await asyncio.create_subprocess_exec(*arguments, stdout=asyncio.subprocess.PIPE)
    line = (await asyncio.wait_for(process.stdout.readline(), 60)).decode().split()
    *pids, folder = line
    assert all(is_running(int(pid)) for pid in pids)
    process.kill()
    await process.wait()
    await eventually(lambda: not any(is_running(int(pid)) for pid in pids))
    await eventually(lambda: not os.path.exists(folder))


@pytest.mark.parametrize("first", ["kernel", "branch"])
async def test_folders_go_with_the_last_that_uses_them_and_no_descriptor_is_left(provider, tmp_path, first):
    async with open_kernel(provider, tmp_path):
        process = psutil.Process()
        descriptors = process.num_fds()
        kernel = await provider.start(spec(tmp_path), no_host)
        branch = await kernel.branch(like(kernel), no_host)
        folder = kernel.launcher.folder.path
        order = (kernel, branch) if first == "kernel" else (branch, kernel)
        await order[0].aclose()
        assert folder.exists()
        assert await text_of(order[1], "1") == "1\n"
        await order[1].aclose()
        assert not folder.exists()
        await eventually(lambda: process.num_fds() <= descriptors)


@pytest.mark.parametrize("waits", [False, True])
async def test_branching_can_be_cancelled_at_any_moment_and_leaves_nothing(provider, tmp_path, waits):
    async def answer(arguments):
        await cancel_branches(kernel, descriptors)

    async with open_kernel(provider, tmp_path, host(answer), mcp_servers=("host",)) as kernel:
        await text_of(kernel, "x = 1")
        async with branched(kernel):
            pass
        descriptors = psutil.Process(kernel.pid).num_fds()
        if waits:
            await text_of(kernel, "agent.mcp.host.ask()")
        else:
            await cancel_branches(kernel, descriptors)
        async with branched(kernel) as branch:
            assert await text_of(branch, "x") == "1\n"


async def cancel_branches(kernel, descriptors):
    before, server = below(kernel), kernel.launcher.server
    ended = 0
    for step in range(40):
        task = asyncio.create_task(kernel.branch(like(kernel), no_host))
        await asyncio.wait({task}, timeout=step * 0.003)
        task.cancel()
        await asyncio.wait({task})
        if not task.cancelled():
            ended += 1
            await task.result().aclose()
        await eventually(lambda: below(kernel) == before)
    assert ended < 40
    await eventually(lambda: list(server.kernels) == [kernel.pid] and not server.starting)
    await eventually(lambda: len(list(kernel.launcher.folder.path.iterdir())) <= 8)
    await eventually(lambda: psutil.Process(kernel.pid).num_fds() <= descriptors)


@pytest.mark.parametrize("delay", [0, 0.01, 0.03])
@pytest.mark.parametrize("victim", ["kernel", "server"])
async def test_what_is_killed_while_branches_are_made_fails_them_at_once(provider, tmp_path, victim, delay):
    async with open_kernel(provider, tmp_path) as kernel:
        server = psutil.Process(kernel.launcher.server.pid).children()[0].pid
        tasks = [asyncio.create_task(kernel.branch(like(kernel), no_host)) for _ in range(3)]
        await asyncio.wait(tasks, timeout=delay)
        os.kill(kernel.pid if victim == "kernel" else server, signal.SIGKILL)
        await asyncio.wait_for(asyncio.wait(tasks), 120)
        for task in tasks:
            if task.exception() is None:
                await task.result().aclose()
            else:
                assert isinstance(task.exception(), KernelStartError)
        if victim == "kernel":
            await eventually(lambda: below(kernel)[1:] == [server])


async def test_where_no_copy_can_be_laid_the_reason_is_told_and_who_gives_up_leaves_nothing(provider, tmp_path):
    async with open_kernel(provider, tmp_path) as kernel:
        server = kernel.launcher.server
        [forking] = psutil.Process(server.pid).children()
        settings = {
            "pid": forking.pid,
            "workspace": str(tmp_path),
            "folder": str(tmp_path),
            "identity": [0, 0],
            "origin": None,
        }
        assert await server.lay(settings) == "[Errno 18] the kernel has no mounts of its own"
        for number in range(4):
            laying = asyncio.create_task(server.lay(settings))
            await turns(number)
            laying.cancel()
            await asyncio.wait({laying}, timeout=60)
            assert laying.cancelled()
        assert "no mounts" in await server.lay(settings), "it serves on"
        assert server.laying == {}
