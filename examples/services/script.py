"""Stands in for a model in `web.py` and `service.py`."""

from pydantic_ai.messages import ModelMessage, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo

from freeact_sub.testing import Turn


def script(messages: list[ModelMessage], info: AgentInfo) -> Turn:
    """One cell, then an answer made from what the cell printed."""
    del info
    for part in messages[-1].parts:
        if isinstance(part, ToolReturnPart):
            return f"It was a {part.content}."
    code = "import datetime\nprint(datetime.date(2000, 1, 1).strftime('%A'))"
    return ToolCallPart("execute_ipython_cell", {"code": code})
