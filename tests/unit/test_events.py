"""Events: values that serialise, and approval requests that can be answered once."""

import json
import typing
from decimal import Decimal

import pytest

from freeact_sub import events
from freeact_sub.budget import Usage
from freeact_sub.calls import CodeAction, McpCall, SpawnCall, ToolCall
from freeact_sub.cells import StreamText
from freeact_sub.events import AgentFinished, ApprovalRequest, CodeExecutionOutputChunk, Decision, Event, ToolCallStarted


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


@pytest.mark.parametrize(
    "call",
    [
        CodeAction(code="print(1)\nprint(2)"),
        McpCall(server="files", tool="read", args={"path": "a.txt"}),
        SpawnCall(prompt="work", description="label"),
        ToolCall(tool_name="mine", args={"x": 1}),
    ],
)
def test_a_request_serialises_with_its_call_and_without_its_answer(call):
    event = ApprovalRequest(request_id="r", call=call, _answer=lambda _: True)
    data = json.loads(event.to_json())
    assert data["call"]["kind"] == call.kind
    assert "_answer" not in data
    assert call.summary


def test_answers_reach_the_one_who_asked():
    answers: list[Decision] = []
    event = ApprovalRequest(request_id="r", call=CodeAction(code="1"), _answer=lambda answer: not answers.append(answer))
    assert event.approve(remember="session")
    assert event.deny("too risky")
    assert answers == [Decision(allowed=True, remember="session"), Decision(allowed=False, reason="too risky")]
    assert not ApprovalRequest(request_id="r", call=CodeAction(code="1")).approve()


def test_usage_adds_up_and_an_unknown_price_is_not_free():
    known, unknown = Usage(turns=1, cost_usd=Decimal(1)), Usage(turns=1, unpriced_turns=1)
    assert (known + known).cost_usd == 2
    assert (unknown + unknown).cost_usd is None
    both = known + unknown
    assert both.cost_usd == 1
    assert both.unpriced_turns == 1
    assert "at least $1" in str(both)
    assert "cost unknown" in str(unknown)


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
    assert args["name"] == values["name"], "a file name that is no text comes back as it was"
    assert args["money"] == "1.5"
