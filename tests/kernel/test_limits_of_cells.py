"""A person is asked before its time ends a cell."""

import asyncio
import contextlib
import signal
from pathlib import Path

import psutil
import pytest
from support.agents import cell, check_stream, of_kind, task
from support.tables import each

from freeact_sub import Agent, Config
from freeact_sub.config.schema import KernelConfig
from freeact_sub.events import CodeExecutionOutput, QuestionAnswered, QuestionRequest
from freeact_sub.testing import ScriptedModel, first_prompt

pytestmark = [pytest.mark.kernel, pytest.mark.features("limits")]

WAITS = """\
# wait for the file
import pathlib, threading
while not pathlib.Path("there").exists():
    threading.Event().wait(0.01)
print("it is there")"""


async def read(script, on_question, folder, **config):
    """Run a prompt; questions are handed on with their number and the run."""
    kernel = KernelConfig(cell_timeout_seconds=1, sandbox="off")
    settings = Config(workspace=folder, kernel=kernel, mode="full", **config)
    async with Agent(settings, model=ScriptedModel(script)) as agent:
        run, events = agent.run("root"), []
        async for event in run:
            events.append(event)
            if isinstance(event, QuestionRequest):
                on_question(len(of_kind(events, QuestionRequest)), event, run)
        check_stream(events)
        assert not run.open_requests
        return events, await run.result()


@each(
    ("answers", "asked", "status", "says"),
    [
        (["more", "stop"], 2, "timeout", "ran longer than 2 s"),
        (["stop"], 1, "timeout", "ran longer than 1 s"),
        (["decline"], 1, "timeout", "ran longer than 1 s"),
        (["unbounded"], 1, "ok", "it is there"),
        ([], 1, "timeout", "ran longer than 1 s"),
    ],
    ids=["more", "stop", "no answer", "as long as it needs", "passed over"],
)
async def test_a_person_gives_more_time_or_all_or_none(tmp_path, answers, asked, status, says):
    def answer(number, question, _):
        assert question.prompt == f"A cell has been running for {number} s: wait for the file"
        assert question.fields[0].labels == ("yes, 1 s more", "yes, as long as it needs", "no, stop it")
        if answers and answers[number - 1] == "decline":
            question.decline()
        elif answers:
            question.answer(answers[number - 1])
            if answers[number - 1] == "unbounded":
                asyncio.get_running_loop().call_later(1.5, Path(tmp_path, "there").touch)

    events, result = await read({"root": [cell(WAITS), "done"]}, answer, tmp_path)
    assert len(of_kind(events, QuestionRequest)) == asked
    (output,) = of_kind(events, CodeExecutionOutput)
    assert (output.status, says in output.text, result.status) == (status, True, "completed")


async def test_the_cell_runs_on_while_the_question_is_open_and_its_end_withdraws_the_question(tmp_path):
    def show(_, question, run):
        question.shown()
        assert run.open_requests == (question,)
        Path(tmp_path, "there").touch()

    events, _ = await read({"root": [cell(WAITS), "done"]}, show, tmp_path)
    assert [event.reason for event in of_kind(events, QuestionAnswered)] == ["the cell has ended"]
    assert of_kind(events, CodeExecutionOutput)[0].status == "ok"


async def test_where_nobody_is_asked_or_the_feature_is_missing_it_ends_as_ever(tmp_path):
    events, _ = await read({"root": [cell(WAITS), "done"]}, None, tmp_path, headless="allow")
    assert "ran longer than 1 s" in of_kind(events, CodeExecutionOutput)[0].text


async def test_a_question_about_the_time_has_a_time_of_its_own(tmp_path):
    events, _ = await read(
        {"root": [cell(WAITS), "done"]}, lambda _, question, __: question.shown(), tmp_path, approval_timeout_seconds=0.2
    )
    assert "nobody has answered within 0.2 s" in of_kind(events, QuestionAnswered)[0].reason
    assert of_kind(events, CodeExecutionOutput)[0].status == "timeout"


@pytest.mark.parametrize("what", ["cancel", "kill", "child"])
async def test_a_cancel_and_a_killed_kernel_at_the_question_leave_nothing(tmp_path, what):
    def end(_, question, run):
        question.shown()
        if what == "kill":
            for process in psutil.Process().children(recursive=True):
                with contextlib.suppress(psutil.NoSuchProcess):  # a helper that has ended since
                    if Path(process.cwd()) == tmp_path:
                        process.send_signal(signal.SIGKILL)
        else:
            run.cancel(question.agent_id if what == "child" else None)

    def script(messages, info):
        if what == "child" and "child" not in first_prompt(messages):
            return task("child") if len(messages) == 1 else "done"
        return cell(WAITS) if len(messages) == 1 else "done"

    events, result = await read(script, end, tmp_path)
    (answered,) = of_kind(events, QuestionAnswered)
    assert answered.reason == ("the cell has ended" if what == "kill" else "cancelled")
    assert result.status == ("cancelled" if what == "cancel" else "completed")
    assert [event.status for event in of_kind(events, CodeExecutionOutput)] == (["kernel_lost"] if what == "kill" else [])
