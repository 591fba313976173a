"""Removes the frames of this package, and of its kernel, from tracebacks. Standard library and IPython only.

A person or a model who reads that an action was denied looks for the line that did it, not for the one that asked. The
exceptions lose the frames when they are shown: by IPython at the end of a cell, by `traceback` or `logging`. They get advice
then, too (`kept.py`).
"""

import functools
import sys
import threading
import traceback
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any

from .descriptors import STREAMS
from .kept import ADVICE

PREFIX = "freeact_"
"""Prefix of the names of our modules in a kernel; nothing was imported to make them, so they have no `__spec__`."""
MAX_LINKED = 1000
"""Maximum exceptions that one may name as its causes."""


def is_ours(frame: FrameType) -> bool:
    """Whether our code runs in a frame."""
    name = frame.f_globals.get("__name__")
    return isinstance(name, str) and name.startswith(PREFIX) and frame.f_globals.get("__spec__") is None


def without_ours(found: TracebackType | None) -> TracebackType | None:
    """Take our frames out of a traceback; one that has no others stays as it is."""
    first = _next_of_others(found)
    if first is None:
        return found
    at: TracebackType | None = first
    while at is not None:
        rest = _next_of_others(at.tb_next)
        if rest is not at.tb_next:
            at.tb_next = rest
        at = rest
    return first


def _next_of_others(found: TracebackType | None) -> TracebackType | None:
    while found is not None and is_ours(found.tb_frame):
        found = found.tb_next
    return found


def clean(error: BaseException | None) -> None:
    """Take our frames out of an exception, its causes, and the exceptions of a group."""
    open_ones, seen = [error], set[int]()
    while open_ones and len(seen) < MAX_LINKED:
        one = open_ones.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        one.__traceback__ = without_ours(one.__traceback__)
        ADVICE.add_to(one)
        open_ones += [one.__cause__, one.__context__, *getattr(one, "exceptions", ())]


def install(shell: Any) -> None:
    """Clean what IPython's shell and `traceback` show."""
    show = shell.showtraceback

    @functools.wraps(show)
    def showtraceback(exc_tuple: Any = None, *arguments: Any, **options: Any) -> Any:
        kind, error, found = exc_tuple or sys.exc_info()
        if isinstance(error, BaseException):
            clean(error)
            exc_tuple = kind, error, without_ours(found)
        STREAMS.put_back()  # ipykernel flushes them before it sends the error
        return show(exc_tuple, *arguments, **options)

    shell.showtraceback = showtraceback
    if not hasattr(traceback.TracebackException.__init__, "__wrapped__"):  # a branch has it from its origin
        _clean_what_is_formatted()
        _clean_what_nobody_catches()


def _clean_what_is_formatted() -> None:
    made: Any = traceback.TracebackException.__init__

    @functools.wraps(made)
    def init(self: Any, exc_type: Any, exc_value: Any, exc_traceback: Any, *arguments: Any, **options: Any) -> None:
        if isinstance(exc_value, BaseException):
            clean(exc_value)
        made(self, exc_type, exc_value, without_ours(exc_traceback), *arguments, **options)

    traceback.TracebackException.__init__ = init  # type: ignore[method-assign]


def _clean_what_nobody_catches() -> None:
    """Clean the exceptions that Python formats in C: those that end a thread, or are raised where no code can catch them."""
    for module, name in ((threading, "excepthook"), (sys, "unraisablehook")):
        setattr(module, name, _cleaning(getattr(module, name)))


def _cleaning(hook: Callable[[Any], Any]) -> Callable[[Any], Any]:
    @functools.wraps(hook)
    def cleaning(raised: Any) -> Any:
        clean(raised.exc_value)
        return hook(raised)

    return cleaning
