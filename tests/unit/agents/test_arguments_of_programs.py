"""Arguments of a wrong kind are one sentence that names them, and the agent can be used afterwards."""

import re

import pytest
from support.tables import each

from freeact_sub import Agent, Config, InvalidRequestError, Run
from freeact_sub.testing import FakeKernelProvider, ScriptedModel

WRONG = {
    "agent.run: output is a type, such as `int` or a pydantic model, not 'int'": lambda agent: agent.run("go", output="int"),
    "agent.task: output is a type, such as `int` or a pydantic model, not 3": lambda agent: agent.task("go", output=3),
    "agent.ask: output is a type, such as `int` or a pydantic model, not 'int'": lambda agent: agent.ask_many(
        ["go"], output="int"
    ),
    "budget: Input should be": lambda agent: agent.run("go", budget=3),
    "budget: turns: Input should be": lambda agent: agent.run_program(agent.aclose, budget={"turns": "many"}),
    "agent.run: inputs are values by their names, not list": lambda agent: agent.run("go", inputs=[1]),
    "a prompt is a text": lambda agent: agent.spawn(5),
    "agent.execute: code is a text, not NoneType": lambda agent: agent.execute(None),
    "agent.ask_many takes a list of prompts, not one text": lambda agent: agent.ask_many("go"),
}


async def ended(agent, call):
    made = call(agent)
    return await (made.result() if isinstance(made, Run) else made)


@each("problem", WRONG)
async def test_a_wrong_argument_is_named_and_leaves_the_agent_usable(problem, tmp_path):
    agent = Agent(Config(workspace=tmp_path), model=ScriptedModel(["done"]), kernel_provider=FakeKernelProvider())
    async with agent:
        with pytest.raises(InvalidRequestError, match=re.escape(problem)):
            await ended(agent, WRONG[problem])
        result = await agent.run("go", budget={"turns": 3}).result()
    assert (result.status, result.output) == ("completed", "done")


def test_the_type_of_all_answers_is_a_type():
    with pytest.raises(InvalidRequestError, match="Agent: output is a type"):
        Agent(model=ScriptedModel(["done"]), output_type="int")
