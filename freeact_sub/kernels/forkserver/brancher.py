"""Branches: forks a running kernel with all its variables; the fork becomes a kernel of its own. Linux only.

The host asks on the control channel (`freeact_branch`: `fork`, then `seat`, or `abandon`) and is answered on iopub. The fork
is made in the main thread, in which cells run, at the next moment at which that waits: in its loop (idle, or a cell that
awaits), or in a request of a cell to its host that blocks. `detach.py` then makes the fork a kernel. The fork never returns
into the frames below: the cell that waits there continues in the origin only.

Ownership: a branch must not end with its origin, so it may not stay a child of it. The origin forks a process between, which
forks the branch; when the fork server expects the branch, the process between is killed. The branch then falls to the next
subreaper, which is the server, for the origin steps aside from being one for that moment. (A daemon whose parent ends in the
same moment falls to the server too, and is killed when the next kernel ends. `CLONE_PARENT` would need no such step, but
only the C library's own `fork` leaves its locks usable.)

A lock that is held at the fork stays held in the branch. All threads at that moment are the kernel's own, or the fork is
refused. They may hold locks of the C library, of `logging`, `threading` and the standard streams, each of which sees to a
fork itself; locks of the output streams, of iopub, of zmq and of the guest, which the branch makes anew; and the lock of a
module that one of them is importing for the first time, of which there is none after the kernel's first messages. Locks that
the waiting cell itself holds stay held in the branch: no code will leave its `with`.
"""

import contextlib
import ctypes
import mmap
import os
import signal
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable
from typing import Any, NoReturn

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
LIBC = ctypes.CDLL(None)
GPU_DEVICES = ("/dev/nvidia", "/dev/kfd")
"""Devices that are open in a process that uses a GPU, whatever the library."""
GNU_OPENMP = "libgomp"
"""The OpenMP whose fork waits for ever for threads that are not there; OpenBLAS and other OpenMPs start new ones."""
OMP_PAUSE_HARD = 2
LOOK_SECONDS = 0.02
"""Seconds between two looks at a thread: one that wants the interpreter is woken each 0.005 s to ask for it."""
REPORT_BYTES = 300
POLARS_THREADS = "polars-"
ZMQ_THREADS = "ZMQbg"
ROOM_BYTES = 16 << 20
"""Memory that a branch needs besides its origin's; some 0.5 MB were enough. Without it zmq aborts, and a thread that finds
no memory for its first frame ends unheard: `Thread.start` waits for ever."""


