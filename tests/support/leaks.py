"""A pytest plugin: a test that leaves something behind fails, and the failure names what is left.

Looked at are processes (all descendants; pytest makes itself a child subreaper, so daemons are found too), asyncio
tasks, file descriptors (sockets and pipes are some), threads that would keep the interpreter alive, and the temporary
folder, which is private to the test session so that nobody else writes to it.

What is there before the test is the baseline, so fixtures of a wider scope are no leak. It is taken in a fixture,
because fixtures of a wider scope are set up before those of a test; it is compared in a hook after the last teardown,
when the event loop is closed. Since endings take time (a thread that runs out, a process that is being reaped), the
comparison waits for a condition and fails only at a generous limit. What leaked is then ended, so that one test is
blamed once.
"""

import asyncio
import contextlib
import ctypes
import os
import shutil
import socket
import sys
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Generator
from dataclasses import dataclass, field, replace
from pathlib import Path

import psutil
import pytest
import pytest_asyncio
from support.elsewhere import PROC_OF_TESTS

PR_SET_CHILD_SUBREAPER = 36
POLL_SECONDS = 0.01
CLEAN_LOOKS = 2
"""One look is not enough: processes that fork while we look may be missed."""
KINDS = ("processes", "descriptors", "threads", "files")
STANDARD_STREAMS = (0, 1, 2)
"""Not looked at: pytest turns them to its capture and back while a test runs."""
if os.path.isdir(PROC_OF_TESTS):
    psutil.PROCFS_PATH = PROC_OF_TESTS
LISTS_CHILDREN = Path(f"/proc/self/task/{os.getpid()}/children").exists()
"""Whether Linux does."""
ZOMBIE = psutil.STATUS_ZOMBIE

FOLDER_PREFIX = "fa-tests-"

_start = pytest.StashKey["Snapshot"]()
_baseline = pytest.StashKey["Snapshot"]()
_folder = pytest.StashKey[Path]()


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """What is there at one moment, each thing with the words that name it."""

    processes: dict[tuple[int, float], str] = field(default_factory=dict)
    descriptors: dict[tuple[int, str], str] = field(default_factory=dict)
    threads: dict[threading.Thread, str] = field(default_factory=dict)
    files: dict[Path, str] = field(default_factory=dict)

    @classmethod
    def take(cls, folder: Path) -> "Snapshot":
        """Look at this process, everything below it and its temporary folder."""
        return cls(processes=_processes(), descriptors=_descriptors(), threads=_threads(), files=_files(folder))

    def left_since(self, before: "Snapshot") -> list[str]:
        """Name what is here and was not there before."""
        return [
            f"- {words}" for kind in KINDS for key, words in getattr(self, kind).items() if key not in getattr(before, kind)
        ]

    def add_since(self, before: "Snapshot", after: "Snapshot") -> None:
        """Count what came between two moments as having been here."""
        for kind in KINDS:
            old, new = getattr(before, kind), getattr(after, kind)
            getattr(self, kind).update({key: words for key, words in new.items() if key not in old})


def _processes() -> dict[tuple[int, float], str]:
    found = {}
    for process in _descendants():
        with contextlib.suppress(psutil.NoSuchProcess):
            if process.status() != ZOMBIE:
                command = " ".join(process.cmdline()) or process.name()
                found[process.pid, process.create_time()] = f"process {process.pid}: {command[:300]}"
    return found


def _descendants() -> list[psutil.Process]:
    """All below this process. Orphans are among them, as our own children.

    The children of a process that ends while we look may be missed: they are ours only after we have looked at ours.
    `CLEAN_LOOKS` is there for them.
    """
    if _has_no_child():
        return []
    if not LISTS_CHILDREN:
        return psutil.Process().children(recursive=True)
    found = _children(os.getpid())
    for process in found:
        found += _children(process.pid)
    return found


def _own_children() -> list[psutil.Process]:
    if _has_no_child():
        return []
    return _children(os.getpid()) if LISTS_CHILDREN else psutil.Process().children()


def _children(pid: int) -> list[psutil.Process]:
    """As the system lists them; to look at all processes of the machine after each test costs a tenth of the suite."""
    found: list[psutil.Process] = []
    with contextlib.suppress(OSError):  # it has ended
        for thread in os.listdir(f"/proc/{pid}/task"):
            children = Path(f"/proc/{pid}/task/{thread}/children").read_bytes()
            for child in children.split():
                with contextlib.suppress(psutil.NoSuchProcess):
                    found.append(psutil.Process(int(child)))
    return found


