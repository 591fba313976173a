"""Kernels that start without the imports of ipykernel: a Python that has imported it forks them, or their guards.

For tests of what kernels do; how they start is tested cold, and behind a wall the wall starts Python. All but the start of
Python is as ever: the guard's, the fork server's and the kernel's own files run, in processes of their own.
"""

import contextlib
import ctypes
import functools
import importlib
import os
import runpy
import signal
import socket
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

sys.path.append(str(Path(__file__).parents[1]))  # as the Python that forks
from support.forking import ForkedProcess, become, forking_python, serve

IMPORTED = (
    *("asyncio", "cloudpickle", "ipykernel.kernelapp", "ipykernel.ipkernel", "ipykernel.debugger", "ipykernel.comm"),
    *("IPython.core.logger", "tornado.platform.asyncio", "importlib.metadata", "inspect", "typing"),
)
PYTHONS = 2
"""Of a command line: the guard's and the kernel's. One more is the wall's, which starts the kernel's itself."""
PYTHON_WORDS = 3
"""Of the guard's command line, before its script."""
CONTROL = 3
"""A server's connection to its host, in the process that is forked."""


@contextlib.contextmanager
def forking_kernels(*imported: str) -> Iterator[socket.socket | None]:
    """A Python that forks them, for this time; None where the system does not make orphans our children.

    Args:
        imported: Modules that it imports too, for kernels whose cells import them.
    """
    from support.elsewhere import CANNOT_FORK

    if CANNOT_FORK:
        yield None
        return
    with forking_python(__file__, *imported) as server:
        yield server


@contextlib.contextmanager
def warm_kernels(server: socket.socket | None) -> Iterator[None]:
    """For this time the kernels and fork servers of this process come from there; None: they are started."""
    if server is None:
        yield
        return
    process = importlib.import_module("freeact_sub.kernels.forkserver.process")
    launcher = importlib.import_module("jupyter_client.launcher")
    cold, cold_launch = process.subprocess, launcher.Popen
    names = {name: getattr(cold, name) for name in ("DEVNULL", "TimeoutExpired")}
    launcher.Popen = functools.partial(_Warm, server)
    process.subprocess = SimpleNamespace(Popen=launcher.Popen, **names)
    try:
        yield
    finally:
        process.subprocess, launcher.Popen = cold, cold_launch


class _Warm(ForkedProcess):
    """The guard of a fork server or of a kernel, or a kernel."""

    def __init__(self, server: socket.socket, *args: Any, **options: Any) -> None:
        self._server = server
        super().__init__(*args, **options)

    def server_for(self, command: Sequence[str], env: Mapping[str, str] | None) -> socket.socket | None:
        """For the Python that runs the tests: its imports are here."""
        del env
        pythons = [number for number, word in enumerate(command) if word == sys.executable]
        if not pythons or pythons[0] != 0 or len(pythons) > PYTHONS:
            return None
        program = command[pythons[-1] + 1 :]
        return self._server if _is_kernel(program) or program[0].endswith("forkserver/server.py") else None


def _is_kernel(words: Sequence[str]) -> bool:
    return words[0].endswith("kernels/subprocess_start.py")


def main() -> NoReturn:
    """Be the Python that forks, and then each guard or kernel."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # one that was meant for the tests
    del sys.path[-1], sys.path[0]
    for name in (*IMPORTED, *sys.argv[2:]):
        importlib.import_module(name)
    request = serve(int(sys.argv[1]))
    become(request)
    command = request["command"]
    if _is_kernel(command[1:]):
        _become_kernel(command)
    os.execvp = functools.partial(_become_program, os.execvp)  # type: ignore[assignment]
    last = -1 if command[-2].endswith("server.py") else None  # the number that its connection has in the tests
    sys.argv = [*command[PYTHON_WORDS:last], *([str(CONTROL)] if last else [])]
    runpy.run_path(sys.argv[0], run_name="__main__")
    os._exit(1)


def _become_program(execvp: Any, program: str, command: list[str]) -> NoReturn:
    """What the guard starts instead of Python."""
    del program
    os.execvp = execvp
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_IGN)  # as Python has them from its start on
    if _is_kernel(command[1:]):
        os.closerange(CONTROL, 1_000)
        _become_kernel(command)
    os.set_inheritable(CONTROL, True)
    os.closerange(CONTROL + 1, 1_000)
    sys.path.insert(0, str(Path(command[1]).parent))
    _run(command[1:], functools.partial(runpy.run_path, command[1]))


def _become_kernel(command: list[str]) -> NoReturn:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    _run(command[1:], functools.partial(runpy.run_module, "ipykernel_launcher", alter_sys=True))


def _run(arguments: list[str], run: Any) -> NoReturn:
    """Run a program to its end, as Python ends."""
    code = 1
    try:
        sys.argv = arguments
        run(run_name="__main__")
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        ctypes.pythonapi.Py_Exit(code)  # with all that Python does at its end, though there are frames below
        os._exit(code)


if __name__ == "__main__":
    main()
