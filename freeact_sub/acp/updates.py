"""`Updates`: the events of a session as the updates of the protocol, live and of a stored session.

What the root says is a message. Each call is a tool call, at any depth; each child is one, too, with its text as it comes.
"""

import secrets
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, TypeAlias

from freeact_sub import events as ev
from freeact_sub.acp import actions
from freeact_sub.acp.actions import picture_lines, pictures_of, text_block, tool_text
from freeact_sub.acp.connection import Update
from freeact_sub.agent_names import agent_name
from freeact_sub.cells import StreamText
from freeact_sub.show.steps import PLAN_TOOL
from freeact_sub.show.wording import asked_text, call_progress_text
from freeact_sub.text import fenced, one_line, prompt_title

LIVE_SECONDS: Final = 0.3
"""Between two updates of one growing text."""
LIVE_CHARS: Final = 4_000
"""Of a growing text; its end."""
STARTS_CHILD: Final = "task"
CUT_OFF: Final = "It did not end: the agent's run was over before."
_Key: TypeAlias = str | tuple[str, str]


class NewNames:
    """New names for messages and tool calls. Models use one id for several calls, and clients keep what they have shown."""

    def __init__(self) -> None:
        self._prefix = secrets.token_hex(3)
        self._given = 0

    def new(self, kind: str) -> str:
        """A name that no other message or call has, in this program or an earlier one."""
        self._given += 1
        return f"{kind}-{self._prefix}-{self._given}"


@dataclass(kw_only=True)
class _Shown:
    """A tool call that is shown."""

    name: str
    agent_id: str
    head: list[dict[str, Any]] = field(default_factory=list)
    """What stands above the text that grows."""
    text: str = ""
    told: float = 0.0
    """When it was last told how far the text is."""
    has_output: bool = False
    """It is a cell that has ended: its whole output is shown."""


