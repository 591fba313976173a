"""`ForkServer`: the host's end of a fork server.

One server for each key: the Python, the modules to preload, the environment. The server itself (`server.py`) is
started through the process guard, so that neither `kill -9` of this process nor of the server leaves anything behind.
"""

import asyncio
import contextlib
import importlib.resources
import itertools
import json
import logging
import os
import signal
import socket
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from freeact_sub.config.project_texts import SkillModule
from freeact_sub.errors import KernelStartError
from freeact_sub.kernels.guest import guest_source
from freeact_sub.pythons.about import lent
from freeact_sub.system.closing import carry_out, end_guarded, end_task, end_with_loop, forget
from freeact_sub.system.guard import ENDING, GUARD_COMMAND
from freeact_sub.system.private_folders import ENTRIES_AT_ONCE, make_folder, remove_soon
from freeact_sub.system.process import missing_for_forks
from freeact_sub.system.removal import remove

LINE_LIMIT: Final = 1 << 20
START_SECONDS: Final = 60.0
CLOSE_SECONDS: Final = 5.0
HUGE_PAGES: Final = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
"""A variable for huge pages: a large piece of memory has 512 times fewer pages, and a fork, which copies the list of them,
takes 2 ms of CPU for 1 GB, not 26. Changes of a branch are copied in small pages all the same. Programs that kernels
start do not get it."""
LAY_SECONDS: Final = 30.0
DROP_SECONDS: Final = 5.0

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class ForkKey:
    """Settings that are fixed when the server starts: kernels with other values need another server."""

    python: str
    preload: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    skills: tuple[SkillModule, ...] = ()
    """The Python of skills, if modules of it are to be preloaded."""


class ForkUnsafeError(KernelStartError):
    """Forking is not safe here, for example because a preloaded module has started threads; the message says why."""


@dataclass(frozen=True, kw_only=True)
class ServedKernel:
    """A kernel of a fork server."""

    pid: int
    bound: asyncio.Future[None]
    ended: asyncio.Future[int]
    """The exit code, negative for a signal; by then everything that the kernel has started is gone too."""


