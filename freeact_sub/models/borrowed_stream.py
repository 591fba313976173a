"""Private names of pydantic-ai and openai that a model and a streamed response need to wrap another one.

pydantic-ai has no public name for its limit of the silence before an answer, nor for the record in which it looks for the
ends of parts, nor for the profile by which a stream looks for thoughts; openai and anthropic have none for the HTTP client
that their clients use. If the first had another name, pydantic-ai's own limit would hold, which also counts the time before
a request is sent on; without the others, streams would fail. The contract test tells.
"""

import sys
from collections.abc import AsyncIterable, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final, TypeVar, cast

import httpx2
from pydantic_ai.messages import FinalResultEvent, ModelResponseStreamEvent, PartEndEvent
from pydantic_ai.models import Model, StreamedResponse
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.settings import ModelSettings

ADDED: Final = (PartEndEvent, FinalResultEvent)
"""Events that pydantic-ai adds to every stream."""
_Item = TypeVar("_Item")
_COPIED: Final = (
    "provider_response_id",
    "provider_details",
    "canonical_system",
    "finish_reason",
    "state",
    "metadata",
    "failed_attempts",
)


def http_client_of(model: Model) -> httpx2.AsyncClient | None:
    """Return the HTTP client under openai's or anthropic's client, if the model has one."""
    client: Any = getattr(model, "client", None)
    for package, name in (("openai", "AsyncOpenAI"), ("anthropic", "AsyncAnthropic")):
        loaded = sys.modules.get(package)  # else the model is of another provider
        if loaded is not None and isinstance(client, getattr(loaded, name)):
            http_client: object = cast("Any", client)._client
            return http_client if isinstance(http_client, httpx2.AsyncClient) else None
    return None


def without_tags(stream: StreamedResponse) -> tuple[tuple[str, str] | None, bool]:
    """Let a stream leave tags of thoughts, and blanks before a text, as they are: we look for them (`TaggedThoughts`).

    Returns:
        The tags that it would have looked for, and whether it would have left out the blanks.
    """
    profile = getattr(stream, "_model_profile", None)
    if profile is None:
        return None, False
    known = profile.get("thinking_tags"), bool(profile.get("ignore_streamed_leading_whitespace"))
    cast("Any", stream)._model_profile = {**profile, "thinking_tags": None, "ignore_streamed_leading_whitespace": False}
    return known


class UnhurriedModel(WrapperModel):
    """A wrapped model for which pydantic-ai keeps no deadline for the first piece of an answer: we do (`Silence`)."""

    def _start_request_deadline(self, model_settings: ModelSettings | None, *, stream: bool) -> Any:
        others = {name: value for name, value in (model_settings or {}).items() if name != "first_event_timeout"}
        return super()._start_request_deadline(cast("ModelSettings", others), stream=stream)


def keep(stream: StreamedResponse, event: ModelResponseStreamEvent) -> ModelResponseStreamEvent:
    """Record an event before a stream passes it on; pydantic-ai finds the ends of parts in this record."""
    stream._parts_manager.apply_event(event)
    return event


def copy_end(stream: StreamedResponse, inner: StreamedResponse) -> None:
    """Copy the facts of a response after its stream has ended."""
    for name in _COPIED:
        setattr(stream, name, getattr(inner, name))


@asynccontextmanager
async def closed_after(items: AsyncIterable[_Item]) -> AsyncIterator[AsyncIterator[_Item]]:
    """Close a generator at the end of the block. One that is left early would keep its timer until garbage collection."""
    iterator = aiter(items)
    try:
        yield iterator
    finally:
        close = getattr(iterator, "aclose", None)
        if close is not None:
            await close()
