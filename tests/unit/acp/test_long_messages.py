"""A message that is too long costs no other one, and its sender is told."""

import asyncio
import json

import pytest
from support.waiting import turns

from freeact_sub.acp.connection import MAX_MESSAGE_BYTES, pass_on_messages, too_long

LONG = b'{"jsonrpc": "2.0", "id": "a-1", "params": "' + b"x" * 300 + b'"}\n'


@pytest.mark.parametrize("pieces", [1, 7, 1000])
async def test_a_line_beyond_the_limit_is_left_out_and_refused(pieces):
    source, target = asyncio.StreamReader(limit=100), asyncio.StreamReader()
    refused = []
    passing = asyncio.create_task(pass_on_messages(source, target, refused.append))
    text = b'{"a": 1}\n' + LONG + b'[1]\n{"b": 2}\n' + LONG + LONG + b'{"c": 3}\n' + LONG[:-1]
    for start in range(0, len(text), max(len(text) // pieces, 1)):
        source.feed_data(text[start : start + max(len(text) // pieces, 1)])
        await turns()
    source.feed_eof()
    await passing
    assert await target.read() == b'{"a": 1}\n{"b": 2}\n{"c": 3}\n'
    assert [json.loads(too_long(begun))["id"] for begun in refused] == ["a-1"] * 4


@pytest.mark.parametrize(("begun", "name"), [(b'{"id":7,', 7), (b'{"method": "x"', None), (b'{"id": {"id": [1', None)])
def test_the_answer_names_the_id_where_it_is_known(begun, name):
    answer = json.loads(too_long(begun))
    assert answer["id"] == name
    assert f"{MAX_MESSAGE_BYTES:,}" in answer["error"]["message"]
