"""Requests of openai's client that are plain JSON are sent as they are.

Before it sends a request, the client looks at each message of the conversation as each kind of message that there is, and at
each of its fields as each kind of field, for names that differ in JSON and for files to encode: a third of a millisecond of
processor time for a message, with each request, in which no other agent of the program goes on. The requests that
pydantic-ai makes are JSON already, and none of their fields has another name.
"""

import sys
from collections.abc import Awaitable, Callable
from types import NoneType
from typing import Any, Final

KINDS: Final = frozenset(
    f"{what}CreateParams{how}" for what in ("Completion", "Response") for how in ("Streaming", "NonStreaming")
)
"""The names of the types of requests that this holds for."""
_TRANSFORM: Final = "openai._utils._transform"


def send_json_as_it_is() -> None:
    """Make openai's client do so in this process, if it is imported."""
    client: Any = sys.modules.get(_TRANSFORM)
    transform = getattr(client, "async_transform", None)
    if transform is not None and transform.__module__ == _TRANSFORM:
        client.async_transform = _unless_plain(transform, client.is_given)


def _unless_plain(
    transform: Callable[[Any, Any], Awaitable[Any]], is_given: Callable[[Any], bool]
) -> Callable[[Any, Any], Awaitable[Any]]:
    async def async_transform(data: Any, expected_type: Any) -> Any:
        if getattr(expected_type, "__name__", "") in KINDS:
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
