"""What a flush of a forked kernel's output does: nothing where nothing was written, and else it waits until it is sent."""

import threading

import pytest
import zmq
from jupyter_client.session import Session

from freeact_sub.kernels.forkserver.streams import ForkedStream, PairIOPubThread


@pytest.fixture
def stream():
    with zmq.Context() as context:
        thread = PairIOPubThread(context.socket(zmq.PUB), session=Session(key=b"key"))
        thread.start()
        stream = ForkedStream(thread.session, thread, "stdout", watchfd=False)
        yield stream
        stream.close()
        thread.stop()
        thread.close()


def test_a_flush_wakes_no_thread_where_nothing_was_written(stream, monkeypatch):
    scheduled, schedule = [], stream.pub_thread.schedule
    monkeypatch.setattr(stream.pub_thread, "schedule", lambda event: scheduled.append(event) or schedule(event))
    stream.flush()
    assert scheduled == []
    stream.write("words")
    stream.flush()
    assert scheduled
    scheduled.clear()
    stream.flush()
    assert scheduled == []


def test_a_flush_waits_for_text_that_another_is_sending(stream):
    sent, began, go_on = [], threading.Event(), threading.Event()

    def send(_, message, **__):
        began.set()
        assert go_on.wait(60)
        sent.append(message["content"]["text"])

    stream.session.send = send
    stream.write("words")
    first, second = (threading.Thread(target=stream.flush) for _ in range(2))
    first.start()
    assert began.wait(60)
    second.start()
    second.join(0.05)
    assert (second.is_alive(), sent) == (True, [])
    go_on.set()
    second.join(60)
    assert sent == ["words"]
    first.join(60)
