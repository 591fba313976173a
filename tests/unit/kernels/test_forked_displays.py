"""Displays of a forked kernel: a bunch of displays wakes the thread of iopub once."""

import threading

import pytest
from support.waiting import wait_until

from freeact_sub.kernels.forkserver import streams
from freeact_sub.kernels.forkserver.streams import DISPLAY


@pytest.fixture
def sender(iopub, monkeypatch):
    iopub.sent = []
    monkeypatch.setattr(iopub, "_really_send", lambda message: iopub.sent.append(message[1]))
    return iopub


def test_displays_wait_for_each_other_or_for_the_next_other_message_and_keep_their_order(sender, monkeypatch):
    monkeypatch.setattr(streams, "REST_SECONDS", 100_000)
    sender.send_multipart([DISPLAY, 0])
    wait_until(lambda: sender.is_resting)
    wakes, wake = [], sender.io_loop.asyncio_loop.call_soon_threadsafe
    monkeypatch.setattr(
        sender.io_loop.asyncio_loop, "call_soon_threadsafe", lambda *a, **o: wakes.append(a) or wake(*a, **o)
    )
    for number in range(1, 11):
        sender.send_multipart([DISPLAY, number])
    assert (wakes, sender.sent) == ([], [0])
    sender.send_multipart([b"status", 11])
    wait_until(lambda: len(sender.sent) == 12)
    assert (len(wakes), sender.sent) == (1, list(range(12)))


def test_text_whose_time_has_come_goes_after_the_displays_that_wait(sender, monkeypatch):
    monkeypatch.setattr(streams, "REST_SECONDS", 100_000)
    sender.send_multipart([DISPLAY, 0])
    wait_until(lambda: sender.is_resting)
    sender.send_multipart([DISPLAY, 1])
    sender.io_loop.asyncio_loop.call_soon_threadsafe(sender.send_multipart, [b"stream", 2])
    wait_until(lambda: len(sender.sent) == 3)
    assert sender.sent == [0, 1, 2]


def test_displays_go_though_nothing_follows_them(sender):
    for number in range(300):
        sender.send_multipart([DISPLAY, number])
        if number % 30 == 0:
            wait_until(lambda: len(sender.sent) > number)
    wait_until(lambda: len(sender.sent) == 300)
    assert sender.sent == list(range(300))
    wait_until(lambda: not sender.is_resting)  # and no timer is left


def test_who_displays_waits_while_the_thread_sends(sender, monkeypatch):
    began, go_on = threading.Event(), threading.Event()

    def send(message):
        began.set()
        assert go_on.wait(120)
        sender.sent.append(message[1])

    monkeypatch.setattr(sender, "_really_send", send)
    sender.send_multipart([DISPLAY, 0])
    assert began.wait(120)
    sender.send_multipart([b"status", 1])
    assert sender.sent == []
    other = threading.Thread(target=sender.send_multipart, args=([DISPLAY, 2],))
    other.start()
    other.join(0.05)
    assert other.is_alive()
    go_on.set()
    other.join(120)
    assert sender.sent[:1] == [0]
    wait_until(lambda: sender.sent == [0, 1, 2])
