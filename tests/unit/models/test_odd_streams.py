"""Streams of servers that keep to the protocol loosely: each call comes out whole, under an index of its own."""

import json
import random
from collections.abc import AsyncIterator
from typing import Any

import pytest
from openai.types.chat import ChatCompletionChunk
from support.thorough import examples

from freeact_sub.models.odd_streams import in_order


def chunk(*calls: dict[str, Any], finish: str | None = None) -> ChatCompletionChunk:
    delta = {"tool_calls": [{"type": "function", **call} for call in calls]} if calls else {}
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    head = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    return ChatCompletionChunk.construct(**head, choices=[choice])


def piece(arguments: Any, *, index: int = 0, call_id: str | None = None, name: str | None = None) -> dict[str, Any]:
    return {"index": index, "id": call_id, "function": {"name": name, "arguments": arguments}}


async def calls_of(*chunks: ChatCompletionChunk) -> list[tuple[str | None, str, str]]:
    """Id, name and arguments of each call, joined as all clients join them."""

    async def stream() -> AsyncIterator[Any]:
        for one in chunks:
            yield one

    found: dict[int, list[Any]] = {}
    async for one in in_order(stream(), "m"):
        for choice in one.choices:
            for part in choice.delta.tool_calls or ():
                call = found.setdefault(part.index, [None, "", ""])
                call[0] = call[0] or part.id
                call[1] += part.function.name or ""
                call[2] += part.function.arguments or ""
    return [(call_id, name, arguments) for call_id, name, arguments in found.values()]


TWO = [("a", "f", '{"x": 1}'), ("b", "f", '{"x": 2}')]


@pytest.mark.parametrize(
    ("pieces", "calls"),
    [
        ([piece('{"x": 1}', call_id="a", name="f"), piece('{"x": 2}', call_id="b", name="f")], TWO),
        ([piece('{"x"', call_id="a", name="f"), piece(": 1}"), piece('{"x": 2}', call_id="b", name="f")], TWO),
        ([piece('{"x"', call_id="a", name="f"), piece(": 1}", call_id="a", name="f")], TWO[:1]),
        ([piece('{"x"', call_id="a", name="f"), piece(": 1}", name="f")], TWO[:1]),
        ([piece('{"x": 1}', name="f"), piece('{"x": 2}', name="f")], [(None, *call[1:]) for call in TWO]),
        ([piece({"x": 1}, call_id="a", name="f")], TWO[:1]),
        ([piece('{"x": 1}', call_id="a", name="f"), piece('{"x": 2}', index=1, call_id="b", name="f")], TWO),
        ([piece("", call_id="a", name="f"), piece('{"x": 1}')], TWO[:1]),
    ],
)
async def test_calls_come_out_whole(pieces: list[dict[str, Any]], calls: list[Any]) -> None:
    assert await calls_of(*map(chunk, pieces), chunk(finish="tool_calls")) == calls


async def test_a_stream_in_which_nothing_was_is_an_empty_answer() -> None:
    async def nothing() -> AsyncIterator[Any]:
        return
        yield

    [only] = [one async for one in in_order(nothing(), "m")]
    assert (only.model, only.choices[0].finish_reason, only.choices[0].delta.content) == ("m", "stop", None)


async def test_random_calls_in_random_pieces_come_out_whole() -> None:
    for number in range(examples(10_000)):
        source = random.Random(number)
        calls = [
            (f"id{place}", source.choice("fg"), json.dumps({"x": source.randrange(999)}))
            for place in range(source.randrange(1, 4))
        ]
        all_at_zero, repeats_name, repeats_id = (source.random() < 0.5 for _ in range(3))
        chunks = [chunk()]
        for place, (call_id, name, arguments) in enumerate(calls):
            cuts = sorted(source.sample(range(len(arguments)), 2))
            for start, end in zip([0, *cuts], [*cuts, len(arguments)], strict=True):
                begins = start == 0
                chunks.append(
                    chunk(
                        piece(
                            arguments[start:end],
                            index=0 if all_at_zero else place,
                            call_id=call_id if begins or repeats_id else None,
                            name=name if begins or (repeats_name and repeats_id) else None,
                        )
                    )
                )
        assert await calls_of(*chunks, chunk(finish="tool_calls")) == calls, number
    print(f"{examples(10_000):,} streams of a provider")
