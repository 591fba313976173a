"""A kernel's life in the fork server, once, before it forks any: sockets, threads, loops and a silent cell.

Python notes where it has found each name, and each kernel would do so for itself, in pages that are its own from then on.
What the life has made ends with it, and what it has changed is put back. Loaded by `server.py`; it needs ipykernel and the
standard library only.
"""

import asyncio
import atexit
import importlib
import os
import shutil
import sys
import time
from types import SimpleNamespace
from typing import Any

zmq: Any = importlib.import_module("zmq")
PORTS = {"shell_port": 1, "iopub_port": 2, "stdin_port": 3, "control_port": 4, "hb_port": 5}
CELL = {"code": "print(1 + 1)", "silent": True, "store_history": False, "user_expressions": {}, "allow_stdin": False}
SECONDS = 10.0
PAUSE_SECONDS = 0.0005


def rehearse(app: Any, folder: str) -> None:
    """Live it.

    Args:
        app: The app that was built before the fork (`prebuild.py`).
        folder: For the sockets, with room in a socket's path; it is removed.

    Raises:
        Exception: This ipykernel is built differently. If it has left threads, this process must not fork.
    """
    shell, threads = app.shell, count_threads()
    changed = (app, app.session, shell.kernel, shell.displayhook, shell.display_pub)
    before = [state_of(one) for one in changed]
    connection = {**PORTS, "transport": "ipc", "ip": f"{folder}/k", "key": "rehearsal"}
    request = {"connection_file": "", "connection": connection, "servers": [], "attach": False}
    sys.modules["freeact_prebuild"].bind(app, request)
    app.displayhook = SimpleNamespace()  # `init_io` would also take over the handlers of the app's logger
    sys.stdout, sys.stderr = streams = [stream_of(app, name) for name in ("stdout", "stderr")]
    app.init_kernel()
    app.kernel.start()
    try:
        with zmq.Context() as context:
            app.kernel.io_loop.run_sync(lambda: run_cell(app.session, context, connection), timeout=SECONDS)
    finally:
        sys.stdout, sys.stderr = sys.__stdout__, sys.__stderr__
        end(app, streams)
        shell.set_parent({})
        for one, state in zip(changed, before, strict=True):
            one.__dict__.clear()
            one.__dict__.update(state)
        shutil.rmtree(folder)
    deadline = time.monotonic() + SECONDS
    while count_threads() > threads and time.monotonic() < deadline:  # one that was joined may not quite have ended
        time.sleep(PAUSE_SECONDS)


async def run_cell(session: Any, context: Any, connection: dict[str, Any]) -> None:
    """Have the kernel run a cell, as its host does."""
    with context.socket(zmq.SUB) as iopub, context.socket(zmq.DEALER) as shell:
        iopub.subscribe(b"")
        for socket, port in ((iopub, "iopub_port"), (shell, "shell_port")):
            socket.linger = 0
            socket.connect(f"ipc://{connection['ip']}-{connection[port]}")
        shell.send_multipart(session.serialize(session.msg("execute_request", CELL)))
        while not shell.poll(0):  # noqa: ASYNC110  # for a few milliseconds, once
            await asyncio.sleep(PAUSE_SECONDS)


def stream_of(app: Any, name: str) -> Any:
    """An output stream, which takes over the descriptor until it is closed."""
    return sys.modules["freeact_streams"].ForkedStream(app.session, app.iopub_thread, name)


def end(app: Any, streams: list[Any]) -> None:
    """End streams, threads, loops and sockets."""
    for stream in streams:
        stream.close()
    atexit.unregister(app.close)
    atexit.unregister(app.iopub_thread.stop)
    app.iopub_thread.stop()
    app.control_thread.stop()
    app.control_thread.join()
    app.kernel.shell_stream.close()
    app.kernel.io_loop.close()
    asyncio.set_event_loop(None)
    app.context.destroy(linger=0)
    for stream in streams:
        if stream._fid is not None:  # what programs write is read there, by a thread until now
            os.close(stream._fid)


def state_of(one: Any) -> dict[str, Any]:
    """The attributes of an object; those that are dictionaries, lists or sets as copies."""
    return {name: value.copy() if type(value) in (dict, list, set) else value for name, value in one.__dict__.items()}


def count_threads() -> int:
    """Those of this process."""
    return len(os.listdir("/proc/self/task"))
