"""Announces starts of programs that Python does not announce, through a private name of Python.

Runs in kernels: standard library only. `multiprocessing` starts programs by `_posixsubprocess.fork_exec`, for which there is
no audit event: those of `set_executable`, and the one that `sys.executable` names when the first lock is made. A function in
its place reads each word once, tells the audit hook, and starts the program. `subprocess`, which announces itself, has the
original.
"""

import _posixsubprocess
import errno
import os
import pathlib
import sys
from collections.abc import Callable
from typing import Any

EVENT = "freeact.start"
TEXTS = (str, bytes, pathlib.PosixPath, pathlib.PurePosixPath)
"""Types of texts and paths that cannot change."""
WORKER = b"from multiprocessing."
"""Beginning of the code that `multiprocessing` gives to another Python."""


def install() -> None:
    """Announce starts from now on. Called once in a kernel, before its first cell."""
    _posixsubprocess.fork_exec = announcing(_posixsubprocess.fork_exec, os.fsencode(sys.executable))


def announcing(start: Callable[..., int], python: bytes) -> Callable[..., int]:
    """Return the function that starts a program, with an event before. Args: python: this kernel's Python."""

    def fork_exec(args: Any, executables: Any, close_fds: Any, pass_fds: Any, cwd: Any, env: Any, *rest: Any) -> int:
        words = [os.fsencode(word) for word in args]
        programs = tuple(os.fsencode(program) for program in executables)
        folder = None if cwd is None else os.fsencode(cwd)
        entries = None if env is None else [bytes(entry) for entry in env]
        is_worker = programs == (python,) and words[:1] == [python] and any(word.startswith(WORKER) for word in words)
        if not is_worker:  # nor what looks after the locks
            for program in programs:
                sys.audit(EVENT, program, words, folder, variables_of(entries))
        return start(words, programs, close_fds, pass_fds, folder, entries, *rest)

    return fork_exec


def variables_of(entries: list[bytes] | None) -> dict[str, str]:
    """Return the environment of a program. Args: entries: None for this process's."""
    if entries is None:
        return dict(os.environ)
    pairs = (os.fsdecode(entry).partition("=") for entry in entries)
    return {name: value for name, _, value in pairs}


def check_texts(words: Any) -> None:
    """Refuse a word of a program that may change before the program starts. Raises: PermissionError."""
    for word in words:
        if not isinstance(word, TEXTS) or (isinstance(word, os.PathLike) and type(word) not in TEXTS):
            raise PermissionError(errno.EACCES, f"denied: give a program its words as text, not as {type(word).__name__}")
