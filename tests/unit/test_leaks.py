"""The plugin that fails a test for what it leaves behind fails for each kind, names it, and lets clean tests pass."""

import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

SUPPORT = Path(__file__).parent.parent

pytestmark = pytest.mark.slow

LEAKING = '''
import asyncio, os, socket, subprocess, sys, tempfile, threading, time
import pytest

kept = []
SLEEP = [sys.executable, "-c", "import signal; signal.pause()"]
DAEMON = """
import os, sys, time
if os.fork(): sys.exit()
os.setsid()
if os.fork(): os._exit(0)
sys.argv[0] = "the-daemon"
os.execv(sys.executable, [sys.executable, "-c", "import signal; signal.pause()", "the-daemon"])
"""

def test_process():
    kept.append(subprocess.Popen(SLEEP))

def test_daemon():
    subprocess.run([sys.executable, "-c", DAEMON], check=True)

async def test_task():
    kept.append(asyncio.create_task(asyncio.Event().wait(), name="the-task"))

def test_socket():
    kept.append(socket.create_server(("127.0.0.1", 0)))

def test_file():
    kept.append(open(__file__))

def test_pipe():
    kept.append(os.pipe())

def test_folder():
    tempfile.mkdtemp(prefix="fa-kernel-")

def test_thread():
    kept.append(threading.Event())
    threading.Thread(target=kept[-1].wait, args=(30,), name="the-thread").start()

@pytest.fixture
async def careless():
    kept.append(asyncio.create_task(asyncio.Event().wait(), name="task-of-the-fixture"))
    yield

async def test_fixture(careless):
    pass

def test_release_the_thread():
    kept[-2].set()
'''

CLEAN = """
import asyncio, subprocess, sys, tempfile, threading
import pytest

@pytest.fixture(scope="module")
def wide():
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process
        process.stdin.close()

def test_with_a_process_of_a_wider_scope(wide):
    assert wide.poll() is None

def test_that_shares_it(wide):
    assert wide.poll() is None

@pytest.fixture
def wide_at_run_time(request):
    return request.getfixturevalue("another")

@pytest.fixture(scope="module")
def another():
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process
        process.stdin.close()

def test_that_asks_for_a_wider_scope_at_run_time(wide_at_run_time):
    assert wide_at_run_time.poll() is None

@pytest.fixture
async def server():
    server = await asyncio.start_server(lambda r, w: None, "127.0.0.1", 0)
    async with server:
        yield server

async def test_loop_and_executor(server):
    await asyncio.to_thread(sum, range(10))
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", "")
    assert await process.wait() == 0

async def test_task_that_ends_after_the_test():
    asyncio.get_running_loop().call_later(0.2, asyncio.create_task(asyncio.Event().wait()).cancel)

def test_thread_and_process_that_end_after_the_test():
    threading.Timer(0.2, int).start()
    late = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL)
    threading.Timer(0.2, late.communicate).start()

def test_folder_that_is_removed():
    with tempfile.TemporaryDirectory(prefix="fa-"):
        pass

def test_temporary_folder_that_a_process_tried_when_it_was_killed():
    tried = "sys.addaudithook(lambda event, _: event == 'os.remove' and os.kill(os.getpid(), 9)); tempfile.gettempdir()"
    assert subprocess.run([sys.executable, "-c", "import os, sys, tempfile; " + tried]).returncode == -9

@pytest.mark.kernel
async def test_zmq():
    import zmq.asyncio
    with zmq.asyncio.Context.instance().socket(zmq.PAIR) as one, zmq.asyncio.Context() as context:
        context.socket(zmq.REP).close()

@pytest.mark.skip
def test_skipped():
    pass
"""

SESSION = """
import subprocess, sys
import pytest

@pytest.fixture(scope="session")
def careless():
    return subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])

def test_it(careless):
    assert careless.poll() is None
"""


def run_pytest(folder: Path, test_file: str, *, leak_seconds: float) -> tuple[dict[str, str], subprocess.CompletedProcess]:
    """Run the file with the plugin; returns what was said about each test ("" for one that passed) and the process."""
    (folder / "test_inner.py").write_text(test_file)
    (folder / "pytest.ini").write_text(
        f"[pytest]\nasyncio_mode = auto\nleak_seconds = {leak_seconds}\nmarkers = kernel\n"
        "asyncio_default_fixture_loop_scope = function\n"
    )
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "support.leaks",
        "-p",
        "no:cacheprovider",
        "--junit-xml=report.xml",
    ]
    environment = os.environ | {"PYTHONPATH": str(SUPPORT)}
    process = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=240, check=False)
    cases = ET.parse(folder / "report.xml").iter("testcase")
    said = {
        case.get("name"): "".join((found.text or "") for found in case.iter() if found.tag in ("error", "failure"))
        for case in cases
    }
    return said, process


@pytest.fixture(scope="module")
def leaking(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    said, _ = run_pytest(tmp_path_factory.mktemp("leaking"), LEAKING, leak_seconds=1)
    return said


@pytest.mark.parametrize(
    ("test", "named"),
    [
        ("test_process", "signal.pause()"),
        ("test_daemon", "the-daemon"),
        ("test_task", "the-task"),
        ("test_socket", "AF_INET at ('127.0.0.1'"),
        ("test_file", "test_inner.py"),
        ("test_pipe", "pipe:["),
        ("test_folder", "fa-kernel-"),
        ("test_thread", "the-thread"),
        ("test_fixture", "task-of-the-fixture"),
    ],
)
def test_fails_and_names_what_is_left(leaking: dict[str, str], test: str, named: str) -> None:
    assert "the test left behind" in leaking[test]
    assert named in leaking[test]


def test_one_test_is_blamed_once(leaking: dict[str, str]) -> None:
    assert leaking["test_release_the_thread"] == ""
    assert sum("the-daemon" in words for words in leaking.values()) == 1


def test_lets_clean_tests_pass(tmp_path: Path) -> None:
    said, process = run_pytest(tmp_path, CLEAN, leak_seconds=120)
    assert len(said) == 10
    assert set(said.values()) == {""}, process.stdout
    assert process.returncode == 0, process.stderr


def test_leak_of_a_wider_scope_fails_the_session(tmp_path: Path) -> None:
    said, process = run_pytest(tmp_path, SESSION, leak_seconds=1)
    assert said == {"test_it": ""}
    assert process.returncode == 1
    assert "signal.pause()" in process.stderr
