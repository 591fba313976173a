"""What only forked kernels have to show: independence, what survives no kill, fallbacks."""

import asyncio
import os
import random
import signal
import sys
from pathlib import Path

import psutil
import pytest
from support.elsewhere import CANNOT_FORK
from support.kernels import no_host, open_kernel, run_cell, spec
from support.waiting import eventually

from freeact_sub.errors import KernelStartError
from freeact_sub.kernels import forkserver
from freeact_sub.kernels.forkserver.fork_provider import ForkKernelProvider
from freeact_sub.kernels.forkserver.process import ForkKey, ForkServer

pytestmark = [pytest.mark.kernel, pytest.mark.skipif(CANNOT_FORK, reason="kernels are forked on Linux only")]


@pytest.fixture(autouse=True, scope="module")
def fork_servers():
    """How they start is what is tested here."""


async def server_of(provider: ForkKernelProvider) -> ForkServer:
    return await next(iter(provider.servers.values()))


async def test_kernels_are_prebuilt_and_forked_from_one_single_threaded_process(provider, tmp_path):
    async with open_kernel(provider, tmp_path) as one, open_kernel(provider, tmp_path) as two:
        server = await server_of(provider)
        assert server.ready["prebuilt"], server.ready["reason"]
        assert server.ready["threads"] == 1
        parents = {psutil.Process(kernel.pid).ppid() for kernel in (one, two)}
        assert len(parents) == 1
        assert psutil.Process(parents.pop()).ppid() == server.pid


async def test_randomness_differs_between_forked_kernels(tmp_path):
    code = """
import random, uuid, secrets, tempfile, ssl, os
values = [random.random(), uuid.uuid4().hex, secrets.token_hex(8), tempfile.mktemp(), ssl.RAND_bytes(8).hex(), os.urandom(8).hex()]
values += [get_ipython().kernel.ident, get_ipython().kernel.session.session]
try:
    import numpy
    values += [numpy.random.random(), numpy.random.default_rng().random()]
except ImportError:
    pass
print(*values, sep="\\n")
"""
    provider = ForkKernelProvider(spares=0, preload=("random", "tempfile", "ssl", "uuid", "secrets", "numpy.random"))
    try:
        texts = []
        for _ in range(3):
            async with open_kernel(provider, tmp_path) as kernel:
                texts.append((await run_cell(kernel, code)).text.split())
    finally:
        await provider.aclose()
    assert len(texts[0]) == 10
    for values in zip(*texts, strict=True):
        assert len(set(values)) == 3


async def test_directory_environment_time_zone_umask_signals_and_arguments_are_the_kernels_own(provider, tmp_path):
    code = """
import os, signal, sys, time
mask = os.umask(0); os.umask(mask)
print(os.getcwd(), os.environ.get("MINE"), time.tzname[0], oct(mask), signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGHUP))
print(os.getpgrp() == os.getpid() == os.getsid(0), sys.argv[0], "" in sys.path, __name__)
print([p for p in sys.path if "guest" in p])
"""
    previous = os.umask(0o027)
    try:
        (tmp_path / "here").mkdir()
        environment = {"PATH": os.environ["PATH"], "MINE": "yes", "TZ": "Asia/Tokyo"}
        async with open_kernel(provider, tmp_path / "here", environment=environment) as kernel:
            text = (await run_cell(kernel, code)).text
    finally:
        os.umask(previous)
    lines = text.splitlines()
    assert lines[0].startswith(f"{tmp_path}/here yes JST 0o27 0 0")
    assert lines[1] == "True ipykernel_launcher.py True __main__"
    assert lines[2] == "[]"


async def test_what_one_kernel_changes_no_other_sees(provider, tmp_path):
    async with open_kernel(provider, tmp_path) as one:
        await run_cell(one, "import json, os, builtins\njson.x = 1\nos.environ['X'] = '1'\nbuiltins.y = 2\nos.chdir('/')")
        async with open_kernel(provider, tmp_path) as two:
            ran = await run_cell(
                two, "import json, os\nprint(hasattr(json, 'x'), 'X' in os.environ, 'y' in dir(__builtins__), os.getcwd())"
            )
    assert ran.text == f"False False False {tmp_path}\n"


