"""Saves the variables of this kernel when the host asks (`freeact_snapshot` on the control channel).

A fork does it, so that the kernel continues: made in the main thread while no cell runs, it has all variables as they are
then. It is no kernel and needs none of the kernel's threads and sockets. It writes, and ends; it ends with the kernel in any
case, and when the host says so. Where no fork can be made the main thread saves what it can in its time limit.

The host hears on iopub of the begin and the end. It sees the success for itself: the manifest is there, or is not.
"""

import asyncio
import contextlib
import ctypes
import gc
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from .. import hook
from ..halves import HALVES
from ..line import OWN_CHILDREN, OWN_ENDS
from ..values import reason_of
from .files import Writer
from .imported import Imported

PR_SET_PDEATHSIG = 1
GPU_DEVICES = ("/dev/nvidia", "/dev/kfd")
NICE = 5
READ_BYTES = 65536
IMPORTED = Imported()
"""Modules of this kernel; a branch has its origin's."""


@dataclass
class Saver:
    """A process that saves."""

    pid: int
    result: int
    """The end of a pipe at which the process reports a failure; it is closed when the process ends."""
    text: bytes = field(default=b"")


class SnapshotRequests:
    """Requests of the host to one kernel."""

    def __init__(self, shell: Any, requests: Any) -> None:
        self.shell = shell
        self.requests = requests
        self.salt = os.urandom(8).hex()
        self.wanted: dict[str, dict[str, Any]] = {}
        self.savers: dict[str, Saver] = {}
        self.lock = threading.Lock()
        """Guards the savers: the main thread forks, the control thread hears of their end."""
        self.control_loop: asyncio.AbstractEventLoop | None = None
        shell.kernel.control_handlers["freeact_snapshot"] = self.on_message

    def on_message(self, _stream: Any, _idents: Any, message: dict[str, Any]) -> None:
        """Take a request. Called in the control thread."""
        content = message["content"]
        snapshot_id = content["id"]
        if content["op"] == "begin":
            self.control_loop = asyncio.get_running_loop()
            self.wanted[snapshot_id] = content
            self.requests.when_main_thread_waits(lambda: self.begin(snapshot_id))
        else:
            with self.lock:
                self.wanted.pop(snapshot_id, None)
            self.end(snapshot_id)

    def say(self, snapshot_id: str, **content: Any) -> None:
        """Report to the host."""
        kernel = self.shell.kernel
        kernel.session.send(kernel.iopub_socket, "freeact_snapshot", {"id": snapshot_id, **content})

    def begin(self, snapshot_id: str) -> None:
        """Begin a snapshot. Called in the main thread. In the process that saves it does not return."""
        with no_interrupts():
            with self.lock:
                request = self.wanted.pop(snapshot_id, None)
                started = time.perf_counter()
                IMPORTED.look()
                reason = why_not_forked() if request is not None else ""
                if request is not None and not reason:
                    try:
                        self.savers[snapshot_id] = self.fork(request)
                    except OSError as error:
                        reason = f"it could not be forked: {error}"
            if request is None:
                return
            if reason:
                self.save_here(snapshot_id, request, reason, started)
            elif self.control_loop is not None:
                self.say(snapshot_id, state="begun", pause=time.perf_counter() - started, reason="")
                self.control_loop.call_soon_threadsafe(self.watch, snapshot_id)

    def fork(self, request: dict[str, Any]) -> Saver:
        """Start the process that saves.

        Raises:
            OSError: The system has no room for one more.
        """
        origin = os.getpid()
        result, result_writer = os.pipe()
        OWN_ENDS.add(os.fstat(result).st_ino)
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        pid = -1
        try:
            with hook.nothing_asked(), HALVES.forking_for_kernel():
                pid = os.fork()
            if pid == 0:
                be_saver(self, request, origin, result_writer)
            OWN_CHILDREN.add(pid)
        finally:
            os.close(result_writer)
            if pid < 0:
                self.close(result)
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        with contextlib.suppress(OSError):  # it has done so itself, or has ended
            os.setpgid(pid, pid)
        return Saver(pid, result)

    @staticmethod
    def close(result: int) -> None:
        """Close the kernel's end of a pipe."""
        inode = os.fstat(result).st_ino
        os.close(result)
        OWN_ENDS.discard(inode)

    def save_here(self, snapshot_id: str, request: dict[str, Any], reason: str, started: float) -> None:
        """Save in the main thread what its limits allow."""
        problem = ""
        try:
            Writer(self.shell, self.salt, IMPORTED.told, {**request, **request["here"]}).write()
        except Exception as error:  # noqa: BLE001  # border: whatever fails, the host is told
            problem = reason_of(error)
        self.say(snapshot_id, state="begun", pause=time.perf_counter() - started, reason=reason)
        self.say(snapshot_id, state="ended", problem=problem)

    def watch(self, snapshot_id: str) -> None:
        """Listen for the end of the process. Called in the control thread."""
        saver = self.savers.get(snapshot_id)
        if saver is not None and self.control_loop is not None:
            self.control_loop.add_reader(saver.result, self.on_result, snapshot_id)

    def on_result(self, snapshot_id: str) -> None:
        """Take a report or the end of the process. Called in the control thread."""
        saver = self.savers.get(snapshot_id)
        if saver is None:
            return
        text = os.read(saver.result, READ_BYTES)
        if text and len(saver.text) < READ_BYTES:
            saver.text += text
        else:
            self.end(snapshot_id)

    def end(self, snapshot_id: str) -> None:
        """End the process, if it has not ended, and tell the host. Called in the control thread."""
        with self.lock:
            saver = self.savers.pop(snapshot_id, None)
        problem = ""
        if saver is not None:
            if self.control_loop is not None:
                self.control_loop.remove_reader(saver.result)
            self.close(saver.result)
            for kill in (os.killpg, os.kill):
                with contextlib.suppress(OSError):
                    kill(saver.pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):  # code in the kernel was quicker
                os.waitpid(saver.pid, 0)
            OWN_CHILDREN.discard(saver.pid)
            problem = saver.text.decode(errors="replace")
        self.say(snapshot_id, state="ended", problem=problem)


