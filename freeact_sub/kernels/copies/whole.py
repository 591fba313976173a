"""How the whole copy becomes the notebook's kernel: nothing is pickled, and the agent's process goes on as the user's.

The copy forks itself once more. The fork leaves what a kernel of an agent has (`agent`, questions to its host, another
environment), and sleeps as a past of the notebook's kernel does (`forkserver/pasts.py`), until that kernel has ended: then
it binds the same addresses. So it is for kernels that have pasts. A wall cannot be left: the copy must have none of its own.
"""

import builtins
import contextlib
import getpass
import importlib
import os
import pty
import random
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from typing import Any, Final

from freeact_sub.errors import KernelBranchError
from freeact_sub.kernels.guest import state

GUEST: Final = "freeact_guest"
REPLACED: Final = (
    *((builtins, "input"), (getpass, "getpass"), (pty, "spawn"), (threading, "excepthook")),
    *((sys, "stdin"), (sys, "breakpointhook"), (sys, "unraisablehook"), (traceback.TracebackException, "__init__")),
)
"""Where the guest of an agent's kernel puts something of its own."""
OF_SHELL: Final = ("showtraceback", "CustomTB", "custom_exceptions")


class Successor:
    """In a copy: knows the kernel as it was, and can be forked once more."""

    def __init__(self, app: Any, pasts: Any, load: Callable[[], None]) -> None:
        """Called before the guest is there. Args: pasts: of the kernel. load: adds what runs agents to the shell."""
        self._app, self._pasts, self._load = app, pasts, load
        shell = app.shell
        self._module = sys.modules[type(shell).__module__]
        replaced = (*REPLACED, (self._module, "system"))
        self._values = [(owner, name, getattr(owner, name)) for owner, name in replaced if hasattr(owner, name)]
        self._of_shell = {name: vars(shell)[name] for name in OF_SHELL if name in vars(shell)}
        self._callbacks = {event: [*functions] for event, functions in shell.events.callbacks.items()}
        self._guest = {name: module for name, module in sys.modules.items() if name.partition(".")[0] == GUEST}
        self._agent = shell.user_ns.get("agent", self)

    def fork(self, environment: dict[str, str], cwd: str, kept: Sequence[Sequence[Any]]) -> int:
        """Forks, in a cell of the copy. Returns the process id. It lives on only if the copy's guard is killed.

        Args:
            environment: Of the notebook's kernel.
            cwd: Where that is.
            kept: Its pasts, see `Pasts.kept`.

        Raises:
            KernelBranchError: It cannot be forked now.
            OSError: The system has no room for a process.
        """
        brancher = sys.modules["freeact_brancher"]
        if reason := brancher.unsafe(self._app):
            raise KernelBranchError(reason)
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        drawn = random.getstate()

        def be_between(writer: int) -> None:
            successor = brancher.fork_quietly()
            if successor == 0:
                brancher.live_and_exit(lambda: self._live(environment, cwd, kept, drawn))
            os.write(writer, b"%d" % successor)

        between, successor = brancher.fork_reporting(be_between)
        brancher.reap(between)
        return int(successor)

    def _live(self, environment: dict[str, str], cwd: str, kept: Sequence[Sequence[Any]], drawn: Any) -> None:
        shell, pasts = self._app.shell, self._pasts
        self._leave_guest(shell)
        state.forget()
        os.environ.clear()
        os.environ.update(environment)
        with contextlib.suppress(OSError):  # it may be gone
            os.chdir(cwd)
        if (tempfile := sys.modules.get("tempfile")) is not None:
            tempfile.tempdir = None  # type: ignore[attr-defined]  # found out in the environment of the copy
        self._app.subshells = False
        pasts.kept = [tuple(past) for past in kept]
        pasts.sleep_and_live(drawn, log=pasts.request["log"], begin=self._begin)

    def _leave_guest(self, shell: Any) -> None:
        """Puts back what the guest has replaced, and has it ask for nothing any more."""
        sys.modules[f"{GUEST}.halves"].HALVES.kernel = 0
        for watch in sys.modules[f"{GUEST}.hook"].WATCHES:
            watch.renew(None, None)
        for name in [name for name in sys.modules if name.partition(".")[0] == GUEST]:
            del sys.modules[name]
        sys.modules.update(self._guest)
        self._guest[f"{GUEST}.halves"].HALVES.is_of_kernel = False
        for owner, name, value in self._values:
            setattr(owner, name, value)
        for name in OF_SHELL:
            vars(shell).pop(name, None)
        vars(shell).update(self._of_shell)
        for event, functions in self._callbacks.items():
            shell.events.callbacks[event][:] = functions
        del builtins.agent  # type: ignore[attr-defined]
        shell.user_ns_hidden.pop("agent", None)
        shell.user_ns.pop("agent", None)
        if self._agent is not self:
            shell.user_ns["agent"] = self._agent

    def _begin(self) -> None:
        """The addresses are bound, and the first cell is still to come."""
        loop = importlib.import_module("tornado.ioloop").IOLoop.current().asyncio_loop
        loop.call_soon(self._load)


HERE: list[Successor] = []
"""In a copy that can become the kernel: one."""


def fork_into(file: str, environment: dict[str, str], cwd: str, kept: Sequence[Sequence[Any]]) -> None:
    """Called in a cell of ours in the copy: writes the process id of the fork. Raises: see `Successor.fork`."""
    state.write_new(file, b"%d" % HERE[0].fork(environment, cwd, kept))