async def test_no_tcp_port_is_open_and_output_of_other_processes_arrives(provider, tmp_path):
    code = "import multiprocessing\np = multiprocessing.get_context('fork').Process(target=print, args=('from the fork',))\np.start(); p.join()"
    async with open_kernel(provider, tmp_path) as kernel:
        assert psutil.Process(kernel.pid).net_connections("inet") == []
        assert "low" in (await run_cell(kernel, "import os, sys; sys.stdout._reading.acquire(); os.system('echo low')")).text
        text = (await run_cell(kernel, code)).text
        await eventually(lambda: "from the fork" in text + kernel.unread)


async def test_modules_that_start_threads_or_fail_do_no_harm(tmp_path, caplog):
    (tmp_path / "with_thread.py").write_text(
        "import threading, time\nthreading.Thread(target=time.sleep, args=(1000,), daemon=True).start()"
    )
    (tmp_path / "broken.py").write_text("raise RuntimeError('broken')")
    environment = dict(spec(tmp_path).environment) | {"PYTHONPATH": str(tmp_path)}
    for module, forked in (("with_thread", False), ("broken", True)):
        provider = ForkKernelProvider(spares=0, preload=(module,))
        try:
            async with open_kernel(provider, tmp_path, environment=environment) as kernel:
                assert (await run_cell(kernel, "6 * 7")).text == "42\n"
            assert ((await server_of(provider)) is not None) is forked
        finally:
            await provider.aclose()
    assert "2 threads" in caplog.text


async def test_a_server_that_did_not_come_up_is_tried_again_after_a_while(tmp_path):
    python = tmp_path / "python"
    python.write_text(
        f'#!/bin/sh\ncase "$*" in *server.py*) [ -e {tmp_path}/come ] || exit 1;; esac\nexec {sys.executable} "$@"\n'
    )
    python.chmod(0o700)

    async def is_forked() -> bool:
        async with open_kernel(provider, tmp_path, python=str(python)) as kernel:
            assert (await run_cell(kernel, "6 * 7")).text == "42\n"
        return (await server_of(provider)) is not None

    provider = ForkKernelProvider(spares=0)
    try:
        assert not await is_forked()
        (tmp_path / "come").touch()
        assert not await is_forked()
        provider._again = dict.fromkeys(provider._again, 0)  # noqa: SLF001  # a minute has passed
        assert await is_forked()
    finally:
        await provider.aclose()


async def test_a_server_for_which_there_is_no_process_is_as_one_that_does_not_come_up(tmp_path, monkeypatch, caplog):
    def refuse(_, theirs):
        theirs.close()
        raise BlockingIOError(11, "Resource temporarily unavailable")

    provider = ForkKernelProvider(spares=0)
    monkeypatch.setattr(ForkServer, "_start_process", refuse)
    try:
        async with open_kernel(provider, tmp_path) as kernel:
            assert (await run_cell(kernel, "6 * 7")).text == "42\n"
    finally:
        await provider.aclose()
    assert "could not be started: [Errno 11]" in caplog.text


async def test_a_server_that_does_not_end_in_time_loses_its_folder_all_the_same(provider, tmp_path, monkeypatch):
    end = forkserver.process.end_guarded

    async def end_late(*args, **options):
        await end(*args, **options)
        raise asyncio.CancelledError  # as `carry_out` does it when its time is over

    async with open_kernel(provider, tmp_path):
        folder = (await server_of(provider)).new_folder().parent
    monkeypatch.setattr(forkserver.process, "end_guarded", end_late)
    await provider.aclose()
    assert not folder.exists()


