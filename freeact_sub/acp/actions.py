"""Calls as tool calls: their kinds, titles and contents."""

import json
from typing import Any, Final

from freeact_sub.acp.content import text_block, tool_text
from freeact_sub.agent_names import short_id
from freeact_sub.calls import Call, CodeAction, FileWrite
from freeact_sub.cells import CELL_TOOL
from freeact_sub.events import AgentEvent, ToolCallStarted
from freeact_sub.show.heads import head_of_call
from freeact_sub.show.wording import tool_words
from freeact_sub.text import fenced, one_line
from freeact_sub.titles import code_title, own_title

TITLE_CHARS: Final = 160
_KINDS: Final = {"code": "execute", "shell": "execute", "write": "edit", "connect": "fetch"}
_KINDS_OF_TOOLS: Final = {CELL_TOOL: "execute", "ask": "think", "ask_parent": "think"}
META: Final = "freeact_sub"
"""The key of what we add to messages, in `_meta`."""


def meta_of(event: AgentEvent, **more: Any) -> dict[str, Any]:
    """Who an event is of."""
    return {META: {"agentId": event.agent_id, "parentId": event.parent_id, "depth": event.depth, **more}}


def titled(event: AgentEvent, title: str) -> str:
    """A title, which names the agent unless it is the root."""
    who = f"{short_id(event.agent_id)}: " if event.depth else ""
    return one_line(f"{who}{title}", TITLE_CHARS) or "a call"


def started(event: ToolCallStarted) -> dict[str, Any]:
    """What a tool call shows when it begins."""
    code, words = event.args.get("code"), tool_words(event.tool_name)
    shown: dict[str, Any] = {"kind": _KINDS_OF_TOOLS.get(event.tool_name, "other"), "rawInput": json_value(event.args)}
    if event.tool_name == CELL_TOOL and isinstance(code, str):
        title = own_title(event.label) or code_title(code) or words
        return {**shown, "title": titled(event, title), "content": [tool_text(fenced(code, "python"))]}
    return {**shown, "title": titled(event, f"{words}: {event.label}" if event.label else words)}


def asked(call: Call) -> dict[str, Any]:
    """What a call shows when its approval is asked for: all of it."""
    language = {"code": "python", "shell": "sh"}.get(call.kind, "")
    by_code = CodeAction(code=call.code) if isinstance(call, CodeAction) else call  # people answer by it, not by a title
    text = f"{call.question}:\n\n{fenced(call.text, language)}"
    return {
        "title": one_line(head_of_call(by_code).text, TITLE_CHARS),
        "kind": "delete" if isinstance(call, FileWrite) and call.operation == "remove" else _KINDS.get(call.kind, "other"),
        "content": [{"type": "content", "content": text_block(text)}],
        "rawInput": json_value({name: value for name, value in vars(call).items() if value not in ("", None, (), {})}),
    }


def json_value(value: Any) -> Any:
    """A value as JSON has it."""
    return json.loads(json.dumps(value, default=str))
