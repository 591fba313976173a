"""A slow model is told of while it is waited for."""

import asyncio

import pytest
from pydantic_ai.models.function import FunctionModel
from support.agents import of_kind, read

from freeact_sub import Agent, Config
from freeact_sub.events import ModelProgress, UsageUpdated
from freeact_sub.testing import FakeKernelProvider


@pytest.mark.slow
async def test_a_model_that_is_silent_for_long_is_told_of_until_it_answers(tmp_path):
    enough = asyncio.Event()

    async def answer(_messages, _info):
        yield "one "
        await enough.wait()
        yield "two"

    model = FunctionModel(stream_function=answer)
    async with Agent(Config(workspace=tmp_path), model=model, kernel_provider=FakeKernelProvider()) as agent:

        def on_event(event):
            if isinstance(event, ModelProgress) and event.seconds > 2.5:
                enough.set()

        events, result = await asyncio.wait_for(read(agent.run("go"), on_event=on_event), 120)
    assert result.output == "one two"
    told = of_kind(events, ModelProgress)
    assert len(told) >= 2
    assert told[0].seconds >= 2
    assert all(event.tokens >= 1 for event in told)
    assert events.index(told[-1]) < events.index(of_kind(events, UsageUpdated)[0])


async def test_a_quick_one_is_not_told_of(make):
    async with make(["at once"]) as agent:
        events, _ = await read(agent.run("go"))
    assert not of_kind(events, ModelProgress)