async def test_starting_can_be_cancelled_at_any_moment_and_the_server_stays_usable(provider, tmp_path):
    async with open_kernel(provider, tmp_path):
        for step in range(25):
            task = asyncio.create_task(provider.start(spec(tmp_path), no_host))
            await asyncio.wait({task}, timeout=step * 0.003)
            task.cancel()
            await asyncio.wait({task})
            if not task.cancelled():
                await task.result().aclose()
    server = await server_of(provider)
    await eventually(lambda: not server.kernels)
    assert not server.starting


ENDED_AS_IT_BINDS = """
import json, os, select, signal, socket, sys
sys.path.insert(0, sys.argv[1])
from server import Server
ours, theirs = socket.socketpair()
bound, writer = os.pipe()
pid = os.fork()
if pid == 0:
    os.setsid()
    os.write(writer, b"b")
    signal.pause()
server = Server(theirs)
server.kernels[pid], server.binding[bound] = True, pid
select.select([bound], [], [])
server.on_end({"pid": pid})
os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
server.reap()
theirs.close()
print(server.binding, json.loads(ours.recv(1000)) == {"ended": pid, "code": -9})
"""


async def test_of_a_kernel_that_has_ended_nothing_more_is_told():
    folder = Path(forkserver.__file__).parent
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", ENDED_AS_IT_BINDS, folder, stdout=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(120):
        output, _ = await process.communicate()
    assert output == b"{} True\n"


async def test_a_server_that_ended_is_replaced_once_however_many_ask(provider, tmp_path, monkeypatch):
    async with open_kernel(provider, tmp_path):
        ended = await server_of(provider)
    await ended.aclose()
    opened, as_ever = [], ForkServer.open
    monkeypatch.setattr(ForkServer, "open", lambda server: opened.append(server) or as_ever(server))
    kernels = await asyncio.gather(*(provider.start(spec(tmp_path), no_host) for _ in range(3)))
    await asyncio.gather(*(kernel.aclose() for kernel in kernels))
    assert len(opened) == 1


async def test_many_forks_with_kills_in_between_leave_nothing(provider, tmp_path):
    """The short form of the soak; `python -m benchmarks.soak` does a thousand."""
    async with open_kernel(provider, tmp_path):
        process = psutil.Process()
        generator = random.Random(1)

        async def one(number: int) -> None:
            kernel = await provider.start(spec(tmp_path), no_host)
            kill = generator.random() < 0.3
            if kill:
                os.kill(kernel.pid, signal.SIGKILL)
            ran = await run_cell(kernel, str(number))
            assert kill or ran.text == f"{number}\n"
            await kernel.aclose()

        await asyncio.gather(*(one(number) for number in range(10)))
        descriptors = process.num_fds()
        for number in range(3):
            await asyncio.gather(*(one(number) for number in range(10)))
        await eventually(lambda: process.num_fds() <= descriptors)  # zmq closes sockets in a thread of its own
        server = await server_of(provider)
        below = psutil.Process(server.pid)
        await eventually(lambda: len(below.children(recursive=True)) == 2)  # the server and the one open kernel


@pytest.mark.parametrize("delay", [0, 0.005, 0.02])
async def test_a_server_that_is_killed_while_kernels_start_fails_them_at_once(provider, tmp_path, delay):
    async with open_kernel(provider, tmp_path):
        server = await server_of(provider)
        tasks = [asyncio.create_task(provider.start(spec(tmp_path), no_host)) for _ in range(5)]
        await asyncio.wait(tasks, timeout=delay)
        os.kill(psutil.Process(server.pid).children()[0].pid, signal.SIGKILL)
        await asyncio.wait_for(asyncio.wait(tasks), 120)
        for task in tasks:
            if task.exception() is None:
                await task.result().aclose()
            else:
                assert isinstance(task.exception(), KernelStartError)
    async with open_kernel(provider, tmp_path) as kernel:
        assert (await run_cell(kernel, "1")).text == "1\n"


