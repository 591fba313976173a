"""The app and the kernel class of a forked kernel, on private names of ipykernel.

ipykernel starts its sockets, threads and shell in one piece. A fork needs the shell before it and the rest after it, and a
kernel that is branched must let go of its loop, its traits and a request for input. No public name does that. Where one of
these names is missing, `prebuild.py` fails and kernels are forked after the imports only.

Loaded by `server.py`; it needs ipykernel and the standard library only.
"""

import asyncio
import builtins
import importlib
import sys
import threading
import uuid
from typing import Any

from ipykernel.control import ControlThread
from ipykernel.ipkernel import IPythonKernel
from ipykernel.kernelapp import IPKernelApp
from ipykernel.shellchannel import ShellChannelThread
from zmq.eventloop.zmqstream import ZMQStream

zmq: Any = importlib.import_module("zmq")
PORTS = ("shell_port", "iopub_port", "stdin_port", "hb_port", "control_port")
PARTS = ("session", "control_thread", "shell_channel_thread", "iopub_thread", "iopub_socket", "stdin_socket", "log")
"""Attributes that a kernel has of its app."""


class NoSubshells:
    """A stand-in for the thread of subshells, which alone would read the shell channel: the main thread reads it."""

    def __init__(self) -> None:
        self.parent_thread = threading.current_thread()

    def __bool__(self) -> bool:
        return False


class ForkedKernelApp(IPKernelApp):  # type: ignore[misc]  # ipykernel is not followed by the type checker
    """An app whose sockets have paths, whose iopub loses nothing, and which has fewer threads."""

    subshells = False
    """Whether clients may ask for further threads that run cells."""

    def init_control(self, context: Any) -> None:
        """Make the control channel without the sockets of a debugger, which forked kernels do not have."""
        self.control_socket = context.socket(zmq.ROUTER)
        self.control_socket.linger = 1000
        self.control_port: int = self._bind_socket(self.control_socket, self.control_port)
        self.control_socket.router_handover = 1
        self.control_thread = ControlThread(daemon=True)
        self.shell_channel_thread = ShellChannelThread(context, daemon=True) if self.subshells else NoSubshells()

    def init_iopub(self, context: Any) -> None:
        """Make iopub with a thread of our own (`borrowed_streams.py`)."""
        self.iopub_socket = context.socket(zmq.XPUB)
        self.iopub_socket.linger = 1000
        self.iopub_socket.sndhwm = 0
        self.iopub_socket.xpub_verbose = 1
        self.iopub_port: int = self._bind_socket(self.iopub_socket, self.iopub_port)
        self.iopub_thread = sys.modules["freeact_borrowed_streams"].PairIOPubThread(
            self.iopub_socket, pipe=True, session=self.session
        )
        self.iopub_thread.start()
        self.iopub_socket = self.iopub_thread.background_socket

    def init_kernel(self) -> None:
        """Make the kernel without a debugger."""
        thread: Any = self.shell_channel_thread
        shell_stream = ZMQStream(self.shell_socket, thread.io_loop if thread else None)
        control_stream = ZMQStream(self.control_socket, self.control_thread.io_loop)
        self.control_thread.start()
        if thread:
            thread.shell_stream = shell_stream
            thread.start()
        kernel = self.kernel = self.kernel_class.instance(
            parent=self,
            shell_stream=shell_stream,
            control_stream=control_stream,
            profile_dir=self.profile_dir,
            user_ns=self.user_ns,
            **{name: getattr(self, name) for name in PARTS},
        )
        kernel.record_ports({name: getattr(self, name) for name in PORTS})
        self.displayhook.get_execution_count = lambda: kernel.execution_count


class EarlyKernel(IPythonKernel):  # type: ignore[misc]  # ipykernel is not followed by the type checker
    """A kernel that is built before the fork, when there are no sockets and threads yet.

    The original's start looks through all modules, and so would copy the pages of each. `instance`, called again, gives
    the existing kernel the sockets and threads that have been made since.
    """

    @classmethod
    def instance(cls, *arguments: Any, **values: Any) -> Any:
        """Return the kernel, with these values set."""
        kernel = super().instance(*arguments, **values)
        kernel.take(values)
        return kernel

    def take(self, values: dict[str, Any]) -> None:
        """Set the values that have been made since."""
        for name, value in values.items():
            setattr(self, name, value)
        self.ident = str(uuid.uuid4())
        self._stdout, self._stderr = sys.stdout, sys.stderr
        hook = self.shell.displayhook
        hook.topic = f"kernel.{self.ident}.execute_result".encode()
        hook.pub_socket = self.shell.display_pub.pub_socket = self.iopub_socket

    def start(self) -> None:
        """Start as the original does, but without its warning of a missing debugger; then greet the subscribers."""
        self.shell.exit_now = False
        super(IPythonKernel, self).start()
        self.iopub_thread.schedule(self.iopub_thread.greet)

    @property
    def _supports_kernel_subshells(self) -> bool:
        return bool(self.shell_channel_thread)


def state_of(app: Any) -> Any:
    """Return everything that an app holds, including its traits."""
    return dict(app.__dict__), dict(app._trait_values)


def leave_running_loop(loop: asyncio.AbstractEventLoop) -> None:
    """Make this thread one in which no task and no loop runs, though the code of one is on its stack."""
    task = asyncio.current_task(loop)
    if task is not None:
        asyncio.tasks._leave_task(loop, task)
    asyncio._set_running_loop(None)


def restore_input(kernel: Any) -> None:
    """Put back Python's own `input`, which a running cell has replaced."""
    if getattr(builtins.input, "__self__", None) is kernel:
        kernel._restore_input()  # type: ignore[union-attr]  # a type checker takes it for the None that it may be


def end_idle_script_loop(shell: Any) -> None:
    """End the thread in which `%%bash` has run, if it has nothing to do.

    IPython starts a new one when it is needed. Older IPythons cannot end theirs.
    """
    scripts: Any = shell.magics_manager.registry.get("ScriptMagics")
    if getattr(scripts, "event_loop", None) is not None and hasattr(scripts, "stop_event_loop"):
        readers = {type(scripts).__module__, "IPython.core.async_helpers"}  # their objects read what a script puts out
        busy = asyncio.all_tasks(scripts.event_loop) or any(each.returncode is None for each in scripts.bg_processes)
        if not busy and not any(type(value).__module__ in readers for value in [*shell.user_ns.values()]):
            scripts.stop_event_loop()
