"""A forked kernel greets each subscriber to its output."""

import asyncio
import contextlib
import json

import pytest
import zmq
from support.elsewhere import CANNOT_FORK
from support.kernels import open_kernel, run_cell
from support.waiting import eventually

pytestmark = [pytest.mark.kernel, pytest.mark.skipif(CANNOT_FORK, reason="kernels are forked on Linux only")]


async def test_a_subscriber_that_comes_while_a_kernel_puts_out_text_is_greeted(provider, tmp_path):
    """zmq notes a subscription while it sends, and its descriptor does not tell of it any more."""
    async with open_kernel(provider, tmp_path) as kernel:
        connection = json.loads(kernel.connection_file.read_text())
        path, done = f"{connection['ip']}-{connection['iopub_port']}", tmp_path / "done"
        code = f"import os\nwhile not os.path.exists({str(done)!r}):\n    print('x', flush=True)"
        cell = asyncio.create_task(run_cell(kernel, code))
        with zmq.Context() as context:
            try:
                for _ in range(40):
                    with context.socket(zmq.SUB) as subscriber:
                        subscriber.linger = 0
                        subscriber.subscribe(b"")
                        subscriber.connect(f"ipc://{path}")
                        await eventually(lambda subscriber=subscriber: was_greeted(subscriber))
            finally:
                done.touch()
                await cell


def was_greeted(subscriber: zmq.Socket[bytes]) -> bool:
    with contextlib.suppress(zmq.Again):
        while b"iopub_welcome" not in b"".join(subscriber.recv_multipart(zmq.DONTWAIT)):
            pass
        return True
    return False
