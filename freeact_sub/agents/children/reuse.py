"""Reuses the answer of an earlier child for an equal request (`subagents.cache`).

Requests are equal if prompt, scope, the types of the agent and its ancestors, mode, model and the answer's JSON schema are.
What a child looks at (files, the web) does not count. The answer is not reused of a child that did not complete, wrote files
or acted outside in another way (`acts_outside`), received values or a copy of its parent's kernel, is implemented in Python,
or returns a Python type that only the program knows.
"""

import hashlib
import json
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from pydantic_ai.models import Model
from pydantic_ai.models.wrapper import WrapperModel

from freeact_sub.agents.runs.results import RunResult
from freeact_sub.agents.tree import AgentNode
from freeact_sub.calls import Call, FileWrite, McpCall, NetworkConnect, ShellCommand, ToolCall
from freeact_sub.events import Notice
from freeact_sub.tools import TOOL_NAMES, SpawnRequest

Known: TypeAlias = Callable[[], Awaitable[RunResult | None]]
"""Looks for the result of an earlier child; returns None if there is none."""


def reuse_key(request: SpawnRequest, child: AgentNode) -> str | None:
    """Return the key of a request. None: its result must not be reused.

    Args:
        request: The request, completed by the child's type.
        child: Made for the request.
    """
    typed = request.output_type is not str
    has_state = request.branch or request.branch_of is not None or request.prepare is not None
    if has_state or request.keep or (typed and request.output_schema is None):
        return None
    parts = {
        "prompt": request.prompt,
        "scope": request.scope,
        "types": [node.agent_type.name if node.agent_type else None for node in child.ancestors()],
        "mode": child.policy.mode,
        "model": (child.model.model_id, id(_innermost(child.model))),
        "may_spawn": child.may_spawn,
        "output": request.output_schema if typed else None,
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode("utf-8", "surrogatepass")).hexdigest()


def _innermost(model: Model) -> Model:
    """Return the wrapped model: two models of one name may use different servers, and some types wrap theirs anew."""
    while isinstance(model, WrapperModel):
        model = model.wrapped
    return model


def note_call(call: Call, node: AgentNode) -> None:
    """Note an allowed call, for the agent and its ancestors."""
    if acts_outside(call):
        node.run.note_outside_action()


def acts_outside(call: Call) -> bool:
    """Whether a call may have an effect besides its result, so that it has to be repeated each time."""
    match call:
        case McpCall():
            return not call.read_only
        case ToolCall():
            return call.tool_name not in TOOL_NAMES
        case ShellCommand() | FileWrite() | NetworkConnect():
            return True
        case _:  # a cell or a child: its own actions are judged when they happen
            return False


async def run_once(child: AgentNode, key: str, run: Callable[[Known], Awaitable[RunResult]]) -> RunResult:
    """Run a child, or end it at no cost with the answer of an earlier one.

    Args:
        child: Made for the request.
        key: See `reuse_key`.
        run: Runs it; looks for a known answer first.
    """
    cache, found, looked = child.shared.answer_cache, None, False

    async def known() -> RunResult | None:
        nonlocal found, looked
        found = await cache.find(key)
        looked = True
        if found is not None:
            text = f"the answer is that of {found.agent_id} to the same task (setting `subagents.cache`)"
            child.emitter.put(Notice(content=text))
        return found

    result = None
    try:
        result = await run(known)
    finally:
        if looked and found is None:
            whole = result is not None and result.status == "completed"
            acted = child.run.record.acted_outside or child.run.files.written or child.run.files.removed
            cache.settle(key, result if whole and not acted else None)
    return result
