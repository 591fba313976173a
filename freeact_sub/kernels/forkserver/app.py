"""The app and the kernel class of a forked kernel: those of ipykernel, without what nobody uses in such a kernel.

Loaded by `server.py`; it needs ipykernel and the standard library only.
"""

import contextlib
import importlib
import os
import sys
import threading
import uuid
from typing import Any

from ipykernel.control import ControlThread
from ipykernel.ipkernel import IPythonKernel
from ipykernel.kernelapp import IPKernelApp
from ipykernel.shellchannel import ShellChannelThread
from IPython.core.application import ENV_CONFIG_DIRS, SYSTEM_CONFIG_DIRS
from zmq.eventloop.zmqstream import ZMQStream

zmq: Any = importlib.import_module("zmq")
PORTS = ("shell_port", "iopub_port", "stdin_port", "hb_port", "control_port")
PARTS = ("session", "control_thread", "shell_channel_thread", "iopub_thread", "iopub_socket", "stdin_socket", "log")
"""What a kernel has of its app."""


class NoSubshells:
    """Stands in for the thread of subshells, which alone would read the shell channel: the main thread reads it."""

    def __init__(self) -> None:
        self.parent_thread = threading.current_thread()

    def __bool__(self) -> bool:
        return False


class ForkedKernelApp(IPKernelApp):  # type: ignore[misc]  # ipykernel is not followed by the type checker
    """Its sockets have paths; its iopub loses nothing; its threads are fewer."""

    subshells = False
    """Whether clients may ask for further threads that run cells."""

    def init_control(self, context: Any) -> None:
        """As the original, without the sockets of a debugger, which forked kernels do not have."""
        self.control_socket = context.socket(zmq.ROUTER)
        self.control_socket.linger = 1000
        self.control_port: int = self._bind_socket(self.control_socket, self.control_port)
        self.control_socket.router_handover = 1
        self.control_thread = ControlThread(daemon=True)
        self.shell_channel_thread = ShellChannelThread(context, daemon=True) if self.subshells else NoSubshells()

    def init_iopub(self, context: Any) -> None:
        """As the original, with a thread of our own (`streams.py`)."""
        self.iopub_socket = context.socket(zmq.XPUB)
        self.iopub_socket.linger = 1000
        self.iopub_socket.sndhwm = 0
        self.iopub_socket.xpub_verbose = 1
        self.iopub_port: int = self._bind_socket(self.iopub_socket, self.iopub_port)
        self.iopub_thread = sys.modules["freeact_streams"].PairIOPubThread(
            self.iopub_socket, pipe=True, session=self.session
        )
        self.iopub_thread.start()
        self.iopub_socket = self.iopub_thread.background_socket

    def init_kernel(self) -> None:
        """As the original, without a debugger."""
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

    def init_code(self) -> None:
        """As the original; which modules were there first (`%reset -s in`, `aggressive`) is noted before the fork."""
        if "PYTHONSTARTUP" in os.environ or has_startup_files(self.profile_dir.location):
            self._run_startup_files()
        self._run_exec_lines()
        self._run_exec_files()
        if self.hide_initial_ns:
            self.shell.user_ns_hidden.update(self.shell.user_ns)


def has_startup_files(profile: str) -> bool:
    """Whether IPython has something to run first. That it searches with six patterns takes as long as a small cell."""
    for folder in (profile, *ENV_CONFIG_DIRS, *SYSTEM_CONFIG_DIRS):
        with contextlib.suppress(OSError):
            if any(name.endswith((".py", ".ipy")) for name in os.listdir(f"{folder}/startup")):
                return True
    return False


class EarlyKernel(IPythonKernel):  # type: ignore[misc]  # ipykernel is not followed by the type checker
    """A kernel that is built before the fork, when there are no sockets and threads yet.

    Its own start looks through all modules, and so would copy the pages of each. `instance`, called again, gives the
    kernel that is there what has been made since.
    """

    _execute_sleep = 0
    """Seconds after a cell: ipykernel waits for output, of which a flush is the end here."""

    @classmethod
    def instance(cls, *arguments: Any, **values: Any) -> Any:
        """See the class."""
        kernel = super().instance(*arguments, **values)
        kernel.take(values)
        return kernel

    def take(self, values: dict[str, Any]) -> None:
        """Set what has been made since."""
        for name, value in values.items():
            setattr(self, name, value)
        self.ident = str(uuid.uuid4())
        self._stdout, self._stderr = sys.stdout, sys.stderr
        hook = self.shell.displayhook
        hook.topic = self._topic("execute_result")
        hook.pub_socket = self.shell.display_pub.pub_socket = self.iopub_socket

    def start(self) -> None:
        """As the original, which would warn of the missing debugger. Then whoever has subscribed is greeted."""
        self.shell.exit_now = False
        super(IPythonKernel, self).start()
        self.iopub_thread.schedule(self.iopub_thread.greet)

    @property
    def _supports_kernel_subshells(self) -> bool:
        return bool(self.shell_channel_thread)
