"""Background children, looked after by models and code (`BackgroundFeature`).

The core has such children (`ChildOwner`); here are the tool `subagents` and `agent.children` in cells, the tool `ask_parent`
of the children themselves, and the question for a model that would end while some are working.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, Self

from pydantic import BaseModel, Field, model_validator
from pydantic_core import to_jsonable_python

from freeact_sub.agents.feature import EndedCall, FeatureAgent, Handler, RunPart, ToolsFeature
from freeact_sub.agents.life import tree_agent
from freeact_sub.agents.requests import CodeCalls, paused, tool_call_id_of, validated
from freeact_sub.agents.root import Root, whole_root
from freeact_sub.calls import ToolCall
from freeact_sub.errors import ApprovalDeniedError, FreeactError
from freeact_sub.kernels import CellClock
from freeact_sub.tools import BackgroundChildren, ChildState, PlainTool, Tool, ToolContext, ToolResult, is_harmless

FORGOTTEN: Final = (
    "Before you end: {children} still at work in the background, and cancelled when you end. Wait for what you need "
    "(subagents, action wait), or cancel it (action cancel); then give your whole final answer again, as only your last "
    "reply counts."
)


class SubagentsArguments(BaseModel):
    """Arguments of `subagents`; `tools/subagents.json` describes them."""

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


class Subagents(PlainTool):
    """A tool that manages the background children in the context."""

    name = "subagents"
    arguments = SubagentsArguments

    def call(self, arguments: BaseModel) -> ToolCall:
        """Return a call by the tool's name."""
        return ToolCall(tool_name=self.name, args=arguments.model_dump(exclude_unset=True), harmless=is_harmless(self.name))

    async def run(self, arguments: SubagentsArguments, context: ToolContext) -> ToolResult:
        """Carry out the action."""
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
    """Return the states as text for the model, with the answers of ended children if wanted."""
    states = tuple(_state(child, reports=reports) for child in children)
    return ToolResult(text="\n\n".join(states) or "There are no background children.", sections=states)


def _state(child: ChildState, *, reports: bool) -> str:
    label = f" ({child.description})" if child.description else ""
    if child.ended and reports:
        return f"{child.agent_id}{label} has ended:\n{child.report}"
    question = f"\nIt asks, and waits for your answer (action message): {child.question}" if child.question else ""
    action = f"; now: {child.action}" if child.action else ""
    return f"{child.agent_id}{label}: {child.status}, {child.seconds:.0f} s, {child.usage}{action}{question}"


class AskParentArguments(BaseModel):
    """Arguments of `ask_parent`; `tools/ask_parent.json` describes them."""

    model_config = {"extra": "forbid", "defer_build": True}
    question: str = Field(min_length=1)


class AskParent(PlainTool):
    """A tool that asks the parent, for background children only: a parent that waits for its child cannot answer."""

    name = "ask_parent"
    arguments = AskParentArguments

    async def run(self, arguments: AskParentArguments, context: ToolContext) -> ToolResult:
        """Ask the parent."""
        if context.ask_parent is None:
            raise FreeactError("your parent is waiting for you and cannot answer: decide yourself, and say what you assumed")
        return ToolResult(text=await context.ask_parent(arguments.question))


class BackgroundRequests:
    """Requests of code, as the tool `subagents` with values instead of text; `message` and `cancel` take one child."""

    def __init__(self, calls: CodeCalls, children: BackgroundChildren) -> None:
        self._calls = calls
        self._children = children

    async def reply(self, params: Mapping[str, Any], clock: CellClock | None) -> Any:
        """Reply to `children`."""
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
    values = {
        name: getattr(state, name)
        for name in ("agent_id", "description", "task", "status", "action", "ended", "seconds", "error")
    }
    return {**values, "output": to_jsonable_python(state.output, fallback=str), "question": state.question}


class BackgroundPart(RunPart):
    """The question to the model of one run about children that it leaves working."""

    def __init__(self, feature: "BackgroundFeature") -> None:
        self._feature, self._was_asked = feature, False

    async def answer(self, text: str) -> str:
        """Ask once."""
        del text
        left = () if self._was_asked else self._feature.whole_root.callers_loop.children.left_behind()
        if not left:
            return ""
        self._was_asked = True
        return FORGOTTEN.format(children=f"{', '.join(left)} {'is' if len(left) == 1 else 'are'}")


class BackgroundFeature(ToolsFeature):
    """Background children of the agents of one tree."""

    def run(self, agent: FeatureAgent) -> RunPart:
        """Look at the end of each run."""
        del agent
        return BackgroundPart(self)

    @property
    def whole_root(self) -> Root:
        """The whole root."""
        return whole_root(self.root)

    def tools(self, agent: FeatureAgent) -> Sequence[Tool]:
        """Give each agent the tool for its children, and a background child the tool for its parent."""
        return (Subagents(), AskParent()) if tree_agent(agent).in_background else (Subagents(),)

    def requests(self, agent: FeatureAgent) -> Mapping[str, Handler]:
        """Let code manage the agent's children; a node has none."""
        whole = tree_agent(agent)

        async def children(params: Mapping[str, Any], clock: CellClock | None) -> Any:
            loop = self.whole_root.callers_loop
            return await BackgroundRequests(loop.kernel.calls, loop.children).reply(params, clock)

        return {"children": children} if whole.owner is None else {}
