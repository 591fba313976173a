"""`DaemonThreads`: threads for calls that may never return, such as a look at a file system that does not answer.

Threads of `asyncio.to_thread` would keep the program from ending.
"""

import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from queue import SimpleQueue
from typing import Any, Final, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

MAX_THREADS: Final = 32


class DaemonThreads(Executor):
    """An executor of at most `MAX_THREADS` threads, which end with the program whatever they do."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._calls = SimpleQueue[tuple[Future[Any], Callable[[], Any]]]()
        self._idle = threading.Semaphore(0)
        self._started = 0

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Runs a call as soon as a thread is free."""
        future = Future[T]()
        self._calls.put((future, lambda: fn(*args, **kwargs)))
        if not self._idle.acquire(blocking=False) and self._started < MAX_THREADS:
            self._started += 1
            threading.Thread(target=self._work, name=self._name, daemon=True).start()
        return future

    def _work(self) -> None:
        while True:
            future, call = self._calls.get()
            if future.set_running_or_notify_cancel():
                try:
                    result = call()
                except BaseException as error:  # noqa: BLE001  # it is the caller's
                    future.set_exception(error)
                else:
                    future.set_result(result)
            del future, call
            self._idle.release()
