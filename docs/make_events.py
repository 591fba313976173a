"""Makes `events.md`, a table of all events and one of all calls with their fields, from the classes.

    python docs/make_events.py

A test holds the page against what this makes.
"""

from dataclasses import fields
from pathlib import Path
from typing import Any, Final, get_args

from freeact_sub.calls import Call
from freeact_sub.events import AgentEvent, Event
from freeact_sub.events.__main__ import json_schema
from freeact_sub.events.ending import Ending

PAGE: Final = Path(__file__).with_name("events.md")
HEAD: Final = """\
# Events and calls

<!-- Made by docs/make_events.py from the classes in freeact_sub/events/ and freeact_sub/calls.py. -->

A run is one stream of events: `async for event in agent.run(prompt)`, `agent.stream(prompt)`, or `Agent(taps=[function])`.
They are frozen dataclasses, told apart by `isinstance` or `match`.

```python
from freeact_sub import AgentEvent, ApprovalRequest, CodeAction, ResponseChunk

async def follow(run):
    async for event in run:
        match event:
            case ResponseChunk():
                print(event.text, end="")
            case ApprovalRequest(call=CodeAction(code=code)):
                event.approve() if "import" not in code else event.deny("no imports")
            case ApprovalRequest():
                event.deny("only code")
```

The text of an event is its `text`, whichever field holds it: of the events with `content`, of `CodeExecutionOutput` and its
chunks, and of `AgentFinished`, where it is the answer. `event.to_json()` writes an event as one line of JSON, and
`AgentEvent.from_json(line)` reads it back, one of an unknown class as a `Notice`.
`pydantic.TypeAdapter(list[Event])` reads and checks many.
`session_events(ID)` yields those of a stored session. For other programs: `docs/events.schema.json`.
"""
EVENTS: Final = """
## Events

Every event has HEADER. The fields of a table's row come in addition.

| event | | fields |
| --- | --- | --- |
"""
CALLS: Final = """
## Calls

A call is what an `ApprovalRequest` is about, its `call`. `call.kind` is the word of [rules](approvals.md).

| call | `kind` | | fields |
| --- | --- | --- | --- |
"""


def page() -> str:
    """Return the page."""
    schema = json_schema()["$defs"]
    header = [field.name for field in fields(AgentEvent)]
    ending = [field.name for field in fields(Ending)]
    words = ", ".join(f"`{name}`" for name in header)
    rows = []
    for kind in get_args(Event):
        names = _names(schema[kind.__name__], header)
        shown = [name for name in names if name not in ending] if issubclass(kind, Ending) else names
        more = ", and how it ended: " + _listed(ending) if issubclass(kind, Ending) else ""
        rows.append(f"| `{kind.__name__}` | {_text(schema[kind.__name__])} | {_listed(shown)}{more} |")
    calls = []
    for kind in get_args(Call):
        shown = _names(schema[kind.__name__], ["kind"])
        calls.append(f"| `{kind.__name__}` | `{kind.kind}` | {_text(schema[kind.__name__])} | {_listed(shown)} |")
    return HEAD + EVENTS.replace("HEADER", words) + "\n".join(rows) + "\n" + CALLS + "\n".join(calls) + "\n"


def _names(definition: dict[str, Any], without: list[str]) -> list[str]:
    return [name for name in definition.get("properties", {}) if name not in (*without, "type")]


def _listed(names: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _text(definition: dict[str, Any]) -> str:
    return " ".join(str(definition.get("description", "")).split()).replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
