"""Places in flight, where providers that pause share them with others. What agents see of it is in `test_rate_limits`."""

import asyncio
import time

import pytest
from pydantic_ai.exceptions import ModelHTTPError

from freeact_sub.models.observers import Meter
from freeact_sub.models.traffic import Admission, Traffic
from freeact_sub.testing import ScriptedModel


async def test_a_request_whose_turn_comes_in_a_pause_gives_its_place_to_other_providers():
    traffic = Traffic(max_concurrent=1, patience_seconds=7_200)
    # models that stand in for others have a lane each
    busy, other = (traffic.lane(ScriptedModel([], name=name), stands_in=True) for name in ("busy", "other"))

    async def request(lane):
        async with Admission(lane, Meter("x"), 7_200).granted():
            return "sent"

    async with Admission(busy, Meter("x"), 7_200).granted():
        waiting = asyncio.create_task(request(busy))
        while not traffic.limiter.waiting_count:
            await asyncio.sleep(0)
        busy.open_at = time.monotonic() + 3_600
    assert await asyncio.wait_for(request(other), 60) == "sent"
    assert not waiting.done()
    waiting.cancel()
    await asyncio.wait({waiting})


def test_pauses_grow_until_the_provider_answers():
    lane = Traffic(max_concurrent=1, patience_seconds=3_600).lane(ScriptedModel([]))

    def pause():
        lane.open_at = 0.0
        now = time.monotonic()
        lane.refused(ModelHTTPError(429, "x"), sent_at=now, patience=3_600)
        return lane.open_at - now

    assert [pause() for _ in range(5)][-1] >= 8
    lane.answered(sent_at=time.monotonic())
    assert pause() < 4


def test_refusals_of_requests_that_were_sent_together_are_one():
    lane = Traffic(max_concurrent=20, patience_seconds=3_600).lane(ScriptedModel([]))
    sent_at = time.monotonic()
    for _ in range(20):
        lane.refused(ModelHTTPError(429, "x"), sent_at=sent_at, patience=3_600)
    assert lane.open_at < sent_at + 30  # 20 in a row would pause for 30 s at least


@pytest.mark.parametrize("slow_seconds", [0.01, 0.3, 5])
async def test_a_provider_that_stays_busy_is_given_up_however_slow_the_machine_is(slow_seconds, monkeypatch):
    """A pause may be over before anybody looks: the patience is used up all the same."""
    lane = Traffic(max_concurrent=1, patience_seconds=1.5).lane(ScriptedModel([]))
    admission, refusal, seconds = Admission(lane, Meter("x"), 1.5), ModelHTTPError(429, "x"), 100.0

    async def sleep(delay):
        nonlocal seconds
        seconds += delay

    monkeypatch.setattr("freeact_sub.models.traffic.time.monotonic", lambda: seconds)
    monkeypatch.setattr("freeact_sub.models.traffic.anyio.sleep", sleep)

    async def ask_again_and_again():
        nonlocal seconds
        for _ in range(100):
            async with admission.granted():
                seconds += slow_seconds
            admission.failed(refusal)
            seconds += slow_seconds

    with pytest.raises(ModelHTTPError):
        await ask_again_and_again()
    assert seconds < 100 + 20 * (1.5 + slow_seconds)
