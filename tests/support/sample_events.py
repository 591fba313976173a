"""One event of every kind, for tests of what reads events."""

import base64
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from freeact_sub.calls import Call, CodeAction
from freeact_sub.cells import CellError, DisplayData, StreamText
from freeact_sub.config.budget import Usage
from freeact_sub.events import (
    AgentFinished,
    AgentMessage,
    AgentStarted,
    ApprovalDecided,
    ApprovalRequest,
    Cancelled,
    CodeExecutionOutput,
    CodeExecutionOutputChunk,
    Compacted,
    Decision,
    Event,
    KernelLost,
    ModelProgress,
    Notice,
    PlanUpdated,
    QuestionAnswered,
    QuestionRequest,
    Response,
    ResponseChunk,
    SkillLoaded,
    StrategyProgress,
    Thoughts,
    ThoughtsChunk,
    ToolCallStarted,
    ToolOutput,
    ToolProgress,
    UsageUpdated,
)
from freeact_sub.events.answers import ASKED
from freeact_sub.events.progress import PlanStep, SearchedState

ROOT: dict[str, Any] = {"agent_id": "agent-aaaa0000"}
CHILD: dict[str, Any] = {"agent_id": "agent-bbbb1111", "parent_id": "agent-aaaa0000", "depth": 1}
PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + (640).to_bytes(4) + (480).to_bytes(4) + bytes(76)
USAGE = Usage(turns=3, tool_calls=2, input_tokens=1200, output_tokens=34, cost_usd=Decimal("0.0123"))


def picture() -> DisplayData:
    """A PNG of 640 x 480 pixels and 100 bytes."""
    return DisplayData(data={"image/png": base64.b64encode(PNG).decode(), "text/plain": "<Figure>"})


def request(request_id: str, call: Call, answer: Callable[[Decision], bool] | None = None, **header: Any) -> ApprovalRequest:
    """An approval request of the root, or of whom the header names; its answer goes to this function."""
    ASKED.pop(request_id, None)
    if answer is not None:
        ASKED[request_id] = Answers(answer)
    return ApprovalRequest(request_id=request_id, call=call, **({**ROOT, **header}))


def question(request_id: str, answer: Callable[[Any], bool], **header: Any) -> QuestionRequest:
    """A question of the root, or of whom the header names; its answer goes to this function."""
    ASKED[request_id] = Answers(answer)
    return QuestionRequest(request_id=request_id, **({**ROOT, "prompt": "Name?", **header}))


class Answers:
    """Takes the answers of one request."""

    def __init__(self, answer: Callable[[Any], bool]) -> None:
        self._answer = answer

    def answer(self, request_id: str, decision: Decision) -> bool:
        return self._answer(decision)

    def shown(self, request_id: str) -> None:
        pass


def one_of_each(text: str = "something to read") -> list[Event]:
    """An event of every kind, in an order that can happen, with this text wherever a model, tool or kernel may write."""
    cell = {"tool_call_id": "call-1"}
    tool = {"tool_call_id": "call-2"}
    return [
        AgentStarted(**CHILD, prompt=text, description=text),
        ThoughtsChunk(**CHILD, content=text),
        Thoughts(**CHILD, content=text),
        ResponseChunk(**CHILD, content=text),
        Response(**CHILD, content=text),
        ToolCallStarted(**CHILD, **cell, tool_name="execute_ipython_cell", args={"code": text}),
        request("request-1", CodeAction(code="other " + text), **CHILD, **cell),
        ApprovalDecided(**CHILD, **cell, request_id="request-1", allowed=False, reason=text),
        QuestionRequest(**CHILD, **cell, request_id="question-1", prompt=text),
        QuestionAnswered(**CHILD, **cell, request_id="question-1", prompt=text, answered=True, text=text, reason=text),
        CodeExecutionOutputChunk(**CHILD, **cell, output=StreamText(name="stdout", text=text + "\n")),
        CodeExecutionOutputChunk(**CHILD, **cell, output=DisplayData(data={"text/plain": text})),
        CodeExecutionOutputChunk(**CHILD, **cell, output=CellError(ename="E", evalue=text, traceback=(text,))),
        CodeExecutionOutput(**CHILD, **cell, text=text, status="error", left_out_chars=5, output_file=f"/tmp/{text}"),
        ToolCallStarted(**CHILD, **tool, tool_name=text, args={text: text, "list": [text]}),
        ToolProgress(**CHILD, **tool, tool_name=text, progress=3.0, total=10.0, message=text),
        ToolOutput(**CHILD, **tool, tool_name=text, content=text),
        UsageUpdated(**CHILD, usage=USAGE, tree_usage=USAGE, context_tokens=1_200, window_tokens=8_000),
        ModelProgress(**CHILD, seconds=12.0, tokens=40, tokens_per_second=8.1),
        Compacted(
            **CHILD, tokens_before=13_100, tokens_after=4_200, outputs=3, summary=text, prompts=2, turns=7, kept_turns=1
        ),
        KernelLost(**CHILD, reason=text),
        Notice(**CHILD, content=text),
        AgentMessage(**CHILD, kind="request", recipient_id="agent-aaaa0000", content=text, correlation_id="question-1"),
        PlanUpdated(**CHILD, steps=(PlanStep(step=text, status="completed"),), explanation=text),
        StrategyProgress(
            **CHILD, strategy=text, step=3, of=5, strategy_id="s", best="0", node=SearchedState(node_id="0", action=text)
        ),
        SkillLoaded(**CHILD, name=text),
        Cancelled(**CHILD),
        AgentFinished(
            **CHILD, status="limit", output="answer " + text, error=text, warnings=(text,), usage=USAGE, tree_usage=USAGE
        ),
    ]
