"""What a real small model replied (Qwen2.5-Coder-1.5B on llama-server), and what must be made of it.

The replies are recorded by `benchmarks/record_replies.py`; what is expected of each was decided by people who read it:
the calls, with their arguments; `own` where the model made its calls itself; an empty list where nothing is run.
"""

import json
from pathlib import Path

from pydantic_ai.messages import TextPart, ToolCallPart
from support.tables import each

from freeact_sub.models.code_actions import read_reply
from freeact_sub.tools.toolset import load_definition

FILE = Path(__file__).parents[2] / "data" / "replies.jsonl"
RECORDS = [json.loads(line) for line in FILE.read_text(encoding="utf-8").splitlines()]
TOOLS = {name: load_definition(name).parameters_json_schema for name in ("execute_ipython_cell", "task", "reset_kernel")}


@each("record", RECORDS, ids=lambda record: record["id"])
def test_what_is_made_of_a_reply(record):
    reply = record["reply"]
    own = [ToolCallPart(call["name"], call["args"]) for call in reply["calls"]]
    parts = [*([TextPart(reply["text"])] if reply["text"] else []), *own]
    made = read_reply(parts, TOOLS, blocks=record["form"] == "block", complete=reply["finish"] != "length")
    calls = [[part.tool_name, part.args] for part in made if isinstance(part, ToolCallPart)]
    if record["expected"] in ("own", []):
        assert made == parts
    else:
        assert calls == record["expected"]
        said = [line for part in made if isinstance(part, TextPart) for line in part.content.splitlines()]
        assert all(line in reply["text"] for line in said)


def test_the_set_is_worth_its_name():
    assert len(RECORDS) >= 50
    assert len({record["id"] for record in RECORDS}) == len(RECORDS)
    assert {record["form"] for record in RECORDS} == {"tools", "block"}
    assert sum(record["expected"] == [] for record in RECORDS) >= 15
    assert sum(record["expected"] not in ("own", []) for record in RECORDS) >= 15
