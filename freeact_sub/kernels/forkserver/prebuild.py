"""An `IPKernelApp` that is built in two steps: all that survives a fork before it, all that does not after it.

Loaded by `server.py`; it needs ipykernel and the standard library only.
"""

import importlib
import os
import sys
import uuid
from typing import Any

ARGUMENTS = ["--IPKernelApp.parent_handle=0", "--HistoryManager.enabled=False"]
LATE = ("ipykernel.debugger", "ipykernel.comm", "IPython.core.logger", "tornado.platform.asyncio")
"""Modules that every kernel would otherwise import after the fork."""


def app_class() -> Any:
    """The class of a forked kernel's app: its iopub loses nothing, and it opens no TCP port."""
    zmq: Any = importlib.import_module("zmq")
    from ipykernel.kernelapp import IPKernelApp

    class ForkedKernelApp(IPKernelApp):  # type: ignore[misc]  # ipykernel is not followed by the type checker
        """A kernel app with its own iopub."""

        def init_iopub(self, context: Any) -> None:
            self.iopub_socket = context.socket(zmq.XPUB)
            self.iopub_socket.linger = 1000
            self.iopub_socket.sndhwm = 0
            self.iopub_socket.xpub_verbose = 1
            self.iopub_port: int = self._bind_socket(self.iopub_socket, self.iopub_port)
            self.configure_tornado_logger()
            self.iopub_thread = sys.modules["freeact_streams"].PairIOPubThread(
                self.iopub_socket, pipe=True, session=self.session
            )
            self.iopub_thread.start()
            self.iopub_socket = self.iopub_thread.background_socket

        def log_connection_info(self) -> None:
            """Without its advice for people who have started a kernel by hand: our log tells why one did not start."""
            self.parent_handle, own = 1, self.parent_handle
            super().log_connection_info()
            self.parent_handle = own

    return ForkedKernelApp


def prebuild() -> Any:
    """An `IPKernelApp` with its shell, as far as it can be built without sockets, threads and loops.

    Raises:
        Exception: This ipykernel is built differently; the caller then forks after the imports only.
    """
    # the debugger is no use to an agent; its import would double the memory and the time
    sys.modules["debugpy"] = None  # type: ignore[assignment]
    try:
        for name in LATE:
            importlib.import_module(name)
    finally:
        del sys.modules["debugpy"]
    from ipykernel.kernelapp import IPKernelApp
    from ipykernel.zmqshell import ZMQInteractiveShell

    app = app_class().instance(outstream_class="freeact_streams.ForkedStream")
    super(IPKernelApp, app).initialize(list(ARGUMENTS))
    app.init_pdb()
    app.init_blackhole()
    kernel_class = app.kernel_class
    app.shell = ZMQInteractiveShell.instance(
        parent=app,
        profile_dir=app.profile_dir,
        kernel=None,
        compiler_class=kernel_class.compiler_class.default_value,
    )
    app.init_extensions()
    warm_up(app.shell)
    app.kernel_class = early_kernel(kernel_class)
    kernel = app.kernel_class.instance(
        parent=app, session=app.session, log=app.log, profile_dir=app.profile_dir, user_ns=app.user_ns
    )
    app.shell.kernel = app.shell.parent = kernel
    return app


def early_kernel(base: Any) -> Any:
    """The class of a kernel that is built before the fork, when there are no sockets and threads yet.

    Its own start looks through all modules, and so would copy the pages of each.
    """

    class EarlyKernel(base):  # type: ignore[misc]  # ipykernel is not followed by the type checker
        """`instance`, called again, gives the kernel that is there what has been made since."""

        @classmethod
        def instance(cls, *arguments: Any, **values: Any) -> Any:
            kernel = super().instance(*arguments, **values)
            kernel.take(values)
            return kernel

        def take(self, values: dict[str, Any]) -> None:
            for name, value in values.items():
                setattr(self, name, value)
            self.ident = str(uuid.uuid4())
            self._stdout, self._stderr = sys.stdout, sys.stderr
            hook = self.shell.displayhook
            hook.topic = self._topic("execute_result")
            hook.pub_socket = self.shell.display_pub.pub_socket = self.iopub_socket

    return EarlyKernel


def warm_up(shell: Any) -> None:
    """Runs one silent cell, and shows its value to nobody: what IPython makes at the first one is there before the fork."""
    shell.run_cell("1 + 1", store_history=False, silent=True)
    shell.display_formatter.format(2)
    for name in ("_", "__", "___"):
        shell.user_ns.pop(name, None)


def finish(app: Any, connection_file: str) -> None:
    """Takes the steps of `IPKernelApp.initialize` that remain after the fork, in its order."""
    app.session.pid, app.session.session = os.getpid(), str(uuid.uuid4())
    app.connection_file = connection_file
    app.init_connection_file()
    app.init_sockets()
    app.init_heartbeat()
    app.write_connection_file()
    os.write(3, b"b")
    os.close(3)
    app.log_connection_info()
    app.init_io()
    app.init_signal()
    shell = app.shell
    app.init_kernel()
    if app.kernel is not shell.kernel or app.kernel.shell is not shell:
        raise RuntimeError("the kernel and the shell that were prepared are not those that there are")
    app.init_path()
    app.init_shell()
    app.init_gui_pylab()
    app.init_code()
    sys.stdout.flush()
    sys.stderr.flush()
