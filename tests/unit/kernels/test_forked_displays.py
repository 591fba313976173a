"""Displays of a forked kernel: the formatter shows what IPython's shows, and a bunch of displays wakes the thread of iopub once."""

import itertools
import threading

import pytest
from IPython.core.formatters import BaseFormatter, DisplayFormatter, PlainTextFormatter
from support.waiting import wait_until
from traitlets import Unicode

from freeact_sub.kernels.forkserver import streams
from freeact_sub.kernels.forkserver.display import PLAIN, ShortDisplayFormatter
from freeact_sub.kernels.forkserver.streams import DISPLAY

HTML = "text/html"


class Marked(int):
    """A value of a type that inherits from a plain one, and has a display of its own."""

    def _repr_html_(self):
        return f"<b>{int(self)}</b>"


class ForModels(BaseFormatter):
    """A formatter of somebody else."""

    format_type = Unicode("x-vendor/model")

    def __call__(self, value):
        return f"model: {value}"


VALUES = [
    *(7, True, None, ..., 1.23456, 1j, "text\n", b"bytes", range(3), slice(1, 2), frozenset({1})),
    *((1, 2), [1, [2] * 400], {"a": {"b": [None] * 40}}, {3}, Marked(3), [Marked(3)], int, object(), NotImplemented),
]


def of_a_type(formatter, kind, show=lambda value, *_: f"shown: {type(value).__name__}"):
    formatter.for_type(kind, show)


def text_printer(value, printer, cycle):
    printer.text(f"as text: {type(value).__name__}")


SETUPS = {
    "nothing": lambda shown: None,
    "a printer for a type": lambda shown: of_a_type(shown.formatters[HTML], int),
    "one for each": lambda shown: of_a_type(shown.formatters[HTML], object),
    "one by name": lambda shown: of_a_type(shown.formatters[HTML], "builtins.list"),
    "one for a value": lambda shown: shown.formatters[HTML].singleton_printers.update({id(None): lambda _: "<i>None</i>"}),
    "another dictionary": lambda shown: shown.formatters[HTML].set_trait("type_printers", {str: lambda _: "<i>str</i>"}),
    "a bundle": lambda shown: of_a_type(shown.mimebundle_formatter, float, lambda value: {"a/b": str(value)}),
    "its own display": lambda shown: of_a_type(shown.ipython_display_formatter, dict, lambda _: None),
    "a printer of text": lambda shown: of_a_type(shown.formatters["text/plain"], int, text_printer),
    "a text of two digits": lambda shown: shown.formatters["text/plain"].set_trait("float_precision", "2"),
    "repr": lambda shown: shown.formatters["text/plain"].set_trait("pprint", False),
    "an error": lambda shown: of_a_type(shown.formatters["text/plain"], int, lambda *_: 1 / 0),
    "somebody's formatter": lambda shown: shown.register_formatter(ForModels(parent=shown)),
    "no text": lambda shown: shown.formatters.pop("text/plain"),
    "only text": lambda shown: shown.set_trait("active_types", ["text/plain"]),
}


@pytest.mark.parametrize("setup", SETUPS.values(), ids=SETUPS)
def test_the_short_formatter_shows_what_that_of_ipython_shows(setup):
    theirs, ours = DisplayFormatter(), ShortDisplayFormatter()
    for step in (lambda _: None, setup):
        step(theirs)
        step(ours)
        for value, options in itertools.product(VALUES, ({}, {"include": [HTML]}, {"exclude": ["text/plain"]})):
            assert ours.format(value, **options) == theirs.format(value, **options), (value, options)


def test_a_printer_that_is_taken_back_counts_no_more():
    shown = ShortDisplayFormatter()
    for _ in range(2):
        of_a_type(shown.formatters[HTML], int)
        assert HTML in shown.format(1)[0]
        shown.formatters[HTML].pop(int)
        assert shown.format(1) == ({"text/plain": "1"}, {})
        shown.formatters[HTML].type_printers = {int: lambda _: "<i>int</i>"}
        assert HTML in shown.format(1)[0]
        shown.formatters[HTML].type_printers = {}


def test_only_the_formatter_of_text_is_asked_for_a_plain_value(monkeypatch):
    asked, shown = [], ShortDisplayFormatter()
    shown.format(1)
    ask = BaseFormatter.lookup
    monkeypatch.setattr(BaseFormatter, "lookup", lambda self, value: asked.append(type(self)) or ask(self, value))
    for value in VALUES:
        if type(value) in PLAIN:
            shown.format(value)
    assert set(asked) <= {PlainTextFormatter}
    shown.format(Marked(1))
    assert len(set(asked)) > 5


def test_no_plain_type_and_no_value_of_one_can_be_given_a_display():
    for kind in PLAIN:
        with pytest.raises(TypeError):
            kind._repr_html_ = lambda self: "<b/>"
        assert kind.__dictoffset__ == 0, kind


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
