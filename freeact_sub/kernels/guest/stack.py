"""Reads from the stack which call an audit event belongs to, and which script a `%%bash` cell will pass on.

Runs in kernels: standard library only. Some functions do many things for one answer (`shutil.rmtree`), or announce one
thing twice (`subprocess`, and its calls). They are known by their code on the stack: had they been denied, they would
not be there.
"""

import os
import pty
import shutil
import subprocess
import sys
import sysconfig
import types
from collections.abc import Callable, Iterator
from typing import Any

from .writable import real_path

STARTERS = {
    "subprocess",
    "os",
    "asyncio",
    "pty",
    "multiprocessing",
    "concurrent",
    "threading",
    "contextlib",
    "functools",
} | {*("freeact_guest", "IPython", "ipykernel", "decorator", "pexpect", "ptyprocess")}
"""Modules whose code starts programs for its callers."""
LIBRARIES = tuple(os.path.join(sysconfig.get_path(kind), "") for kind in ("stdlib", "platstdlib", "purelib", "platlib"))
"""Folders of installed code and of Python's own."""
IMPORT_SYSTEM = "<frozen importlib._bootstrap_external>"
POPEN = {getattr(subprocess.Popen, name).__code__ for name in ("_posix_spawn",) if hasattr(subprocess.Popen, name)}
PTY_SPAWN = {pty.spawn.__code__}
TREES: dict[types.CodeType, dict[str, str]] = {
    getattr(shutil.rmtree, "__code__"): {"path": "remove"},  # noqa: B009  # typed as an object that has none
    shutil.copytree.__code__: {"dst": "create"},
    shutil.move.__code__: {"src": "rename", "dst": "rename"},
}
"""Functions that change everything in a folder: the names of their path arguments, and the kinds of their questions."""
COPIES = {shutil.copy.__code__, shutil.copy2.__code__}
"""Functions that write a file, and then its mode and times."""


def frames() -> Iterator[Any]:
    """Yield the running frames, innermost first."""
    frame: Any = sys._getframe(1)  # noqa: SLF001  # documented
    while frame is not None:
        yield frame
        frame = frame.f_back


def is_of_library() -> bool:
    """Whether a library starts a program by itself, as matplotlib does to find fonts.

    The nearest code decides that does not itself start programs for others.
    """
    for frame in frames():
        file, module = frame.f_code.co_filename, str(frame.f_globals.get("__name__")).partition(".")[0]
        if file.startswith("<ipython-input"):
            return False
        if module not in STARTERS and not file.startswith("<"):
            return bool(file.startswith(LIBRARIES))
    return False


def is_part_of_popen() -> bool:
    """Whether `subprocess` starts the program, which has announced it already."""
    return any(frame.f_code in POPEN for frame in frames())


def is_forked_for_a_terminal() -> bool:
    """Whether this process was forked to become a program that was asked about before the fork."""
    return any(frame.f_code in PTY_SPAWN for frame in frames()) or pexpect_call() is not None


def pexpect_call() -> dict[str, Any] | None:
    """Return the arguments of a program that pexpect, and so `!cmd`, is about to start in its own terminal."""
    for frame in frames():
        code = frame.f_code
        if code.co_name == "spawn" and code.co_filename.endswith("ptyprocess/ptyprocess.py"):
            return dict(frame.f_locals)
    return None


def close_terminal() -> None:
    """Close the terminal that pexpect has opened for a denied program; it relies on the fork to do so."""
    names = ("master_fd", "slave_fd", "exec_err_pipe_read", "exec_err_pipe_write")
    for frame in frames():
        if frame.f_code is pty.fork.__code__ or frame.f_code.co_filename.endswith("ptyprocess/ptyprocess.py"):
            for name in names:
                if isinstance(frame.f_locals.get(name), int):
                    os.close(frame.f_locals[name])


def is_part_of_another(path: str, operation: str, is_free: Callable[[str, str], bool], *, announced: bool) -> bool:
    """Whether a change is part of an approved one, or an import that caches what it compiled.

    Args:
        path: Absolute, without links in it.
        operation: The change.
        is_free: Whether something may be done without a question: nothing is part of that.
        announced: Whether the innermost function announces itself: its presence proves nothing yet.
    """
    for frame in frames():
        code = frame.f_code
        if code.co_filename == IMPORT_SYSTEM and code.co_name in ("_write_atomic", "set_data"):
            return str(frame.f_locals["path"]).endswith(".pyc")
        if announced and code in TREES:
            announced = False
            continue
        if (
            code in COPIES
            and operation == "change"
            and is_in(path, real_path(os.fsdecode(frame.f_locals["dst"]), follow=True))
        ):
            return True
        for name, done in TREES.get(code, {}).items():
            root = real_path(os.fsdecode(frame.f_locals[name]), follow=name == "dst")
            if is_in(path, root) and not is_free(root, done):
                return True
    return False


def is_in(path: str, root: str) -> bool:
    """Whether a path is a folder, or in it."""
    return path == root or path.startswith(f"{root}/")


def script_for(words: list[str]) -> str | None:
    """Return the script that a cell such as `%%bash` is about to hand to the program with this command line."""
    for innermost in sys._current_frames().values():  # noqa: SLF001  # documented; another thread starts the program
        frame: Any = innermost
        while frame is not None:
            code = frame.f_code
            if code.co_name == "shebang" and code.co_filename.endswith("magics/script.py"):
                seen = frame.f_locals
                if seen.get("cmd") == words:
                    return str(seen["cell"])
            frame = frame.f_back
    return None
