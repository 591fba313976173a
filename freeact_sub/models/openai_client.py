"""Spares openai's client most of its work for a request and for each piece of an answer; what is sent and read is the same.

- Before it sends a request, the client looks at each message of the conversation as each kind of message that there is, and
  at each of its fields as each kind of field, for names that differ in JSON and for files to encode: a third of a
  millisecond of processor time for a message, with each request. The requests that pydantic-ai makes are JSON already, and
  none of their fields has another name.
- It builds a piece of an answer field by field, with a look at the annotation of each: half of the time of a piece. Here
  pydantic's validator builds it; one that is not valid, as of a server that leaves out fields, is built as ever.
"""

import sys
from collections.abc import Awaitable, Callable
from types import NoneType
from typing import Any, Final

from pydantic import ValidationError

REQUESTS: Final = frozenset(
    f"{what}CreateParams{how}" for what in ("Completion", "Response") for how in ("Streaming", "NonStreaming")
)
"""The names of the types of requests that this holds for."""
ANSWERS: Final = frozenset({"ChatCompletion", "ChatCompletionChunk"})
"""And of answers."""
_REPLACED: Final = "freeact_sub_replaced"


def spare_work() -> None:
    """Make openai's client do so in this process, if it is imported."""
    for module, name, wrap in _FUNCTIONS:
        client: Any = sys.modules.get(module)
        function = getattr(client, name, None)
        if function is not None and not hasattr(function, _REPLACED):
            replacement = wrap(function)
            setattr(replacement, _REPLACED, function)
            setattr(client, name, replacement)


def _sends_json(transform: Callable[[Any, Any], Awaitable[Any]]) -> Callable[[Any, Any], Awaitable[Any]]:
    from openai._utils import is_given  # noqa: PLC0415  # slow, and seldom wanted

    async def async_transform(data: Any, expected_type: Any) -> Any:
        if getattr(expected_type, "__name__", "") in REQUESTS:
            given = {name: value for name, value in data.items() if is_given(value)}
            if _is_json(given):
                return given
        return await transform(data, expected_type)

    return async_transform


def _is_json(value: Any) -> bool:
    kind = type(value)
    if kind is dict:
        return all(map(_is_json, value.values()))
    return all(map(_is_json, value)) if kind is list else kind in (str, int, float, bool, NoneType)


def _validates(construct: Callable[..., Any]) -> Callable[..., Any]:
    def construct_type(*, value: Any, type_: Any) -> Any:
        if getattr(type_, "__name__", "") in ANSWERS:
            try:
                return type_.model_validate(value)
            except ValidationError:
                pass
        return construct(value=value, type_=type_)

    return construct_type


_FUNCTIONS: Final = (
    ("openai._utils._transform", "async_transform", _sends_json),
    ("openai._base_client", "construct_type", _validates),
)
