"""What code in a kernel can send: every message is read or passed over, and the reader goes on."""

import asyncio
import contextlib
import itertools
import json
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jupyter_client.session import DELIM, Session
from support.tables import each
from support.thorough import examples
from support.waiting import turns

from freeact_sub.cells import CellError, DisplayData, StreamText
from freeact_sub.errors import KernelLostError, KernelStartError
from freeact_sub.kernels import CellClock, CellOutputBuffer
from freeact_sub.kernels.wire import client as client_module
from freeact_sub.kernels.wire.channels import (
    CHANNELS,
    MAX_DEPTH,
    MessageError,
    RefusedMessageError,
    output_of,
    read_message,
    reply_of,
    signed_parts,
)
from freeact_sub.kernels.wire.client import EXITS, FLOODED, MAX_REFUSED, KernelClient

SESSION = Session(key=b"key")
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
KINDS = [
    "stream",
    "display_data",
    "update_display_data",
    "execute_result",
    "error",
    "clear_output",
    "status",
    "iopub_welcome",
]
FIELDS = ["name", "text", "data", "metadata", "transient", "execution_count", "ename", "evalue", "traceback", "wait"]
OUTPUTS = st.dictionaries(
    st.sampled_from([*FIELDS, "execution_state", "id", "method", "params", "status"]), JSON, max_size=6
)


def encoded(*parts: object) -> list[bytes]:
    return [part if isinstance(part, bytes) else json.dumps(part).encode() for part in parts]


def signed(*parts: object) -> list[bytes]:
    raw = encoded(*parts)
    return [b"topic", DELIM, SESSION.sign(raw[:4]), *raw]


def nested(depth: int) -> bytes:
    return b"[" * depth + b"]" * depth


@settings(max_examples=examples(400))
@given(st.sampled_from([*KINDS, "freeact_request"]), OUTPUTS | JSON, JSON, JSON)
def test_any_json_is_a_message_or_is_refused(kind, content, parent, metadata):
    try:
        message = read_message(encoded({"msg_type": kind}, parent, metadata, content))
        output = output_of(message)
    except MessageError:
        return
    assert message.kind == kind
    reply_of(message)
    if output is not None:
        buffer = CellOutputBuffer()
        buffer.add(output)
        assert isinstance(buffer.text, str)


@settings(max_examples=examples(300))
@given(st.lists(st.binary(max_size=40), max_size=8), st.booleans())
def test_any_bytes_are_refused(frames, with_signature):
    if with_signature:
        frames = signed(*frames)
    with pytest.raises(MessageError):
        read_message(signed_parts(frames, SESSION))


@given(st.lists(st.binary(max_size=40), min_size=4, max_size=6), st.integers(0, 3))
def test_a_signature_covers_header_parent_metadata_and_content(parts, changed):
    frames = signed(*parts)
    assert signed_parts(frames, SESSION) == parts
    frames[3 + changed] += b"x"
    with pytest.raises(MessageError, match="signature"):
        signed_parts(frames, SESSION)


def test_a_kernel_without_a_key_has_empty_signatures():
    without = Session(key=b"")
    assert signed_parts([DELIM, b"", b"{}", b"{}", b"{}", b"{}"], without) == [b"{}"] * 4
    with pytest.raises(MessageError, match="signature"):
        signed_parts([DELIM, b"x", b"{}", b"{}", b"{}", b"{}"], without)


@given(st.text(" \t\n\r\f\u00a0\ufeff{}x", max_size=3), JSON, st.text(" \t\n\r\f\u00a0\ufeff{}x", max_size=3))
def test_space_around_json_is_skipped_and_nothing_else_is(before, value, after):
    content = f"{before}{json.dumps({'a': value})}{after}"
    parts = [*encoded({"msg_type": "status"}, {}, {}), content.encode()]
    try:
        expected = json.loads(content)
    except ValueError:
        with pytest.raises(MessageError):
            read_message(parts)
    else:
        assert repr(read_message(parts).content) == repr(expected)


