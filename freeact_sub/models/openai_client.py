"""Spares openai's client most of its work for a request and for each piece of an answer; what is sent and read is the same.

- Before it sends a request, the client looks at each message of the conversation as each kind of message that there is, and
  at each of its fields as each kind of field, for names that differ in JSON and for files to encode: a third of a
  millisecond of processor time for a message, with each request, and as much for the name of the model. The requests that
  pydantic-ai makes are JSON already, and none of their fields has another name. They go as what is added to the body, which
  the client adds as it is.
- It builds a piece of an answer field by field, with a look at the annotation of each: half of the time of a piece. Here
  pydantic's validator builds it; one that is not valid, as of a server that leaves out fields, is built as ever.

Only clients that were made here change: others in this process, and openai's own classes, stay as they are.
"""

import functools
import sys
from collections.abc import Awaitable, Callable
from types import NoneType
from typing import TYPE_CHECKING, Any, Final

from pydantic import ValidationError

if TYPE_CHECKING:
    from pydantic_ai.models import Model

READ: Final = frozenset({"stream", "timeout", "extra_headers", "extra_query"})
"""What the client itself reads, or what is no field of the body."""


def spare_work(model: "Model") -> None:
    """Make the client of a model that nobody else has do so, if it is openai's, and the copies that are made of it."""
    openai = sys.modules.get("openai")  # else the model is of another provider
    client: Any = getattr(model, "client", None)
    if openai is not None and isinstance(client, openai.AsyncOpenAI):
        kind: Any = type(client)
        client.__class__ = _sparing(kind)
        for name in ("chat", "responses"):
            vars(client).pop(name, None)  # made already, by a look at it


@functools.cache
def _sparing(kind: Any) -> Any:
    """A subclass of a class of openai's clients."""
    from openai import AsyncAzureOpenAI, omit  # noqa: PLC0415  # slow, and seldom wanted
    from openai.types.chat import ChatCompletion, ChatCompletionChunk  # noqa: PLC0415  # as above

    read = READ | {"model"} if issubclass(kind, AsyncAzureOpenAI) else READ  # it is in the address there

    class SparingClient(kind):  # type: ignore[misc]  # AsyncOpenAI, or one of its subclasses
        @functools.cached_property
        def chat(self) -> Any:
            chat = super().chat
            chat.completions.create = _sends_json(chat.completions.create, read, omit)
            return chat

        @functools.cached_property
        def responses(self) -> Any:
            responses = super().responses
            responses.create = _sends_json(responses.create, read, omit)
            return responses

        def _process_response_data(self, *, data: Any, cast_to: Any, response: Any) -> Any:
            if cast_to is ChatCompletionChunk or cast_to is ChatCompletion:
                try:
                    return cast_to.model_validate(data, strict=True)  # strict: openai's client converts nothing
                except ValidationError:
                    pass
            return super()._process_response_data(data=data, cast_to=cast_to, response=response)

    return SparingClient


def _sends_json(create: Callable[..., Awaitable[Any]], read: frozenset[str], omit: Any) -> Callable[..., Awaitable[Any]]:
    @functools.wraps(create)
    async def sends_json(*, extra_body: Any = None, **request: Any) -> Any:
        if extra_body is None or isinstance(extra_body, dict):
            ready = {name: value for name, value in request.items() if name not in read and _is_json(value)}
            request |= dict.fromkeys(ready, omit)
            extra_body = {**ready, **(extra_body or {})} or extra_body
        return await create(**request, extra_body=extra_body)

    return sends_json


def _is_json(value: Any) -> bool:
    kind = type(value)
    if kind is dict:
        return all(map(_is_json, value.values()))
    return all(map(_is_json, value)) if kind is list else kind in (str, int, float, bool, NoneType)