class Brancher:
    """The maker of this kernel's branches."""

    def __init__(self, app: Any, requests: Any) -> None:
        self.app = app
        self.requests = requests
        self.kernel = app.kernel
        self.wanted: dict[str, dict[str, Any]] = {}
        self.forked: dict[str, tuple[int, int, int]] = {}
        """The intermediate process, the branch and its pipe, by request, until the server adopts the branch."""
        self.lock = threading.Lock()
        """The lock that the main thread holds while it forks, and the control thread while it gives a branch away."""
        self.kernel.control_handlers["freeact_branch"] = self.on_message
        sys.modules["freeact_guest.trial"].note_own_ends()

    def on_message(self, _stream: Any, _idents: Any, message: dict[str, Any]) -> None:
        """Handles a message of the host, in the control thread."""
        content = message["content"]
        branch_id = content["id"]
        try:
            if content["op"] == "fork":
                self.wanted[branch_id] = content
                self.requests.when_main_thread_waits(lambda: self.fork(branch_id))
            elif content["op"] == "seat":
                self.seat(branch_id)
            else:
                self.abandon(branch_id)
        except Exception as error:  # noqa: BLE001  # border: the host waits for a reply, whatever has gone wrong here
            self.say(branch_id, state="refused", reason=why(error))

    def say(self, branch_id: str, **content: Any) -> None:
        """Reports to the host."""
        kernel = self.kernel
        kernel.session.send(kernel.iopub_socket, "freeact_branch", {"id": branch_id, **content})

    def fork(self, branch_id: str) -> None:
        """Forks, in the main thread. In the branch it does not return."""
        interrupts: list[Any] = []
        handler = signal.signal(signal.SIGINT, lambda *arguments: interrupts.append(arguments))
        try:
            with self.lock, sys.modules["freeact_guest.hook"].nothing_asked():
                request = self.wanted.pop(branch_id, None)
                reply = self.reply(branch_id, request) if request is not None else None
            if reply is not None:
                self.say(branch_id, **reply)
        finally:
            signal.signal(signal.SIGINT, handler)
            if interrupts:  # one of them counts, and now it cannot lose a process of ours
                signal.raise_signal(signal.SIGINT)

    def reply(self, branch_id: str, request: dict[str, Any]) -> dict[str, Any]:
        """Forks if possible, and returns the reply for the host."""
        try:
            reason = unsafe(self.app, is_trial=request["trial"] is not None)
            if not reason and request["trial"] is not None:
                reason = sys.modules["freeact_guest.trial"].reason_against(request["moved"][0])
            if not reason:
                forked = self.forked[branch_id] = self.fork_twice(request)
                return {"state": "forked", "pid": forked[1]}
        except Exception as error:  # noqa: BLE001  # border: the host waits for a reply, and the cell has nothing to do with it
            reason = why(error)
        return {"state": "refused", "reason": reason}

    def fork_twice(self, request: dict[str, Any]) -> tuple[int, int, int]:
        """Forks the process between and the branch; returns an item of `forked`.

        Raises:
            OSError: The system has no room for two more processes.
        """
        for stream in (self.kernel._stdout, self.kernel._stderr):
            stream.flush()
        me, server = os.getpid(), os.getppid()
        waits, go = os.pipe()
        line = sys.modules["freeact_guest.line"]
        line.OWN_ENDS.add(os.fstat(go).st_ino)
        others = [other for _, _, other in self.forked.values()]

        def between_life(result_writer: int) -> None:
            for end in (go, *others):  # held here, they would keep other branches waiting when the origin has ended
                os.close(end)
            be_between(self, request, me, server, result_writer, waits)

        try:
            between, branch = fork_reporting(between_life)
        except BaseException:
            let_go(go)
            raise
        finally:
            os.close(waits)
        line.OWN_CHILDREN.update((between, branch))
        return between, branch, go

    def seat(self, branch_id: str) -> None:
        """Gives the branch to the fork server."""
        with self.lock:  # the next branch, which may be forked now, closes the pipes that are open at its fork
            forked = self.forked.get(branch_id)
            if forked is None:
                return
            between, _, go = forked
            try:
                prctl(PR_SET_CHILD_SUBREAPER, 0)
                try:
                    kill(between)
                    reap(between)
                finally:
                    prctl(PR_SET_CHILD_SUBREAPER, 1)
                with contextlib.suppress(BrokenPipeError):  # it was killed
                    os.write(go, b"g")
            except BaseException:
                self.end(branch_id)
                raise
            del self.forked[branch_id]
            let_go(go, *forked[:2])
        self.say(branch_id, state="seated")

    def abandon(self, branch_id: str) -> None:
        """Drops a branch that is no longer wanted."""
        with self.lock:
            self.wanted.pop(branch_id, None)
            self.end(branch_id)
        self.say(branch_id, state="abandoned")

    def end(self, branch_id: str) -> None:
        """Ends a branch if it is still ours."""
        forked = self.forked.pop(branch_id, None)
        if forked is not None:
            between, branch, go = forked
            for pid in (branch, between):
                kill(pid)
            for pid in (between, branch):  # the second is our child once the first has ended
                reap(pid)
            let_go(go, between, branch)


def let_go(end: int, *processes: int) -> None:
    """Closes the origin's end of a pipe to a branch. Args: processes: of the branch, which are not ours any more."""
    line = sys.modules["freeact_guest.line"]
    inode = os.fstat(end).st_ino
    os.close(end)
    line.OWN_ENDS.discard(inode)
    line.OWN_CHILDREN.difference_update(processes)


def be_between(
    brancher: Brancher, request: dict[str, Any], origin: int, server: int, result_writer: int, waits: int
) -> None:
    """Runs the intermediate process: it forks the branch, reports it, and waits to be killed. Does not return."""
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != origin:
        return
    branch = fork_quietly()
    if branch == 0:
        os.close(result_writer)
        be_branch(brancher, request, server, waits)
    os.write(result_writer, b"%d" % branch)
    while True:
        signal.pause()


