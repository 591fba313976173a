"""What every kernel does, whatever provider it is from."""

import asyncio
import os
import stat
import sys
import tempfile
from pathlib import Path

import psutil
import pytest
from support.elsewhere import CANNOT_FORK
from support.kernels import PROVIDERS, open_kernel, run_cell, spec
from support.thorough import THOROUGH
from support.waiting import LOADED_MACHINE_SECONDS, WORKS_ON, eventually, is_running, outlast

from freeact_sub.cells import CellError, DisplayData, ExecuteResult, StreamText
from freeact_sub.errors import KernelStartError
from freeact_sub.kernels import CellClock, CellOutputBuffer
from freeact_sub.kernels.local import LocalKernelProvider
from freeact_sub.kernels.wire import client

pytestmark = pytest.mark.kernel


IN_A_CELL = pytest.mark.parametrize("provider", PROVIDERS if THOROUGH else ["fork"], indirect=True)
"""For what goes on in a kernel that has started; `test_contract.py` holds it of each in short."""


@pytest.fixture(params=PROVIDERS)
async def provider(request):
    provider = PROVIDERS[request.param]()
    yield provider
    await provider.aclose()


@IN_A_CELL
async def test_output_values_errors_and_pictures_come_in_order_and_state_is_kept(kernel):
    ran = await run_cell(kernel, "import sys\nx = 41\nprint('out')\nprint('err', file=sys.stderr)\nx + 1")
    assert ran.status == "ok"
    assert [output.text for output in ran.outputs if isinstance(output, StreamText)] == ["out\n", "err\n"]
    assert [output.data["text/plain"] for output in ran.outputs if isinstance(output, ExecuteResult)] == ["42"]
    failed = await run_cell(kernel, "print('before')\nx / 0")
    assert failed.status == "error"
    assert [(output.ename, output.evalue) for output in failed.outputs if isinstance(output, CellError)] == [
        ("ZeroDivisionError", "division by zero")
    ]
    assert "before" in failed.text
    assert "----> 2 x / 0" in failed.text
    rich = await run_cell(
        kernel, "from IPython.display import display, HTML, Image\ndisplay(HTML('<b>x</b>'))\nImage(b'\\x89PNG')"
    )
    assert [set(output.data) - {"text/plain"} for output in rich.outputs] == [{"text/html"}, {"image/png"}]
    assert isinstance(rich.outputs[0], DisplayData)
    assert (await run_cell(kernel, "x")).text == "41\n"


@IN_A_CELL
async def test_shell_commands_await_and_magics_work(kernel, tmp_path):
    (tmp_path / "a file").write_text("hello")
    ran = await run_cell(kernel, "!cat 'a file'\nimport asyncio\nawait asyncio.to_thread(int)\n%pwd")
    assert "hello" in ran.text
    assert str(tmp_path) in ran.text
    said = (await run_cell(kernel, "import os; os.system('echo from the shell');")).text
    async with asyncio.timeout(120):
        while "from the shell" not in said:  # ipykernel reads what programs write in a thread: it may come after the cell
            said += (await run_cell(kernel, "0")).text


FLOOD = """
kernel = get_ipython().kernel
parent, idents = kernel.get_parent(), kernel._parent_ident
ODD = [
    ("stream", {{"name": "stdout", "text": None}}), ("stream", {{"name": [[[]]]}}), ("status", {{"execution_state": "odd"}}), ("status", {{}}),
    ("display_data", {{"data": {{"text/plain": ["a"] * 50}}}}), ("update_display_data", {{"transient": {{"display_id": "x"}}}}),
    ("execute_result", {{"data": None, "execution_count": "x"}}), ("error", {{"traceback": 3}}), ("clear_output", {{"wait": {{}}}}),
    ("comm_open", {{"comm_id": "x" * 500}}), ("comm_msg", {{}}), ("freeact_request", {{}}), ("freeact_request", {{"id": {{}}, "method": "no"}}),
    ("execute_reply", {{"status": "ok"}}), ("execute_reply", {{}}), ("kernel_info_reply", {{}}), ("input_request", {{"prompt": "?"}}),
    ("x" * 1000, {{}}), ("debug_event", {{}}), ("stream", {{"name": "stdout", "text": "a" * 2000}}),
]
for number in range({count}):
    kind, content = ODD[number % len(ODD)]
    kernel.session.send({socket}, kind, content=content, parent=parent if number % 3 else {{}}, ident={ident})
    if number % 50 == 0:
        {socket}.send_multipart([*({ident} or [b"rubbish"]), b"<IDS|MSG>", b"x"])
"""


