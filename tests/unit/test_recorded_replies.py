"""What a real small model replied (Qwen2.5-Coder-1.5B on llama-server), and what must be made of it.

The replies are recorded by `benchmarks/record_replies.py`; what is expected of each was decided by people who read it:
the calls, with their arguments; `own` where the model made its calls itself; an empty list where the reply is an answer.
"""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from pydantic_ai.messages import TextPart, ToolCallPart, ToolReturnPart

from benchmarks.record_replies import conversation_of
from freeact_sub.models.replies import WRITTEN, situation_of, understood
from freeact_sub.tools.toolset import load_definition

FILE = Path(__file__).parents[1] / "data" / "replies.jsonl"
RECORDS = [json.loads(line) for line in FILE.read_text(encoding="utf-8").splitlines()]
TOOLS = {name: load_definition(name).parameters_json_schema for name in ("execute_ipython_cell", "task", "reset_kernel")}


def history_of(record):
    """The conversation; where the tools were in words, the calls in it were written as well."""
    messages = conversation_of(record["asked"])
    if record["form"] == "tools":
        return messages
    return [replace(message, parts=[as_written(part) for part in message.parts]) for message in messages]


def as_written(part):
    if isinstance(part, ToolCallPart | ToolReturnPart):
        return replace(part, tool_call_id=WRITTEN + part.tool_call_id)
    return part


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record["id"])
def test_what_is_made_of_a_reply(record):
    reply = record["reply"]
    own = [ToolCallPart(call["name"], call["args"]) for call in reply["calls"]]
    parts = [*([TextPart(reply["text"])] if reply["text"] else []), *own]
    situation = situation_of(history_of(record), block_mode=record["form"] == "block")
    made = understood(parts, TOOLS, situation, complete=reply["finish"] != "length").parts
    calls = [[part.tool_name, part.args] for part in made if isinstance(part, ToolCallPart)]
    if record["expected"] in ("own", []):
        assert list(made) == parts
    else:
        assert calls == record["expected"]
        said = [line for part in made if isinstance(part, TextPart) for line in part.content.splitlines()]
        assert all(line in reply["text"] for line in said)


def test_the_set_is_worth_its_name():
    assert len(RECORDS) >= 60
    assert len({record["id"] for record in RECORDS}) == len(RECORDS)
    assert {record["form"] for record in RECORDS} == {"tools", "words", "block"}
    assert sum(record["expected"] == [] for record in RECORDS) >= 20
    assert sum(record["expected"] not in ("own", []) for record in RECORDS) >= 30
