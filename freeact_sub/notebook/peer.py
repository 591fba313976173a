"""`Peer`: one end of the connection between a notebook's kernel and the host process beside it (`host.py`).

Both ends call functions of the other one and wait for the results. A message is a JSON object after its length in eight
bytes: `call` with `op` and `content`, then `back` with `value`, or with `error` and its `kind`.
"""

import asyncio
import contextlib
import json
import logging
import socket
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeAlias

from freeact_sub.errors import (
    AgentBusyError,
    ConfigError,
    FreeactError,
    KernelError,
    KernelLostError,
    KernelStartError,
    SessionError,
)
from freeact_sub.events.json_lines import json_line

LENGTH_BYTES: Final = 8
MAX_BYTES: Final = 1 << 32
NO_COPY: Final = "there is no copy with changes: the next %%agent cell makes one"
"""The error of either end without a copy."""

Handlers: TypeAlias = Mapping[str, Callable[..., Awaitable[Any]]]
"""Functions that the other end may call, by name."""

KINDS: Final = {
    kind.__name__: kind
    for kind in (AgentBusyError, ConfigError, KernelError, KernelLostError, KernelStartError, SessionError)
}
"""The errors that keep their class on the way; others become a `FreeactError`."""

logger = logging.getLogger(__name__)


class PeerLostError(KernelLostError):
    """The other end is gone."""


class Peer:
    """One end of the connection. It belongs to the event loop in which it is opened."""

    def __init__(self, handlers: Handlers) -> None:
        """Args: handlers: see `Handlers`. Their errors are raised at the caller, if they are ours."""
        self._handlers = handlers
        self._opened = asyncio.Event()
        self._writer: asyncio.StreamWriter | None = None
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._calls = 0
        self._serving: set[asyncio.Task[None]] = set()
        self._reading: asyncio.Task[None] | None = None

    async def open(self, connection: socket.socket) -> None:
        """Begins to serve the other end. Args: connection: of the kind `SOCK_STREAM`."""
        reader, self._writer = await asyncio.open_unix_connection(sock=connection)
        self._reading = asyncio.create_task(self._read(reader), name="reads calls of a notebook")
        self._opened.set()

    async def ended(self) -> None:
        """Waits until the other end is gone."""
        assert self._reading is not None  # it was opened
        await asyncio.wait({self._reading})

    async def call(self, op: str, **content: Any) -> Any:
        """Calls a function of the other end.

        Raises:
            FreeactError: The function has raised it.
            PeerLostError: The other end is gone.
        """
        self._calls += 1
        number, back = self._calls, asyncio.get_running_loop().create_future()
        self._waiting[number] = back
        try:
            await self._send({"call": number, "op": op, "content": content})
            return await back
        finally:
            self._waiting.pop(number, None)

    async def tell(self, op: str, **content: Any) -> None:
        """Calls a function of the other end without waiting for its result. Raises: PeerLostError: the other end is gone."""
        await self._send({"call": 0, "op": op, "content": content})

    def close(self) -> None:
        """Ends the connection."""
        if self._writer is not None:
            self._writer.close()

    async def _send(self, message: Mapping[str, Any]) -> None:
        data = json_line(message).encode()
        await self._opened.wait()
        assert self._writer is not None
        if self._writer.is_closing():
            raise PeerLostError("the notebook's helper process has ended")
        try:
            self._writer.write(len(data).to_bytes(LENGTH_BYTES, "big") + data)
            await self._writer.drain()
        except OSError as error:
            raise PeerLostError(f"the notebook's helper process has ended: {error}") from error

    async def _read(self, reader: asyncio.StreamReader) -> None:
        try:
            with contextlib.suppress(asyncio.IncompleteReadError, OSError, ValueError):
                while True:
                    size = int.from_bytes(await reader.readexactly(LENGTH_BYTES), "big")
                    if size > MAX_BYTES:
                        break
                    self._take(json.loads(await reader.readexactly(size)))
        finally:
            for back in self._waiting.values():
                if not back.done():
                    back.set_exception(PeerLostError("the notebook's helper process has ended"))
            self.close()

    def _take(self, message: Mapping[str, Any]) -> None:
        if "call" in message:
            task = asyncio.create_task(self._serve(message), name=f"notebook {message['op']}")
            self._serving.add(task)
            task.add_done_callback(self._serving.discard)
            return
        back = self._waiting.get(message["back"])
        if back is None or back.done():
            return
        if "error" in message:
            kind = KINDS.get(message["kind"], FreeactError)
            back.set_exception(kind(message["error"]))
        else:
            back.set_result(message.get("value"))

    async def _serve(self, message: Mapping[str, Any]) -> None:
        number = message["call"]
        try:
            answer = {"value": await self._handlers[message["op"]](**message["content"])}
        except FreeactError as error:
            answer = {"error": str(error), "kind": type(error).__name__}
        except Exception as error:  # border: the other end waits, whatever has gone wrong here
            logger.exception("%s failed", message["op"])
            answer = {"error": f"{type(error).__name__}: {error}", "kind": "FreeactError"}
        if number:
            with contextlib.suppress(PeerLostError):
                await self._send({"back": number, **answer})