def memory_bytes():
    return psutil.Process().memory_info().rss


@IN_A_CELL
async def test_a_flood_of_odd_messages_on_any_channel_ends_with_its_cell_and_takes_no_memory(kernel):
    """A cell may forge its own end; what it cannot do is to keep the next one from coming."""
    before = memory_bytes()
    for socket, ident in {
        "kernel.iopub_socket": "None",
        "kernel.shell_stream": "idents['shell']",
        "kernel.control_stream": "idents['control']",
    }.items():
        async with asyncio.timeout(600):
            await run_cell(kernel, FLOOD.format(socket=socket, ident=ident, count=100_000 if THOROUGH else 1_500))
            assert (await run_cell(kernel, "1 + 1")).text.startswith("2"), socket
    assert memory_bytes() < before + 100 * 2**20


async def test_the_kernel_sees_the_environment_it_is_given_and_no_other(provider, tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "secret-of-the-host")
    async with open_kernel(provider, tmp_path) as kernel:
        ran = await run_cell(kernel, "import os\nprint(dict(os.environ))\nos.getcwd()")
    assert "secret-of-the-host" not in ran.text
    assert "'PATH'" in ran.text
    assert str(tmp_path) in ran.text


@IN_A_CELL
async def test_nothing_is_left_in_the_namespace_but_the_agent(kernel):
    assert (await run_cell(kernel, "%who")).text.split() == ["Interactive", "namespace", "is", "empty."]
    assert "agent" in (await run_cell(kernel, "agent")).text


@IN_A_CELL
async def test_cells_of_one_kernel_run_one_after_the_other(kernel):
    cells = [f"x = {number}\nfor _ in range(10**6): pass\nprint(x)" for number in range(5)]
    ran = await asyncio.gather(*(run_cell(kernel, code) for code in cells))
    assert [cell.text for cell in ran] == [f"{number}\n" for number in range(5)]


@IN_A_CELL
@pytest.mark.parametrize(
    "code",
    [
        "while True: pass",
        "import time; time.sleep(1000)",
        "import asyncio; await asyncio.sleep(1000)",
        "import subprocess; subprocess.run(['sleep', '1000'])",
        "!sleep 1000",
        WORKS_ON,
        "while True:\n    try:\n        import time; time.sleep(1)\n    except BaseException: pass",
    ],
)
async def test_a_cell_whose_time_is_up_is_interrupted_and_the_kernel_lives(kernel, code):
    await run_cell(kernel, "x = 1")
    ran = await run_cell(kernel, code, limit=0.3)
    assert ran.status == "timeout"
    assert (await run_cell(kernel, "x")).text == "1\n"


@IN_A_CELL
async def test_a_cell_that_does_not_heed_the_interrupt_loses_its_kernel(kernel, monkeypatch):
    monkeypatch.setattr(client, "INTERRUPT_GRACE_SECONDS", 2.0)
    ran = await run_cell(kernel, "sum(range(10**12))", limit=0.3)
    assert ran.status == "timeout"
    assert "did not end" in kernel.lost_reason
    assert (await run_cell(kernel, "1")).status == "kernel_lost"


@IN_A_CELL
async def test_the_time_that_a_person_is_asked_does_not_count(provider, tmp_path):
    asked = asyncio.Event()

    async def handler(method, params, clock):
        with clock.paused():
            asked.set()
            await outlast(10)  # the person thinks, for longer than the cell may run
        return "yes"

    async with open_kernel(provider, tmp_path, handler, mcp_servers=("a",)) as kernel:
        ran = await run_cell(kernel, "dir(agent.mcp.a)", limit=10)
    assert asked.is_set()
    assert ran.status != "timeout"


async def test_a_killed_kernel_is_noticed_at_once(kernel):
    loop = asyncio.get_running_loop()
    lost = asyncio.create_task(kernel.wait_lost())
    started = loop.time()
    ran = await run_cell(kernel, "import os, signal\nprint('last words', flush=True)\nos.kill(os.getpid(), signal.SIGKILL)")
    assert loop.time() - started < LOADED_MACHINE_SECONDS
    assert ran.status == "kernel_lost"
    assert await lost == kernel.lost_reason == "its process was killed by signal 9"
    assert (await run_cell(kernel, "1")).status == "kernel_lost"


async def test_a_kernel_that_exits_tells_its_code(kernel):
    assert (await run_cell(kernel, "import os; os._exit(7)")).status == "kernel_lost"
    assert "exit code 7" in kernel.lost_reason


