"""`serve`: the connection to a client over standard input and output; `Client`: the messages to it."""

import asyncio
import contextlib
import json
import logging
import os
import re
import sys
from collections.abc import Callable, Iterator
from typing import Any, Final, Protocol, TextIO, TypeAlias

from acp.connection import Connection, StreamDirection, StreamEvent
from acp.stdio import stdio_streams

from freeact_sub.errors import ConfigError

MAX_MESSAGE_BYTES: Final = 50 * 2**20
"""Bound on a message of the client, which may contain pictures."""
HEAD_BYTES: Final = 1000
REQUEST_ID: Final = re.compile(rb'"id"\s*:\s*(\d+|"[^"\\]{0,200}")')
"""The id of a request, which clients write before the parameters."""
JUPYTER_AI: Final = "Jupyter AI"
"""The name that jupyter-ai gives itself."""
logger = logging.getLogger(__name__)

Update: TypeAlias = dict[str, Any]
"""The value of `update` in `session/update`."""


class Served(Protocol):
    """The side that answers a client."""

    async def answer(self, method: str, params: Any, is_notification: bool) -> Any:
        """Answer a request, or take a notification. Raises: RequestError: The client gets it."""
        ...

    def sees_request(self, request_id: Any, method: str, params: Any) -> None:
        """Note a message of the client, before `answer` is called for it."""
        ...

    def has_answered(self, request_id: Any, result: Any) -> None:
        """Note that the answer to a request is on its way. Args: result: None: an error."""
        ...

    async def aclose(self) -> None:
        """Close everything: the client is gone."""
        ...


class Client:
    """The program at the other end."""

    def __init__(self) -> None:
        self._connection: Connection | None = None
        self.capabilities: dict[str, Any] = {}
        """The client's capabilities, from `initialize`."""
        self.name = ""
        self.is_gone = False

    @property
    def is_jupyter_ai(self) -> bool:
        """Whether the client is jupyter-ai, which keeps conversations itself, and shows no pictures."""
        return self.name == JUPYTER_AI

    def connect(self, connection: Connection) -> None:
        """Use a connection from now on."""
        self._connection = connection

    def can(self, *path: str) -> bool:
        """Return whether the client has a capability, such as `"fs", "readTextFile"`."""
        found: Any = self.capabilities
        for name in path:
            found = found.get(name) if isinstance(found, dict) else None
        return found is not None and found is not False

    async def update(self, session_id: str, update: Update) -> None:
        """Send an update of a session; do nothing once the client is gone."""
        if self._connection is not None and not self.is_gone:
            with contextlib.suppress(ConnectionError):
                await self._connection.send_notification("session/update", {"sessionId": session_id, "update": update})

    async def request(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Send a request, and return the answer.

        Raises:
            ConnectionError: The client is gone.
            RequestError: The client refuses or fails.
        """
        if self._connection is None or self.is_gone:
            raise ConnectionError("the client is gone")
        answer = await self._connection.send_request(method, params)
        return answer if isinstance(answer, dict) else {}


async def pass_on_messages(
    source: asyncio.StreamReader, target: asyncio.StreamReader, refuse: Callable[[bytes], None]
) -> None:
    """Pass on the lines that may be messages: the SDK ends its connection at JSON that is no object.

    Args:
        source: The client's messages. A line longer than its limit is left out.
        target: The SDK's input.
        refuse: Called with the beginning of a line that is left out.
    """
    skips = False
    try:
        while True:
            try:
                line = await source.readuntil()
            except asyncio.IncompleteReadError as end:
                line = end.partial
            except asyncio.LimitOverrunError as error:
                begun = await source.readexactly(error.consumed)
                if not skips:
                    refuse(begun[:HEAD_BYTES])
                skips = True
                continue
            if not line:
                return
            if not skips and line.lstrip().startswith(b"{"):
                target.feed_data(line)
            skips = False
    finally:
        target.feed_eof()


def too_long(begun: bytes) -> bytes:
    """Return the answer to a message that is left out, as far as its id is known. Args: begun: its beginning."""
    found = REQUEST_ID.search(begun)
    error = {"code": -32600, "message": f"a message may have {MAX_MESSAGE_BYTES:,} bytes"}
    answer = {"jsonrpc": "2.0", "id": None if found is None else json.loads(found[1]), "error": error}
    return json.dumps(answer).encode() + b"\n"


async def serve(make: Callable[[Client], Served]) -> None:
    """Serve the client until it closes standard input.

    Args:
        make: Makes the side that answers.

    Raises:
        ConfigError: Standard input or output is a file.
    """
    client = Client()
    served = make(client)

    def observe(event: StreamEvent) -> None:
        message = event.message
        if event.direction is StreamDirection.INCOMING and isinstance(message.get("method"), str):
            served.sees_request(message.get("id"), message["method"], message.get("params"))
        elif event.direction is StreamDirection.OUTGOING and "method" not in message:
            served.has_answered(message.get("id"), message.get("result"))

    with _standard_output() as output, contextlib.redirect_stdout(output):
        try:
            reader, writer = await stdio_streams(limit=MAX_MESSAGE_BYTES)
        except ValueError as error:
            raise ConfigError(
                "standard input and output must be pipes to a client: docs/acp.md says how to start one"
            ) from error
    messages = asyncio.StreamReader(limit=MAX_MESSAGE_BYTES)

    def refuse(begun: bytes) -> None:
        logger.error("a message of the client is longer than %s bytes, and left out", MAX_MESSAGE_BYTES)
        writer.write(too_long(begun))

    reading = asyncio.create_task(pass_on_messages(reader, messages, refuse), name="reads messages of the client")
    connection = Connection(served.answer, writer, messages, observers=[observe], listening=False)
    client.connect(connection)
    try:
        await connection.main_loop()
    finally:
        client.is_gone = True
        reading.cancel()
        await asyncio.shield(served.aclose())
        with contextlib.suppress(ConnectionError, OSError):
            await connection.close()


@contextlib.contextmanager
def _standard_output() -> Iterator[TextIO]:
    """Yield standard output for messages alone; anything else that the process prints goes to standard error."""
    messages = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    yield messages
