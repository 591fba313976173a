"""`Updates`: the events of a session as the updates of the protocol, live and of a stored session.

What the root says is a message. Each call is a tool call, at any depth; each child is one, too, with its text as it comes.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from freeact_sub.acp import actions
from freeact_sub.acp.connection import Update
from freeact_sub.acp.content import fenced, picture_lines, pictures_of, text_block, tool_text
from freeact_sub.agent_names import agent_name
from freeact_sub.cells import CELL_TOOL, StreamText
from freeact_sub.events import (
    AgentFinished,
    AgentStarted,
    ApprovalDecided,
    ApprovalRequest,
    CodeExecutionOutput,
    CodeExecutionOutputChunk,
    Compacted,
    Event,
    KernelLost,
    Notice,
    PlanUpdated,
    QuestionAnswered,
    QuestionRequest,
    Response,
    ResponseChunk,
    Thoughts,
    ThoughtsChunk,
    ToolCallStarted,
    ToolOutput,
    ToolProgress,
    UsageUpdated,
)
from freeact_sub.show.steps import PLAN_TOOL
from freeact_sub.show.wording import asked_text, call_progress_text
from freeact_sub.text import one_line
from freeact_sub.titles import prompt_title

LIVE_SECONDS: Final = 0.3
"""Between two updates of one growing text."""
LIVE_CHARS: Final = 4_000
"""Of a growing text; its end."""
STARTS_CHILD: Final = "task"


@dataclass(kw_only=True)
class _Shown:
    """A tool call that is shown."""

    head: list[dict[str, Any]] = field(default_factory=list)
    """What stands above the text that grows."""
    text: str = ""
    told: float = 0.0
    """When it was last told how far the text is."""


class Updates:
    """Translates one event after the other."""

    def __init__(self, *, stored: bool = False) -> None:
        """Args: stored: the events are of a stored session: whole texts, and the prompts, which the client does not know."""
        self._stored = stored
        self._message = 0
        self._shown: dict[str, _Shown] = {}
        self._held: dict[str, ToolCallStarted] = {}
        """Calls that may start a child, which is shown in their place."""
        self._children: dict[str, str] = {}
        """The tool call of the present run of each child."""
        self._runs: dict[str, int] = {}

    def of(self, event: Event) -> Iterator[Update]:
        """The updates that an event makes."""
        if event.depth == 0:
            yield from self._of_conversation(event)
            yield from self._of_state(event)
        else:
            yield from self._of_child(event)
        yield from self._of_calls(event)
        yield from self._of_questions(event)

    def _of_calls(self, event: Event) -> Iterator[Update]:
        match event:
            case ToolCallStarted():
                yield from self._call(event)
            case CodeExecutionOutputChunk(output=StreamText(text=text)) if event.tool_call_id:
                yield from self._grows(event.tool_call_id, text)
            case ToolProgress():
                progress = [tool_text(call_progress_text(event))]
                yield self._changed(event.call_id or event.tool_call_id or "", content=progress)
            case CodeExecutionOutput() if event.tool_call_id:
                yield from self._cell_ends(event)
            case ToolOutput():
                yield from self._call_ends(event)

    def _of_questions(self, event: Event) -> Iterator[Update]:
        """Each question is a tool call of its own. What is denied without one makes no event."""
        match event:
            case ApprovalRequest() if not event.headless:
                call = actions.asked(event.call)
                call["title"] = actions.titled(event, call["title"])
                yield self._begun(event.request_id, _meta=actions.meta_of(event, toolCallId=event.tool_call_id), **call)
            case ApprovalDecided(request_id=request_id, allowed=allowed) if request_id in self._shown:
                why = f"denied: {event.reason}" if event.reason else "denied"
                yield self._answered(request_id, None if allowed else why, answered=allowed)
            case QuestionRequest() if not event.headless:
                text = asked_text(event)
                yield self._begun(
                    event.request_id,
                    title=actions.titled(event, f"Question: {text}"),
                    kind="other",
                    content=[tool_text(text)],
                    rawInput={"question": event.prompt},
                    _meta=actions.meta_of(event, toolCallId=event.tool_call_id),
                )
            case QuestionAnswered(request_id=request_id, answered=answered) if request_id in self._shown:
                yield self._answered(request_id, event.text if answered else event.reason or "no answer", answered=answered)

    def _answered(self, request_id: str, said: str | None, *, answered: bool) -> Update:
        head = self._shown.pop(request_id).head
        content = [*head, *([tool_text(said)] if said else [])]
        return self._changed(request_id, status="completed" if answered else "failed", content=content)

    def _of_conversation(self, event: Event) -> Iterator[Update]:
        match event:
            case AgentStarted() if self._stored:
                yield self._said("user_message_chunk", event.prompt)
                self._message += 1
            case ResponseChunk() if not self._stored:
                yield self._said("agent_message_chunk", event.content)
            case ThoughtsChunk() if not self._stored:
                yield self._said("agent_thought_chunk", event.content)
            case Response() | Thoughts():
                if self._stored:
                    kind = "agent_message_chunk" if isinstance(event, Response) else "agent_thought_chunk"
                    yield self._said(kind, event.content)
                self._message += 1

    def _of_state(self, event: Event) -> Iterator[Update]:
        match event:
            case PlanUpdated(plan_id=""):
                yield plan(event)
            case UsageUpdated(context_tokens=int(used), window_tokens=int(size)) if not self._stored:
                yield {"sessionUpdate": "usage_update", "used": used, "size": size}
            case Notice() if not self._stored:
                yield self._note(event.content)
            case KernelLost():
                yield self._note(event.reason)
            case Compacted():
                yield self._note("The conversation was shortened; variables stay.")

    def _of_child(self, event: Event) -> Iterator[Update]:
        match event:
            case AgentStarted():
                if event.tool_call_id is not None:
                    self._held.pop(event.tool_call_id, None)
                self._runs[event.agent_id] = number = self._runs.get(event.agent_id, 0) + 1
                self._children[event.agent_id] = call_id = event.agent_id if number == 1 else f"{event.agent_id}-{number}"
                label = event.description or prompt_title(event.prompt)
                yield self._begun(
                    call_id,
                    title=f"Child {agent_name(event.agent_id, one_line(label, 120))}",
                    kind="other",
                    status="pending" if event.queued else "in_progress",
                    content=[tool_text(event.prompt)],
                    rawInput={"prompt": event.prompt, "description": event.description},
                    _meta=actions.meta_of(event, agentType=event.agent_type, toolCallId=event.tool_call_id),
                )
            case ResponseChunk() if event.agent_id in self._children and not self._stored:
                yield from self._grows(self._children[event.agent_id], event.content)
            case AgentFinished() if event.agent_id in self._children:
                call_id = self._children.pop(event.agent_id)
                head = self._shown.pop(call_id, _Shown()).head
                text = event.output or event.error or event.status
                ok = event.status == "completed"
                said = [tool_text(text), *([] if ok or not event.output else [tool_text(event.error or event.status)])]
                yield self._changed(call_id, status="completed" if ok else "failed", content=[*head, *said], rawOutput=text)

    def _call(self, event: ToolCallStarted) -> Iterator[Update]:
        call_id = event.call_id or event.tool_call_id
        if not call_id or event.tool_name == PLAN_TOOL:
            return
        if event.tool_name == STARTS_CHILD:
            self._held[call_id] = event
            return
        yield self._begun(call_id, _meta=actions.meta_of(event), **actions.started(event))

    def _call_ends(self, event: ToolOutput) -> Iterator[Update]:
        call_id = event.call_id or event.tool_call_id or ""
        held = self._held.pop(call_id, None)
        if held is not None:  # it has started no child
            yield self._begun(call_id, _meta=actions.meta_of(held), **actions.started(held))
        shown = self._shown.pop(call_id, None)
        if shown is None:
            return
        status = "completed" if event.outcome == "success" else "failed"
        if event.tool_name == CELL_TOOL and event.outcome in ("success", "failed") and shown.told < 0:
            yield self._changed(call_id, status=status)  # its output is there
        else:
            content = [*shown.head, *([tool_text(event.content)] if event.content else [])]
            yield self._changed(call_id, status=status, content=content, rawOutput=event.content)

    def _cell_ends(self, event: CodeExecutionOutput) -> Iterator[Update]:
        call_id = event.tool_call_id or ""
        shown = self._shown.get(call_id)
        if shown is None:
            return
        text = [tool_text(fenced(event.text))] if event.text else []
        content = [*shown.head, *text, *pictures_of(event.displays, event.picture_files)]
        shown.told = -1
        yield self._changed(call_id, status="in_progress", content=content, rawOutput=event.text)
        if event.picture_files and event.depth == 0:
            yield self._said("agent_message_chunk", picture_lines(event.picture_files))

    def _grows(self, call_id: str, text: str) -> Iterator[Update]:
        shown = self._shown.get(call_id)
        if shown is None or self._stored:
            return
        shown.text = (shown.text + text)[-LIVE_CHARS:]
        if time.monotonic() - shown.told >= LIVE_SECONDS:
            shown.told = time.monotonic()
            yield self._changed(call_id, status="in_progress", content=[*shown.head, tool_text(fenced(shown.text))])

    def _begun(self, call_id: str, **shown: Any) -> Update:
        self._shown[call_id] = _Shown(head=shown.get("content") or [])
        return {"sessionUpdate": "tool_call", "toolCallId": call_id, "status": "pending", **shown}

    def _changed(self, call_id: str, **changed: Any) -> Update:
        return {"sessionUpdate": "tool_call_update", "toolCallId": call_id, **changed}

    def _said(self, kind: str, text: str) -> Update:
        return {"sessionUpdate": kind, "content": text_block(text), "messageId": f"message-{id(self):x}-{self._message}"}

    def _note(self, text: str) -> Update:
        return {"sessionUpdate": "agent_thought_chunk", "content": text_block(f"note: {text}\n\n")}


def message(text: str) -> Update:
    """Something that the program itself says."""
    return {"sessionUpdate": "agent_message_chunk", "content": text_block(text)}


def plan(event: PlanUpdated) -> Update:
    """The whole plan."""
    entries = [
        {
            "content": f"{step.step} (failed)" if step.status == "failed" else step.step,
            "priority": "medium",
            "status": "completed" if step.status == "failed" else step.status,
        }
        for step in event.steps
    ]
    return {"sessionUpdate": "plan", "entries": entries}


def iso_time(seconds: float) -> str:
    """A time as the protocol writes it."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
