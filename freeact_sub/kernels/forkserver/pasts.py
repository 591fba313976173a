"""`%kernel_undo`: before each cell a kernel forks itself, and the fork can take its place later.

A past sleeps as a child of the fork server (`pipes.py`), without any descriptor of its origin, until it is woken: the origin
has ended, and the past binds the origin's sockets, so that front ends find the kernel at the same addresses. It goes on with
the variables and the history of before that cell, and with the older pasts. Files, and what programs do, are not undone.

Loaded by `server.py`; it needs IPython and the standard library only.
"""

import builtins
import contextlib
import importlib
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

MOST = 10
FREE_SHARE = 0.1
"""Of the machine's memory; where less is free, only the latest past is kept."""
CLOSE_SECONDS = 3.0
CONNECT_SECONDS = 5.0
RECONNECT_SECONDS = 0.25
"""zmq tries to connect again after 0.1 to 0.2 s."""
PAUSE_SECONDS = 0.005
NOTE = "undo.json"
FIRST_TO_END = b"1000"
"""What Linux ends first when memory is short: a past, not the kernel."""
USAGE = "%kernel_undo [N] goes back to before the last cell, or the last N; %kernel_undo ? lists what is kept"


HERE: list["Pasts"] = []
"""Those of this kernel, if it can have any."""
BESIDE: list[Any] = []
"""What serves something in a thread that stands still at a fork, and is nothing in the past.

It has `threads`, `standing_still`, a context manager that raises an error with the reason if it cannot, and `close`."""


