"""An `IPKernelApp` that is built in two steps: all that survives a fork before it, all that does not after it.

Loaded by `server.py`; it needs ipykernel and the standard library only.
"""

import importlib
import os
import sys
from typing import Any

ARGUMENTS = ["--IPKernelApp.parent_handle=0", "--HistoryManager.enabled=False"]
LATE = ("ipykernel.debugger", "ipykernel.comm", "IPython.core.logger", "tornado.platform.asyncio")
"""What every kernel would otherwise import after the fork."""
SOCKET_PATH_BYTES = 100
"""Longer paths are refused by the system."""


def app_class() -> Any:
    """The class of a forked kernel's app: its iopub loses nothing, and it opens no TCP port."""
    zmq: Any = importlib.import_module("zmq")
    from ipykernel.iostream import IOPubThread
    from ipykernel.kernelapp import IPKernelApp

    for name in ("_setup_pipe_in", "_setup_pipe_out", "_handle_pipe_msg"):
        getattr(IOPubThread, name)  # the names that are overridden must still mean something

    class ForkedKernelApp(IPKernelApp):  # type: ignore[misc]  # ipykernel is not followed by the type checker
        """A kernel app with its own iopub."""

        def init_iopub(self, context: Any) -> None:
            self.iopub_socket = context.socket(zmq.XPUB)
            self.iopub_socket.linger = 1000
            self.iopub_socket.sndhwm = 0
            self.iopub_socket.xpub_verbose = 1
            self.iopub_port: int = self._bind_socket(self.iopub_socket, self.iopub_port)
            self.configure_tornado_logger()
            self.iopub_thread = IpcIOPubThread(self.iopub_socket, pipe=True, session=self.session)
            self.iopub_thread.start()
            self.iopub_socket = self.iopub_thread.background_socket

    class IpcIOPubThread(IOPubThread):  # type: ignore[misc]  # ipykernel is not followed by the type checker
        """Output of processes that a cell forks comes over an ipc socket beside the others, not over a TCP port."""

        _pipe_address: str

        def _setup_pipe_in(self) -> None:
            zmqstream: Any = importlib.import_module("zmq.eventloop.zmqstream")
            self._pipe_uuid = os.urandom(16)
            app = ForkedKernelApp.instance()
            self._pipe_address = f"ipc://{app.connection_file}-forks"
            if app.transport != "ipc" or len(self._pipe_address) > SOCKET_PATH_BYTES:
                super()._setup_pipe_in()
                self._pipe_address = f"tcp://127.0.0.1:{self._pipe_port}"
                return
            pipe_in = self.socket.context.socket(zmq.PULL)
            pipe_in.linger = 0
            pipe_in.bind(self._pipe_address)
            self._pipe_in = zmqstream.ZMQStream(pipe_in, self.io_loop)
            self._pipe_in.on_recv(self._handle_pipe_msg)

        def _setup_pipe_out(self) -> tuple[Any, Any]:
            context = zmq.Context()
            pipe_out = context.socket(zmq.PUSH)
            pipe_out.linger = 3000
            pipe_out.connect(self._pipe_address)
            return context, pipe_out

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

    app = app_class().instance()
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
    return app


def warm_up(shell: Any) -> None:
    """Run one silent cell: what IPython imports and compiles at its first cell is then there before the fork."""
    shell.run_cell("1 + 1", store_history=False, silent=True)
    for name in ("_", "__", "___"):
        shell.user_ns.pop(name, None)


def finish(app: Any, connection_file: str) -> None:
    """What remains to be done for a kernel after the fork, in the order of `IPKernelApp.initialize`."""
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
    if app.kernel.shell is not shell:
        raise RuntimeError("the kernel did not take the shell that was prepared for it")
    shell.kernel = shell.parent = app.kernel
    app.init_path()
    app.init_shell()
    app.init_gui_pylab()
    app.init_code()
    sys.stdout.flush()
    sys.stderr.flush()