@each("depth", [MAX_DEPTH + 1, 900, 5_000, 1_000_000])
@each("where", [0, 1, 2, 3])
def test_what_is_deep_is_refused(depth, where):
    parts = [b'{"msg_type": "stream"}', b"{}", b"{}", b"{}"]
    parts[where] = b'{"msg_type": "stream", "text": ' + nested(depth) + b"}"
    if where < 2 and depth < 1_000_000:
        with contextlib.suppress(
            MessageError
        ):  # nobody looks at more than the id in there; how deep that can be, Python decides
            read_message(parts)
    else:
        with pytest.raises(MessageError):
            read_message(parts)


def test_depth_and_size_that_honest_code_has_pass():
    content = b'{"data": {"application/json": ' + nested(MAX_DEPTH - 3) + b', "wide": [' + b"[]," * 5000 + b"[]]}}"
    message = read_message(encoded({"msg_type": "display_data"}, {}, {}, content))
    assert isinstance(output_of(message), DisplayData)


GOOD = {
    "stream": {"name": "stdout", "text": "x"},
    "display_data": {"data": {}, "metadata": {}, "transient": {}},
    "execute_result": {"data": {}, "metadata": {}, "execution_count": 1},
    "error": {"ename": "E", "evalue": "v", "traceback": ["line"]},
}


@each("wrong", [["x"], "x", 1, {"a": 1}, [1]], ids=str)
@each(
    ("kind", "field"),
    [(kind, field) for kind, content in GOOD.items() for field in content if field not in ("name", "execution_count")],
)
def test_a_value_of_another_type_is_refused(kind, field, wrong):
    assert output_of(read_message(encoded({"msg_type": kind}, {}, {}, GOOD[kind]))) is not None
    message = read_message(encoded({"msg_type": kind}, {}, {}, {**GOOD[kind], field: wrong}))
    if type(wrong) is type(GOOD[kind][field]) and wrong != [1]:
        assert output_of(message) is not None
    else:
        with pytest.raises(RefusedMessageError):
            output_of(message)


class PlayedChannels:
    """The channels of a kernel that the test plays: no sockets, and no signatures."""

    def __init__(self) -> None:
        self.sent = asyncio.Queue()
        self.closed = False
        self._numbers = itertools.count()

    def send(self, channel: str, kind: str, content: dict) -> str:
        message_id = f"request {next(self._numbers)}"
        self.sent.put_nowait((channel, kind, content, message_id))
        return message_id

    def listen(self, hear: Callable) -> None:
        self.hear = hear

    def close(self) -> None:
        self.closed = True

    def put(self, channel: str, *parts: object) -> None:
        self.hear(channel, encoded(*parts))

    async def request_id(self) -> str:
        return (await self.sent.get())[-1]


class Owner:
    """See `KernelOwner`."""

    def __init__(self) -> None:
        self.requests = []

    async def send_interrupt(self) -> None:
        raise AssertionError("nobody interrupts")

    async def kill(self, reason: str) -> None:
        raise AssertionError(reason)

    def on_request(self, content: dict, clock: CellClock | None) -> None:
        self.requests.append(content)

    def on_branch(self, content: dict) -> None:
        raise AssertionError(content)


@asynccontextmanager
async def opened(first: str = "shell") -> AsyncIterator[tuple[KernelClient, PlayedChannels, Owner]]:
    channels, owner = PlayedChannels(), Owner()
    client = KernelClient(owner)
    opening = asyncio.create_task(client.open(channels))
    asked = {}
    while len(asked) < 2:
        channel, _, _, message_id = await channels.sent.get()
        asked[channel] = {"msg_id": message_id}
    channels.put("iopub", {"msg_type": "iopub_welcome"}, {}, {}, {})
    channels.put(first, {"msg_type": "kernel_info_reply"}, asked.pop(first), {}, {})
    [(second, parent)] = asked.items()
    await turns(100)
    assert not opening.done(), f"open before it has heard anything on {second}"
    channels.put(second, {"msg_type": "kernel_info_reply"}, parent, {}, {})
    await opening
    try:
        yield client, channels, owner
    finally:
        await client.aclose()
        assert channels.closed


