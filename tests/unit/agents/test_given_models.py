"""Models that a program gives as objects: to a child, and under a name in the settings."""

import pytest
from support.agents import of_kind, read
from support.tables import each

from freeact_sub import Agent, AgentStarted, ChildRequest, Config, ConfigError, InvalidRequestError
from freeact_sub.testing import ScriptedModel


class Tuned(ScriptedModel):
    settings = {"temperature": 0.9, "seed": 7}


class Unhashable(ScriptedModel):
    __hash__ = None


async def test_a_child_takes_a_model_object(make):
    small, large = Unhashable(["from small"], name="small"), ScriptedModel(["from large"], name="large")
    async with make(["from the root's"]) as agent:
        requests = [ChildRequest(prompt="x", model=model) for model in (small, large, small, None)]
        results = await agent.run_parallel(requests)
    assert [result.output for result in results] == ["from small", "from large", "from small", "from the root's"]
    assert (small.requests, large.requests) == (2, 1)


async def test_a_name_in_the_settings_may_stand_for_a_model_object(make):
    small = ScriptedModel(["from small"], name="small")
    async with make(["from the root's"], config={"models": {"little": small}}) as agent:

        async def program():
            return await agent.spawn_and_run(ChildRequest(prompt="x", model="little")), await agent.ask("x", model="little")

        events, result = await read(agent.run_program(program))
    child, answer = result.output
    assert answer == "from small"
    assert child.output == "from small"
    assert [event.model for event in of_kind(events, AgentStarted) if event.depth] == ["function:small"]


async def test_a_factory_may_give_a_model_object(make):
    small = ScriptedModel(["from small"])

    class Factory:
        def create(self, request, context):
            return ChildRequest(prompt=request.prompt, model=small)

    async with make(["from the root's"], factory=Factory()) as agent:
        assert (await agent.spawn_and_run("x")).output == "from small"


@each("model", [42, {"name": "x"}, ["x"], object()])
async def test_a_value_that_is_no_model_is_an_error_of_one_sentence(make, model):
    async with make(["root"]) as agent:
        with pytest.raises(InvalidRequestError, match=f"a Model of pydantic-ai; this is a {type(model).__name__}$"):
            await agent.spawn_and_run(ChildRequest(prompt="x", model=model))
    with pytest.raises(ConfigError, match="model: it is the name of a model or a Model of pydantic-ai, not "):
        Agent(model=model)
    with pytest.raises(ConfigError, match=r"setting `models`: 'small' must be `PROVIDER:NAME` or a Model"):
        Config(models={"small": model})


async def test_an_agent_takes_models_by_name_and_each_has_its_own_settings(make):
    seen, known = {}, ("temperature", "seed", "top_p")

    def says(name):
        def script(messages, info):
            seen.setdefault(name, []).append(
                {key: value for key, value in (info.model_settings or {}).items() if key in known}
            )
            return f"from {name}"

        return script

    small = Tuned(says("small"), name="small")
    plain = ScriptedModel(says("plain"), name="plain")
    models = {"little": small, "plain": plain, "named": "openai-chat:elsewhere"}
    async with make(says("root"), models=models, model_settings={"temperature": 0.1, "top_p": 0.5}) as agent:

        async def program():
            asked = [await agent.ask("x", model=name) for name in ("little", "plain")]
            children = [await agent.task("x", model=name) for name in ("little", "plain")]
            return asked + [child.output for child in children]

        result = await agent.run_program(program).result()
        await agent.run("x").result()
    assert result.output == ["from small", "from plain"] * 2
    own, others = {"temperature": 0.9, "seed": 7, "top_p": 0.5}, {"temperature": 0.1, "top_p": 0.5}
    assert seen == {"small": [own, own], "plain": [others, others], "root": [others]}


@pytest.mark.parametrize("models", [{"small": 7}, {"max_concurrent": 3.5}])
def test_a_value_that_is_no_model_is_refused_with_its_name(make, models):
    with pytest.raises(ConfigError):
        make([], models=models)