@pytest.mark.skipif(CANNOT_FORK, reason="a session of its own outlives its kernel there")
async def test_closing_ends_what_cells_started_also_daemons(provider, tmp_path):
    pids = tmp_path / "pids"
    code = f"""
import subprocess, os
for command in ("sleep 1000", "setsid sleep 1000", "setsid sh -c 'sleep 1000 & sleep 1000'"):
    subprocess.Popen(command + " & echo $! >> {pids}", shell=True).wait()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        open({str(pids)!r}, "a").write(f"{{os.getpid()}}\\n")
        import signal; signal.pause()
    os._exit(0)
os.wait()
"""
    async with open_kernel(provider, tmp_path) as kernel:
        assert (await run_cell(kernel, code)).status == "ok"
        await eventually(lambda: len(pids.read_text().split()) == 4)
        started = [int(pid) for pid in pids.read_text().split()]
    await eventually(lambda: not any(map(is_running, started)))


async def test_a_closed_cell_reader_interrupts_the_cell(kernel):
    await run_cell(kernel, "x = 1")
    buffer = CellOutputBuffer()
    loop = asyncio.get_running_loop()
    async with kernel.execute(f"print('on', flush=True)\n{WORKS_ON}", buffer, CellClock(None)) as cell:
        assert isinstance(await anext(cell), StreamText)
        started = loop.time()
    assert loop.time() - started < LOADED_MACHINE_SECONDS
    ran = await run_cell(kernel, "x")
    assert (ran.status, ran.text, kernel.lost_reason) == ("ok", "1\n", None), ran.outputs


@IN_A_CELL
async def test_no_output_is_lost_with_a_reader_that_pauses(kernel, tmp_path):
    buffer = CellOutputBuffer(file=tmp_path / "all")
    async with kernel.execute("for i in range(4000): print('x' * 4999, flush=True)", buffer, CellClock(None)) as cell:
        got = len((await anext(cell)).text)
        await eventually(lambda: buffer.total_chars == 20_000_000)  # a slow reader
        async for output in cell:
            got += len(getattr(output, "text", ""))
    assert got + buffer.left_out_chars == buffer.total_chars == 20_000_000
    assert (tmp_path / "all").stat().st_size == 20_000_000


async def test_starting_can_be_cancelled_at_any_moment_and_leaves_nothing(provider, tmp_path):
    for delay in (0, 0.01, 0.05, 0.1, 0.2, 0.3, 0.4):
        task = asyncio.create_task(provider.start(spec(tmp_path), lambda *_: None))
        await asyncio.wait({task}, timeout=delay)
        task.cancel()
        await asyncio.wait({task})
        if not task.cancelled():
            await task.result().aclose()


async def test_a_python_that_is_not_there_or_broken_is_a_clear_error(provider, tmp_path):
    with pytest.raises(KernelStartError, match=r"/no/python cannot run cells: it does not exist, or it is not a program"):
        await provider.start(spec(tmp_path, python="/no/python"), lambda *_: None)
    bare = tmp_path / "python"
    bare.write_text("#!/bin/sh\necho 'No module named json' >&2\nexit 1\n")
    bare.chmod(0o755)
    with pytest.raises(KernelStartError, match="python cannot run cells: No module named json"):
        await provider.start(spec(tmp_path, python=str(bare)), lambda *_: None)


async def test_a_kernel_that_is_never_ready_is_given_up(provider, tmp_path):
    silent = tmp_path / "python"
    silent.write_text("#!/bin/sh\nexec sleep 1000\n")
    silent.chmod(0o755)
    with pytest.raises(KernelStartError, match="not ready after 0.5 s"):
        await provider.start(spec(tmp_path, python=str(silent), start_timeout_seconds=0.5), lambda *_: None)


async def test_the_folder_is_private_and_goes_with_the_kernel(provider, tmp_path):
    async with open_kernel(provider, tmp_path) as kernel:
        folder = kernel.connection_file.parent
        assert stat.S_IMODE(folder.stat().st_mode) & 0o777 == 0o700
        assert folder.stat().st_uid == os.getuid()
    assert not folder.exists()


ATTACH = """
import sys
from jupyter_client import BlockingKernelClient
client = BlockingKernelClient(connection_file=sys.argv[1])
client.load_connection_file()
client.start_channels()
client.wait_for_ready(timeout=120)
print(client.execute_interactive("y = 5", timeout=120)["content"]["status"])
client.stop_channels()
import zmq
for _ in range(2):
    heart = zmq.Context.instance().socket(zmq.REQ)
    heart.connect(client._make_url("hb"))
    heart.send(b"beat")
    print(heart.recv() if heart.poll(60_000) else "no answer")
    heart.close()
"""


