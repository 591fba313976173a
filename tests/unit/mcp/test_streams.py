"""The bound on an answer over HTTP counts each event by itself, however its bytes are cut."""

import random
from collections.abc import AsyncIterator

import httpx2
import pytest
from support.thorough import examples

from freeact_sub.mcp.streams import BoundedStream


class Chunks(httpx2.AsyncByteStream):
    def __init__(self, *chunks: bytes) -> None:
        self.chunks = chunks

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for chunk in self.chunks:
            yield chunk


async def passed(most: int, *chunks: bytes) -> bytes:
    return b"".join([chunk async for chunk in BoundedStream(Chunks(*chunks), most)])


@pytest.mark.parametrize("end", [b"\n\n", b"\r\n\r\n", b"\r\r", b"\n\r\n", b"\r\n\n"])
@pytest.mark.parametrize("size", [1, 2, 3, 5, 1000])
async def test_many_events_pass_however_they_are_cut(end: bytes, size: int) -> None:
    body = (b"data: " + b"x" * 90 + end) * 50
    assert await passed(200, *(body[start : start + size] for start in range(0, len(body), size))) == body


@pytest.mark.parametrize("line", [b"\n", b"\r\n", b"\r"])
async def test_one_event_that_is_too_large_does_not_pass(line: bytes) -> None:
    with pytest.raises(httpx2.ReadError, match="exceeds the 1,000 bytes"):
        await passed(1_000, *([b"data: x" + line] * 200))


async def test_random_cuts_change_nothing() -> None:
    for number in range(examples(10_000)):
        source = random.Random(number)
        events = [b"data: " + b"x" * source.randrange(60) + source.choice((b"\n\n", b"\r\n\r\n", b"\r\r")) for _ in range(9)]
        body = b"".join(events)
        cuts = sorted(source.sample(range(len(body)), 5))
        chunks = [body[start:end] for start, end in zip([0, *cuts], [*cuts, len(body)], strict=True)]
        assert await passed(max(map(len, chunks)) + max(map(len, events)) + 8, *chunks) == body
    print(f"{examples(10_000):,} streams of events")
