"""The sockets of a kernel: every message is heard, in order, while other tasks get their turns."""

import asyncio
import json
import select

import pytest
import zmq
from jupyter_client.session import Session
from support.waiting import eventually, turns

from freeact_sub.errors import KernelLostError
from freeact_sub.kernels.wire.channels import DELIMITER, MESSAGES_AT_ONCE, MessageError, ZmqChannels

MESSAGES = 4 * MESSAGES_AT_ONCE


class Peer:
    """The other end of one channel."""

    def __init__(self, context: zmq.Context) -> None:
        self.session = Session(key=b"secret")
        self.end = context.socket(zmq.PAIR)
        self.end.bind("inproc://channel")
        self.socket = context.socket(zmq.PAIR)
        self.socket.connect("inproc://channel")
        self.channels = ZmqChannels(self.session, {"shell": self.socket})
        self.heard: list[list[bytes] | Exception] = []

    def listen(self) -> None:
        self.channels.listen(lambda _, came: self.heard.append(came))

    def send(self, number: int) -> None:
        self.end.send_multipart(self.session.serialize(self.session.msg("number", {"number": number})))

    @property
    def numbers(self) -> list[int]:
        return [json.loads(came[3])["number"] for came in self.heard]

    def is_readable(self) -> bool:
        return bool(select.select([self.socket.fileno()], [], [], 0)[0])


@pytest.fixture
async def peer():
    with zmq.Context() as context:
        peer = Peer(context)
        yield peer
        peer.channels.close()
        peer.end.close(linger=0)


async def test_messages_come_in_order_however_many_there_are_and_others_get_their_turns(peer):
    for number in range(MESSAGES):
        peer.send(number)
    peer.listen()
    seen = []
    async with asyncio.timeout(60):
        while len(peer.heard) < MESSAGES:
            seen.append(len(peer.heard))
            await turns()
        peer.send(MESSAGES)
        await eventually(lambda: len(peer.heard) > MESSAGES)
    assert peer.numbers == [*range(MESSAGES + 1)]
    assert len({*seen}) >= MESSAGES // MESSAGES_AT_ONCE


async def test_a_message_that_comes_while_another_is_sent_is_heard(peer):
    """zmq's descriptor falls silent once the socket has been used, whether its messages were read or not."""
    peer.listen()
    await turns()  # it is read now
    peer.send(7)
    assert peer.is_readable()
    while peer.is_readable():
        peer.channels.send("shell", "execute_request", {})
    await eventually(lambda: peer.numbers == [7])


async def test_a_listener_that_sends_hears_the_next_message_only_when_it_has_done_with_this_one(peer):
    steps = []

    def hear(_: str, came: list[bytes]) -> None:
        steps.append("begins")
        peer.channels.send("shell", "execute_request", {})
        steps.append("ends")

    peer.channels.listen(hear)
    for number in range(3):
        peer.send(number)
    await eventually(lambda: len(steps) == 6)
    assert steps == ["begins", "ends"] * 3


async def test_nothing_is_heard_after_a_listener_has_closed_the_channels(peer):
    def hear(_: str, came: list[bytes]) -> None:
        peer.heard.append(came)
        peer.channels.close()

    peer.channels.listen(hear)
    for number in range(3):
        peer.send(number)
    await eventually(lambda: peer.heard)
    watched = asyncio.get_running_loop()._selector.get_map()  # noqa: SLF001  # nothing else tells
    assert not [key for key in watched.values() if "_Inbox" in str(key.data)]
    await turns()
    assert peer.numbers == [0]
    with pytest.raises(KernelLostError):
        peer.channels.send("shell", "execute_request", {})


async def test_what_is_no_message_does_not_end_the_reading(peer):
    peer.listen()
    peer.end.send_multipart([b"nothing"])
    peer.end.send_multipart([DELIMITER, b"wrong", b"{}", b"{}", b"{}", b"{}"])
    peer.send(1)
    await eventually(lambda: len(peer.heard) == 3)
    *refused, message = peer.heard
    for error, reason in zip(refused, ("not a Jupyter message", "signature is wrong"), strict=True):
        assert isinstance(error, MessageError)
        assert reason in str(error)
    assert b"1" in message[3]


async def test_a_socket_that_fails_is_heard_once_and_read_no_more(peer):
    peer.listen()
    peer.socket.close(linger=0)
    await eventually(lambda: peer.heard)
    assert [type(came) for came in peer.heard] == [zmq.ZMQError]


async def test_a_message_for_which_there_is_no_memory_is_heard_as_the_end(peer, monkeypatch):
    def fail(*_):
        raise MemoryError

    peer.listen()
    monkeypatch.setattr(zmq.Socket, "recv_multipart", fail)
    peer.send(1)
    await eventually(lambda: [type(came) for came in peer.heard] == [MemoryError])