async def test_two_servers_in_one_loop_do_not_disturb_each_other():
    key = ForkKey(python=sys.executable, environment=tuple(os.environ.items()))
    for _ in range(2):
        one, two = ForkServer(key), ForkServer(key)
        try:
            await asyncio.gather(one.open(), two.open())
            assert one.alive
            await one.aclose()
            assert two.alive
        finally:
            await asyncio.gather(one.aclose(), two.aclose())


KERNELSPEC = """
import asyncio, json, os, sys
from jupyter_client.multikernelmanager import AsyncMultiKernelManager
from jupyter_client.kernelspec import KernelSpecManager

def write(path, line):
    with open(path, "w") as file:
        file.write("#!/bin/sh\\n" + line + "\\n")
    os.chmod(path, 0o755)

OF_ITS_TRAITS = '''
import socket
try:
    socket.socket()
except PermissionError as error:
    assert "no network here" in str(error) and agent
else:
    raise AssertionError
'''

async def main():
    folder = os.path.join(sys.argv[1], "warm")
    os.makedirs(folder)
    python, code, config = sys.executable, "1 + 1", {}
    if sys.argv[2] == "freeact-fork":
        python, code = os.path.join(sys.argv[1], "python"), OF_ITS_TRAITS
        config = {"servers": ["far"], "audit": {"folders": [], "asked": [], "no_network": "no network here"}}
        write(python, "exit 1")
    spec = {"argv": [python, "-m", "ipykernel_launcher", "-f", "{connection_file}"], "display_name": "warm",
            "language": "python", "metadata": {"kernel_provisioner": {"provisioner_name": sys.argv[2], "config": config}}}
    with open(os.path.join(folder, "kernel.json"), "w") as file:
        json.dump(spec, file)
    manager = AsyncMultiKernelManager(kernel_spec_manager=KernelSpecManager(kernel_dirs=[sys.argv[1]]))
    manager.connection_dir = sys.argv[1]
    if config:
        try:
            await manager.start_kernel(kernel_name="warm")
        except Exception as error:
            print("failed", type(error).__name__, flush=True)
        write(python, f'exec {sys.executable} "$@"')  # a start that has failed is tried again
    for _ in range(2):
        kernel_id = await manager.start_kernel(kernel_name="warm")
        client = manager.get_kernel(kernel_id).client()
        client.start_channels()
        await client.wait_for_ready(timeout=120)
        print((await client.execute(code, reply=True, timeout=120))["content"]["status"], type(manager.get_kernel(kernel_id).provisioner).__name__, client.transport, flush=True)
        client.stop_channels()
        await manager.restart_kernel(kernel_id, now=True)
        await manager.shutdown_kernel(kernel_id, now=True)

asyncio.run(main())
os._exit(0)
"""


@pytest.mark.parametrize(
    ("name", "kind"), [("freeact-fork", "ForkProvisioner ipc"), ("freeact-local", "GuardedProvisioner tcp")]
)
async def test_any_jupyter_program_can_name_the_provisioners_in_a_kernelspec(tmp_path, name, kind):
    """What the kernelspec says of servers and of what is asked for holds in the kernel. No port is taken for a forked one."""
    arguments = [sys.executable, "-c", KERNELSPEC, str(tmp_path), name]
    pipe, temporary = asyncio.subprocess.PIPE, tmp_path / "temporary"
    temporary.mkdir()  # IPython's notes stay there: no private folder is named
    environment = os.environ | {"TMPDIR": str(temporary)}
    process = await asyncio.create_subprocess_exec(*arguments, stdout=pipe, stderr=pipe, env=environment)
    output, errors = await asyncio.wait_for(process.communicate(), 250)
    told = [line for line in output.decode().splitlines() if line.startswith("ok ")]  # kernels write there too
    assert told == [f"ok {kind}"] * 2, errors.decode()
    assert ("failed UnusablePythonError" in output.decode()) == (name == "freeact-fork")
