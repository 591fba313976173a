"""A summary is followed by what is still in the kernel."""

import pytest
from pydantic_ai.messages import CompactionPart
from support.agents import cell, read
from support.windows import WindowedModel, is_summary_request

from freeact_sub import Agent, Config
from freeact_sub.features import compaction

pytestmark = pytest.mark.kernel

CODE = "import math\nrows, _private = [1, 2], 3\nclass Point: pass\npoint = Point()\n# " + "filler " * 200


async def test_the_summary_lists_the_variables_with_their_types_and_they_are_there(tmp_path, monkeypatch):
    monkeypatch.setattr(compaction, "LIST_SECONDS", 120.0)

    def script(messages, info):
        if is_summary_request(messages):
            return "rows were made"
        answers = [message for message in messages if message.kind == "response"]
        if len(answers) == 0:
            return [cell(CODE)]
        if any(isinstance(part, CompactionPart) for part in messages[0].parts) and len(answers) == 1:
            return [cell("print(rows, point.__class__.__name__)")]
        return "done"

    model = WindowedModel(script, window_tokens=30_000)
    async with Agent(Config(workspace=tmp_path, mode="full"), model=model) as agent:
        await read(agent.run("first"))
        told = await agent.compact()
        (part,) = [part for part in agent.history[0].parts if isinstance(part, CompactionPart)]
        await read(agent.run("second"))
        last = agent.history[-2].parts[0]
    assert told.summary == "rows were made"
    summary, _, listed = part.content.partition(compaction.VARIABLES)
    assert summary.strip() == "rows were made"
    assert listed.splitlines() == ["math: module", "rows: list", "Point: type", "point: Point"]
    assert "[1, 2] Point" in last.model_response_str()
