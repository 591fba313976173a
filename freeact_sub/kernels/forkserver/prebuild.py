"""An `IPKernelApp` that is built in two steps: all that survives a fork before it, all that does not after it.

Loaded by `server.py`; it needs ipykernel and the standard library only.
"""

import contextlib
import importlib
import json
import os
import sys
import uuid
from typing import Any

ARGUMENTS = ["--IPKernelApp.parent_handle=0", "--HistoryManager.enabled=False", "--Session.copy_threshold=1000000000"]
"""Arguments of the app. The last one: from the first larger message on, pyzmq has a thread, and a kernel with threads is
not branched."""
LATE = ("ipykernel.debugger", "ipykernel.comm", "IPython.core.logger", "tornado.platform.asyncio")
"""Modules that every kernel would otherwise import after the fork."""


def prebuild() -> Any:
    """Builds an `IPKernelApp` with its shell, as far as possible without sockets, threads and loops.

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

    kernel_class: Any = sys.modules["freeact_borrowed_app"].EarlyKernel
    app = sys.modules["freeact_borrowed_app"].ForkedKernelApp.instance(
        outstream_class="freeact_borrowed_streams.ForkedStream"
    )
    super(IPKernelApp, app).initialize(list(ARGUMENTS))
    app.log.setLevel(app.log_level)  # else it makes a record of each step of each cell, which no handler takes
    app.init_pdb()
    app.init_blackhole()
    app.configure_tornado_logger()
    if not issubclass(kernel_class, app.kernel_class):
        raise TypeError(f"another kernel class is configured: {app.kernel_class}")
    app.kernel_class = kernel_class
    app.shell = ZMQInteractiveShell.instance(
        parent=app,
        profile_dir=app.profile_dir,
        kernel=None,
        compiler_class=kernel_class.compiler_class.default_value,
    )
    app.init_extensions()
    warm_up(app.shell)
    kernel = kernel_class.instance(
        parent=app, session=app.session, log=app.log, profile_dir=app.profile_dir, user_ns=app.user_ns
    )
    app.shell.kernel = app.shell.parent = kernel
    return app


def forget() -> None:
    """Drops the objects of a failed `prebuild`: a kernel then makes an app, a shell and a kernel of its own."""
    from ipykernel.ipkernel import IPythonKernel
    from ipykernel.kernelapp import IPKernelApp
    from ipykernel.zmqshell import ZMQInteractiveShell

    for kind in (IPKernelApp, IPythonKernel, ZMQInteractiveShell):
        kind.clear_instance()


def warm_up(shell: Any) -> None:
    """Runs one silent cell, so that IPython's objects of a first cell exist before the fork."""
    shell.run_cell("1 + 1", store_history=False, silent=True)
    shell.display_formatter.format(2)
    for name in ("_", "__", "___"):
        shell.user_ns.pop(name, None)


def write_connection_file(request: dict[str, Any]) -> None:
    """Writes the file that other Jupyter programs need to attach, unless it is there."""
    with contextlib.suppress(FileExistsError):
        file = os.open(request["connection_file"], os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        os.write(file, json.dumps(request["connection"]).encode())
        os.close(file)


def bind(app: Any, request: dict[str, Any]) -> None:
    """Takes the first of the steps of `IPKernelApp.initialize` that remain after the fork: clients can connect then."""
    app.session.pid, app.session.session = os.getpid(), str(uuid.uuid4())
    app.connection_file = request["connection_file"]
    app.load_connection_info(request["connection"])
    app.subshells = request["servers"] is None
    app.init_sockets()
    app.init_heartbeat()
    if request["attach"]:
        write_connection_file(request)


def finish(app: Any) -> None:
    """Takes the other steps, in their order."""
    app.init_io()
    app.init_signal()
    app.init_kernel()
    if app.kernel is not app.shell.kernel or app.kernel.shell is not app.shell:
        raise RuntimeError("the kernel and the shell that were prepared are not those that there are")
    app.init_path()
    app.init_shell()
    app.init_gui_pylab()
    app.init_code()
    sys.stdout.flush()
    sys.stderr.flush()
