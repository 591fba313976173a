"""The fork server lives through the life of a kernel before it forks any. No kernel finds anything of it."""

import os
import sys
from pathlib import Path

import psutil
import pytest
from support.kernels import open_kernel, run_cell, spec

from freeact_sub.kernels import ForkKernelProvider

pytestmark = [pytest.mark.kernel, pytest.mark.skipif(sys.platform != "linux", reason="kernels are forked on Linux only")]

LOOK = """
import asyncio, atexit, sys, threading
def _look(kernel):
    app = kernel.parent
    assert kernel.get_parent("control") == {} and kernel.session is app.session
    assert app.session.key != b"rehearsal"
    assert app.context.closed is False and len(app.context._sockets) == 4, app.context._sockets
    assert [thread.name for thread in threading.enumerate()] == ["MainThread", "IOPub", "Control"], threading.enumerate()
    assert asyncio.get_event_loop() is kernel.io_loop.asyncio_loop
    assert get_ipython().configurables.count(app) == 1
    assert sys.stdout is kernel._stdout and sys.stdout.pub_thread is app.iopub_thread
    assert not any(name in get_ipython().user_ns for name in ("_", "_1"))
    return atexit._ncallbacks()
print("atexit", _look(get_ipython().kernel))
"""


async def test_a_kernel_finds_nothing_of_the_life_that_its_fork_server_has_lived(provider, tmp_path):
    async with open_kernel(provider, tmp_path) as kernel:
        server = await next(iter(provider.servers.values()))
        assert (server.ready["threads"], server.ready["prebuilt"], server.log_tail()) == (1, True, "")
        folders = [path.name for path in server.new_folder().parent.iterdir() if path.is_dir()]
        assert len(folders) == 2, folders  # the kernel's, and that one
        forker = psutil.Process(kernel.pid).parent()
        assert forker is not None
        opened = [os.readlink(path) for path in Path(f"/proc/{forker.pid}/fd").iterdir()]
        kinds = sorted(name.partition(":")[0] for name in opened if not name.startswith("/"))
        assert kinds == ["pipe", "pipe", "socket"], opened
        text = (await run_cell(kernel, LOOK)).text
        assert text.startswith("atexit "), text


VAIN = """
from IPython.core.formatters import PlainTextFormatter
format_any = PlainTextFormatter.__call__
def format(self, value):
    if value == 2:  # as is shown to nobody before the fork
        raise TypeError("of another IPython")
    return format_any(self, value)
PlainTextFormatter.__call__ = format
"""


async def test_what_was_built_before_the_fork_in_vain_is_in_no_kernels_way(tmp_path, caplog):
    (tmp_path / "vain.py").write_text(VAIN)
    provider = ForkKernelProvider(spares=0, preload=("vain",))
    environment = dict(spec(tmp_path).environment) | {"PYTHONPATH": str(tmp_path)}
    try:
        async with open_kernel(provider, tmp_path, environment=environment) as kernel:
            assert (await run_cell(kernel, "type(agent).__name__")).text == "'AgentProxy'\n"
    finally:
        await provider.aclose()
    assert "forked after imports only" in caplog.text
