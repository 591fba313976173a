"""What a cell puts out is bounded on its way: the host serves all agents meanwhile, and each cut is told."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import pytest_asyncio
from support.kernels import open_kernel, run_cell

from freeact_sub.kernels.guest.plain import MAX_MESSAGE_BYTES, MAX_VALUES

pytestmark = [pytest.mark.kernel, pytest.mark.asyncio(loop_scope="module")]
STALL_SECONDS = 5.0
"""Of computing time; a message of 200 MB took 22, in which nothing else was done."""
LIE = """
import json
kernel = get_ipython().kernel
def lie(socket, kind, content):
    header = {"msg_type": kind, "msg_id": "a", "session": "b", "username": "c", "date": "2020-01-01T00:00:00Z", "version": "5.3"}
    parts = [json.dumps(header).encode(), json.dumps(kernel.get_parent("shell")["header"], default=str).encode(), b"{}", content]
    socket.send_multipart([*socket_idents, b"<IDS|MSG>", kernel.session.sign(parts), *parts])
"""
TABLE = {
    "text": ("print('x' * 30_000_000)", "all of it is in"),
    "text in UTF-8": ("print('\\N{SNOWMAN}' * 10_000_000)", "all of it is in"),
    "a value": ("'x' * 30_000_000", "all of it is in"),
    "many small values": (
        "display({'application/json': [[] for _ in range(600_000)]}, raw=True)",
        f"[displayed, but left out: application/json: it has more than {MAX_VALUES:,} values]",
    ),
    "a picture": (
        "display({'image/png': 'A' * 20_000_000, 'text/plain': 'a picture'}, raw=True)",
        f"image/png: it has 20,000,002 bytes, more than {MAX_MESSAGE_BYTES:,}]\na picture",
    ),
    "several kinds": (
        "display({'text/html': 'h' * 20_000_000, 'image/svg+xml': '<svg/>'}, raw=True)",
        "[displayed: image/svg+xml]",
    ),
    "an error": ("raise ValueError('z' * 20_000_000)", "ValueError: zzz"),
    "a request": ("agent.ask('p' * 20_000_000)", "ValueError: the request cannot be sent: it has 20,0"),
    "a message past the kernel's own functions": (
        f"{LIE}socket_idents = [b't']\nlie(kernel.iopub_socket, 'display_data', b'[' + b'[],' * 10_000_000 + b'[]]')",
        "is left out: it is too large (display_data): it has 30,000,3",
    ),
}


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def kernel(shared_provider, tmp_path_factory):
    async with open_kernel(shared_provider, tmp_path_factory.mktemp("work")) as kernel:
        yield kernel


@asynccontextmanager
async def no_stall() -> AsyncIterator[None]:
    """Other tasks of the loop go on inside."""
    worst = 0.0

    async def look() -> None:
        nonlocal worst
        before = time.thread_time()
        while True:
            await asyncio.sleep(0.01)
            before, last = time.thread_time(), before
            worst = max(worst, before - last)

    looking = asyncio.create_task(look())
    try:
        yield
    finally:
        looking.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await looking
    assert worst < STALL_SECONDS


@pytest.mark.parametrize("name", TABLE)
async def test_what_is_too_large_is_cut_or_left_out_and_told(kernel, name, tmp_path):
    code, text = TABLE[name]
    async with no_stall():
        ran = await run_cell(kernel, code, file=tmp_path / "output.txt", limit=None)
    assert text in ran.text
    assert ran.status == ("error" if "ValueError" in text else "ok")
    if "all of it" in text:
        assert ran.buffer.total_chars >= 10_000_000
    assert (await run_cell(kernel, "6 * 7")).text == "42\n"


async def test_a_reply_that_is_too_large_ends_the_cell(kernel):
    """The cell has no time limit: nothing else would end it."""
    reply = 'b\'{"status": "error", "traceback": ["\' + b\'x\' * 30_000_000 + b\'"]}\''
    code = f"{LIE}socket_idents = kernel._parent_ident['shell']\nlie(kernel.shell_stream, 'execute_reply', {reply})"
    ran = await run_cell(kernel, code, limit=None)
    assert "its reply is left out: it is too large (execute_reply)" in ran.text
    assert (await run_cell(kernel, "6 * 7")).text == "42\n"
