"""What a flush of a forked kernel does: nothing where nothing was written, else it waits until that is sent; output of programs."""

import os
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


def test_a_character_of_a_program_may_come_in_two_reads_and_the_log_may_be_full(stream, monkeypatch):
    reader, writer = os.pipe()
    written = []
    with open("/dev/full", "wb", buffering=0) as log, monkeypatch.context() as patched:
        parts = {"write": written.append, "_fid": reader, "_original_stdstream_copy": log.fileno(), "_should_watch": True}
        for name, part in parts.items():
            patched.setattr(stream, name, part, raising=False)
        for byte in "é\xff".encode("latin-1") + "é".encode():
            os.write(writer, bytes([byte]))
            stream.flush()
    os.close(writer)
    os.close(reader)
    assert "".join(written) == "\ufffd\ufffdé"
