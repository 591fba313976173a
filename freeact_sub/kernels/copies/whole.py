"""How the whole copy becomes the notebook's kernel: nothing is pickled, and the agent's process goes on as the user's.

The copy forks itself once more. The fork leaves what a kernel of an agent has (`agent`, questions to its host, another
environment), and sleeps as a past of the notebook's kernel does (`forkserver/pasts.py`), until that kernel has ended: then
it binds the same addresses. So it is for kernels that have pasts. A wall cannot be left: the copy must have none of its own.
"""

import _posixsubprocess
import builtins
import contextlib
import getpass
import importlib
import os
import pty
import random
import socket
import sys
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from freeact_sub.errors import KernelBranchError
from freeact_sub.kernels.guest import state

GUEST: Final = "freeact_guest"
REPLACED: Final = (
    *((builtins, "input"), (getpass, "getpass"), (pty, "spawn"), (threading, "excepthook")),
    *((os, "open"), (socket, "getaddrinfo"), (_posixsubprocess, "fork_exec")),
    *((sys, "stdin"), (sys, "breakpointhook"), (sys, "unraisablehook"), (traceback.TracebackException, "__init__")),
)
"""Where the guest of an agent's kernel puts something of its own."""
OF_SHELL: Final = ("showtraceback", "CustomTB", "custom_exceptions", "db")
READY: Final = b"1"


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
        self._guest = {name: module for name, module in sys.modules.items() if is_of_guest(name)}
        self._finders = [*sys.meta_path]
        self._agent = shell.user_ns.get("agent", self)

    def fork(self, cwd: str, kept: Sequence[Sequence[Any]], address: Mapping[str, Any]) -> int:
        """Forks, in a cell of the copy, and waits until the fork is ready to take the kernel's place.

        Args:
            cwd: Where the notebook's kernel is.
            kept: Its pasts, see `Pasts.kept`.
            address: That kernel's, see `ADDRESS`.

        Returns:
            The process id. The fork lives on only if the copy's guard is killed.

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
            reader, ready = os.pipe()
            successor = brancher.fork_quietly()
            if successor == 0:
                os.close(reader)
                brancher.live_and_exit(lambda: self._live(cwd, kept, address, drawn, ready))
            os.close(ready)
            if os.read(reader, 1) != READY:
                raise KernelBranchError("the copy cannot leave what it had as an agent's kernel; its log says why")
            os.write(writer, b"%d" % successor)

        between, successor = brancher.fork_reporting(be_between)
        brancher.reap(between)
        return int(successor)

    def _live(self, cwd: str, kept: Sequence[Sequence[Any]], address: Mapping[str, Any], drawn: Any, ready: int) -> None:
        shell, pasts = self._app.shell, self._pasts
        self._leave_guest(shell)
        state.forget()
        with contextlib.suppress(OSError):  # it may be gone
            os.chdir(cwd)
        if (tempfile := sys.modules.get("tempfile")) is not None:
            tempfile.tempdir = None  # type: ignore[attr-defined]  # found out in the environment of the copy
        self._app.subshells = False
        pasts.kept = [tuple(past) for past in kept]
        pasts.request = {**pasts.request, **address}
        os.write(ready, READY)
        os.close(ready)
        pasts.sleep_and_live(drawn, log=pasts.request["log"], begin=self._begin)

    def _leave_guest(self, shell: Any) -> None:
        """Puts back what the guest has replaced, and has it ask for nothing any more."""
        sys.modules[f"{GUEST}.halves"].HALVES.kernel = 0
        for watch in sys.modules[f"{GUEST}.hook"].WATCHES:
            watch.renew(None, None)
        contexts = sys.modules[f"{GUEST}.contexts"].SET
        for name in [name for name, module in sys.modules.items() if is_of_guest(name) or is_of_skill(module)]:
            del sys.modules[name]
        sys.meta_path[:] = [
            each for each in sys.meta_path if each in self._finders or not is_of_guest(type(each).__module__)
        ]
        sys.modules.update(self._guest)
        vars(self._guest[f"{GUEST}.contexts"])["SET"] = contexts
        self._guest[f"{GUEST}.halves"].HALVES.is_of_kernel = False
        for owner, name, value in self._values:
            setattr(owner, name, value)
        for name in OF_SHELL:
            vars(shell).pop(name, None)
        vars(shell).update(self._of_shell)
        for event, functions in shell.events.callbacks.items():
            before = self._callbacks.get(event, [])
            later = [each for each in functions if each not in before and not is_of_guest(str(each.__module__))]
            functions[:] = [*before, *later]
        vars(builtins).pop("agent", None)
        shell.user_ns_hidden.pop("agent", None)
        shell.user_ns.pop("agent", None)
        if self._agent is not self:
            shell.user_ns["agent"] = self._agent

    def _begin(self) -> None:
        """The addresses are bound, and the first cell is still to come."""
        loop = importlib.import_module("tornado.ioloop").IOLoop.current().asyncio_loop
        loop.call_soon(self._load)


def is_of_guest(module: str) -> bool:
    """Whether a module, by its name, is one of the guest's."""
    return module.partition(".")[0] == GUEST


def is_of_skill(module: Any) -> bool:
    """Whether the guest has loaded this module, as the Python of a skill."""
    return is_of_guest(type(getattr(module, "__loader__", None)).__module__)


HERE: list[Successor] = []
"""In a copy that can become the kernel: one."""


def fork_into(file: str, **place: Any) -> None:
    """Called in a cell of ours in the copy: writes the process id of the fork. Args and raises: see `Successor.fork`."""
    state.write_new(file, b"%d" % HERE[0].fork(**place))
