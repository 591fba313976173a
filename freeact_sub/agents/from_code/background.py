"""Answers `children`: an agent's background children, from code (`agent.children`)."""

from collections.abc import Mapping
from typing import Any

from pydantic_core import to_jsonable_python

from freeact_sub.agents.from_code.base import CodeCalls, paused, tool_call_id_of, validated
from freeact_sub.agents.turn.calls import EndedCall
from freeact_sub.calls import ToolCall
from freeact_sub.kernels import CellClock
from freeact_sub.tools import BackgroundChildren, ChildState, Subagents
from freeact_sub.tools.subagents import SubagentsArguments


class BackgroundRequests:
    """The tool `subagents` with values instead of text; `message` and `cancel` take one child."""

    def __init__(self, calls: CodeCalls, children: BackgroundChildren) -> None:
        self._calls = calls
        self._children = children
        self.handlers = {"children": self._answer}

    async def _answer(self, params: Mapping[str, Any], clock: CellClock | None) -> Any:
        arguments = validated(SubagentsArguments.model_validate, params, "agent.children")

        async def work() -> EndedCall[Any]:
            with paused(clock if arguments.action == "wait" else None):
                value = await self._do(arguments, clock)
            return EndedCall(value=value, text=str(value), outcome="success")

        call: ToolCall = Subagents().call(arguments)
        return await self._calls.carry_out(call.tool_name, call, call.args, clock, work)

    async def _do(self, arguments: SubagentsArguments, clock: CellClock | None) -> Any:
        children, ids = self._children, arguments.agent_ids
        match arguments.action:
            case "list":
                return [_plain(child) for child in children.list()]
            case "wait":
                return [_plain(child) for child in await children.wait(ids, arguments.seconds)]
            case "message":
                return await children.message(ids[0], arguments.text, tool_call_id_of(clock))
            case "cancel":
                return _plain(await children.cancel(ids[0]))


def _plain(state: ChildState) -> dict[str, Any]:
    """Return a state as JSON values."""
    values = {
        name: getattr(state, name)
        for name in ("agent_id", "description", "task", "status", "action", "ended", "seconds", "error")
    }
    return {**values, "output": to_jsonable_python(state.output, fallback=str), "question": state.question}
