"""The time of a request that tells of its progress, and what is passed on of it."""

import math

import pytest

from freeact_sub.mcp.connection import MAX_CHARS, MAX_TIMES, Pulse

SECONDS = 10


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


async def test_time_begins_anew_with_each_notice_within_a_bound(clock):
    pulse = Pulse(clock, SECONDS)
    clock.now += 5  # until the server is connected to
    pulse.begin()
    assert pulse.left == SECONDS
    beats = 0
    while pulse.left > 0:
        clock.now += min(9, pulse.left)
        beats += 1
        await pulse.beat(beats, None, None)
    assert clock.now - 105 == MAX_TIMES * SECONDS
    assert pulse.lateness == f"told of its progress, and has not ended within {MAX_TIMES} times its 10 s"


async def test_how_a_request_is_late(clock):
    pulse = Pulse(clock, SECONDS)
    clock.now += 11
    assert pulse.lateness == "did not respond within 10 s"
    await pulse.beat(1, 2, None)
    clock.now += 11
    assert pulse.left < 0
    assert pulse.lateness == "told of its progress, and then nothing for 10 s"


async def test_some_are_passed_on_and_the_last(clock):
    heard: list = []
    pulse = Pulse(clock, SECONDS, heard.append)
    for number in range(1, 101):
        clock.now += 0.01
        await pulse.beat(number, 100, "x" * 5000)
    assert [each.progress for each in heard[:2]] == [1, 21]
    assert heard[-1].progress == 100
    assert len(heard) == 6
    assert {len(each.message) for each in heard} == {MAX_CHARS}


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
async def test_what_is_no_number_is_not_passed_on(clock, number):
    heard: list = []
    pulse = Pulse(clock, SECONDS, heard.append)
    await pulse.beat(number, 1, None)
    assert heard == []
    await pulse.beat(1, number, None)
    assert [each.total for each in heard] == [None]
