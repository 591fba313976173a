"""Tracebacks name the code of the cell and of its libraries, never ours."""

import pytest
import pytest_asyncio
from support.elsewhere import CANNOT_FORK
from support.host import RecordingHost
from support.kernels import open_kernel, run_cell

from freeact_sub.cells import CellError
from freeact_sub.kernels import AuditSettings

pytestmark = [
    pytest.mark.kernel,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(CANNOT_FORK, reason="forked kernels"),
]


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def kernel(shared_provider, tmp_path_factory):
    host = RecordingHost()
    host.allows = lambda _: False
    settings = AuditSettings(writable=(), asked=())
    work = tmp_path_factory.mktemp("work")
    (work / "freeact_mine.py").write_text("def fail():\n    1 / 0\n")
    async with open_kernel(shared_provider, work, host, audit=settings) as kernel:
        names = "import asyncio, logging, os, shutil, socket, subprocess, sys, threading, traceback"
        assert (await run_cell(kernel, f"{names}\ndef act(): open('/elsewhere', 'w')")).status == "ok"
        yield kernel


DENIED = {
    "a file": "act()",
    "a removal": "os.remove('/etc/hostname')",
    "a tree": "shutil.rmtree('/etc/default')",
    "a program": "subprocess.run(['touch', 'x'])",
    "!": "!touch x",
    "%%bash": "%%bash\ntouch x",
    "os.system": "os.system('touch x')",
    "a connection": "socket.socket().connect(('127.0.0.1', 1))",
    "in a coroutine": "async def later(): act()\nawait asyncio.gather(later())",
    "in a pool": "from concurrent.futures import ThreadPoolExecutor\nwith ThreadPoolExecutor() as pool: pool.submit(act).result()",
    "a cause": "try: act()\nexcept OSError as error: raise ValueError(str(error)) from error",
    "a context": "try: act()\nexcept OSError as error: raise ValueError(str(error))",
    "print_exc": "try: act()\nexcept OSError: traceback.print_exc()",
    "format_exception": "try: act()\nexcept OSError as error: print(*traceback.format_exception(error))",
    "logging": "try: act()\nexcept OSError: logging.exception('failed')",
    "a group": "try: act()\nexcept OSError as error: raise ExceptionGroup('two', [error, ValueError('denied: not that')])",
    "a thread": "thread = threading.Thread(target=act); thread.start(); thread.join()",
    "a finalizer": "class Final:\n    def __del__(self): act()\nFinal()\nNone",
    "a fork": "if os.fork() == 0:\n    try: act()\n    except OSError: traceback.print_exc()\n    os._exit(0)\nos.wait()\nNone",
    "a chain in a thread": "def chained():\n    try: act()\n    except OSError as error: raise ValueError(str(error)) from error\nthread = threading.Thread(target=chained); thread.start(); thread.join()",
}  # fmt: skip


@pytest.mark.parametrize("how", DENIED)
async def test_a_denied_action_shows_the_line_that_did_it_and_the_reason_last(kernel, how):
    ran = await run_cell(kernel, DENIED[how])
    seen = ran.text + "".join(line for output in ran.outputs if isinstance(output, CellError) for line in output.traceback)
    assert "freeact_" not in seen
    assert ran.text.rstrip(" \n-+|").endswith("denied: not that")


OURS = {
    "a question that fails": ("agent.ask('x', output=7)", "TypeError"),
    "a server that is not there": ("await agent.mcp.nowhere.tool()", "has no 'nowhere'"),
    "a wrong argument": ("agent.task(7, no=1)", "unexpected keyword argument"),
    "a missing name": ("prnt(1)", "Near names"),
}


@pytest.mark.parametrize("what", OURS)
async def test_an_error_of_ours_ends_at_the_line_of_the_cell(kernel, what):
    code, shown = OURS[what]
    ran = await run_cell(kernel, code)
    (error,) = (output for output in ran.outputs if isinstance(output, CellError))
    assert "freeact_" not in "".join(error.traceback)
    assert shown in ran.text
    assert "----> 1" in ran.text


async def test_later_looks_at_an_error_do_not_find_them_either(kernel):
    assert (await run_cell(kernel, "act()")).status == "error"
    ran = await run_cell(kernel, "%tb")
    assert "freeact_" not in ran.text
    assert "denied: not that" in ran.text
    ran = await run_cell(kernel, "print([frame.name for frame in traceback.extract_tb(sys.last_traceback)][-1])")
    assert ran.text == "_modified_open\n"


async def test_a_module_of_the_user_with_a_like_name_stays(kernel):
    assert "freeact_mine.py" in (await run_cell(kernel, "import freeact_mine\nfreeact_mine.fail()")).text