def be_branch(brancher: Brancher, request: dict[str, Any], server: int, waits: int) -> None:
    """Runs a branch. Does not return."""

    def life() -> None:
        os.setsid()
        prctl(PR_SET_CHILD_SUBREAPER, 1)
        sys.modules["freeact_detach"].become_kernel(brancher.app, brancher.requests, request, waits)
        Brancher(brancher.app, brancher.requests)
        seated = os.read(waits, 1)  # the process between is gone; nothing comes if the origin ends before
        os.close(waits)
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if not seated or os.getppid() != server:
            raise SystemExit(1)
        brancher.app.start()

    live_and_exit(life)


def live_and_exit(life: Callable[[], None]) -> NoReturn:
    """Runs the life of a forked kernel, and exits without the clean-up of the process it was forked from."""
    code = 1
    try:
        life()
        code = 0
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 0
    except BaseException:  # noqa: BLE001  # border: the end of a kernel's process; its log says why
        traceback.print_exc(file=sys.__stderr__)
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
        os._exit(code & 0xFF)


def unsafe(app: Any, *, is_trial: bool = False) -> str:
    """Returns why this kernel must not be forked now, if so.

    Args:
        app: The kernel's app.
        is_trial: The fork lives for one cell only, so that it can do without threads that wait.
    """
    sys.modules["freeact_borrowed_app"].end_idle_script_loop(app.shell)
    own = {threading.main_thread(), *own_threads(app)}
    line = sys.modules["freeact_guest.line"]
    others = [
        thread
        for thread in threading.enumerate()
        if thread not in own and not isinstance(thread, line.LineThread) and not line.is_idle_worker(thread)
    ]
    if is_trial:
        waiting = those_that_wait(others)
        sys.modules["freeact_guest.trial"].left_threads[:] = sorted(thread.name for thread in waiting)
        others = [thread for thread in others if thread not in waiting]
    if others:
        named = ", ".join(sorted(described(app.shell, thread) for thread in others)[:5])
        return f"it has other threads, whose work would stop half way in a branch: {named}"
    if not has_room(ROOM_BYTES):
        return f"less than {ROOM_BYTES >> 20} MB are left to it of what kernel.memory_bytes allows"
    if app.kernel.eventloop is not None:
        return "it runs the event loop of a window system (%gui), whose connection cannot be shared"
    if uses_gpu(open_files()):
        return "it uses a GPU, and what is on it cannot be forked"
    if threads := threads_lost():
        return f"it has threads of {threads}, which do not survive a fork"
    return ""


def those_that_wait(threads: list[threading.Thread]) -> set[threading.Thread]:
    """Returns the threads that are blocked in a system call all the time: for a queue, an event, a lock, a time.

    They hold no lock of a C library: such code does not sleep with one. A thread that computes, or wants to go on, is woken
    again and again by its wait for the interpreter. One that imports something holds the lock of a module.
    """
    frames = sys._current_frames()
    asleep = {
        thread: moment for thread in threads if (moment := sleeping(thread)) and not imports(frames.get(thread.ident or 0))
    }
    if asleep:
        time.sleep(LOOK_SECONDS)
    return {thread for thread, moment in asleep.items() if sleeping(thread) == moment}


def sleeping(thread: threading.Thread) -> tuple[str, ...]:
    """Returns how often a thread has been woken, if it sleeps now."""
    try:
        with open(f"/proc/self/task/{thread.native_id}/status") as file:
            fields = dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)
    except OSError:
        return ()
    switches = fields.get("voluntary_ctxt_switches", ""), fields.get("nonvoluntary_ctxt_switches", "")
    return switches if fields.get("State", "").startswith("S") else ()


def imports(frame: Any) -> bool:
    """Returns whether a stack is within an import."""
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


def described(shell: Any, thread: threading.Thread) -> str:
    """Returns the name of a thread, and the cell whose function it runs."""
    frame: Any = sys._current_frames().get(thread.ident or 0)
    name = thread.name
    while frame is not None:
        if (number := _cell_of(shell, frame.f_code.co_filename)) is not None:
            name = f"{thread.name} (of the cell In[{number}])"
        frame = frame.f_back
    return name


def _cell_of(shell: Any, filename: str) -> int | None:
    """Returns the number of the newest cell whose code has this file name."""
    from ipykernel.compiler import get_file_name  # noqa: PLC0415  # only kernels have it

    cells = [*enumerate(shell.history_manager.input_hist_raw)]
    return next((number for number, code in reversed(cells) if filename in map(get_file_name, (code, f"{code}\n"))), None)


