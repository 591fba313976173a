"""Events become updates of the Agent Client Protocol: each call, child and question once, under a name of its own."""

from typing import Any

import pytest
from support.acp_client import violations
from support.sample_events import one_of_each

from freeact_sub.acp.updates import NewNames, Updates
from freeact_sub.calls import CodeAction, ShellCommand
from freeact_sub.cells import StreamText
from freeact_sub.config.budget import Usage
from freeact_sub.events import (
    AgentFinished,
    AgentStarted,
    ApprovalDecided,
    ApprovalRequest,
    Cancelled,
    CodeExecutionOutput,
    CodeExecutionOutputChunk,
    Event,
    Notice,
    PlanUpdated,
    Response,
    ResponseChunk,
    ThoughtsChunk,
    ToolCallStarted,
    ToolOutput,
    UsageUpdated,
)
from freeact_sub.events.progress import PlanStep

ROOT: dict[str, Any] = {"agent_id": "agent-00000001"}
CHILD: dict[str, Any] = {"agent_id": "agent-00000002", "parent_id": "agent-00000001", "depth": 1}
CELL = "execute_ipython_cell"


def told(*events: Event, stored: bool = False) -> list[dict[str, Any]]:
    """The updates of events, each of which the protocol allows."""
    updates = Updates(NewNames(), stored=stored)
    found = [update for event in events for update in updates.of(event)]
    traffic = [{"method": "session/update", "params": {"sessionId": "s", "update": update}} for update in found]
    assert violations(traffic) == []
    return found


def cell(agent: dict[str, Any], code: str = "1 + 1", text: str = "2") -> list[Event]:
    own = {**agent, "tool_call_id": "call-0"}
    return [
        ToolCallStarted(**own, tool_name=CELL, args={"code": code}),
        CodeExecutionOutput(**own, text=text, status="ok"),
        ToolOutput(**own, tool_name=CELL, content=text),
    ]


def test_a_model_that_uses_one_id_again_has_calls_of_different_names() -> None:
    found = told(*cell(ROOT), *cell(ROOT), *cell(CHILD))
    names = [update["toolCallId"] for update in found if update["sessionUpdate"] == "tool_call"]
    assert len(set(names)) == 3
    ended = [update["toolCallId"] for update in found if update.get("status") == "completed"]
    assert ended == names


def test_every_event_of_the_program_can_be_told() -> None:
    for text in ("plain", "``` fence ````` \x1b[31m \udcff", "x"):
        told(*one_of_each(text))
        told(*one_of_each(text), stored=True)


def test_a_task_is_shown_as_the_child_that_it_starts() -> None:
    call = ToolCallStarted(**ROOT, tool_call_id="t", tool_name="task", args={"prompt": "count"})
    begun = AgentStarted(**CHILD, tool_call_id="t", prompt="count", description="a counter")
    chunk = ResponseChunk(**CHILD, content="It is ")
    end = AgentFinished(**CHILD, tool_call_id="t", status="completed", output="It is 2")
    out = ToolOutput(**ROOT, tool_call_id="t", tool_name="task", content="[completed] It is 2")
    first, live, last = told(call, begun, chunk, end, out)
    assert (first["sessionUpdate"], first["status"]) == ("tool_call", "in_progress")
    assert "a counter" in first["title"]
    assert live["content"][-1]["content"]["text"] == "It is "
    assert (last["status"], last["content"][-1]["content"]["text"]) == ("completed", "It is 2")
    denied = ToolOutput(**ROOT, tool_call_id="t", tool_name="task", content="denied: no", outcome="denied")
    first, last = told(call, denied)
    assert (first["sessionUpdate"], last["status"]) == ("tool_call", "failed"), "a task that starts no child is a call"


def test_what_an_agent_leaves_open_is_closed_at_its_end() -> None:
    request = ApprovalRequest(**ROOT, request_id="approval-1", call=CodeAction(code="1"), tool_call_id="call-0")
    end = AgentFinished(**ROOT, status="cancelled", error="the run was cancelled")
    found = told(cell(ROOT)[0], request, Cancelled(**ROOT), end)
    closed = [update["toolCallId"] for update in found if update.get("status") == "failed"]
    assert closed == [update["toolCallId"] for update in found if update["sessionUpdate"] == "tool_call"]
    assert len(closed) == 2
    assert len(found) == 4, "that it was cancelled is told once"


@pytest.mark.parametrize("agent", [ROOT, CHILD])
def test_a_question_shows_all_of_the_action(agent: dict[str, Any]) -> None:
    command = "rm -rf build\n" + "echo ``` ; " * 50
    request = ApprovalRequest(**agent, request_id="approval-1", call=ShellCommand(command=command), reason="a rule")
    (begun,) = told(request)
    assert begun["toolCallId"] == "approval-1"
    assert command.split("\n")[1] in begun["content"][0]["content"]["text"]
    assert begun["rawInput"]["command"] == command
    assert begun["_meta"]["freeact_sub"]["depth"] == agent.get("depth", 0)
    decided = ApprovalDecided(**agent, request_id="approval-1", allowed=False, reason="too much")
    _, ended = told(request, decided)
    assert (ended["status"], ended["content"][-1]["content"]["text"]) == ("failed", "denied: too much")


def test_a_stored_session_has_its_prompts_whole_texts_and_notes() -> None:
    events = [
        AgentStarted(**ROOT, prompt="hello"),
        Notice(**ROOT, content="a note"),
        ResponseChunk(**ROOT, content="Hi"),
        Response(**ROOT, content="Hi"),
    ]
    live, stored = told(*events), told(*events, stored=True)
    assert [update["sessionUpdate"] for update in live] == ["agent_thought_chunk", "agent_message_chunk"]
    assert [update["sessionUpdate"] for update in stored] == [
        "user_message_chunk",
        "agent_thought_chunk",
        "agent_message_chunk",
    ]
    assert stored[0]["messageId"] != stored[2]["messageId"]


def test_output_that_comes_fast_is_told_now_and_then_and_in_the_end_as_a_whole() -> None:
    own = {**ROOT, "tool_call_id": "call-0"}
    lines = [CodeExecutionOutputChunk(**own, output=StreamText(name="stdout", text=f"{n}\n")) for n in range(5_000)]
    begin, *rest = cell(ROOT, text="all of it")
    found = told(begin, *lines, *rest)
    assert len(found) < 200
    assert "all of it" in found[-2]["content"][-1]["content"]["text"]


def test_plan_and_use_of_the_window() -> None:
    steps = (PlanStep(step="a", status="failed"), PlanStep(step="b", status="in_progress"))
    usage = Usage(turns=1)
    shown, used = told(
        PlanUpdated(**ROOT, steps=steps),
        UsageUpdated(**ROOT, usage=usage, tree_usage=usage),
        UsageUpdated(**ROOT, usage=usage, tree_usage=usage, context_tokens=10, window_tokens=100),
        UsageUpdated(**CHILD, usage=usage, tree_usage=usage, context_tokens=10, window_tokens=100),
        ThoughtsChunk(**CHILD, content="a child thinks"),
    )
    assert [entry["status"] for entry in shown["entries"]] == ["completed", "in_progress"]
    assert (used["used"], used["size"]) == (10, 100)
