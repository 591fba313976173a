"""Doors of the calls by which code starts programs: a program that only reads starts behind a wall (`wall/reading.py`).

Runs in kernels: standard library only. The hook asks the host before a program starts. The reply may be that it may start
behind the wall only; then the hook raises `ToBeWalledError`, nothing has been started yet, and the door that stands around
the call repeats it in a thread of its own, which has restricted itself before. The rest of the kernel keeps its rights.

A start that has no door around it cannot be walled, and the host, which is told so, asks about it.
"""

import contextlib
import errno
import functools
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

from .line import LineThread


class ToBeWalledError(BaseException):
    """The program may start behind the wall only, and has not been started."""


here = threading.local()
"""Per thread: `open` is true while a door, or a process that becomes the program, sees to the wall."""


@contextlib.contextmanager
def opened(is_open: bool = True) -> Iterator[None]:
    """What starts a program meanwhile can be walled."""
    before = getattr(here, "open", False)
    here.open = is_open
    try:
        yield
    finally:
        here.open = before


def _wall() -> Any:
    """The wall's module, which stands beside this one in kernels only."""
    return sys.modules["freeact_guest.reading"]


def can_wall() -> bool:
    """Whether a program that starts now in this thread would get the wall."""
    return getattr(here, "open", False) and bool(_wall().is_available())


def enter() -> None:
    """Puts the wall around this thread and the program that it becomes or starts. Raises: PermissionError."""
    try:
        _wall().enter()
    except (OSError, _wall().wall.WallError) as error:
        raise PermissionError(
            errno.EACCES, f"denied: the wall for a program that only reads cannot be built: {error}"
        ) from None


def install(asking: threading.local) -> None:
    """Puts doors around the calls of this process. Args: asking: `now` is true in a thread that does not ask."""
    for name in ("system", "posix_spawn", "posix_spawnp"):
        if hasattr(os, name):
            made = door(getattr(os, name), asking)
            made.__module__ = "os"  # it can be pickled by this name
            for module in (os, sys.modules[os.name]):
                setattr(module, name, made)
    start = getattr(subprocess.Popen, "_execute_child")  # noqa: B009  # there is no public one
    setattr(subprocess.Popen, "_execute_child", popen_door(start, door(start, asking)))  # noqa: B010


def popen_door(start: Callable[..., Any], walled: Callable[..., Any]) -> Callable[..., Any]:
    """Return what `subprocess` calls. Its words are read once: what is judged is what starts."""

    @functools.wraps(start)
    def go(self: Any, args: Any, executable: Any, preexec_fn: Any, *rest: Any) -> None:
        if not isinstance(args, str | bytes | os.PathLike):
            args = [os.fspath(word) if isinstance(word, os.PathLike) else word for word in args]
        if isinstance(executable, os.PathLike):
            executable = os.fspath(executable)
        # a function that is called in the new process may depend on the thread that has made it
        (walled if preexec_fn is None else start)(self, args, executable, preexec_fn, *rest)

    return go


def door(start: Callable[..., Any], asking: threading.local) -> Callable[..., Any]:
    """Return a call that does the same, behind the wall where the host wants it."""

    @functools.wraps(start)
    def go(*args: Any, **options: Any) -> Any:
        try:
            with opened():
                return start(*args, **options)
        except ToBeWalledError:
            pass
        return behind_wall(functools.partial(start, *args, **options), asking)

    return go


def behind_wall(start: Callable[[], Any], asking: threading.local) -> Any:
    """Return what the call returns in a thread behind the wall. It asks nothing more: the host has decided."""
    ended: list[tuple[Any, BaseException | None]] = []

    def work() -> None:
        asking.now = True
        try:
            enter()
            ended.append((start(), None))
        except BaseException as error:  # noqa: BLE001  # border: it belongs to the thread that waits
            ended.append((None, error))

    thread = LineThread(target=work, name="freeact start", daemon=True)
    thread.start()
    interrupt: BaseException | None = None
    while thread.is_alive():
        try:
            thread.join()
        except BaseException as error:  # noqa: BLE001  # what has been started has to be known before
            interrupt = error
    value, failed = ended[0]
    if failed is not None:
        raise failed
    if interrupt is not None:
        raise interrupt
    return value
