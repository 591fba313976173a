"""Strategies on real kernels: in a cell with its `agent`, and values of a program in a child's kernel."""

import pytest
from pydantic_ai.messages import ToolCallPart, ToolReturnPart
from support.agents import cell, of_kind, read, root_text
from support.programs import ROOT

from freeact_sub import Agent, Config
from freeact_sub.events import AgentStarted
from freeact_sub.strategies import agent_function
from freeact_sub.testing import ScriptedModel, first_prompt

pytestmark = pytest.mark.kernel

IN_A_CELL = """
from freeact_sub.strategies import agent_function, debate, plan_and_execute, vote
import sys

@agent_function(agent)
async def largest(values: list[int]) -> int:
    "The largest of the values."

voted = await vote(agent, "How many?", 3, output=int)
debated = await debate(agent, "Why?", 2)
planned = await plan_and_execute(agent, "Count.")
print(voted.answer, voted.votes, debated.answer, planned.answer, await largest([3, 9, 4]))
print("pydantic_ai" in sys.modules)
"""


async def test_the_same_functions_work_in_a_cell(tmp_path):
    def script(messages, info):
        prompt = first_prompt(messages)
        returned = [part.content for message in messages for part in message.parts if isinstance(part, ToolReturnPart)]
        if prompt == "root":
            return "done" if returned else cell(IN_A_CELL)
        if prompt.startswith("You are the body of a Python function"):
            return ToolCallPart("hand_over", {"value": int(returned[0])}) if returned else cell("print(max(values))")
        if info.output_tools and prompt == "How many?":
            return ToolCallPart("hand_over", {"value": 4})
        if info.output_tools:
            step = {"value": [{"task": "one step"}]} if len(messages) == 1 else {"answer": "counted", "steps": []}
            return ToolCallPart("hand_over", step)
        return "because" if len(messages) > 1 or prompt.startswith("one step") else "perhaps"

    # installed from a wheel the package is part of the Python that the wall shows; from the sources it is not
    config = Config(workspace=tmp_path, mode="auto", kernel={"readable": [ROOT]})
    async with Agent(config, model=ScriptedModel(script)) as agent:
        events, result = await read(agent.run("root"))
    assert result.status == "completed"
    assert "4 3 because counted 9\nFalse" in root_text(events)
    assert len([event for event in of_kind(events, AgentStarted) if event.depth == 1]) == 2


async def test_values_of_a_program_are_variables_in_the_childs_kernel(tmp_path):
    def script(messages, info):
        del info
        returned = [part.content for message in messages for part in message.parts if isinstance(part, ToolReturnPart)]
        if not returned:
            assert "- values: list, length 3\n- limit = 2" in first_prompt(messages)
            return cell("print([index for index, value in enumerate(values) if value > limit])")
        return ToolCallPart("final_result", {"response": eval(returned[0])})

    config = Config(workspace=tmp_path, mode="auto")
    async with Agent(config, model=ScriptedModel(script)) as agent:

        @agent_function(agent)
        async def above(values: list[int], limit: int = 2) -> list[int]:
            """The positions of the values above the limit."""

        assert await above([1, 3, 9]) == [1, 2]
