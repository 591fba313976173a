"""The body of an answer over HTTP, however its bytes are cut: bounded line by line, and with text that the SDK can read."""

import json
import random
import re
from collections.abc import AsyncIterator

import httpx2
import pytest
from support.tables import each
from support.thorough import examples

from freeact_sub.mcp.streams import Body, readable


class Chunks(httpx2.AsyncByteStream):
    def __init__(self, *chunks: bytes) -> None:
        self.chunks = chunks

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for chunk in self.chunks:
            yield chunk


async def passed(most: int, *chunks: bytes) -> bytes:
    return b"".join([chunk async for chunk in Body(Chunks(*chunks), most)])


@each("end", [b"\n\n", b"\r\n\r\n", b"\r\r", b"\n\r\n", b"\r\n\n"])
@each("size", [1, 2, 3, 5, 1000])
async def test_many_events_pass_however_they_are_cut(end: bytes, size: int) -> None:
    body = (b"data: " + b"x" * 90 + end) * 50
    assert await passed(200, *(body[start : start + size] for start in range(0, len(body), size))) == body


async def test_an_event_passes_when_its_line_has_ended() -> None:
    async for chunk in Body(Chunks(b"data: 1\r\r", b"never"), 100):
        assert chunk == b"data: 1\r\r"
        break


@pytest.mark.parametrize("cut", [1, 90, 5_000])
async def test_an_answer_that_is_too_large_does_not_pass(cut: int) -> None:
    with pytest.raises(httpx2.StreamError, match="exceeds the 1,000 bytes"):
        await passed(1_000, *([b"x" * cut] * (5_000 // cut)))


@each(
    ("sent", "read"),
    [
        (rb'"\ud83d"', "\\ud83d"),
        (rb'"a\uDE00b"', "a\\uDE00b"),
        (rb'"\ud83d\ude00"', "\U0001f600"),
        (rb'"\ud83d\ud83d\ude00\ude00"', "\\ud83d\U0001f600\\ude00"),
        (rb'"\\ud83d"', "\\ud83d"),
        (rb'"\\\ud83d"', "\\\\ud83d"),
        (rb'"\n\ud83d\n"', "\n\\ud83d\n"),
        (b'"caf\xc3"', "caf\ufffd"),
        (b'"caf\xe9 \xff"', "caf\ufffd \ufffd"),
        (b'\xef\xbb\xbf"a"', "a"),
        (b'"\xed\xa0\xbd"', "\ufffd\ufffd\ufffd"),
    ],
)
async def test_what_utf8_cannot_hold_is_written_out_or_replaced(sent: bytes, read: str) -> None:
    assert json.loads(readable(sent, is_first=True)) == read
    for size in (1, 2, 7):
        assert json.loads(await passed(99, *(sent[start : start + size] for start in range(0, len(sent), size)))) == read


async def test_whatever_the_text_and_the_cuts_the_same_json_comes_out() -> None:
    letters = ["a", "\\", '"', "\n", "\U0001f600", "é", "\ud83d", "\ude00", "u", "d"]
    for number in range(examples(10_000)):
        source = random.Random(number)
        texts = ["".join(source.choices(letters, k=source.randrange(12))) for _ in range(5)]
        body = b"".join(json.dumps(text).encode() + source.choice((b"\n", b"\r\n", b"\r")) for text in texts)
        cuts = sorted(source.sample(range(len(body)), 5))
        chunks = [body[start:end] for start, end in zip([0, *cuts], [*cuts, len(body)], strict=True)]
        lines = (await passed(10_000, *chunks)).decode().splitlines()
        for line, text in zip((line for line in lines if line), texts, strict=True):
            joined = json.loads(json.dumps(text))
            assert json.loads(line) == re.sub("[\ud800-\udfff]", lambda half: f"\\u{ord(half[0]):04x}", joined)
    print(f"{examples(10_000):,} bodies of answers")