@pytest.mark.parametrize("first", ["shell", "control"])
async def test_a_kernel_is_open_once_it_has_answered_on_every_channel(first):
    async with opened(first) as (client, _, _):
        assert client.lost_reason is None


async def test_a_kernel_that_greets_is_open_then_and_is_asked_nothing():
    channels, client = PlayedChannels(), KernelClient(Owner())
    opening = asyncio.create_task(client.open(channels, greets=True))
    await turns(100)
    assert not opening.done()
    channels.put("iopub", {"msg_type": "iopub_welcome"}, {}, {}, {})
    await opening
    assert channels.sent.empty()
    await client.aclose()


async def test_a_kernel_that_ends_before_it_greets_has_not_started():
    client = KernelClient(Owner())
    opening = asyncio.create_task(client.open(PlayedChannels(), greets=True))
    await turns()
    client.lose("its process ended with exit code 3")
    with pytest.raises(KernelStartError, match="exit code 3"):
        await opening
    await client.aclose()


async def test_what_a_kernel_sent_before_its_end_is_read_though_the_end_was_heard_first():
    buffer = CellOutputBuffer()
    async with opened() as (client, channels, _), client.execute("exit()", buffer, CellClock(None)) as cell:
        parent = {"msg_id": await channels.request_id()}
        client.lose("its process ended with exit code 0")
        for number in range(5):
            await turns()
            channels.put("iopub", {"msg_type": "stream"}, parent, {}, {"name": "stdout", "text": f"{number}\n"})
        reply = {"status": "ok", "execution_count": 1, "payload": [{"source": "ask_exit"}]}
        channels.put("shell", {"msg_type": "execute_reply"}, parent, {}, reply)
        outputs = [output async for output in cell]
        assert (await cell.reply()).status == "kernel_lost"
    assert "".join(output.text for output in outputs) == f"0\n1\n2\n3\n4\n{EXITS}"


HOSTILE = {
    "deep": b'{"name": "stdout", "text": ' + nested(100_000) + b"}",
    "a bit deep": b'{"name": "stdout", "text": ' + nested(MAX_DEPTH + 1) + b"}",
    "no text": b'{"name": "stdout", "text": {"a": 1}}',
    "no object": b'{"text": ["a"]}',
}


@each("content", HOSTILE.values(), ids=HOSTILE)
async def test_the_reader_goes_on_and_the_cell_says_what_is_missing(content, caplog):
    async with (
        opened() as (client, channels, owner),
        client.execute("code", CellOutputBuffer(), CellClock(None)) as cell,
    ):
        parent = {"msg_id": await channels.request_id()}
        channels.put("iopub", {"msg_type": "stream"}, parent, {}, content)
        channels.put("iopub", {"msg_type": "stream"}, parent, {}, {"name": "stdout", "text": "and on"})
        request = b'{"id": "7", "method": "m", "params": ' + nested(MAX_DEPTH + 1) + b"}"
        channels.put("iopub", {"msg_type": "freeact_request"}, parent, {}, request)
        for reply in ([], {"status": ["ok"]}, {"status": "ok", "execution_count": 3}):
            channels.put("shell", {"msg_type": "execute_reply"}, parent, {}, reply)
        channels.put("iopub", {"msg_type": "status"}, parent, {}, {"execution_state": "idle"})
        outputs = [output async for output in cell]
        assert (await cell.reply()).status == "ok"
    said = "".join(output.text for output in outputs if isinstance(output, StreamText))
    assert "is left out" in said
    assert "and on" in said
    assert [(content["id"], "nested more than" in content["refused"]) for content in owner.requests] == [("7", True)]
    assert not any(record.levelno >= logging.ERROR for record in caplog.records)


