"""The traceback of an exception that nobody expected: in the result, and in the log at the level that is shown by default."""

import logging
import traceback

import pytest
from pydantic_ai.messages import ToolCallPart
from support.agents import cell

from freeact_sub import Budget, FreeactError, TaskError, session_events
from freeact_sub.strategies import Member, vote


def deep_in_my_code():
    raise KeyError("a bug of mine")


async def program():
    try:
        deep_in_my_code()
    except KeyError as error:
        raise RuntimeError("it does not work") from error


def bugs(caplog):
    """The tracebacks in the log."""
    return [record.exc_text or "" for record in caplog.records if record.levelno == logging.WARNING]


async def test_a_bug_of_a_program_is_found_in_its_result_and_in_the_log(make, caplog):
    async with make(["ok"]) as agent:
        result = await agent.run_program(program).result()
    assert (result.status, result.error) == ("failed", "RuntimeError: it does not work")
    lines = "".join(traceback.format_exception(result.exception))
    assert "in deep_in_my_code" in lines
    assert isinstance(result.exception.__cause__, KeyError)
    (found,) = bugs(caplog)
    assert "in deep_in_my_code" in found
    assert "exception" not in repr(result)


@pytest.mark.parametrize("by", ["model", "cell"])
async def test_a_bug_of_a_tool_is_found_in_the_log_and_its_run_goes_on(make, caplog, by):
    async def mine() -> str:
        return str(deep_in_my_code())

    calls = [[ToolCallPart("mine", {})], "done"] if by == "model" else ["done"]
    async with make(calls, tools=[mine], config={"mode": "full"}) as agent:
        if by == "cell":
            await agent.execute("1")
            with pytest.raises(FreeactError, match="the tool mine failed: KeyError"):
                await agent.provider.kernels[0].ask_host("own_call", tool="mine", args={})
        result = await agent.run("go").result()
    assert (result.status, result.exception) == ("completed", None)
    assert all("in deep_in_my_code" in found for found in bugs(caplog))
    assert bugs(caplog)


@pytest.mark.parametrize("kind", ["ToolCallStarted", "ToolOutput", "UsageUpdated"])
async def test_a_bug_of_a_tap_is_found_in_the_result_and_in_the_log(make, caplog, kind):
    def tap(event):
        if event.type == kind:
            deep_in_my_code()

    async with make([[cell("1")], "done"], taps=[tap], config={"mode": "full"}) as agent:
        result = await agent.run("go").result()
    assert result.status == "failed"
    assert "in deep_in_my_code" in "".join(traceback.format_exception(result.exception))
    assert "in deep_in_my_code" in bugs(caplog)[0]


async def test_a_bug_in_the_arguments_of_a_strategy_is_found(make, caplog):
    async with make(["ok"]) as agent:
        result = await agent.run_program(lambda: vote(agent, "x", Member("a"))).result()
    assert isinstance(result.exception, TypeError)
    assert "Member" in bugs(caplog)[0]


async def test_expected_errors_are_in_the_result_and_not_in_the_log(make, caplog):
    async with make(lambda *_: [cell("1")], config={"mode": "full"}) as agent:
        limited = await agent.run("go", budget=Budget(turns=1)).result()
        failed = await agent.run_program(lambda: agent.task("child", max_turns=1)).result()
    assert (limited.status, limited.exception.limit) == ("limit", "turns")
    assert isinstance(failed.exception, TaskError)
    assert failed.exception.result.exception.limit == "turns"
    assert not bugs(caplog)


@pytest.mark.features("sessions")
async def test_a_session_has_the_sentence_and_not_the_exception(make, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    async with make(["ok"], session="new") as agent:
        await agent.run_program(program).result()
    end = [*session_events(agent.session_id)][-1]
    assert end.error == "RuntimeError: it does not work"
    assert not hasattr(end, "exception")
