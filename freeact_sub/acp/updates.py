"""`Updates`: the events of a session as the updates of the protocol, live and of a stored session.

The root's text is a message. Each call is a tool call, at any depth; each child is one, too, with its text as it comes.
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
from freeact_sub.events.progress import PlanState
from freeact_sub.show import blocks as bl
from freeact_sub.show.agent_story import Stories
from freeact_sub.show.teller import blocks
from freeact_sub.show.wording import asked_text
from freeact_sub.text import fenced, one_line, prompt_title

LIVE_SECONDS: Final = 0.3
"""Seconds between two updates of one growing text."""
LIVE_CHARS: Final = 4_000
"""Characters at the end of a growing text."""
STARTS_CHILD: Final = "task"
CUT_OFF: Final = "It did not end: the agent's run was over before."
_Key: TypeAlias = str | tuple[str, str]


class NewNames:
    """New names for messages and tool calls. Models use one id for several calls, and clients keep what they have shown."""

    def __init__(self) -> None:
        self._prefix = secrets.token_hex(3)
        self._given = 0

    def new(self, kind: str) -> str:
        """Return a name that no other message or call has, in this program or an earlier one."""
        self._given += 1
        return f"{kind}-{self._prefix}-{self._given}"


@dataclass(kw_only=True)
class _Shown:
    """A tool call that is shown."""

    name: str
    agent_id: str
    head: list[dict[str, Any]] = field(default_factory=list)
    """The content above the growing text."""
    text: str = ""
    told: float = 0.0
    """The time of the last update of the growing text."""
    has_output: bool = False
    """Whether a cell has ended, and its whole output is shown."""


class Updates:
    """A translator of one event after the other."""

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
        """Open items: calls by agent and id, questions and children by their own id."""
        self._views = Stories()
        self._held: dict[_Key, tuple[ev.AgentEvent, bl.CallStep]] = {}
        """Calls that may start a child, which is shown in their place."""

    def of(self, event: ev.AgentEvent) -> Iterator[Update]:
        """Yield the updates that an event makes."""
        for block in blocks(self._views.observe(event), event):
            yield from (self._of_child if event.depth else self._of_root)(event, block)
            yield from self._of_calls(event, block)
            yield from self._of_questions(event, block)
            if isinstance(block, bl.End):
                yield from self._cut_off(event.agent_id)

    def _of_calls(self, event: ev.AgentEvent, block: bl.StoryBlock) -> Iterator[Update]:
        key = event.agent_id, event.tool_call_id or ""
        match block:
            case bl.CallStep():
                yield from self._call(event, block)
            case bl.Output(output=StreamText(text=text)):
                yield from self._grows(key, text)
            case bl.Growth(kind="call") if (shown := self._shown.get(_key(event, block.call_id))) is not None:
                yield _changed(shown, content=[*shown.head, tool_text(block.piece)])
            case bl.CellEnd():
                yield from self._cell_ends(event, block.of)
            case bl.CallEnd():
                yield from self._call_ends(event, block.of)

    def _of_questions(self, event: ev.AgentEvent, block: bl.StoryBlock) -> Iterator[Update]:
        match block:
            case bl.Approval() if not block.request.headless:
                yield from self._asked(event, block.request.request_id, **actions.asked(block.request.call))
            case bl.QuestionAsked() if not block.of.headless:
                text = asked_text(block.of)
                call = {"kind": "other", "content": [tool_text(text)], "rawInput": {"question": block.of.prompt}}
                yield from self._asked(event, block.of.request_id, title=f"Question: {text}", **call)
            case bl.Decided(of=decided) if decided.request_id in self._shown:
                why = f"denied: {decided.reason}" if decided.reason else "denied"
                yield self._answered(decided.request_id, None if decided.allowed else why, answered=decided.allowed)
            case bl.Answered(of=given) if given.request_id in self._shown:
                said = given.text if given.answered else given.reason or "no answer"
                yield self._answered(given.request_id, said, answered=given.answered)

    def _asked(self, event: ev.AgentEvent, request_id: str, *, title: str, **call: Any) -> Iterator[Update]:
        shown = {"title": actions.titled(event, title), "_meta": self.meta_of(event), **call}
        yield self._begun(event, request_id, request_id, **shown)

    def meta_of(self, event: ev.AgentEvent, **more: Any) -> dict[str, Any]:
        """Return the agent of an event, and its tool call, as metadata."""
        shown = self._shown.get((event.agent_id, event.tool_call_id or ""))
        return actions.meta_of(event, **({"toolCallId": shown.name} if shown is not None else {}), **more)

    def _cut_off(self, agent_id: str) -> Iterator[Update]:
        """Close the items that an agent's end has left open."""
        for key in [key for key, shown in self._shown.items() if shown.agent_id == agent_id]:
            shown = self._shown.pop(key)
            yield _changed(shown, status="failed", content=[*shown.head, tool_text(CUT_OFF)])
        self._held = {key: held for key, held in self._held.items() if held[0].agent_id != agent_id}

    def _answered(self, request_id: str, said: str | None, *, answered: bool) -> Update:
        shown = self._shown.pop(request_id)
        content = [*shown.head, *([tool_text(said)] if said else [])]
        return _changed(shown, status="completed" if answered else "failed", content=content)

    def _of_root(self, event: ev.AgentEvent, block: bl.StoryBlock) -> Iterator[Update]:
        match block:
            case bl.Prompt() if self._stored:
                self._message = self._names.new("message")
                yield self._said("user_message_chunk", block.of.prompt)
                self._message = self._names.new("message")
            case bl.Growth(kind=("answer" | "thoughts") as kind) if not self._stored:
                yield self._said("agent_message_chunk" if kind == "answer" else "agent_thought_chunk", block.piece)
            case bl.Said():
                if self._stored:
                    yield self._said("agent_thought_chunk" if block.is_thought else "agent_message_chunk", block.content)
                self._message = self._names.new("message")
            case bl.Plan() if not block.plan.plan_id:
                yield plan(block.plan)
            case bl.Spent(of=spent):
                if not (self._stored or spent.context_tokens is None or spent.window_tokens is None):
                    yield {"sessionUpdate": "usage_update", "used": spent.context_tokens, "size": spent.window_tokens}
            case _:
                yield from self._note(event, block)

    def _of_child(self, event: ev.AgentEvent, block: bl.StoryBlock) -> Iterator[Update]:
        match block:
            case bl.Prompt(of=started):
                self._held.pop((str(event.parent_id), event.tool_call_id or ""), None)
                label = started.description or prompt_title(started.prompt)
                yield self._begun(
                    event,
                    event.agent_id,
                    self._names.new("child"),
                    title=f"Child {agent_name(event.agent_id, one_line(label, 120))}",
                    kind="other",
                    status="pending" if started.queued else "in_progress",
                    content=[tool_text(started.prompt)],
                    rawInput={"prompt": started.prompt, "description": started.description},
                    _meta=actions.meta_of(event, agentType=started.agent_type),
                )
            case bl.Growth(kind="answer"):
                yield from self._grows(event.agent_id, block.piece, language=None)
            case bl.End(of=end) if (shown := self._shown.pop(event.agent_id, None)) is not None:
                ok = end.status == "completed"
                why = f"{end.status.replace('_', ' ')}: {end.error}" if end.error else end.status
                said = [tool_text(text) for text in (end.output, "" if ok else why) if text]
                yield _changed(shown, status="completed" if ok else "failed", content=[*shown.head, *said])
            case _:
                yield from self._note(event, block)

    def _note(self, event: ev.AgentEvent, block: bl.StoryBlock) -> Iterator[Update]:
        """Yield a block without a place of its own in the protocol, in words."""
        if type(block) is bl.StoryBlock and not (block.passing or block.is_repeated):
            said = block.line or block.head
            yield note(actions.titled(event, said) if event.depth else said)

    def _call(self, event: ev.AgentEvent, call: bl.CallStep) -> Iterator[Update]:
        if call.tool_name == STARTS_CHILD:
            self._held[_key(event, call.call_id)] = event, call
        elif call.title:
            shown = actions.started(event, call)
            yield self._begun(event, _key(event, call.call_id), self._names.new("call"), _meta=self.meta_of(event), **shown)

    def _call_ends(self, event: ev.AgentEvent, result: ev.ToolOutput) -> Iterator[Update]:
        key = _key(event, result.call_id)
        if (held := self._held.pop(key, None)) is not None:  # it has started no child
            shown = actions.started(*held)
            yield self._begun(held[0], key, self._names.new("call"), _meta=self.meta_of(held[0]), **shown)
        if (known := self._shown.pop(key, None)) is None:
            return
        status = "completed" if result.outcome == "success" else "failed"
        if known.has_output:
            yield _changed(known, status=status)
        else:
            content = [*known.head, *([tool_text(result.content)] if result.content else [])]
            yield _changed(known, status=status, content=content)

    def _cell_ends(self, event: ev.AgentEvent, end: ev.CodeExecutionOutput) -> Iterator[Update]:
        shown = self._shown.get(_key(event))
        if shown is None:
            return
        text = [tool_text(fenced(end.text))] if end.text else []
        content = [*shown.head, *text, *pictures_of(end.displays, end.picture_files)]
        shown.has_output = True
        yield _changed(shown, status="in_progress", content=content)
        if end.picture_files and event.depth == 0:
            lines = picture_lines(end.picture_files, as_paths=self._pictures_as_paths)
            yield self._said("agent_message_chunk", lines)

    def _grows(self, key: _Key, text: str, language: str | None = "") -> Iterator[Update]:
        """Yield a growing text. Args: language: None: it is Markdown."""
        shown = self._shown.get(key)
        if shown is None or self._stored:
            return
        shown.text = (shown.text + text)[-LIVE_CHARS:]
        if time.monotonic() - shown.told >= LIVE_SECONDS:
            shown.told = time.monotonic()
            live = shown.text if language is None else fenced(shown.text, language)
            yield _changed(shown, status="in_progress", content=[*shown.head, tool_text(live)])

    def _begun(self, event: ev.AgentEvent, key: _Key, name: str, **shown: Any) -> Update:
        self._shown[key] = _Shown(name=name, agent_id=event.agent_id, head=shown.get("content") or [])
        return {"sessionUpdate": "tool_call", "toolCallId": name, "status": "pending", **shown}

    def _said(self, kind: str, text: str) -> Update:
        return {"sessionUpdate": kind, "content": text_block(text), "messageId": self._message}


def _key(event: ev.AgentEvent, call_id: str = "") -> _Key:
    return event.agent_id, call_id or event.tool_call_id or ""


def _changed(shown: _Shown, **changed: Any) -> Update:
    return {"sessionUpdate": "tool_call_update", "toolCallId": shown.name, **changed}


def note(text: str) -> Update:
    """Return a note beside the conversation."""
    return {"sessionUpdate": "agent_thought_chunk", "content": text_block(f"note: {text}\n\n")}


def message(text: str) -> Update:
    """Return a message of the program itself."""
    return {"sessionUpdate": "agent_message_chunk", "content": text_block(text)}


def plan(state: PlanState) -> Update:
    """Return the whole plan."""
    entries = [
        {
            "content": f"{step.step} (failed)" if step.status == "failed" else step.step,
            "priority": "medium",
            "status": "completed" if step.status == "failed" else step.status,
        }
        for step in state.steps
    ]
    return {"sessionUpdate": "plan", "entries": entries}


def iso_time(seconds: float) -> str:
    """Return a time as the protocol writes it."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
