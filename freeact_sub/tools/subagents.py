"""`subagents`: list, wait for, message and cancel this agent's own background children; resume those that have ended."""

from collections.abc import Sequence
from typing import Literal, Self

from pydantic import BaseModel, Field, model_validator

from freeact_sub.calls import ToolCall
from freeact_sub.errors import ApprovalDeniedError, FreeactError
from freeact_sub.tools.tool import ChildState, HarmlessTool, ToolContext, ToolResult


class SubagentsArguments(BaseModel):
    """See `tools/subagents.json`."""

    model_config = {"extra": "forbid", "defer_build": True}
    action: Literal["list", "wait", "message", "cancel"]
    agent_ids: list[str] = Field(default_factory=list)
    text: str = ""
    seconds: float = Field(default=120, ge=0, le=3600)

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.action in ("message", "cancel") and not self.agent_ids:
            raise ValueError(f"to {self.action} children, name them in `agent_ids`")
        if self.action == "message" and not self.text:
            raise ValueError("give the message in `text`")
        return self


class Subagents(HarmlessTool):
    """Manages the background children in the context."""

    name = "subagents"
    arguments = SubagentsArguments

    def call(self, arguments: BaseModel) -> ToolCall:
        """See `Tool`."""
        return ToolCall(tool_name=self.name, args=arguments.model_dump(exclude_unset=True), harmless=True)

    async def run(self, arguments: SubagentsArguments, context: ToolContext) -> ToolResult:
        """See `Tool`."""
        children = context.children
        match arguments.action:
            case "list":
                return _shown(children.list())
            case "wait":
                return _shown(await children.wait(arguments.agent_ids, arguments.seconds), reports=True)
            case "message":
                return await _message(arguments, context)
            case "cancel":
                ended = [await children.cancel(child) for child in arguments.agent_ids]
                return _shown(ended, reports=True)


async def _message(arguments: SubagentsArguments, context: ToolContext) -> ToolResult:
    """Give all children a message; one that cannot have it takes it from no other."""
    lines, failed = [], 0
    for child in arguments.agent_ids:
        try:
            lines.append(await context.children.message(child, arguments.text, context.tool_call_id))
        except ApprovalDeniedError as error:
            if context.config.on_denial == "end":
                raise
            failed += 1
            lines.append(f"[ERROR] {child} was not resumed: {error}")
        except FreeactError as error:
            failed += 1
            lines.append(f"[ERROR] {error}")
    return ToolResult(text="\n".join(lines), outcome="failed" if failed == len(lines) else "success")


def _shown(children: Sequence[ChildState], *, reports: bool = False) -> ToolResult:
    """The states as text for the model, with the answers of ended children if wanted."""
    states = tuple(_state(child, reports=reports) for child in children)
    return ToolResult(text="\n\n".join(states) or "There are no background children.", sections=states)


def _state(child: ChildState, *, reports: bool) -> str:
    label = f" ({child.description})" if child.description else ""
    if child.ended and reports:
        return f"{child.agent_id}{label} has ended:\n{child.report}"
    question = f"\nIt asks, and waits for your answer (action message): {child.question}" if child.question else ""
    action = f"; now: {child.action}" if child.action else ""
    return f"{child.agent_id}{label}: {child.status}, {child.seconds:.0f} s, {child.usage}{action}{question}"
