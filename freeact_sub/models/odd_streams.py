"""Streams of servers that keep to OpenAI's protocol loosely, as the SDK and pydantic-ai read them.

- Some send each parallel call at index 0: what tells the calls apart is a new id, or a name after whole arguments.
- Some repeat the name of a call in each piece, where it would be joined to itself.
- Some send arguments as an object, not as a text.
- Some end a stream in which nothing was: that is an empty answer, about which the model is asked once more.
"""

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any


@dataclass
class _Call:
    """A call as far as it has come."""

    index: int
    call_id: str | None
    name: str = ""
    arguments: str = ""

    @property
    def is_whole(self) -> bool:
        try:
            json.loads(self.arguments)
        except ValueError:
            return False
        return True


async def in_order(chunks: AsyncIterator[Any], model: str) -> AsyncIterator[Any]:
    """The chunks of a streamed answer, in order. Args: model: its name, for a stream that has none."""
    newest: dict[int, _Call] = {}
    count, is_empty = 0, True
    async for chunk in chunks:
        is_empty = False
        for choice in getattr(chunk, "choices", None) or ():
            for piece in getattr(getattr(choice, "delta", None), "tool_calls", None) or ():
                count += _place(piece, newest, count)
        yield chunk
    if is_empty:
        from openai.types.chat import ChatCompletionChunk  # noqa: PLC0415  # slow, and seldom wanted

        nothing = {"index": 0, "delta": {}, "finish_reason": "stop"}
        values = {"id": "", "created": 0, "model": model, "object": "chat.completion.chunk", "choices": [nothing]}
        yield ChatCompletionChunk.model_validate(values)


def _place(piece: Any, newest: dict[int, _Call], count: int) -> bool:
    """Gives a piece the index of its call. Returns whether it begins one. Args: newest: the calls by the server's index."""
    there = piece.index if isinstance(piece.index, int) else 0
    function = piece.function
    name = getattr(function, "name", None) or ""
    arguments = getattr(function, "arguments", None)
    if arguments is not None and not isinstance(arguments, str):
        arguments = function.arguments = json.dumps(arguments)
    call = newest.get(there)
    is_new = call is None or bool(
        (piece.id and call.call_id and piece.id != call.call_id) or (name and not piece.id and call.is_whole)
    )
    if is_new:
        call = newest[there] = _Call(count, piece.id)
    assert call is not None
    piece.index = call.index
    call.call_id = call.call_id or piece.id
    if function is not None and name:
        if name == call.name:
            function.name = None
        else:
            call.name += name
    call.arguments += arguments or ""
    return is_new
