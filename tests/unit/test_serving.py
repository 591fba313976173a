"""The servers of tests leave no connection behind."""

import contextlib
import socket

from support.serving import STEPS, serving
from support.tables import each
from support.waiting import turns


@each("steps", range(STEPS + 2))
async def test_a_connection_that_comes_at_the_last_moment_is_closed(steps):
    async def wait(reader, writer):
        await reader.read()

    async with serving(wait) as server:
        client = socket.create_connection(server.sockets[0].getsockname(), 60)
        await turns(steps)
    with client, contextlib.suppress(ConnectionError):
        assert client.recv(1) == b""