def _has_no_child() -> bool:
    """Whether this process certainly has none; False where the system does not tell."""
    if not hasattr(os, "waitid"):
        return False
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return True
    return False


def _descriptors() -> dict[tuple[int, str], str]:
    """By plain system calls: with pathlib, this is a fifth of what a short test takes."""
    if not os.path.isdir("/proc/self/fd"):
        return {}
    found = {}
    for name in os.listdir("/proc/self/fd"):
        if (number := int(name)) in STANDARD_STREAMS:
            continue
        # the descriptor that lists the folder is closed again by now
        with contextlib.suppress(OSError):
            target = os.readlink(f"/proc/self/fd/{name}")
            found[number, target] = f"file descriptor {number}: {target}{_addresses(number, target)}"
    return found


def _addresses(descriptor: int, target: str) -> str:
    if not target.startswith("socket:"):
        return ""
    with contextlib.suppress(OSError):
        copy = socket.socket(fileno=os.dup(descriptor))
        with copy:
            peer = ""
            with contextlib.suppress(OSError):
                peer = f" to {copy.getpeername()}"
            return f" ({copy.family.name} at {copy.getsockname()}{peer})"
    return ""


def _threads() -> dict[threading.Thread, str]:
    """But those of an event loop's executor, which end with the loop: it may be that of a module."""
    return {
        thread: f"thread {thread.name}"
        for thread in threading.enumerate()
        if not (thread.daemon or thread is threading.main_thread() or thread.name.startswith("asyncio_"))
    }


def _files(folder: Path) -> dict[Path, str]:
    """But the folders of xdist's workers, who look into them themselves; xdist ends one that takes long to remove its own."""
    return {
        path: f"temporary folder {path}{_names_in(path)}" if path.is_dir() else f"temporary file {path}"
        for path in folder.iterdir()
        if not (path.name.startswith(FOLDER_PREFIX) or _is_trial(path))
    }


def _is_trial(path: Path) -> bool:
    """Whether `tempfile` made it, of a process that was killed: it tries the temporary folder before it makes anything there."""
    with contextlib.suppress(OSError):
        return "." not in path.name and len(path.name) == 8 and path.is_file() and b"blat".startswith(path.read_bytes())
    return False


def _names_in(folder: Path) -> str:
    """What is in a folder tells who has made it."""
    with contextlib.suppress(OSError):
        names = sorted(os.listdir(folder))
        return f" with {', '.join(names[:10])}" if names else ", empty"
    return ""


@dataclass
class Zombies:
    """Ended orphans: only this process can reap them, but its own children it must leave to whoever waits for them."""

    seen: set[int] = field(default_factory=set)

    def reap(self) -> None:
        """Reap those that were there at the last call already; whoever waits for a child has done so since then."""
        now = {process.pid for process in _own_children() if _is_zombie(process)}
        for pid in now & self.seen:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        self.seen = now - self.seen


def _is_zombie(process: psutil.Process) -> bool:
    try:
        return bool(process.status() == ZOMBIE)
    except psutil.NoSuchProcess:
        return False


_zombies = Zombies()


def wait_until_nothing_is_left(before: Snapshot, folder: Path, limit_seconds: float) -> list[str]:
    """Name what was not there before and does not go away within the limit."""
    deadline = time.monotonic() + limit_seconds
    clean = 0
    while clean < CLEAN_LOOKS:
        left = Snapshot.take(folder).left_since(before)
        clean = 0 if left else clean + 1
        if left and time.monotonic() > deadline:
            return left
        if left:
            time.sleep(POLL_SECONDS)
    return []


def end_what_is_left(before: Snapshot, folder: Path) -> None:
    """Kill leaked processes and remove leaked folders, so that later tests start clean."""
    for pid, created in Snapshot.take(folder).processes.keys() - before.processes.keys():
        with contextlib.suppress(psutil.NoSuchProcess):
            process = psutil.Process(pid)
            if process.create_time() == created:
                process.kill()
    for path in Snapshot.take(folder).files.keys() - before.files.keys():
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini("leak_seconds", "how long a test's leavings may take to go away", default="60")


