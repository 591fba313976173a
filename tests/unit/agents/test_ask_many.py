"""Many questions at once: answers and errors in order, within the bounds."""

import asyncio
import itertools

import pytest
from pydantic import BaseModel
from pydantic_ai.messages import ToolCallPart
from support.waiting import eventually

from freeact_sub import Budget, FreeactError, InvalidRequestError
from freeact_sub.testing import first_prompt


class Size(BaseModel):
    letters: int


@pytest.fixture
def echo():
    """Answers with the length of the prompt; says how many were at work at once."""

    def script(messages, info):
        prompt = first_prompt(messages)
        if "bad" in prompt:
            return ToolCallPart(info.output_tools[0].name, {"letters": "many"}) if info.output_tools else ""
        return ToolCallPart(info.output_tools[0].name, {"letters": len(prompt)}) if info.output_tools else prompt.upper()

    return script


async def test_answers_and_errors_come_in_order(make, echo):
    async with make(echo) as agent:
        assert await agent.ask_many(["a", "bb", "ccc"]) == ["A", "BB", "CCC"]
        found = await agent.ask_many(["a", "bad", "ccc"], output=Size)
        assert found[0] == Size(letters=1)
        assert isinstance(found[1], Exception)
        assert found[2] == Size(letters=3)
        assert await agent.ask_many([]) == []
        assert (await agent.run("on").result()).output == "ON", "the run that began by itself has ended"


async def test_few_are_asked_at_once_and_prompts_are_taken_as_they_are_needed(make):
    taken, let_go = itertools.count(), asyncio.Event()

    def prompts():
        for _ in range(50):
            yield f"prompt {next(taken)}"

    async with make(lambda *_: [let_go, "x"], config={"models": {"max_concurrent": 3}}) as agent:
        asking = asyncio.create_task(agent.ask_many(prompts()))
        await eventually(lambda: agent.scripted.requests == 3)
        assert next(taken) == 3
        let_go.set()
        assert await asking == ["x"] * 50


async def test_the_run_pays_and_when_it_has_nothing_left_the_rest_is_refused(make, echo):
    async with make(echo) as agent:

        async def program():
            return await agent.ask_many(["a"] * 10)

        result = await agent.run_program(program, budget=Budget(requests=4)).result()
        answers = [answer for answer in result.output if answer == "A"]
        refused = [answer for answer in result.output if isinstance(answer, FreeactError)]
        assert all("limit of requests" in str(error) for error in refused)
        assert (len(answers), len(refused)) == (4, 6)
        assert agent.scripted.requests == 4


async def test_wrong_arguments_are_said_once_and_a_cancel_ends_all(make, echo):
    async with make(echo) as agent:
        with pytest.raises(InvalidRequestError, match="output is a type"):
            await agent.ask_many(["a"], output=asyncio.Event)
        for error in await agent.ask_many(["a", "b"], model="nobody"):
            assert isinstance(error, FreeactError)
            assert "nobody" in str(error)
