"""A child that cannot give an answer of the requested type says so, and why; its parent's code reads it as a fact."""

import pytest
from pydantic import BaseModel
from pydantic_ai.messages import ToolCallPart
from support.agents import cell, hand_over, of_kind, read, root_text, task

from freeact_sub import AgentFinished, TaskError
from freeact_sub.testing import first_prompt

pytestmark = pytest.mark.kernel


class Report(BaseModel):
    rows: int


def refuses(reason):
    return ToolCallPart("cannot_answer", {"reason": reason})


async def test_code_reads_why_a_child_refused_and_what_was_wrong_with_the_last_answer(make):
    ask = """
async def tried(prompt):
    try:
        return (await agent.task(prompt, output=int)).output
    except agent.TaskError as error:
        return error.result.status, error.result.refused, error.result.error
print(await tried("no file"))
print(await tried("a number"))
print(await tried("only letters"))
"""
    script = {
        "go": [[cell(ask)], "done"],
        "no file": [refuses("there is no file")],
        "a number": [hand_over(7)],
        "only letters": [hand_over("x")] * 10,
    }
    async with make(script, mode="full") as agent:
        events, result = await read(agent.run("go"))
    assert result.status == "completed"
    lines = root_text(events).splitlines()
    assert lines[0] == "('failed', 'there is no file', 'it cannot give the answer: there is no file')"
    assert lines[1] == "7"
    assert lines[2].startswith("('failed', '', ")
    assert "valid integer" in lines[2], "the last message of the validation"


async def test_a_program_reads_it_too_and_a_parents_model_reads_it_as_a_report(make, tmp_path):
    folder = tmp_path / "types"
    folder.mkdir()
    schema = "output: {type: object, properties: {rows: {type: integer}}, required: [rows]}"
    (folder / "counter.md").write_text(f"---\ndescription: counts\n{schema}\n---\n")
    reports = []

    def script(messages, info):
        names = [tool.name for tool in info.output_tools]
        if first_prompt(messages).startswith("count"):
            assert "cannot_answer" in names
            return refuses("no data")
        if first_prompt(messages) == "go" and len(messages) == 1:
            return task("count b", agent="counter")
        assert "cannot_answer" not in names
        reports.append(messages[-1].parts[-1].content)
        return "done"

    async with make(script, mode="full", agent_folders=(folder,)) as agent:
        with pytest.raises(TaskError, match="it cannot give the answer: no data") as caught:
            await agent.task("count", output=Report)
        assert (caught.value.result.refused, caught.value.result.status) == ("no data", "failed")
        events, result = await read(agent.run("go"))
    assert result.status == "completed"
    assert result.refused == ""
    assert "it cannot give the answer: no data" in reports[0]
    assert [event.refused for event in of_kind(events, AgentFinished)] == ["no data", ""]
