"""A run is awaited for its result; the answer of one that did not complete is none, and reading it says why."""

import pytest
from pydantic import BaseModel
from support.agents import cell
from support.tables import each

from freeact_sub import Budget, RunResult, TaskError
from freeact_sub.testing import first_prompt, reply


class Report(BaseModel):
    title: str


async def test_a_run_is_awaited_for_its_result(make):
    async with make(["one", "two"]) as agent:
        result = await agent.run("go")
        assert (result.status, result.output, result.text) == ("completed", "one", "one")
        run = agent.run("on")
        events = [event async for event in run]
        assert (await run).output == (await run.result()).output == "two"
        assert events[-1].output == "two"
        assert (await agent.run_program(lambda: agent.ask("?"))).status == "completed"


async def by_limit(agent):
    return await agent.run("Report", budget=Budget(requests=1))


async def by_error(agent):
    def fail():
        raise RuntimeError("the program broke")

    async def program():
        fail()

    return await agent.run_program(program)


async def by_cancel(agent):
    run = agent.run("Report")
    async for _ in run:
        run.cancel()
    return await run


async def never_begun(agent):
    run = agent.run("Report")
    run.cancel()
    return await run


async def by_denial(agent):
    return await agent.run_cell("1")


@each("end", [by_limit, by_error, by_cancel, never_begun, by_denial])
async def test_the_output_of_a_run_that_did_not_complete_raises_the_reason(make, end):
    async with make(["no title", "none"] * 9, output_type=Report, config={"mode": "ask"}) as agent:
        result = await end(agent)
    assert result.status != "completed"
    with pytest.raises(TaskError) as error:
        _ = result.output.title
    assert result.status in str(error.value)
    assert result.error in str(error.value)
    assert error.value.result is result
    assert error.value.__cause__ is result.exception
    assert isinstance(result.text, str)
    assert "text=" in repr(result)


async def test_a_child_that_failed_has_no_output_either(make):
    async with make({"go": ["half"], "sub": [[cell("1")], "x"]}) as agent:
        ended = await agent.spawn_and_run("sub")
        assert ended.output == "x"
        with pytest.raises(TaskError) as error:
            await agent.task("sub", output=Report, max_turns=1)
    with pytest.raises(TaskError, match="did not complete"):
        _ = error.value.result.output


def test_values_keep_their_type_and_text_is_always_text():
    for value, text in ((5, "5"), ([1, 2], "[1, 2]"), ("x", "x"), (None, "null")):
        result = RunResult(value=value, status="completed")
        assert (result.output, result.text) == (value, text)


async def test_a_scripted_model_answers_whatever_the_type_of_the_answer_is(make):
    answers = {"int": 42, "list": [1, 2], "Report": Report(title="x"), "str": "done", "dict": {"a": 1}}
    types = {"int": int, "list": list[int], "Report": Report, "str": str, "dict": dict[str, int]}

    def script(messages, info):
        return reply(info, next(value for name, value in answers.items() if first_prompt(messages).startswith(name)))

    async with make(script) as agent:
        for name, kind in types.items():
            assert (await agent.run(name, output=kind)).output == answers[name]
            assert (await agent.task(name, output=kind)).output == answers[name]
            asked = await agent.run_program(lambda name=name, kind=kind: agent.ask(name, output=kind))
            assert asked.output == answers[name], asked
            agent.history.clear()