class Updates:
    """Translates one event after the other."""

    def __init__(self, names: NewNames, *, stored: bool = False, pictures_as_paths: bool = False) -> None:
        """Translate the events of the runs of a session, or of a stored session.

        Args:
            names: Those of the session.
            stored: The events are of a stored session: whole texts, and the prompts, which the client does not know.
            pictures_as_paths: The client shows no pictures.
        """
        self._names = names
        self._stored = stored
        self._pictures_as_paths = pictures_as_paths
        self._message = names.new("message")
        self._shown: dict[_Key, _Shown] = {}
        """What is begun and has not ended: calls by agent and id, questions and children by their own id."""
        self._held: dict[_Key, ev.ToolCallStarted] = {}
        """Calls that may start a child, which is shown in their place."""

    def of(self, event: ev.Event) -> Iterator[Update]:
        """The updates that an event makes."""
        if event.depth == 0:
            yield from self._of_conversation(event)
            yield from self._of_state(event)
        else:
            yield from self._of_child(event)
        yield from self._of_calls(event)
        yield from self._of_questions(event)
        if isinstance(event, ev.AgentFinished):
            yield from self._cut_off(event.agent_id)

    def _of_calls(self, event: ev.Event) -> Iterator[Update]:
        match event:
            case ev.ToolCallStarted():
                yield from self._call(event)
            case ev.CodeExecutionOutputChunk(output=StreamText(text=text)):
                yield from self._grows(_key(event), text)
            case ev.ToolProgress() if (shown := self._shown.get(_key(event))) is not None:
                yield _changed(shown, content=[*shown.head, tool_text(call_progress_text(event))])
            case ev.CodeExecutionOutput():
                yield from self._cell_ends(event)
            case ev.ToolOutput():
                yield from self._call_ends(event)

    def _of_questions(self, event: ev.Event) -> Iterator[Update]:
        """Each question is a tool call of its own."""
        match event:
            case ev.ApprovalRequest() if not event.headless:
                call = actions.asked(event.call)
                call["title"] = actions.titled(event, call["title"])
                yield self._begun(event, event.request_id, event.request_id, _meta=self.meta_of(event), **call)
            case ev.ApprovalDecided(request_id=request_id, allowed=allowed) if request_id in self._shown:
                why = f"denied: {event.reason}" if event.reason else "denied"
                yield self._answered(request_id, None if allowed else why, answered=allowed)
            case ev.QuestionRequest() if not event.headless:
                text = asked_text(event)
                call = {"title": actions.titled(event, f"Question: {text}"), "kind": "other", "content": [tool_text(text)]}
                yield self._begun(
                    event,
                    event.request_id,
                    event.request_id,
                    rawInput={"question": event.prompt},
                    _meta=self.meta_of(event),
                    **call,
                )
            case ev.QuestionAnswered(request_id=request_id, answered=answered) if request_id in self._shown:
                yield self._answered(request_id, event.text if answered else event.reason or "no answer", answered=answered)

    def meta_of(self, event: ev.Event, **more: Any) -> dict[str, Any]:
        """Who an event is of, and the tool call that it belongs to."""
        shown = self._shown.get((event.agent_id, event.tool_call_id or ""))
        return actions.meta_of(event, **({"toolCallId": shown.name} if shown is not None else {}), **more)

    def _cut_off(self, agent_id: str) -> Iterator[Update]:
        """Close what an agent has not ended at its own end."""
        for key in [key for key, shown in self._shown.items() if shown.agent_id == agent_id]:
            shown = self._shown.pop(key)
            yield _changed(shown, status="failed", content=[*shown.head, tool_text(CUT_OFF)])
        self._held = {key: event for key, event in self._held.items() if event.agent_id != agent_id}

    def _answered(self, request_id: str, said: str | None, *, answered: bool) -> Update:
        shown = self._shown.pop(request_id)
        content = [*shown.head, *([tool_text(said)] if said else [])]
        return _changed(shown, status="completed" if answered else "failed", content=content)

    def _of_conversation(self, event: ev.Event) -> Iterator[Update]:
        match event:
            case ev.AgentStarted() if self._stored:
                self._message = self._names.new("message")
                yield self._said("user_message_chunk", event.prompt)
                self._message = self._names.new("message")
            case ev.ResponseChunk() if not self._stored:
                yield self._said("agent_message_chunk", event.content)
            case ev.ThoughtsChunk() if not self._stored:
                yield self._said("agent_thought_chunk", event.content)
            case ev.Response() | ev.Thoughts():
                if self._stored:
                    kind = "agent_message_chunk" if isinstance(event, ev.Response) else "agent_thought_chunk"
                    yield self._said(kind, event.content)
                self._message = self._names.new("message")

    def _of_state(self, event: ev.Event) -> Iterator[Update]:
        match event:
            case ev.PlanUpdated(plan_id=""):
                yield plan(event)
            case ev.UsageUpdated(context_tokens=int(used), window_tokens=int(size)) if not self._stored:
                yield {"sessionUpdate": "usage_update", "used": used, "size": size}
            case ev.Notice() if not self._stored:
                yield note(event.content)
            case ev.KernelLost():
                yield note(event.reason)
            case ev.Compacted():
                yield note("The conversation was shortened; variables stay.")

    def _of_child(self, event: ev.Event) -> Iterator[Update]:
        match event:
            case ev.AgentStarted():
                self._held.pop((str(event.parent_id), event.tool_call_id or ""), None)
                label = event.description or prompt_title(event.prompt)
                yield self._begun(
                    event,
                    event.agent_id,
                    self._names.new("child"),
                    title=f"Child {agent_name(event.agent_id, one_line(label, 120))}",
                    kind="other",
                    status="pending" if event.queued else "in_progress",
                    content=[tool_text(event.prompt)],
                    rawInput={"prompt": event.prompt, "description": event.description},
                    _meta=actions.meta_of(event, agentType=event.agent_type),
                )
            case ev.ResponseChunk():
                yield from self._grows(event.agent_id, event.content, language=None)
            case ev.AgentFinished() if (shown := self._shown.pop(event.agent_id, None)) is not None:
                ok = event.status == "completed"
                why = f"{event.status.replace('_', ' ')}: {event.error}" if event.error else event.status
                said = [tool_text(text) for text in (event.output, "" if ok else why) if text]
                status = "completed" if ok else "failed"
                yield _changed(shown, status=status, content=[*shown.head, *said])

    def _call(self, event: ev.ToolCallStarted) -> Iterator[Update]:
        if event.tool_name == PLAN_TOOL:
            return
        if event.tool_name == STARTS_CHILD:
            self._held[_key(event)] = event
            return
        yield self._begun(event, _key(event), self._names.new("call"), _meta=self.meta_of(event), **actions.started(event))

    def _call_ends(self, event: ev.ToolOutput) -> Iterator[Update]:
        held = self._held.pop(_key(event), None)
        if held is not None:  # it has started no child
            yield self._begun(held, _key(held), self._names.new("call"), _meta=self.meta_of(held), **actions.started(held))
        shown = self._shown.pop(_key(event), None)
        if shown is None:
            return
        status = "completed" if event.outcome == "success" else "failed"
        if shown.has_output:
            yield _changed(shown, status=status)
        else:
            content = [*shown.head, *([tool_text(event.content)] if event.content else [])]
            yield _changed(shown, status=status, content=content)

    def _cell_ends(self, event: ev.CodeExecutionOutput) -> Iterator[Update]:
        shown = self._shown.get(_key(event))
        if shown is None:
            return
        text = [tool_text(fenced(event.text))] if event.text else []
        content = [*shown.head, *text, *pictures_of(event.displays, event.picture_files)]
        shown.has_output = True
        yield _changed(shown, status="in_progress", content=content)
        if event.picture_files and event.depth == 0:
            lines = picture_lines(event.picture_files, as_paths=self._pictures_as_paths)
            yield self._said("agent_message_chunk", lines)

    def _grows(self, key: _Key, text: str, language: str | None = "") -> Iterator[Update]:
        """A growing text. Args: language: None: it is Markdown."""
        shown = self._shown.get(key)
        if shown is None or self._stored:
            return
        shown.text = (shown.text + text)[-LIVE_CHARS:]
        if time.monotonic() - shown.told >= LIVE_SECONDS:
            shown.told = time.monotonic()
            live = shown.text if language is None else fenced(shown.text, language)
            yield _changed(shown, status="in_progress", content=[*shown.head, tool_text(live)])

    def _begun(self, event: ev.Event, key: _Key, name: str, **shown: Any) -> Update:
        self._shown[key] = _Shown(name=name, agent_id=event.agent_id, head=shown.get("content") or [])
        return {"sessionUpdate": "tool_call", "toolCallId": name, "status": "pending", **shown}

    def _said(self, kind: str, text: str) -> Update:
        return {"sessionUpdate": kind, "content": text_block(text), "messageId": self._message}


def _key(
    event: ev.ToolCallStarted | ev.ToolProgress | ev.ToolOutput | ev.CodeExecutionOutput | ev.CodeExecutionOutputChunk,
) -> _Key:
    """The call that an event belongs to: the model's, or one by code in a cell."""
    by_code = getattr(event, "call_id", "")
    return event.agent_id, by_code or event.tool_call_id or ""


def _changed(shown: _Shown, **changed: Any) -> Update:
    return {"sessionUpdate": "tool_call_update", "toolCallId": shown.name, **changed}


def note(text: str) -> Update:
    """A note beside the conversation."""
    return {"sessionUpdate": "agent_thought_chunk", "content": text_block(f"note: {text}\n\n")}


def message(text: str) -> Update:
    """Something that the program itself says."""
    return {"sessionUpdate": "agent_message_chunk", "content": text_block(text)}


def plan(event: ev.PlanUpdated) -> Update:
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
