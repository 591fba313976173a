"""The event channel: order, bound, endings."""

import asyncio

from support.waiting import eventually, turns

from freeact_sub.channel import Emitter, EventChannel
from freeact_sub.events import Notice, Response


async def read_all(channel: EventChannel) -> list:
    events = []
    while (event := await channel.receive()) is not None:
        events.append(event)
    return events


async def test_numbers_follow_the_order_of_arrival_without_gaps_also_where_endings_overtake_waiting_senders():
    channel = EventChannel(size=2)
    senders = [asyncio.create_task(channel.send(Response(content=str(number)))) for number in range(10)]
    await eventually(lambda: sum(task.done() for task in senders) == 2)
    channel.put(Notice(content="now"))
    reader = asyncio.create_task(read_all(channel))
    await asyncio.gather(*senders)
    channel.finish()
    events = await reader
    assert [event.seq for event in events] == list(range(11))
    assert [event.content for event in events] == ["0", "1", "now", *map(str, range(2, 10))]


async def test_a_slow_reader_holds_the_senders_back_and_each_event_read_lets_one_go_on():
    channel = EventChannel(size=3)
    senders = [asyncio.create_task(channel.send(Response(content=str(number)))) for number in range(20)]
    for read in range(10):
        await eventually(lambda read=read: sum(task.done() for task in senders) == read + 3)
        assert (await channel.receive()).content == str(read)
    channel.abandon()
    await asyncio.gather(*senders)


async def test_a_sender_that_is_cancelled_while_it_waits_leaves_no_gap_and_no_lost_room():
    channel = EventChannel(size=1)
    await channel.send(Response(content="first"))
    waiting = asyncio.create_task(channel.send(Response(content="never")))
    after = asyncio.create_task(channel.send(Response(content="second")))
    await turns()
    waiting.cancel()
    assert (await channel.receive()).content == "first"
    await after
    second = await channel.receive()
    assert (second.content, second.seq) == ("second", 1)


async def test_after_the_reader_has_gone_sending_neither_waits_nor_fails():
    channel = EventChannel(size=1)
    await channel.send(Response(content="x"))
    waiting = [asyncio.create_task(channel.send(Response(content="y"))) for _ in range(5)]
    await turns()
    channel.abandon()
    await asyncio.wait_for(asyncio.gather(*waiting), 120)
    await asyncio.wait_for(channel.send(Response(content="z")), 120)
    channel.put(Notice(content="z"))
    assert await read_all(channel) == []


async def test_a_finished_channel_gives_what_waits_and_then_the_end_again_and_again():
    channel = EventChannel()
    channel.put(Notice(content="a"))
    channel.finish()
    assert [event.content for event in await read_all(channel)] == ["a"]
    assert await channel.receive() is None


async def test_taps_see_each_stamped_event_in_order_before_the_reader():
    seen: list[int] = []
    channel = EventChannel(taps=[lambda event: seen.append(event.seq)])
    emitter = Emitter(channel=channel, agent_id="agent-1", parent_id="agent-0", depth=1)
    await emitter.emit(Response(content="a"), tool_call_id="call-1")
    emitter.put(Notice(content="b"))
    assert seen == [0, 1]
    event = await channel.receive()
    assert (event.agent_id, event.parent_id, event.depth, event.tool_call_id) == ("agent-1", "agent-0", 1, "call-1")
    assert event.time > 0
