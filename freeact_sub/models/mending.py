"""Has the HTTP clients of models repair streamed responses, before the providers' own clients read them."""

import json
from collections.abc import AsyncIterator
from typing import Final

import httpx2
from pydantic_ai.models import Model

from freeact_sub.models.borrowed_stream import http_client_of
from freeact_sub.models.observers import models_in
from freeact_sub.models.odd_chunks import Chunks
from freeact_sub.models.odd_events import MessageEvents, ResponseEvents
from freeact_sub.models.served_events import ServedEvents

_PROTOCOLS: Final[dict[str, type[ServedEvents]]] = {
    "/chat/completions": Chunks,
    "/messages": MessageEvents,
    "/responses": ResponseEvents,
}
"""By the end of the path that requests go to."""


def mend_streams(model: Model) -> None:
    """Makes the HTTP client of a model repair streamed responses, if openai's or anthropic's client uses it."""
    for inner in models_in(model):
        client = http_client_of(inner)
        if client is not None and _mend not in client.event_hooks["response"]:
            client.event_hooks["response"].append(_mend)


async def _mend(response: httpx2.Response) -> None:
    """A hook for responses of an HTTP client."""
    request = response.request
    protocol = next((found for path, found in _PROTOCOLS.items() if request.url.path.endswith(path)), None)
    if protocol is None or not response.is_success or request.method != "POST":
        return
    kind = response.headers.get("content-type", "")
    asked = json.loads(await request.aread())
    if "event-stream" not in kind and not asked.get("stream"):
        return
    address = f"{request.url.scheme}://{request.url.netloc.decode()}{request.url.path}"
    response.stream = _Mended(response, protocol(address, kind or "no content type", str(asked.get("model"))))
    response.headers.pop("content-encoding", None)


class _Mended(httpx2.AsyncByteStream):
    """The body of a response, decoded and repaired."""

    def __init__(self, response: httpx2.Response, events: ServedEvents) -> None:
        self._rest = response.stream
        self._decoded = httpx2.Response(
            response.status_code, headers=response.headers, stream=response.stream, request=response.request
        )
        self._events = events

    async def __aiter__(self) -> AsyncIterator[bytes]:
        if self._decoded.is_stream_consumed:  # openai's client reads the end of the body once more, for nothing but its end
            async for piece in self._rest:  # type: ignore[union-attr]  # asynchronous, as the client is
                yield piece
            return
        async for piece in self._decoded.aiter_bytes():
            yield self._events.read(piece)
        yield self._events.end()

    async def aclose(self) -> None:
        await self._decoded.aclose()