class Pasts:
    """The pasts of this kernel, which it can go back to."""

    def __init__(self, app: Any, request: dict[str, Any], pipe: int) -> None:
        """Args: request: with which the kernel was started. pipe: to the server."""
        self.app, self.request, self.pipe = app, request, pipe
        self.me, self.server = os.getpid(), os.getppid()
        self.frames = sys.getrecursionlimit()
        self.note = os.path.join(os.path.dirname(request["connection"]["ip"]), NOTE)
        """What the kernel before this one had to answer."""
        self.kept: list[tuple[int, int, str]] = []
        """For each of the latest cells its number, and its past; 0, and the reason, if there is none."""
        self.is_in_cell = False
        """The last of them is that of the cell that runs."""
        shell = app.shell
        shell.register_magic_function(self.kernel_undo, magic_kind="line", magic_name="kernel_undo")
        shell.events.register("pre_run_cell", self.before_cell)
        HERE[:] = [self]

    def before_cell(self, info: Any) -> None:
        """Keeps this kernel as it is."""
        if os.getpid() != self.me or hasattr(builtins, "agent"):  # a copy, or a kernel of an agent
            return
        self.app.iopub_thread.latest_status = None
        self.is_in_cell = bool(getattr(info, "store_history", False))
        if self.is_in_cell:
            try:
                past, reason = self.keep()
            except OSError as error:
                past, reason = 0, f"no process can be started: {error}"
            self.kept.append((next_number(self.app.shell), past, reason))
            self.drop_oldest()

    def keep(self) -> tuple[int, str]:
        """Forks; the past never returns from here. Returns: it, or 0 and why there is none."""
        brancher = sys.modules["freeact_brancher"]
        if threading.current_thread() is not threading.main_thread():
            return 0, "its cell ran in a thread"
        if reason := brancher.unsafe(self.app, [thread for beside in BESIDE for thread in beside.threads()]):
            return 0, reason
        with contextlib.ExitStack() as stack:
            try:
                for beside in BESIDE:
                    stack.enter_context(beside.standing_still())
            except Exception as error:  # noqa: BLE001  # border: the cell has nothing to do with it
                return 0, str(error)
            return self.forked(brancher), ""

    def forked(self, brancher: Any) -> int:
        """Forks. Returns: the past."""
        for stream in (self.app.kernel._stdout, self.app.kernel._stderr):
            stream.flush()
        state = random.getstate()  # a fork begins another series
        brancher.prctl(brancher.PR_SET_CHILD_SUBREAPER, 0)
        try:
            between, past = brancher.fork_reporting(lambda writer: self.be_between(writer, state))
            brancher.reap(between)
        finally:
            brancher.prctl(brancher.PR_SET_CHILD_SUBREAPER, 1)
        return int(past)

    def be_between(self, writer: int, state: Any) -> None:
        """Forks the past, which falls to the server when this process ends."""
        brancher = sys.modules["freeact_brancher"]
        past = brancher.fork_quietly()
        if past == 0:
            brancher.live_and_exit(lambda: self.sleep_and_live(state))
        os.write(self.pipe, b"past %d\n" % past)
        os.write(writer, b"%d" % past)

    def sleep_and_live(self, state: Any, log: str | None = None, begin: Callable[[], None] = lambda: None) -> None:
        """The life of a past.

        Args:
            state: That of `random`.
            log: See `leave_descriptors`.
            begin: Called when it has taken the place of the kernel, before the next cell.
        """
        detach, brancher, app = sys.modules["freeact_detach"], sys.modules["freeact_brancher"], self.app
        os.setsid()
        old = app.kernel
        loop = importlib.import_module("tornado.ioloop").IOLoop.current().asyncio_loop
        # at once: whoever waits for the end of a pipe or a connection of the origin would wait for this process too
        detach.leave_descriptors(log, old, self.pipe, None)
        usual = b"0"
        with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "r+b", buffering=0) as file:
            usual = file.read()
            file.write(FIRST_TO_END)
        signal.sigwait([signal.SIGUSR1])
        brancher.prctl(brancher.PR_SET_PDEATHSIG, signal.SIGKILL)
        brancher.prctl(brancher.PR_SET_CHILD_SUBREAPER, 1)
        if os.getppid() != self.server:
            raise SystemExit(1)
        with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "wb", buffering=0) as file:
            file.write(usual)
        self.me, self.is_in_cell = os.getpid(), False
        BESIDE.clear()
        random.setstate(state)
        sys.setrecursionlimit(self.frames + depth())  # what is below this frame is never returned to
        detach.become_again(app, loop, self.request, old, self.answer)
        app.shell.execution_count = next_number(app.shell)
        begin()
        app.start()

    def answer(self) -> None:
        """Answers the cell that wanted this: who waits for it could not have been sure before that this kernel hears it."""
        zmq: Any = importlib.import_module("zmq")
        app = self.app
        with open(self.note, "rb") as file:
            note = self.app.session.unpack(file.read())
        os.unlink(self.note)
        if "environment" in note:
            os.environb.clear()
            os.environb.update(
                {name.encode("latin-1"): value.encode("latin-1") for name, value in note["environment"].items()}
            )
        parent = note["parent"]
        idle = app.session.msg("status", {"execution_state": "idle"}, parent)
        app.iopub_thread.latest_status = app.session.serialize(idle, ident=b"kernel.status")
        content = {"status": "ok", "execution_count": note["execution_count"], "user_expressions": {}, "payload": []}
        asker = [bytes.fromhex(part) for part in note["asker"]]
        socket, end = app.shell_socket, time.monotonic() + CONNECT_SECONDS
        time.sleep(RECONNECT_SECONDS)  # of the channel for input, nothing tells whether the front end is there
        while not app.iopub_thread.has_subscriber() and time.monotonic() < end:
            time.sleep(PAUSE_SECONDS)
        socket.router_mandatory = 1
        while time.monotonic() < end:
            try:
                app.session.send(socket, "execute_reply", content, parent, ident=asker)
                break
            except zmq.ZMQError:  # nobody of that name has connected yet
                time.sleep(PAUSE_SECONDS)
        socket.router_mandatory = 0

    def drop_oldest(self) -> None:
        """Ends those that are too many."""
        most = MOST if free_share() > FREE_SHARE else 1
        for _, past, _ in self.kept[: -most - 1]:
            if past:
                os.write(self.pipe, b"drop %d\n" % past)
        del self.kept[: -most - 1]

    def kernel_undo(self, line: str) -> None:
        """`%kernel_undo [N]`: goes back to before the last cell, or to before the last N of them. `?` lists what is kept."""
        usage_error = importlib.import_module("IPython.core.error").UsageError
        cells = self.kept[:-1] if self.is_in_cell else self.kept
        if line.strip() == "?":
            show(cells)
            return
        if os.getpid() != self.me:
            raise usage_error("%kernel_undo: this is a copy of a kernel, which has no past")
        if line.strip() and not line.strip().isdecimal():
            raise usage_error(f"%kernel_undo: {line.strip()} is not a number of cells: {USAGE}")
        number = int(line.strip() or 1)
        if not 1 <= number <= len(cells):
            raise usage_error(f"%kernel_undo: there are {len(cells)} cells to go back, of at most {MOST}")
        count, past, reason = cells[-number]
        if past and not is_there(past):
            reason = "what was kept of it is gone, for the machine had too little memory"
        if reason:
            raise usage_error(f"%kernel_undo: it cannot go back to before cell {count}: {reason}")
        print(f"The kernel goes back to before cell {count}.")  # noqa: T201  # IPython's way
        self.give_place(past)

    def give_place(self, past: int, **more: Any) -> None:
        """Ends this kernel with the cell that runs; a past takes its place, and answers the cell.

        Args:
            past: Which one.
            more: What it is told besides. See `answer`.
        """
        for beside in BESIDE:  # while the cell runs: what is sent meanwhile waits, and is aborted with the rest
            beside.close()
        note = sys.modules["freeact_borrowed_app"].hold_answer(self.app.kernel, self.leave)
        with open(os.open(self.note, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "wb") as file:
            file.write(self.app.session.pack({**note, **more}))
        os.write(self.pipe, b"next %d\n" % past)

    def take(self, successor: int) -> None:
        """A fork of this kernel's copy is to take its place, and can go back to what was before this cell.

        What is more than this kernel's grandchild is not taken by the server.
        """
        os.write(self.pipe, b"past %d\n" % successor)
        # only now: as long as it belongs to an agent, it has no environment of the user's; bytes, as text of Latin-1
        environment = {name.decode("latin-1"): value.decode("latin-1") for name, value in os.environb.items()}
        self.give_place(successor, environment=environment)

    def leave(self) -> None:
        """Ends this kernel: all that was sent to it is answered, and all that it has sent is on its way."""
        ending = threading.Timer(CLOSE_SECONDS, os._exit, (0,))
        ending.daemon = True
        ending.start()
        try:
            self.app.close()
        finally:
            os._exit(0)


def next_number(shell: Any) -> int:
    """The number of the next cell, which IPython may have counted already."""
    return len(shell.history_manager.input_hist_parsed)


def depth() -> int:
    """The number of frames below the caller's."""
    frame, number = sys._getframe(1), 0
    while frame.f_back is not None:
        frame, number = frame.f_back, number + 1
    return number


def show(cells: list[tuple[int, int, str]]) -> None:
    """Prints what each past costs."""
    for count, past, reason in cells:
        print(f"before cell {count}: {reason or f'{own_megabytes(past):.1f} MB'}")  # noqa: T201  # the same


def own_megabytes(pid: int) -> float:
    """The memory of a process, of which it has a part of what it shares with others."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/smaps_rollup") as file:
        return sum(int(line.split()[1]) for line in file if line.startswith("Pss:")) / 1024
    return 0.0


def is_there(pid: int) -> bool:
    """Whether a process lives."""
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True


def free_share() -> float:
    """The part of the machine's memory that is available."""
    sizes = {}
    with contextlib.suppress(OSError), open("/proc/meminfo") as file:
        for line in file:
            name, _, value = line.partition(":")
            sizes[name] = int(value.split()[0])
            if "MemAvailable" in sizes:
                return sizes["MemAvailable"] / sizes["MemTotal"]
    return 1.0