class ForkServer:
    """A running fork server and the kernels that came from it."""

    def __init__(self, key: ForkKey) -> None:
        self.key = key
        self._folder = make_folder()
        self._process: subprocess.Popen[bytes] | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._reading: asyncio.Task[None] | None = None
        self._numbers = itertools.count()
        self.starting: dict[int, asyncio.Future[ServedKernel]] = {}
        self.kernels: dict[int, ServedKernel] = {}
        self.laying: dict[int, asyncio.Future[str]] = {}
        self.ready: Mapping[str, Any] = {}
        """The server's first message, sent when it is ready."""
        self.alive = False

    @property
    def pid(self) -> int | None:
        """Process id of the server's guard."""
        return self._process.pid if self._process else None

    async def open(self) -> None:
        """Starts the server and waits until it can fork.

        Raises:
            ForkUnsafeError: This system lacks what it needs, or it came up with threads.
            KernelStartError: It did not come up.
            UnusablePythonError: Its Python cannot run kernels at all.
        """
        if lacks := missing_for_forks():
            raise ForkUnsafeError(f"this system has no {lacks}")
        needs = await lent(self.key.python)
        ours, theirs = socket.socketpair()
        try:
            self._start_process(theirs)
        except OSError as error:
            ours.close()
            raise KernelStartError(f"the fork server could not be started: {error}") from error
        reader, self._writer = await asyncio.open_connection(sock=ours, limit=LINE_LIMIT)
        settings = {
            "preload": list(self.key.preload),
            "guest": guest_source(),
            "skills": [asdict(module) for module in self.key.skills],
            "lent": needs.wire() if needs else None,
        }
        self._send(settings)
        try:
            async with asyncio.timeout(START_SECONDS):
                line = await reader.readline()
        except (TimeoutError, ConnectionError):
            line = b""
        if not line:
            raise KernelStartError("the fork server did not start", log=self.log_tail())
        self.ready = json.loads(line)["ready"]
        for name, reason in self.ready["failed_preloads"].items():
            logger.info("kernels start without %s preloaded: %s", name, reason)
        if self.ready["threads"] != 1:
            raise ForkUnsafeError(f"the fork server has {self.ready['threads']} threads after preloading {self.key.preload}")
        if not self.ready["prebuilt"]:
            logger.warning("kernels are forked after imports only, which is slower: %s", self.ready["reason"])
        self.alive = True
        self._reading = asyncio.create_task(self._read(reader), name="fork server")

    def _start_process(self, theirs: socket.socket) -> None:
        with theirs, (self._folder / "server.log").open("ab") as log:
            script = importlib.resources.files(__package__).joinpath("server.py")
            guard = [*GUARD_COMMAND, str(os.getpid()), "--remove", str(self._folder)]
            self._process = subprocess.Popen(
                [*guard, self.key.python, str(script), str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=HUGE_PAGES | dict(self.key.environment),
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )
        end_with_loop(self.end_with_program)

    async def start(self, request: Mapping[str, Any]) -> ServedKernel:
        """Forks a kernel and waits until it has bound its sockets."""
        kernel = await self._ask_for("start", {"umask": _umask(), **request})
        try:
            await asyncio.shield(kernel.bound)
        except BaseException:
            self.end(kernel.pid)
            raise
        return kernel

    async def adopt(self, pid: int, origin: int) -> asyncio.Future[int]:
        """Makes the server expect a branch, which its own kernel has forked of itself.

        Args:
            pid: The process id of the branch, as reported by the kernel; the server checks it.
            origin: Process id of the kernel.

        Returns:
            A future with the exit code of the branch, as of `start`.
        """
        return (await self._ask_for("adopt", {"pid": pid, "origin": origin})).ended

    async def lay(self, settings: Mapping[str, Any]) -> str:
        """Lays a copy on write over a workspace, in a process (`layer.py`) that a cancel ends.

        Returns:
            The reason of a failure; empty if there is none.

        Raises:
            TimeoutError: It took too long.
        """
        if not self.alive:
            return "the fork server has ended"
        number = next(self._numbers)
        laid = self.laying[number] = asyncio.get_running_loop().create_future()
        self._send({"op": "lay", "id": number, **settings})
        try:
            async with asyncio.timeout(LAY_SECONDS):
                return await asyncio.shield(laid)
        except BaseException:
            self._send({"op": "drop", "id": number})
            await carry_out(asyncio.wait({laid}, timeout=DROP_SECONDS))
            raise

    def new_folder(self) -> Path:
        """Makes a private folder for a kernel; it goes with the server at the latest, whatever ends that."""
        return Path(tempfile.mkdtemp(prefix="", dir=self._folder))

    def end(self, pid: int) -> None:
        """Ends a kernel, with everything it has started; `ended` tells when that is done."""
        self._send({"op": "end", "pid": pid})

    async def aclose(self) -> None:
        """Ends the server and all its kernels. Can be called again."""
        await carry_out(self._close())

    def log_tail(self) -> str:
        """Returns the end of the server's output."""
        with contextlib.suppress(OSError):
            return (self._folder / "server.log").read_text(errors="replace")[-2000:]
        return ""

    async def _ask_for(self, operation: str, request: Mapping[str, Any]) -> ServedKernel:
        if not self.alive:
            raise KernelStartError("the fork server has ended")
        number = next(self._numbers)
        started: asyncio.Future[ServedKernel] = asyncio.get_running_loop().create_future()
        self.starting[number] = started
        self._send({"op": operation, "id": number, **request})
        try:
            return await asyncio.shield(started)
        except asyncio.CancelledError:
            # the kernel will be there in a moment, and nobody wants it any more
            started.add_done_callback(self._end_unwanted)
            raise

    async def _close(self) -> None:
        self.alive = False
        try:
            if self._writer is not None:
                self._writer.close()  # the server ends at the end of its input
            if self._reading is not None:
                await end_task(self._reading)
            if self._process is not None:
                ended = asyncio.ensure_future(asyncio.to_thread(self._process.wait, 2 * CLOSE_SECONDS))
                await end_guarded(self._process, ended, timeout_seconds=CLOSE_SECONDS)
        finally:
            forget(self.end_with_program)
            self._lose_all()
            remove_soon(self._folder)

    def end_with_program(self) -> None:
        """Ends the server and removes its folder, for a program or loop that ended without closing it; waits for the end."""
        if self._process is not None:
            # the guard removes the folder too, as its last act: whichever of us is killed meanwhile, the other one does it
            with contextlib.suppress(OSError):
                (self._folder / ENDING).touch()
            self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(CLOSE_SECONDS)
        remove(str(self._folder), entries=ENTRIES_AT_ONCE)

    async def _read(self, reader: asyncio.StreamReader) -> None:
        try:
            while line := await reader.readline():
                self._receive(json.loads(line))
        except ConnectionError:
            pass
        finally:
            self.alive = False
            self._lose_all()

    def _receive(self, message: dict[str, Any]) -> None:
        loop = asyncio.get_running_loop()
        match message:
            case {"started": number, "pid": pid}:
                kernel = ServedKernel(pid=pid, bound=loop.create_future(), ended=loop.create_future())
                self.kernels[pid] = kernel
                self.starting.pop(number).set_result(kernel)
            case {"failed": number, "reason": reason} if number in self.starting:
                self.starting.pop(number).set_exception(KernelStartError(f"the kernel could not be forked: {reason}"))
            case {"failed": number, "reason": reason} | {"laid": number, "reason": reason} if number in self.laying:
                self.laying.pop(number).set_result(reason)
            case {"bound": pid}:
                _resolve(self.kernels[pid].bound, None)
            case {"ended": pid, "code": code}:
                kernel = self.kernels.pop(pid)
                _fail(kernel.bound, f"the kernel ended while it started, with exit code {code}")
                _resolve(kernel.ended, code)

    def _lose_all(self) -> None:
        """Ends all kernels: the server is gone, and so are they."""
        for started in self.starting.values():
            _fail(started, "the fork server ended")
        for kernel in self.kernels.values():
            _fail(kernel.bound, "the fork server ended")
            _resolve(kernel.ended, -signal.SIGKILL)
        for laid in self.laying.values():
            _resolve(laid, "the fork server ended")
        self.starting.clear()
        self.kernels.clear()
        self.laying.clear()

    def _end_unwanted(self, started: asyncio.Future[ServedKernel]) -> None:
        if not started.cancelled() and started.exception() is None:
            self.end(started.result().pid)

    def _send(self, message: Mapping[str, Any]) -> None:
        if self._writer is not None and not self._writer.is_closing():
            self._writer.write(json.dumps(message).encode() + b"\n")


def _fail(future: asyncio.Future[Any], reason: str) -> None:
    if not future.done():
        future.set_exception(KernelStartError(reason))
        future.exception()  # retrieved: its waiter may be gone


def _resolve(future: asyncio.Future[Any], value: Any) -> None:
    if not future.done():
        future.set_result(value)


def _umask() -> int:
    """Returns this process's file mode mask; it can only be read by setting it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