async def test_any_jupyter_client_can_attach(kernel):
    arguments = [sys.executable, "-c", ATTACH, str(kernel.connection_file)]
    process = await asyncio.create_subprocess_exec(*arguments, stdout=asyncio.subprocess.PIPE)
    output, _ = await asyncio.wait_for(process.communicate(), 250)
    assert output == b"ok\nb'beat'\nb'beat'\n"
    assert (await run_cell(kernel, "y")).text == "5\n"


@IN_A_CELL
async def test_the_agent_survives_what_clears_the_namespace(kernel):
    for code in ("agent = 1\ndel agent", "%reset -f"):
        await run_cell(kernel, code)
        assert (await run_cell(kernel, "agent")).text.startswith("<agent")


async def test_a_long_temporary_directory_is_no_harm(tmp_path, monkeypatch):
    folder = tmp_path / ("long" * 30)
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    provider = LocalKernelProvider()
    try:
        async with open_kernel(provider, tmp_path) as kernel:
            assert (await run_cell(kernel, "1")).text == "1\n"
    finally:
        await provider.aclose()


@IN_A_CELL
async def test_messages_that_are_not_the_kernels_own_are_passed_over(kernel, caplog):
    forge = """
import json, zmq
kernel = get_ipython().kernel
parent = kernel.get_parent("shell")["header"]
def send(*frames):
    kernel.iopub_socket.send_multipart(list(frames))
header = json.dumps({"msg_id": "x", "msg_type": "stream", "session": "s", "username": "u", "version": "5.3", "date": "d"}).encode()
content = json.dumps({"name": "stdout", "text": "forged"}).encode()
send(b"t", b"<IDS|MSG>", b"0" * 64, header, json.dumps(parent, default=str).encode(), b"{}", content)
send(b"t")
send(b"t", b"<IDS|MSG>", b"x")
for body in (b"[]", b"null", b"{}", b"\\xff", b"1"):
    kernel.session.key and send(b"t", b"<IDS|MSG>", kernel.session.sign([body] * 4), body, body, body, body)
print("real")
"""
    ran = await run_cell(kernel, forge)
    assert (ran.status, ran.text) == ("ok", "real\n")
    assert "signature" in caplog.text
    assert (await run_cell(kernel, "1")).text == "1\n"


@IN_A_CELL
async def test_a_missing_name_is_told_with_the_near_ones_that_exist(kernel):
    ran = await run_cell(kernel, "temperatures = [1]\ndef mean(): return temperature[0]\nmean()")
    assert "NameError: name 'temperature' is not defined. Near names that exist: temperatures" in ran.text
    assert "Cell In[" in ran.text
    assert ran.status == "error"
    ran = await run_cell(kernel, "qqqqqqqq")
    assert ran.text.endswith("NameError: name 'qqqqqqqq' is not defined\n")
    ran = await run_cell(kernel, "try:\n    temperature\nexcept NameError as error:\n    print(error)")
    assert ran.text == "name 'temperature' is not defined\n", "code sees the error as Python makes it"


HOSTILE_MESSAGES = """
import os
kernel = get_ipython().kernel
def send(kind, content):
    kernel.session.send(kernel.iopub_socket, kind, content, parent=kernel.get_parent("shell"))
deep = b'[' * 200_000 + b']' * 200_000
send("stream", b'{"name": "stdout", "text": ' + deep + b'}')
send("freeact_request", b'{"id": 1, "method": "task", "params": ' + deep + b'}')
send("freeact_branch", {"id": [], "pid": "x"})
for content in (b"[]", b'"x"', b"{}", b'{"data": [1]}', b'{"text": 7}', b'{"traceback": 3}'):
    for kind in ("stream", "display_data", "execute_result", "error", "status", "freeact_request", "clear_output"):
        send(kind, content)
here = os.getcwd()
os.chdir(os.environ["FA_FOLDER"])
for _ in range(1500):
    os.mkdir("d"); os.chdir("d")
os.chdir(here)
print("still here")
"""


@IN_A_CELL
async def test_nothing_that_code_sends_or_leaves_ends_the_reader_or_keeps_the_folder(provider, tmp_path):
    async with open_kernel(provider, tmp_path) as kernel:
        ran = await run_cell(kernel, HOSTILE_MESSAGES)
        assert ran.status == "ok"
        assert "still here" in ran.text
        assert "left out" in ran.text
        assert (await run_cell(kernel, "agent._requests.ask('echo', x=1)['params']")).text == "{'x': 1}\n"
        folder = Path((await run_cell(kernel, "print(os.environ['FA_FOLDER'])")).text.strip())
        assert (folder / "d").is_dir()
    await eventually(lambda: not folder.exists())
