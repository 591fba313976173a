"""Fork servers that start without the imports of ipykernel: a Python that has imported it forks their guards.

For tests of what kernels do; how a fork server starts is tested cold. All but the start of Python is as ever: the guard's and
the server's own files run, in processes of their own.
"""

import contextlib
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
PYTHON_WORDS = 3
"""Of the guard's command line, before its script."""
CONTROL = 3
"""A server's connection to its host, in the process that is forked."""


@contextlib.contextmanager
def forking_fork_servers() -> Iterator[socket.socket | None]:
    """A Python that forks them, for this time; None where the system does not make orphans our children."""
    if sys.platform != "linux":
        yield None
        return
    with forking_python(__file__) as server:
        yield server


@contextlib.contextmanager
def warm_kernels(server: socket.socket | None) -> Iterator[None]:
    """For this time the fork servers of this process come from there; None: they are started."""
    process = importlib.import_module("freeact_sub.kernels.forkserver.process")
    cold = process.subprocess
    if server is not None:
        names = {name: getattr(cold, name) for name in ("DEVNULL", "TimeoutExpired")}
        process.subprocess = SimpleNamespace(Popen=functools.partial(_Guard, server), **names)
    try:
        yield
    finally:
        process.subprocess = cold


class _Guard(ForkedProcess):
    """The guard of a fork server."""

    def __init__(self, server: socket.socket, *args: Any, **options: Any) -> None:
        self._server = server
        super().__init__(*args, **options)

    def server_for(self, command: Sequence[str], env: Mapping[str, str] | None) -> socket.socket | None:
        """For the Python that runs the tests: its imports are here."""
        del env
        python, _, _ = command[-3:]
        return self._server if python == sys.executable else None


def main() -> NoReturn:
    """Be the Python that forks, and then each guard."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # one that was meant for the tests
    del sys.path[-1], sys.path[0]
    for name in IMPORTED:
        importlib.import_module(name)
    request = serve(int(sys.argv[1]))
    become(request)
    os.setsid()
    os.execvp = functools.partial(_become_server, os.execvp)  # type: ignore[assignment]
    sys.argv = [*request["command"][PYTHON_WORDS:-1], str(CONTROL)]
    runpy.run_path(sys.argv[0], run_name="__main__")
    os._exit(1)


def _become_server(execvp: Any, program: str, command: list[str]) -> NoReturn:
    """What the guard starts instead of Python."""
    del program
    os.execvp = execvp
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_IGN)  # as Python has them from its start on
    os.set_inheritable(CONTROL, True)
    os.closerange(CONTROL + 1, 1_000)
    code = 1
    try:
        sys.argv = command[1:]
        sys.path.insert(0, str(Path(command[1]).parent))
        runpy.run_path(command[1], run_name="__main__")
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


if __name__ == "__main__":
    main()