def own_threads(app: Any) -> list[Any]:
    """Returns the threads that belong to the kernel itself."""
    return [app.iopub_thread.thread, app.control_thread, app.shell_channel_thread, app.heartbeat]


def why(error: Exception) -> str:
    """Returns the host's message for an unexpected error."""
    return f"it could not be forked: {error if isinstance(error, OSError) else repr(error)}"


def has_room(size: int) -> bool:
    """Returns whether this process may have so many bytes more."""
    try:
        mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS).close()
    except OSError:
        return False
    return True


def open_files() -> list[str]:
    """Returns the targets of the descriptors of this process."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            found.append(os.readlink(f"/proc/self/fd/{name}"))
    return found


def uses_gpu(paths: list[str]) -> bool:
    """Returns whether one of the open files is a GPU."""
    return any(path.startswith(GPU_DEVICES) for path in paths)


def threads_lost() -> str:
    """Returns the library whose missing threads a fork would wait for, if any.

    The idle threads of GNU OpenMP are ended; it starts new ones when they are needed. One from before GCC 9 cannot do that.
    """
    foreign = names_of_foreign_threads()
    if any(name.startswith(POLARS_THREADS) for name in foreign):
        return "polars"
    return "GNU OpenMP" if foreign and not all(map(ends_openmp_threads, mapped(GNU_OPENMP))) else ""


def names_of_foreign_threads() -> list[str]:
    """Returns the names of threads that neither Python nor zmq has started."""
    known = {thread.native_id for thread in threading.enumerate()}
    found = []
    for name in os.listdir("/proc/self/task"):
        with contextlib.suppress(OSError):
            if int(name) not in known:
                with open(f"/proc/self/task/{name}/comm") as file:
                    found.append(file.read().rstrip("\n"))
    return [name for name in found if not name.startswith(ZMQ_THREADS)]


def ends_openmp_threads(library: str) -> bool:
    """Ends the threads that a GNU OpenMP keeps for this thread. Returns False if it cannot. Args: library: its path."""
    try:
        return not ctypes.CDLL(library, mode=os.RTLD_NOLOAD).omp_pause_resource_all(OMP_PAUSE_HARD)
    except (OSError, AttributeError):
        return False


def mapped(library: str) -> list[str]:
    """Returns the paths of the loaded libraries with this in their names."""
    with open("/proc/self/maps") as file:
        return sorted({line.rstrip("\n").split(maxsplit=5)[5] for line in file if library in line})


def fork_reporting(life: Callable[[int], None]) -> tuple[int, int]:
    """Forks a process that forks another one, and waits for its report.

    Args:
        life: Runs the first process; it writes the process id of the second one to this descriptor, or why there is none.

    Returns:
        The process ids of both.

    Raises:
        OSError: The system has no room for two more processes.
    """
    result, result_writer = os.pipe()
    # an interrupt, which goes to the whole group, is for the origin only
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        between = fork_quietly()
        if between == 0:
            os.close(result)
            be_first(life, result_writer)
        os.close(result_writer)
        result_writer = -1
        report = os.read(result, REPORT_BYTES)
        if not report.isdigit():
            reap(between)
            raise OSError(report.decode(errors="replace") or "the process between ended")
    finally:
        os.close(result)
        if result_writer >= 0:
            os.close(result_writer)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    return between, int(report)


def be_first(life: Callable[[int], None], result_writer: int) -> NoReturn:
    """Lives the life of the process between, and reports its failure."""
    try:
        life(result_writer)
    except BaseException as error:  # noqa: BLE001  # border: the end of this process
        reason = (isinstance(error, OSError) and error.strerror) or str(error)
        with contextlib.suppress(OSError):
            os.write(result_writer, reason.encode()[:REPORT_BYTES])
    finally:
        os._exit(1)


def fork_quietly() -> int:
    """Forks without a warning about threads, which were checked before."""
    halves = sys.modules.get("freeact_guest.halves")  # not there where the kernel is none of ours
    quiet = contextlib.nullcontext() if halves is None else halves.HALVES.forking_for_kernel()
    with warnings.catch_warnings(), quiet:
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def kill(pid: int) -> None:
    """Kills a process of ours."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def reap(pid: int) -> None:
    """Waits for a child's end; code in the kernel may have been quicker."""
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, 0)


def prctl(option: int, value: int) -> None:
    """Calls `prctl`; Linux only, as all of this."""
    LIBC.prctl(option, value, 0, 0, 0)
