"""Whether a child's answer may be that of an earlier one (`subagents.cache`), and a child that is run only if there is none.

The same request is: prompt, scope, types of the agent and of all above it, mode, model, and the JSON schema of the answer.
What a child looks at (files, the web) is not part of it. Nothing is kept of a child that has not completed, has written
files or done something else outside (`acts_outside`), was given values or a copy of its parent's kernel, answers by itself,
or hands over a Python type that only the program knows.
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
"""Looks for the result of an earlier child; None: there is none."""


def reuse_key(request: SpawnRequest, child: AgentNode) -> str | None:
    """What tells a request from others. None: its result is not to be used again.

    Args:
        request: With what the child's type says where it says nothing.
        child: Made for it.
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
    """Two models of one name may have different servers; what stands around one is made anew for some types."""
    while isinstance(model, WrapperModel):
        model = model.wrapped
    return model


def note_call(call: Call, node: AgentNode) -> None:
    """An agent has been let do something: it counts for all above it as well."""
    if acts_outside(call):
        node.run.note_outside_action()


def acts_outside(call: Call) -> bool:
    """Whether a call may have an effect besides what its agent learns by it, so that it is to be done each time."""
    match call:
        case McpCall():
            return not call.read_only
        case ToolCall():
            return call.tool_name not in TOOL_NAMES
        case ShellCommand() | FileWrite() | NetworkConnect():
            return True
        case _:  # a cell, or a child: what they do is looked at when it is done
            return False


async def run_once(child: AgentNode, key: str, run: Callable[[Known], Awaitable[RunResult]]) -> RunResult:
    """Run a child, unless another one has answered the same: then that answer is what it ends with, at no cost.

    Args:
        child: Made for the request.
        key: See `reuse_key`.
        run: Runs it; asks for a known answer first.
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
