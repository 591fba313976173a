"""A stream that is left early is closed at once, with its timer: nothing waits until Python collects it."""

import asyncio

import pytest
from pydantic_ai.messages import PartDeltaEvent, PartStartEvent, TextPart, TextPartDelta

from freeact_sub.agents.turn import emit_events
from freeact_sub.channel import Emitter, EventChannel
from freeact_sub.models.borrowed_stream import closed_after


class Pieces:
    """A response that never ends, and notes when it is closed."""

    def __init__(self):
        self.is_closed = False

    async def read(self):
        try:
            yield PartStartEvent(index=0, part=TextPart("word"))
            while True:
                yield PartDeltaEvent(index=0, delta=TextPartDelta(" word"))
        finally:
            self.is_closed = True


async def test_what_is_emitted_is_closed_when_the_emitting_is_cancelled():
    pieces, channel = Pieces(), EventChannel(size=2)
    stream = pieces.read()  # held here, so that nobody collects it
    task = asyncio.create_task(emit_events(stream, Emitter(channel=channel, agent_id="a"), lambda _: None))
    await asyncio.wait({task}, timeout=0.1)  # nobody reads: it waits for room
    assert not task.done()
    task.cancel()
    await asyncio.wait({task})
    assert pieces.is_closed


@pytest.mark.parametrize("error", [KeyError, asyncio.CancelledError])
async def test_a_block_that_ends_by_an_error_closes_what_it_reads(error):
    pieces = Pieces()
    stream = pieces.read()

    async def read():
        async with closed_after(stream) as events:
            async for _ in events:
                raise error

    with pytest.raises(error):
        await read()
    assert pieces.is_closed