async def test_the_reader_goes_on_where_the_refusal_of_a_request_fails(monkeypatch):
    """Its id may be too deep to be sent back."""
    async with (
        opened() as (client, channels, owner),
        client.execute("code", CellOutputBuffer(), CellClock(None)) as cell,
    ):
        monkeypatch.setattr(owner, "on_request", lambda content, clock: json.dumps(json.loads(nested(5_000))))
        parent = {"msg_id": await channels.request_id()}
        channels.put("iopub", {"msg_type": "freeact_request"}, parent, {}, b'{"id": ' + nested(MAX_DEPTH + 1) + b"}")
        channels.put("iopub", {"msg_type": "status"}, parent, {}, {"execution_state": "idle"})
        channels.put("shell", {"msg_type": "execute_reply"}, parent, {}, {"status": "ok", "execution_count": 3})
        assert (await cell.reply()).status == "ok"


@each("content", HOSTILE.values(), ids=HOSTILE)
@pytest.mark.slow
async def test_what_a_flood_of_unusable_messages_costs_is_bounded_for_each_cell(content, monkeypatch):
    """Few are read, few are told, and the cell's requests and its end are heard."""
    read = []
    monkeypatch.setattr(client_module, "read_message", lambda parts: read.append(1) or read_message(parts))
    async with opened() as (client, channels, owner):
        for number in range(2):
            read.clear()
            async with client.execute("code", CellOutputBuffer(), CellClock(None)) as cell:
                parent = {"msg_id": await channels.request_id()}
                for _ in range(3000):
                    channels.put("iopub", {"msg_type": "stream"}, parent, {}, content)
                channels.put("iopub", {"msg_type": "freeact_request"}, parent, {}, {"id": str(number)})
                channels.put("iopub", {"msg_type": "status"}, parent, {}, {"execution_state": "idle"})
                channels.put("shell", {"msg_type": "execute_reply"}, parent, {}, {"status": "ok", "execution_count": 3})
                said = "".join([output.text async for output in cell if isinstance(output, StreamText)])
                assert (await cell.reply()).status == "ok"
            assert len(read) <= MAX_REFUSED + 10
            assert said.count("is left out: ") <= MAX_REFUSED
            assert said.count(FLOODED) == 1
            assert [request["id"] for request in owner.requests] == [str(done) for done in range(number + 1)]


@each("failure", [KernelLostError("the gateway is gone"), OSError("the gateway is gone")])
@each("channel", CHANNELS)
@pytest.mark.slow
async def test_a_channel_that_ends_ends_the_cell_and_says_why(channel, failure, caplog):
    async with opened() as (client, channels, _):
        async with client.execute("code", CellOutputBuffer(), CellClock(None)) as cell:
            await channels.request_id()
            channels.hear(channel, failure)
            assert (await cell.reply()).status == "kernel_lost"
        assert "the gateway is gone" in await client.wait_lost()
        async with client.execute("1", CellOutputBuffer(), CellClock(None)) as cell:
            assert (await cell.reply()).status == "kernel_lost"


def test_a_message_that_is_too_large_is_refused():
    parts = encoded({"msg_type": "stream"}, {}, {}, {"name": "stdout", "text": "x" * 1000})
    with pytest.raises(MessageError, match="more than 1,000"):
        read_message(parts, max_bytes=1000)
    with pytest.raises(MessageError, match="more than 1,000"):
        read_message([*encoded({"msg_type": "stream"}, {}, {}, {}), b"x" * 1000], max_bytes=1000)


def test_an_error_is_an_error():
    content = {"ename": "E", "evalue": "v", "traceback": ["a", "b"]}
    message = read_message(encoded({"msg_type": "error"}, {"msg_id": "1"}, {}, content))
    assert (message.parent_id, output_of(message)) == ("1", CellError(ename="E", evalue="v", traceback=("a", "b")))
