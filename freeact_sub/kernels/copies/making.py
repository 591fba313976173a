"""`CopyMaker`: in a notebook's kernel, forks the copies that the process of its agents asks for, and ends them.

A fork is made in the main thread, between two cells or while one waits. Our only other thread stands still meanwhile, so
that no lock is held in the copy for ever.
"""

import asyncio
import concurrent.futures
import contextlib
import importlib
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

from freeact_sub.errors import KernelStartError
from freeact_sub.kernels.copies.changes import EarlierVariables
from freeact_sub.kernels.copies.forks import BareFork, kernel_app, unsafe
from freeact_sub.kernels.guest import compiled_guest
from freeact_sub.system.guard import ENDING, GUARD_COMMAND

WAIT_SECONDS: Final = 0.3
"""Seconds for the main thread to come to a copy; else none is made, for the user's cells always win."""
BUSY: Final = "your kernel is running a cell, and an agent does not wait for it"


class CopyMaker:
    """Maker of copies of this kernel. Its methods are called in the thread that serves the agents' process."""

    def __init__(self, shell: Any, forget: Callable[[], None]) -> None:
        """Args: shell: the `InteractiveShell`. forget: called in each copy, as for `become_copy`."""
        self._shell, self._forget = shell, forget
        self._ended: dict[int, asyncio.Future[int]] = {}
        """The exit code of each guard."""
        self._folders: dict[int, Path] = {}
        """The folder of each guard's copy."""
        self.earlier: dict[int, EarlierVariables] = {}
        """The kernel at the time of each copy, by the process id of the copy."""

    async def fork(self, main: asyncio.AbstractEventLoop, request: Mapping[str, Any]) -> tuple[int, int]:
        """Fork. Args: main: the loop of the main thread. request: as for `Origin.fork`. Raises: KernelStartError."""
        here = asyncio.get_running_loop()
        forked: concurrent.futures.Future[tuple[int, int, BareFork]] = concurrent.futures.Future()

        def fork() -> None:
            if not forked.set_running_or_notify_cancel():
                return
            try:
                with standing_still(here):
                    forked.set_result(self._fork_here(main, request))
            except BaseException as error:  # noqa: BLE001  # border: who waits for it is told
                forked.set_exception(error)

        main.call_soon_threadsafe(fork)
        waiting = asyncio.wrap_future(forked)
        await asyncio.wait({waiting}, timeout=WAIT_SECONDS)
        if not waiting.done() and forked.cancel():
            raise KernelStartError(BUSY)
        guard, copy, then = await waiting
        self.earlier[copy] = EarlierVariables(then)
        self._folders[guard] = Path(request["folder"])
        self._watch(guard, copy)
        return guard, copy

    async def exit_code(self, guard: int) -> int:
        """Wait for the end of a guard; return its exit code."""
        return await asyncio.shield(self._ended[guard])

    def end_all(self) -> None:
        """End all copies, whose host is gone."""
        for guard, ended in self._ended.items():
            if not ended.done():
                with contextlib.suppress(OSError):
                    (self._folders[guard] / ENDING).touch()  # for its guard, which removes it then
                with contextlib.suppress(ProcessLookupError):
                    os.kill(guard, signal.SIGTERM)
        for then in self.earlier.values():
            then.close()

    def _fork_here(self, main: asyncio.AbstractEventLoop, request: Mapping[str, Any]) -> tuple[int, int, BareFork]:
        """Fork in the main thread."""
        app = kernel_app()
        if reason := unsafe(app):
            raise KernelStartError(reason)
        fork_copy, become_copy = _forking()
        compiled_guest()  # for the copy, which then need not do it
        then = EarlierVariables.fork(self._shell)
        try:
            guard = [*GUARD_COMMAND, str(os.getpid()), "--remove", request["folder"]]
            return *fork_copy(partial(become_copy, app, main, request, self._forget), guard), then
        except BaseException as error:
            then.close()
            if isinstance(error, OSError):
                raise KernelStartError(f"no process can be started: {error}") from error
            raise

    def _watch(self, guard: int, copy: int) -> None:
        """Learn of the end of a guard, which is a child of this process."""
        loop = asyncio.get_running_loop()
        ended = self._ended[guard] = loop.create_future()
        descriptor = os.pidfd_open(guard)

        def on_end() -> None:
            loop.remove_reader(descriptor)
            os.close(descriptor)
            code = -signal.SIGKILL
            with contextlib.suppress(ChildProcessError):  # the user's own code may have been quicker
                code = os.waitstatus_to_exitcode(os.waitpid(guard, 0)[1])
            ended.set_result(code)
            del self._folders[guard]
            self.earlier.pop(copy).close()

        loop.add_reader(descriptor, on_end)


@contextlib.contextmanager
def standing_still(loop: asyncio.AbstractEventLoop) -> Iterator[None]:
    """Keep the thread of a loop where it holds no lock. Raises: KernelStartError: it does not come to it in time."""
    stands, may_go = threading.Event(), threading.Event()

    def stand() -> None:
        stands.set()
        may_go.wait()

    handle = loop.call_soon_threadsafe(stand)
    try:
        if not stands.wait(WAIT_SECONDS):
            handle.cancel()
            raise KernelStartError("the display of agents is busy")
        yield
    finally:
        may_go.set()


def _forking() -> tuple[Any, Any]:
    """Return `fork_copy` and `become_copy`, which are made for Linux and use names that another ipykernel may not have.

    Raises:
        KernelStartError: It does not have them.
    """
    try:
        becoming: Any = importlib.import_module("freeact_sub.kernels.copies.becoming")
    except (ImportError, AttributeError, TypeError) as error:
        raise KernelStartError(f"this ipykernel is built differently: {error}") from error
    return becoming.fork_copy, becoming.become_copy
