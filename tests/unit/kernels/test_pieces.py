"""What is done to the pieces of a value: in their order, a few at once, and none after the end."""

import asyncio
from contextlib import aclosing

import pytest
from support.waiting import eventually, turns

from freeact_sub.kernels.gateway.kernel import PIECES_AHEAD, in_order


async def test_results_come_in_order_and_no_more_run_at_once_than_are_allowed():
    running, most = 0, 0

    async def work(number):
        nonlocal running, most
        running += 1
        most = max(most, running)
        await turns(20 - number)  # later ones end earlier
        running -= 1
        return number

    async def works():
        for number in range(20):
            yield work(number)

    async with aclosing(in_order(works())) as results:
        assert [result async for result in results] == list(range(20))
    assert most == PIECES_AHEAD


@pytest.mark.parametrize("ending", ["fails", "cancelled", "given up"])
async def test_nothing_runs_any_more_when_one_fails_or_the_reader_goes(ending):
    started, ended = [], []

    async def work(number):
        started.append(number)
        try:
            if number == 2 and ending == "fails":
                raise OSError("no room")
            await (turns() if number < 2 else asyncio.Event().wait())
            return number
        finally:
            ended.append(number)

    async def works():
        for number in range(100):
            yield work(number)

    async def read():
        async with aclosing(in_order(works())) as results:
            async for number in results:
                if number == 1 and ending == "given up":
                    return

    reading = asyncio.create_task(read())
    if ending == "cancelled":
        await eventually(lambda: 2 in started)
        reading.cancel()
    await asyncio.wait({reading}, timeout=60)
    assert reading.done()
    assert reading.cancelled() == (ending == "cancelled")
    if ending == "fails":
        assert isinstance(reading.exception(), OSError)
    assert sorted(ended) == sorted(started)
    assert len(started) < 10
