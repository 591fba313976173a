"""Events: values that serialise, and approval requests that can be answered once."""

import ast
import copy
import functools
import json
import pickle
import typing
from decimal import Decimal
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator
from support.sample_events import one_of_each, request
from support.tables import each

from freeact_sub import events
from freeact_sub.calls import CodeAction, FileWrite, McpCall, NetworkConnect, ShellCommand, SpawnCall, ToolCall
from freeact_sub.cells import DisplayData, ExecuteResult, StreamText
from freeact_sub.config.budget import Usage
from freeact_sub.events import (
    AgentEvent,
    AgentFinished,
    ApprovalRequest,
    CodeExecutionOutput,
    CodeExecutionOutputChunk,
    Decision,
    Event,
    ModelProgress,
    ToolCallStarted,
)
from freeact_sub.events.__main__ import json_schema

SCHEMA = Path(__file__).parents[2] / "docs/events.schema.json"
CALLS = [
    CodeAction(code="print(1)\nprint(2)"),
    ShellCommand(command="make", cwd="x", outside=True, purpose="why"),
    FileWrite(path="a.txt", operation="rename", named="b.txt"),
    NetworkConnect(host="example.org", port=443, ip="192.0.2.1", others=("192.0.2.2",)),
    McpCall(server="files", tool="read", args={"path": "a.txt"}),
    SpawnCall(prompt="work", description="label", mode="plan", background=True),
    ToolCall(tool_name="mine", args={"x": 1}),
]


def test_the_union_names_every_kind_of_event():
    kinds = {kind for kind in vars(events).values() if isinstance(kind, type) and issubclass(kind, events.AgentEvent)}
    assert set(typing.get_args(Event)) == kinds - {events.AgentEvent}


def test_events_are_one_json_line_each_with_type_and_header():
    usage = Usage(turns=2, cost_usd=Decimal("0.12"))
    event = AgentFinished(agent_id="agent-1", seq=3, status="completed", output="a\nb «ü»", usage=usage)
    line = event.to_json()
    assert "\n" not in line
    data = json.loads(line)
    assert (data["type"], data["agent_id"], data["seq"], data["output"]) == ("AgentFinished", "agent-1", 3, "a\nb «ü»")
    assert data["usage"]["cost_usd"] == "0.12"
    chunk = json.loads(CodeExecutionOutputChunk(output=StreamText(name="stdout", text="x")).to_json())
    assert chunk["output"] == {"type": "StreamText", "name": "stdout", "text": "x"}


@each("call", CALLS)
def test_a_request_serialises_with_its_call(call):
    event = ApprovalRequest(request_id="r", call=call)
    data = json.loads(event.to_json())
    assert data["call"]["kind"] == call.kind
    assert call.summary


def test_answers_reach_the_one_who_asked():
    answers: list[Decision] = []
    event = request("r", CodeAction(code="1"), lambda answer: not answers.append(answer))
    assert event.approve(remember="session")
    assert event.deny("too risky")
    assert answers == [Decision(allowed=True, remember="session"), Decision(allowed=False, reason="too risky")]
    assert not request("r", CodeAction(code="1")).approve(), "nobody waits for it"


def test_usage_adds_up_and_an_unknown_price_is_not_free():
    known, unknown = Usage(turns=1, cost_usd=Decimal(1)), Usage(turns=1, unpriced_turns=1)
    assert (known + known).cost_usd == 2
    assert (unknown + unknown).cost_usd is None
    both = known + unknown
    assert both.cost_usd == 1
    assert both.unpriced_turns == 1
    assert "at least $1" in str(both)
    assert str(unknown) == "turns 1, tool calls 0, tokens 0"


def test_strange_values_are_json_all_the_same():
    circular: dict = {"a": 1}
    circular["self"] = circular
    values = {
        "nan": float("nan"),
        "inf": float("inf"),
        "bytes": b"x",
        "set": {1},
        "circular": circular,
        "keys": {(1, 2): 3},
        "name": "caf\udce9.txt",
        "money": Decimal("1.5"),
    }
    line = ToolCallStarted(tool_name="t", args=values).to_json()
    args = json.loads(line.encode())["args"]
    assert args["nan"] == "nan"
    assert args["keys"] == {"(1, 2)": 3}
    assert args["circular"]["self"] == "…"
    assert args["name"] == values["name"], "a file name that is not text comes back as it was"
    assert args["money"] == "1.5"


@each("event", one_of_each("caf\udce9 «ü»\n"), ids=lambda event: event.type)
def test_events_are_read_back_as_they_were_written(event):
    assert AgentEvent.from_json(event.to_json()) == event


@functools.cache
def validator():
    return Draft202012Validator(json_schema())


@each(
    "event",
    [
        *(
            ApprovalRequest(request_id="r", call=call, if_nobody=Decision(allowed=True, remember="session"))
            for call in CALLS
        ),
        CodeExecutionOutputChunk(output=ExecuteResult(data={"text/plain": "1", "application/json": {"a": [1, None]}})),
        CodeExecutionOutputChunk(output=DisplayData(data={"image/png": "AAAA"}, display_id="d", update=True)),
        CodeExecutionOutput(text="", status="ok", displays=({"text/html": "<b>"},), picture_files=("a.png", "b.png")),
        ModelProgress(seconds=1.5, tokens=0, tokens_per_second=None, paused_seconds=2.5),
    ],
    ids=lambda event: getattr(event, "call", event).__class__.__name__,
)
@pytest.mark.slow
def test_every_kind_of_call_and_output_is_read_back(event):
    assert AgentEvent.from_json(event.to_json()) == event
    assert not list(validator().iter_errors(json.loads(event.to_json())))


@each("line", ["", "[]", "{}", '{"type": "Nothing"}', '{"type": "Notice"}', '{"type": "Notice", "content": 1}'])
def test_a_line_that_is_no_event_is_refused(line):
    with pytest.raises(ValueError):
        AgentEvent.from_json(line)


def test_events_are_read_without_the_sources_of_their_classes(monkeypatch):
    """To parse them takes time, and CPython fails at random where several threads do it."""
    monkeypatch.setattr(ast, "parse", None)
    events._adapter.cache_clear()  # noqa: SLF001
    [event, *_] = one_of_each()
    assert events.AgentEvent.from_json(event.to_json()).to_json() == event.to_json()


@pytest.mark.slow
def test_the_schema_in_the_docs_is_that_of_the_classes():
    """To write it anew: `python -m freeact_sub.events > docs/events.schema.json`."""
    assert json.loads(SCHEMA.read_text()) == json_schema()
    checker = Draft202012Validator(json_schema())
    for event in one_of_each("caf\udce9"):
        data = json.loads(event.to_json())
        assert not list(checker.iter_errors(data))
        assert list(checker.iter_errors({**data, "type": "Nothing"}))


def test_events_are_plain_values():
    for event in one_of_each():
        assert pickle.loads(pickle.dumps(event)) == copy.deepcopy(event) == event
        assert not [name for name in vars(event) if name.startswith("_")]
