"""An `IPKernelApp` that is built in two steps: all that survives a fork before it, all that does not after it.

Loaded by `server.py`; it needs ipykernel and the standard library only.
"""

import contextlib
import importlib
import os
import socket
import struct
import sys
import uuid
from typing import Any

ARGUMENTS = ["--IPKernelApp.parent_handle=0", "--HistoryManager.enabled=False"]
LATE = ("ipykernel.debugger", "ipykernel.comm", "IPython.core.logger", "tornado.platform.asyncio")
"""Modules that every kernel would otherwise import after the fork."""
READABLE = 1
PIECE_BYTES = 60_000
"""Bytes of a piece of a message between processes; the system sends no piece beyond some 200 kB."""
SEND_SECONDS = 3
PIECE = struct.Struct("=QB")
"""The header of a piece: the number of its message, and whether it is the last one."""
FRAME = struct.Struct("=I")


class ForkPair:
    """Messages from the processes that a kernel forks to the kernel; for ipykernel both a zmq context and its socket."""

    def __init__(self) -> None:
        self.ours, self.theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.ours.setblocking(False)
        self.theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("@ll", SEND_SECONDS, 0))
        self.unfinished: dict[int, bytearray] = {}

    def send_multipart(self, frames: list[Any], *_: Any, **__: Any) -> None:
        """Called in a forked process. What the kernel does not take in time is dropped."""
        parts = [bytes(frame) for frame in frames]
        data = b"".join(FRAME.pack(len(part)) + part for part in parts)
        number = int.from_bytes(os.urandom(8), "big")
        with contextlib.suppress(OSError):
            for start in range(0, len(data), PIECE_BYTES):
                last = start + PIECE_BYTES >= len(data)
                self.theirs.send(PIECE.pack(number, last) + data[start : start + PIECE_BYTES])

    def close(self) -> None:
        """All has been sent."""

    term = close

    def receive(self) -> list[list[bytes]]:
        """The messages that are whole by now."""
        messages = []
        with contextlib.suppress(BlockingIOError):
            while piece := self.ours.recv(PIECE.size + PIECE_BYTES):
                number, last = PIECE.unpack_from(piece)
                data = self.unfinished.setdefault(number, bytearray())
                data += piece[PIECE.size :]
                if last:
                    messages.append(frames_of(bytes(self.unfinished.pop(number))))
        return messages


def frames_of(data: bytes) -> list[bytes]:
    """The frames of a message."""
    frames, start = [], 0
    while start < len(data):
        [size] = FRAME.unpack_from(data, start)
        start += FRAME.size + size
        frames.append(data[start - size : start])
    return frames


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
            self.iopub_thread = PairIOPubThread(self.iopub_socket, pipe=True, session=self.session)
            self.iopub_thread.start()
            self.iopub_socket = self.iopub_thread.background_socket

        def log_connection_info(self) -> None:
            """Without its advice for people who have started a kernel by hand: our log tells why one did not start."""
            self.parent_handle, own = 1, self.parent_handle
            super().log_connection_info()
            self.parent_handle = own

    class PairIOPubThread(IOPubThread):  # type: ignore[misc]  # ipykernel is not followed by the type checker
        """Output of processes that a cell forks comes over a pair of sockets: nothing listens, and nothing connects."""

        def _setup_pipe_in(self) -> None:
            self._pipe_uuid = b""
            self._pair = ForkPair()
            self.io_loop.add_handler(self._pair.ours, self._receive, READABLE)

        def _receive(self, *_: Any) -> None:
            for message in self._pair.receive():
                self._handle_pipe_msg(message)

        def _setup_pipe_out(self) -> tuple[Any, Any]:
            return self._pair, self._pair

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
