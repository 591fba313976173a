"""What a flush of a forked kernel does: nothing where nothing was written, else it waits until that is sent; output of programs."""

import os
import threading

import pytest
from support.waiting import wait_until

from freeact_sub.kernels.forkserver.borrowed_streams import ForkedStream


@pytest.fixture
def stream(iopub):
    stream = ForkedStream(iopub.session, iopub, "stdout", watchfd=False)
    yield stream
    stream.close()


def test_a_flush_wakes_no_thread_where_nothing_was_written(stream, monkeypatch):
    scheduled, schedule = [], stream.pub_thread.schedule
    monkeypatch.setattr(
        stream.pub_thread, "schedule", lambda event, **options: scheduled.append(event) or schedule(event, **options)
    )
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


def test_a_flush_waits_until_text_that_the_timer_has_taken_is_sent_behind_all_that_waits(stream, monkeypatch):
    thread, send, sent = stream.pub_thread, stream.session.send, []
    taken, go_on, flush = threading.Event(), threading.Event(), threading.Thread(target=stream.flush)

    def send_later(*arguments, **options):
        taken.set()
        assert go_on.wait(60)
        send(*arguments, **options)

    def really_send(message):
        if b"words" in message[-1]:
            flush.join(0.05)
        sent.append((message[-1][:5], flush.is_alive()))

    monkeypatch.setattr(stream.session, "send", send_later)
    monkeypatch.setattr(thread, "_really_send", lambda message, *_, **__: really_send(message))
    stream.flush_interval = 100_000
    stream.write("words")
    thread.io_loop.asyncio_loop.call_soon_threadsafe(stream._flush_in_time)  # noqa: SLF001  # as the timer does
    assert taken.wait(60)
    thread.send_multipart([b"display_data", b"first"])
    thread.send_multipart([b"comm_msg", b"other"])
    flush.start()
    wait_until(lambda: len(thread._events) == 4)  # noqa: SLF001  # both messages, and what the flush waits for
    go_on.set()
    flush.join(60)
    assert [text for text, _ in sent] == [b"first", b"other", b'{"nam']
    assert sent[-1][1], "the flush was over before the text was sent"


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
