import threading

import pytest
import zmq
from jupyter_client.session import Session

from freeact_sub.kernels.forkserver.borrowed_streams import PairIOPubThread


@pytest.fixture
def iopub():
    """The thread of iopub of a forked kernel, which nobody subscribes to. It runs."""
    with zmq.Context() as context:
        thread, began = PairIOPubThread(context.socket(zmq.PUB), session=Session(key=b"key")), threading.Event()
        thread.start()
        thread.io_loop.asyncio_loop.call_soon_threadsafe(began.set)  # one that is ended before leaves a task of ipykernel's
        assert began.wait(120)
        yield thread
        thread.stop()
        thread.close()
