"""Whatever a cell displays, an exported notebook is valid, and nothing of it is lost."""

import nbformat
import pytest

from freeact_sub.cells import DisplayData, ExecuteResult
from freeact_sub.events import AgentStarted, CodeExecutionOutput, CodeExecutionOutputChunk, ToolCallStarted
from freeact_sub.export import export_events

ROOT = {"agent_id": "agent-1", "parent_id": None, "depth": 0}
DATA = {"text/plain": ["a", 1], "1": 2, "text/html": None, "image/png": {}, "application/json": {"a": [1]}}


@pytest.mark.parametrize("output", [DisplayData(data=DATA), ExecuteResult(data=DATA, execution_count=1)])
def test_the_notebook_is_valid(output):
    cell = {**ROOT, "tool_call_id": "c"}
    events = [
        AgentStarted(**ROOT, prompt="x"),
        ToolCallStarted(**cell, tool_name="execute_ipython_cell", args={"code": "x"}),
        CodeExecutionOutputChunk(**cell, output=output),
        CodeExecutionOutput(**cell, text="", status="ok", seconds=0.5),
    ]
    book = nbformat.reads(export_events(events, "ipynb"), 4)
    nbformat.validate(book)
    shown = next(out.data for at in book.cells for out in at.get("outputs", []))
    assert shown == {"text/plain": '["a", 1]', "1": "2", "image/png": "{}", "application/json": {"a": [1]}}
