"""The sockets of a kernel: every message is read, and one that nobody reads costs nothing."""

import asyncio
import json
import select

import pytest
import zmq
from jupyter_client.session import Session

from freeact_sub.errors import KernelLostError
from freeact_sub.kernels.channels import DELIMITER, MESSAGES_AT_ONCE, ZmqChannels

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

    def send(self, number: int) -> None:
        self.end.send_multipart(self.session.serialize(self.session.msg("number", {"number": number})))

    def is_readable(self) -> bool:
        return bool(select.select([self.socket.fileno()], [], [], 0)[0])


@pytest.fixture
async def peer():
    with zmq.Context() as context:
        peer = Peer(context)
        yield peer
        peer.channels.close()
        peer.end.close(linger=0)


async def test_messages_come_in_order_however_many_there_are(peer):
    async with asyncio.timeout(60):
        for number in range(MESSAGES):
            peer.send(number)
        contents = [json.loads((await peer.channels.receive("shell"))[3]) for _ in range(MESSAGES)]
    assert contents == [{"number": number} for number in range(MESSAGES)]


async def test_a_message_that_comes_while_another_is_sent_is_read(peer):
    """zmq's descriptor falls silent once the socket has been used, whether its messages were read or not."""
    waiting = asyncio.create_task(peer.channels.receive("shell"))
    await asyncio.sleep(0)  # it waits now
    peer.send(7)
    assert peer.is_readable()
    while peer.is_readable():
        peer.channels.send("shell", "execute_request", {})
    async with asyncio.timeout(60):
        assert b"7" in (await waiting)[3]


async def test_messages_that_nobody_reads_do_not_keep_the_loop_busy(peer):
    waiting = asyncio.create_task(peer.channels.receive("shell"))
    await asyncio.sleep(0)
    waiting.cancel()
    for number in range(MESSAGES):
        peer.send(number)
    watched = asyncio.get_running_loop()._selector.get_map()  # noqa: SLF001  # nothing else tells
    async with asyncio.timeout(60):
        while peer.socket.fileno() in watched:
            await asyncio.sleep(0)
        assert b"0" in (await peer.channels.receive("shell"))[3]


async def test_closing_ends_who_waits(peer):
    waiting = asyncio.create_task(peer.channels.receive("shell"))
    await asyncio.sleep(0)
    peer.channels.close()
    async with asyncio.timeout(60):
        await asyncio.wait({waiting})
    with pytest.raises(KernelLostError):
        await peer.channels.receive("shell")
    with pytest.raises(KernelLostError):
        peer.channels.send("shell", "execute_request", {})


async def test_what_is_no_message_does_not_end_the_reading(peer):
    peer.end.send_multipart([b"nothing"])
    peer.end.send_multipart([DELIMITER, b"wrong", b"{}", b"{}", b"{}", b"{}"])
    peer.send(1)
    async with asyncio.timeout(60):
        for reason in ("no Jupyter message", "signature is wrong"):
            with pytest.raises(Exception, match=reason):
                await peer.channels.receive("shell")
        assert b"1" in (await peer.channels.receive("shell"))[3]
