"""Places in flight, where providers that pause share them with others. What agents see of it is in `test_rate_limits`."""

import asyncio
import itertools
from contextlib import suppress

import anyio
import pytest
from pydantic_ai.exceptions import ModelAPIError, ModelConnectionError, ModelHTTPError
from support.tables import each
from support.virtual_time import in_virtual_time, passes
from support.waiting import eventually

from freeact_sub.models.observers import Meter, watch
from freeact_sub.models.sending import Admission, Traffic
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
        await eventually(lambda: traffic.limiter.waiting_count)
        busy.open_at = anyio.current_time() + 3_600
    assert await asyncio.wait_for(request(other), 60) == "sent"
    assert not waiting.done()
    waiting.cancel()
    await asyncio.wait({waiting})


async def test_pauses_grow_until_the_provider_answers():
    lane = Traffic(max_concurrent=1, patience_seconds=3_600).lane(ScriptedModel([]))

    def pause():
        lane.open_at = 0.0
        now = anyio.current_time()
        lane.refused(ModelHTTPError(429, "x"), sent_at=now, patience=3_600)
        return lane.open_at - now

    assert [pause() for _ in range(5)][-1] >= 8
    lane.answered(sent_at=anyio.current_time())
    assert pause() < 4


async def test_refusals_of_requests_that_were_sent_together_are_one():
    lane = Traffic(max_concurrent=20, patience_seconds=3_600).lane(ScriptedModel([]))
    sent_at = anyio.current_time()
    for _ in range(20):
        lane.refused(ModelHTTPError(429, "x"), sent_at=sent_at, patience=3_600)
    assert lane.open_at < sent_at + 30  # 20 in a row would pause for 30 s at least


@pytest.mark.parametrize("slow_seconds", [0.01, 0.3, 5])
@in_virtual_time
async def test_a_provider_that_stays_busy_is_given_up_however_slow_the_machine_is(slow_seconds):
    """A pause may be over before anybody looks: the patience is used up all the same."""
    lane = Traffic(max_concurrent=1, patience_seconds=1.5).lane(ScriptedModel([]))
    admission = Admission(lane, Meter("x"), 1.5)

    async def ask_again_and_again():
        for _ in range(100):
            async with admission.granted():
                await passes(slow_seconds)
            admission.failed(ModelHTTPError(429, "x"))
            await passes(slow_seconds)

    with pytest.raises(ModelHTTPError):
        await ask_again_and_again()
    assert anyio.current_time() < 20 * (1.5 + slow_seconds)


BROKEN = ModelAPIError("x", "it has no end", in_stream=True)
PASSING = {
    **{str(status): ModelHTTPError(status, "x") for status in (408, 409, 500, 502, 504, *range(520, 531), 599)},
    "cut": ModelHTTPError(502, "x", in_stream=True),
    "lost": ModelConnectionError("x", "gone", phase="read"),
}
BUSY = {str(status): ModelHTTPError(status, "x") for status in (429, 503, 529)}


async def sendings(error, *, patience=300.0, takes=0.1, traffic=None):
    """When a request is sent whose server always fails so, and what was told of the waits."""
    traffic = traffic or Traffic(max_concurrent=1, patience_seconds=patience)
    sent, told = [], []
    with watch(lambda meter: told.append(meter.state)):
        admission = Admission(traffic.lane(ScriptedModel([])), Meter("x"), patience)
        with suppress(ModelAPIError):
            while True:
                async with admission.granted():
                    sent.append(anyio.current_time())
                    await passes(takes)
                    admission.failed(error)
    return sent, told


@each("name", [*PASSING, *BUSY])
@in_virtual_time
async def test_a_failing_server_is_asked_again_for_a_minute_or_more_with_growing_pauses(name):
    sent, told = await sendings((PASSING | BUSY)[name])
    assert 60 <= sent[-1] - sent[0] <= 310
    assert 6 <= len(sent) <= 20
    pauses = [later - earlier for earlier, later in itertools.pairwise(sent)]
    assert pauses[0] < 2.5
    assert max(pauses) >= 8
    waits = [state for state in told if state.paused_seconds is not None]
    assert len(waits) >= sent[-1] - sent[0] - 2 * len(sent), "told each second"
    because = {state.paused_because for state in waits}
    assert because == {
        "the provider is busy"
        if name in BUSY
        else "the reply broke off"
        if name in ("cut", "lost")
        else f"the server failed ({name})"
    }


@each(
    "error",
    [ModelHTTPError(501, "x"), ModelHTTPError(505, "x"), ModelHTTPError(400, "x"), ModelHTTPError(401, "x"), BROKEN],
)
@in_virtual_time
async def test_what_stays_as_it_is_is_not_asked_again(error):
    sent, _ = await sendings(error)
    assert len(sent) == 1


@in_virtual_time
async def test_where_nobody_answers_or_another_model_stands_in_it_is_tried_three_times():
    for error, patience in ((ModelConnectionError("x", "no", phase="connect"), 300), (ModelHTTPError(500, "x"), 0)):
        began = anyio.current_time()
        sent, _ = await sendings(error, patience=patience)
        assert len(sent) == 3
        assert anyio.current_time() - began < 3


@in_virtual_time
async def test_slow_requests_are_made_three_times_though_the_time_is_over():
    sent, _ = await sendings(PASSING["lost"], takes=200)
    assert len(sent) == 3


@pytest.mark.parametrize("status", [429, 500])
@in_virtual_time
async def test_the_time_that_a_server_names_is_kept(status):
    sent, _ = await sendings(ModelHTTPError(status, "x", headers={"retry-after": "20"}))
    assert all(20 <= later - earlier < 22 for earlier, later in itertools.pairwise(sent))
    assert len(sent) >= 4


@pytest.mark.parametrize("status", [429, 500])
@in_virtual_time
async def test_a_person_may_have_a_wait_over(status):
    traffic = Traffic(max_concurrent=4, patience_seconds=300)
    assert not traffic.try_now()
    running = [
        asyncio.create_task(sendings(ModelHTTPError(status, "x", headers={"retry-after": "50"}), traffic=traffic))
        for _ in range(3)
    ]
    await passes(10)
    assert traffic.try_now()
    await passes(0.5)
    assert not any(task.done() for task in running)
    for task in running:
        task.cancel()
    await asyncio.wait(running)
    # each waits anew: it was refused again
    assert not traffic.try_now()


@in_virtual_time
async def test_requests_that_a_person_hastens_are_sent_at_once():
    traffic = Traffic(max_concurrent=1, patience_seconds=300)
    running = asyncio.create_task(sendings(ModelHTTPError(429, "x", headers={"retry-after": "200"}), traffic=traffic))
    for _ in range(3):
        await passes(20)
        traffic.try_now()
    sent, _ = await running
    assert [round(at) for at in sent[:4]] == [0, 20, 40, 60]


@in_virtual_time
async def test_the_next_request_does_not_wait_for_one_that_was_cancelled():
    traffic = Traffic(max_concurrent=4, patience_seconds=300)
    first, other = (
        asyncio.create_task(sendings(ModelHTTPError(429, "x", headers={"retry-after": "200"}), traffic=traffic))
        for _ in range(2)
    )
    await passes(5)
    first.cancel()
    await asyncio.wait({first})
    lane = traffic.lane(ScriptedModel([]))
    assert lane.open_at > 100, "the other one waits still"
    other.cancel()
    await asyncio.wait({other})
    began = anyio.current_time()
    async with Admission(lane, Meter("x"), 300).granted():
        assert anyio.current_time() == began
