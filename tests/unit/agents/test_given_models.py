"""Models that a program gives as objects: to a child, and under a name in the settings."""

import pytest
from support.agents import of_kind, read

from freeact_sub import Agent, AgentStarted, Config, ConfigError, InvalidRequestError, SpawnRequest
from freeact_sub.testing import ScriptedModel


class Unhashable(ScriptedModel):
    __hash__ = None


async def test_a_child_takes_a_model_object(make):
    small, large = Unhashable(["from small"], name="small"), ScriptedModel(["from large"], name="large")
    async with make(["from the root's"]) as agent:
        requests = [SpawnRequest(prompt="x", model=model) for model in (small, large, small, None)]
        results = await agent.run_parallel(requests)
    assert [result.output for result in results] == ["from small", "from large", "from small", "from the root's"]
    assert (small.requests, large.requests) == (2, 1)


async def test_a_name_in_the_settings_may_stand_for_a_model_object(make):
    small = ScriptedModel(["from small"], name="small")
    async with make(["from the root's"], config={"models": {"little": small}}) as agent:

        async def program():
            return await agent.spawn_and_run(SpawnRequest(prompt="x", model="little")), await agent.ask("x", model="little")

        events, result = await read(agent.run_program(program))
    child, answer = result.output
    assert answer == "from small"
    assert child.output == "from small"
    assert [event.model for event in of_kind(events, AgentStarted) if event.depth] == ["function:small"]


async def test_a_factory_may_give_a_model_object(make):
    small = ScriptedModel(["from small"])

    class Factory:
        def create(self, request, context):
            return SpawnRequest(prompt=request.prompt, model=small)

    async with make(["from the root's"], factory=Factory()) as agent:
        assert (await agent.spawn_and_run("x")).output == "from small"


@pytest.mark.parametrize("model", [42, {"name": "x"}, ["x"], object()])
async def test_what_is_no_model_is_said_in_a_sentence(make, model):
    async with make(["root"]) as agent:
        with pytest.raises(InvalidRequestError, match=f"a Model of pydantic-ai; this is a {type(model).__name__}$"):
            await agent.spawn_and_run(SpawnRequest(prompt="x", model=model))
    with pytest.raises(ConfigError, match="`model` must be a name or a Model of pydantic-ai, not a "):
        Agent(model=model)
    with pytest.raises(ConfigError, match=r"setting `models`: 'small' must be `PROVIDER:NAME` or a Model"):
        Config(models={"small": model})