def be_saver(snapshots: SnapshotRequests, request: dict[str, Any], origin: int, result_writer: int) -> None:
    """Be the process that saves. Does not return."""
    try:
        os.setpgid(0, 0)
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != origin:
            os._exit(1)
        gc.disable()  # to look at objects is to copy their pages
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # one that was for the kernel may wait
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        leave(result_writer, snapshots.requests)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.nice(NICE)
        Writer(snapshots.shell, snapshots.salt, IMPORTED.told, request).write()
        os._exit(0)
    except BaseException as error:  # noqa: BLE001  # border: the end of a process; the host is told why
        with contextlib.suppress(OSError):
            os.write(result_writer, reason_of(error).encode())
    finally:
        os._exit(1)


def leave(result_writer: int, requests: Any) -> None:
    """Let go of all that is the kernel's: its files, so that they can be closed, its output, its host."""
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    os.closerange(3, result_writer)
    os.closerange(result_writer + 1, 1 << 20)
    sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115  # for the rest of the process's life
    for watch in hook.WATCHES:
        watch.line.theirs = None
        watch.asking.now = False

    def refuse(*_: Any) -> None:
        raise RuntimeError("requests to the host fail while variables are saved")

    requests.send = refuse


def why_not_forked() -> str:
    """Return why no process can be forked that reads all of the kernel's memory; empty: it can."""
    if not os.path.isdir("/proc/self/fd"):
        return "the kernel runs on a system on which it cannot be forked: it has no `/proc`"
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            if os.readlink(f"/proc/self/fd/{name}").startswith(GPU_DEVICES):
                return "it uses a GPU, whose memory a fork cannot read"
    return ""


@contextlib.contextmanager
def no_interrupts() -> Iterator[None]:
    """Delay interrupts until the end of the block: inside it they would lose a process of ours."""
    interrupts: list[Any] = []
    handler = signal.signal(signal.SIGINT, lambda *arguments: interrupts.append(arguments))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if interrupts:
            signal.raise_signal(signal.SIGINT)