def pytest_configure(config: pytest.Config) -> None:
    with contextlib.suppress(AttributeError):  # not on Linux
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    # pytest keeps its own folders where it always did; everything else made by tests and what they start goes here
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())
    temporary = tempfile.TemporaryDirectory(prefix=FOLDER_PREFIX, ignore_cleanup_errors=True)
    config.add_cleanup(temporary.cleanup)
    folder = Path(temporary.name)
    os.environ["TMPDIR"] = os.environ["XDG_RUNTIME_DIR"] = tempfile.tempdir = str(folder)
    config.stash[_folder] = folder
    config.stash[_start] = Snapshot.take(folder)


@pytest.fixture(autouse=True)
def nothing_is_left(request: pytest.FixtureRequest) -> None:
    """Take the baseline; for an async test, also watch its tasks while its loop is open."""
    if request.node.get_closest_marker("kernel"):
        _open_shared_zmq_contexts()
    request.config.stash[_baseline] = Snapshot.take(request.config.stash[_folder])
    if markers := list(request.node.iter_markers("asyncio")):
        in_module = any(marker.kwargs.get("loop_scope") == "module" for marker in markers)
        request.getfixturevalue("no_task_is_left_in_module" if in_module else "no_task_is_left")


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[object], request: pytest.FixtureRequest
) -> Generator[None, object, object]:
    """A fixture of a wider scope that is asked for at run time adds to the baseline of the test that runs."""
    folder, baseline = request.config.stash[_folder], request.config.stash.get(_baseline, None)
    if baseline is None or fixturedef.scope == "function":
        return (yield)
    before = Snapshot.take(folder)
    try:
        return (yield)
    finally:
        baseline.add_since(before, Snapshot.take(folder))


def _open_shared_zmq_contexts() -> None:
    """Make what zmq creates once in a process and keeps: it belongs in the baseline."""
    import zmq.asyncio

    for context in (zmq.Context.instance(), zmq.asyncio.Context.instance()):
        context.socket(zmq.PAIR).close()


@pytest.fixture
async def no_task_is_left(request: pytest.FixtureRequest) -> AsyncIterator[None]:
    """Fail if a task that the test, or a fixture of it, started is still there when all fixtures but this are gone."""
    async for _ in _watch_tasks(request):
        yield


@pytest_asyncio.fixture(loop_scope="module")
async def no_task_is_left_in_module(request: pytest.FixtureRequest) -> AsyncIterator[None]:
    """The same for a test in a loop that all tests of its module share."""
    async for _ in _watch_tasks(request):
        yield


async def _watch_tasks(request: pytest.FixtureRequest) -> AsyncIterator[None]:
    before = asyncio.all_tasks()
    yield
    deadline = time.monotonic() + float(request.config.getini("leak_seconds"))
    while left := asyncio.all_tasks() - before - {asyncio.current_task()}:
        if time.monotonic() > deadline:
            pytest.fail("the test left behind:\n" + "\n".join(f"- {task!r}" for task in left), pytrace=False)
        await asyncio.sleep(POLL_SECONDS)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, None, None]:
    yield
    config = item.config
    before, folder = config.stash.get(_baseline, None), config.stash[_folder]
    if before is None:  # the test was skipped before its fixtures were set up
        return
    del config.stash[_baseline]
    left = wait_until_nothing_is_left(before, folder, float(config.getini("leak_seconds")))
    _zombies.reap()
    if left:
        end_what_is_left(before, folder)
        pytest.fail("the test left behind:\n" + "\n".join(left), pytrace=False)


@pytest.hookimpl(wrapper=True)
def pytest_sessionfinish(session: pytest.Session) -> Generator[None, None, None]:
    """Fixtures of a wider scope must not leave processes and files either; caches of libraries are no leak by then."""
    yield
    config = session.config
    now = Snapshot.take(config.stash[_folder])
    start = replace(config.stash[_start], descriptors=now.descriptors, threads=now.threads)
    if left := wait_until_nothing_is_left(start, config.stash[_folder], float(config.getini("leak_seconds"))):
        end_what_is_left(start, config.stash[_folder])
        print("\nthe test session left behind:", *left, sep="\n", file=sys.stderr)
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
