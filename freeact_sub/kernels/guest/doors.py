"""Doors around the calls by which code starts programs: a program that only reads starts behind a wall (`wall/reading.py`).

Runs in kernels: standard library only. The hook asks the host before a program starts. If the host allows the program behind
the wall only, the hook raises `ToBeWalledError` before anything starts, and the door around the call repeats the call in a
thread of its own, which has restricted itself first. The rest of the kernel keeps its rights.

A start without a door cannot be walled; the host hears of that, and asks a person about it.
"""

import contextlib
import errno
import functools
import inspect
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
"""Fields of each thread: `open` is true while a door, or a process that becomes the program, sees to the wall."""


@contextlib.contextmanager
def opened(is_open: bool = True) -> Iterator[None]:
    """Allow the wall for programs that start inside the block."""
    before = getattr(here, "open", False)
    here.open = is_open
    try:
        yield
    finally:
        here.open = before


def _wall() -> Any:
    """Return the wall's module, which stands beside this one in kernels only."""
    return sys.modules["freeact_guest.reading"]


def can_wall() -> bool:
    """Whether a program that starts now in this thread would get the wall."""
    return getattr(here, "open", False) and bool(_wall().is_available())


def enter() -> None:
    """Put the wall around this thread and the program that it becomes or starts. Raises: PermissionError."""
    try:
        _wall().enter()
    except (OSError, _wall().wall.WallError) as error:
        raise PermissionError(
            errno.EACCES, f"denied: the wall for a program that only reads cannot be built: {error}"
        ) from None


def install(asking: threading.local) -> None:
    """Put doors around the calls of this process. Args: asking: `now` is true in a thread that does not ask."""
    for name in ("system", "posix_spawn", "posix_spawnp"):
        if hasattr(os, name):
            made = door(getattr(os, name), asking)
            made.__module__ = "os"  # it can be pickled by this name
            for module in (os, sys.modules[os.name]):
                setattr(module, name, made)
    setattr(subprocess.Popen, "__init__", popen_door(subprocess.Popen.__init__, asking))  # noqa: B010  # it is a method


def popen_door(start: Callable[..., None], asking: threading.local) -> Callable[..., None]:
    """Return a function that makes a `Popen`. It reads the words once: the judged words are those that start."""
    signature = inspect.signature(start)

    def go(*args: Any, **options: Any) -> None:
        given = signature.bind(*args, **options)
        before = dict(vars(args[0]))

        def begin(made: Any, *words: Any, **how: Any) -> None:
            """Start from the beginning, also after an attempt that the hook has ended."""
            vars(made).clear()
            vars(made).update(before)
            start(made, *words, **how)

        words, variables = given.arguments["args"], given.arguments.get("env")
        if not isinstance(words, str | bytes | os.PathLike):
            given.arguments["args"] = [read_once(word) for word in words]
        for name in ("args", "executable", "cwd"):
            if name in given.arguments:
                given.arguments[name] = read_once(given.arguments[name])
        if variables is not None:
            given.arguments["env"] = {read_once(name): read_once(value) for name, value in variables.items()}
        # a function that is called in the new process may depend on the thread that has made it
        chosen = door(begin, asking) if given.arguments.get("preexec_fn") is None else start
        chosen(*given.args, **given.kwargs)

    return functools.wraps(start)(go)


def read_once(value: Any) -> Any:
    """Return the text of a path object, which may differ at each look; anything else as it is."""
    return os.fspath(value) if isinstance(value, os.PathLike) else value


def door(start: Callable[..., Any], asking: threading.local) -> Callable[..., Any]:
    """Return the call with a door, which repeats it behind the wall where the host wants that."""

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
    """Return the call's result from a thread behind the wall. It asks nothing more: the host has decided."""
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
