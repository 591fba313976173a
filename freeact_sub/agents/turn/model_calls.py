"""`ModelCalls`: makes the model's tool calls through `ToolCalls`, and returns what the model reads."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any, Final

from pydantic import ValidationError
from pydantic_ai import ToolDefinition, ToolDenied
from pydantic_ai.exceptions import (
    ApprovalRequired,
    ModelRetry,
    ToolFailed,
    ToolFailedError,
    ToolRetryError,
    UnexpectedModelBehavior,
)
from pydantic_ai.messages import ToolCallPart
from pydantic_ai.tools import DeferredToolRequests, DeferredToolResults

from freeact_sub.agents.turn.calls import EndedCall, Refusal, RequestedCall, ToolCalls, error_text
from freeact_sub.agents.turn.repeats import Repeats, advice
from freeact_sub.agents.turn.turns import Turns
from freeact_sub.agents.turn.unmade import UnmadeCalls
from freeact_sub.calls import Call, ToolCall
from freeact_sub.errors import ApprovalDeniedError, KernelLostError, LimitReachedError
from freeact_sub.text import wrong_fields
from freeact_sub.tools import (
    AgentToolset,
    Bounds,
    McpToolset,
    ToolResult,
    bound_error,
    bound_result,
    model_content,
    outcome_of,
    text_of,
    with_note,
    without_files,
)

MAX_CHANGED_CHARS: Final = 8_000
"""Characters of code changed by a person that the model reads."""

FATAL: Final = (LimitReachedError, KernelLostError, ApprovalDeniedError)
"""Errors of a tool that end the run; the model reads all others as results."""


@dataclass(kw_only=True)
class ModelCalls:
    """Makes every call of the model in one run, including those of a user's tools."""

    turns: Turns
    ours: AgentToolset
    mcp: McpToolset
    unmade: UnmadeCalls = field(init=False)
    _repeats: Repeats = field(default_factory=Repeats, init=False)
    _deferred: set[str] = field(default_factory=set, init=False)
    """Ids of calls that need approval by what the tool says before it runs."""
    _approved: set[str | None] = field(default_factory=set, init=False)
    """Ids of calls that a person approved when the tool said so while it ran: it runs again."""

    def __post_init__(self) -> None:
        self._calls, self.unmade = ToolCalls(self.turns.agent), UnmadeCalls(turns=self.turns)

    async def make(
        self, part: ToolCallPart, tool: ToolDefinition, args: Any, run_tool: Callable[[Any], Awaitable[Any]]
    ) -> Any:
        """Make a call, and return what the model reads of it.

        Args:
            part: The call in the model's response.
            tool: The tool.
            args: Its arguments, which are valid.
            run_tool: Runs the tool with arguments.
        """
        self.unmade.made(part.tool_call_id)
        needs = tool.kind == "unapproved" or part.tool_call_id in self._deferred
        self._deferred.discard(part.tool_call_id)
        requested = RequestedCall(
            name=part.tool_name,
            args=args if isinstance(args, dict) else part.args_as_dict(),
            call=self._call_of(part.tool_name, args, requires_approval=needs),
            tool_call_id=part.tool_call_id,
        )
        changed: list[str] = []

        async def run() -> EndedCall[Any]:
            given = {"code": changed[0]} if changed else args
            try:
                return await self._run(requested, self._with_approval(requested, run_tool(given)), "".join(changed))
            except ApprovalDeniedError as error:
                if error is self.turns.ended:  # the tool itself has raised it
                    raise
                return self._refused(error)

        again = part.tool_call_id in self._approved
        self._approved.discard(part.tool_call_id)  # models use ids again
        ended = await self._calls.make(requested, run, refused=self._refused, on_changed=changed.append, again=again)
        self._count_repeats(requested, ended)
        return ended.value

    def failed(self, error: Exception) -> Any:
        """Return what the model reads of an exception of a tool. Raises one that ends the run."""
        if isinstance(error, FATAL):
            self.turns.ended = error
            raise error
        if isinstance(error, UnexpectedModelBehavior) and isinstance(error.__cause__, ModelRetry | ValidationError):
            raise error  # its retries are used up: a result here would loop for ever
        return model_content(ToolResult(text=f"[ERROR] {error_text(error)}", outcome="failed"))

    def approve(self, requests: DeferredToolRequests) -> DeferredToolResults | None:
        """Approve calls of tools that require approval: our gate asks about them, in every mode."""
        self._deferred.update(call.tool_call_id for call in requests.approvals)
        approved = {call.tool_call_id: True for call in requests.approvals}
        return DeferredToolResults(approvals=dict(approved)) if approved else None

    async def _with_approval(self, requested: RequestedCall, work: Awaitable[Any]) -> Any:
        """Runs a tool. If it asks for approval while it runs, a person is asked, and pydantic-ai runs it again."""
        try:
            return await work
        except ApprovalRequired:
            if isinstance(requested.call, ToolCall) and not requested.call.requires_approval:
                await self._calls.ask_for(replace(requested.call, requires_approval=True), requested.tool_call_id)
                self._approved.add(requested.tool_call_id)
            raise

    def _refused(self, reason: Refusal) -> EndedCall[Any]:
        """Returns why a call was not run, for the model; with `on_denial = "end"` a denial ends the run."""
        if isinstance(reason, ApprovalDeniedError):
            if self.turns.agent.shared.config.on_denial == "end":
                self.turns.ended = reason
                raise reason
            return EndedCall(value=ToolDenied(str(reason)), text=str(reason), outcome="denied")
        if isinstance(reason, LimitReachedError):
            self.turns.end(reason)
        result = ToolResult(text=f"[ERROR] not run: {reason}", outcome="failed")
        return EndedCall(value=model_content(result), text=result.text, outcome="failed")

    async def _run(self, requested: RequestedCall, work: Awaitable[Any], changed: str) -> EndedCall[Any]:
        """Runs the tool, and bounds its result or error to what the model may read. Args: changed: a person's code."""
        agent, began = self.turns.agent, time.monotonic()
        kernel, call_id = agent.shared.config.kernel, requested.tool_call_id or ""
        bounds = Bounds(
            chars=kernel.output_chars,
            pictures=kernel.show_images_to_model,
            folder=agent.output_folder,
            root=agent.shared.config.workspace,
        )
        try:
            result = await _awaited(requested.name, work)
        except (ModelRetry, ToolRetryError, ToolFailed, ToolFailedError) as error:
            await bound_error(error, bounds, call_id)
            raise
        result = (
            with_note(await bound_result(result, bounds, call_id), _changed_note(changed))
            if changed
            else (await bound_result(result, bounds, call_id))
        )
        seconds = time.monotonic() - began
        return EndedCall(value=result, text=text_of(result), outcome=outcome_of(result), seconds=seconds)

    def _count_repeats(self, requested: RequestedCall, ended: EndedCall[Any]) -> None:
        """Advises a model that goes in circles, and ends the run if it continues."""
        agent = self.turns.agent
        bound = agent.shared.config.max_repeats
        if bound is None:
            return
        failed = ended.outcome == "failed"
        text = without_files(ended.text, agent.output_folder)  # it differs each time
        turn = agent.run.account.taken("turns")
        times = self._repeats.count(turn, requested.name, requested.args, text, failed=failed, seconds=ended.seconds)
        if times >= bound:
            self.turns.end(LimitReachedError("repeats", amount=times, bound=bound))
        elif times == bound - 1 and self.turns.context is not None:
            self.turns.context.enqueue(advice(times, failed=failed))

    def _call_of(self, name: str, args: Any, *, requires_approval: bool) -> Call:
        call = self.ours.call_of(name, args) or self.mcp.call_of(name, args)
        given = dict(args) if isinstance(args, dict) else {"arguments": args}
        return call or ToolCall(tool_name=name, args=given, requires_approval=requires_approval)


def _changed_note(code: str) -> str:
    shown = code if len(code) <= MAX_CHANGED_CHARS else f"{code[:MAX_CHANGED_CHARS]}\n# ... {len(code):,} characters in all"
    return f"[The user changed your code before it ran. This ran instead:]\n{shown}\n[Its result:]"


async def _awaited(name: str, work: Awaitable[Any]) -> Any:
    """Await a tool. One that raises a cancellation or SystemExit of its own has failed; nothing else ends with it."""
    try:
        return await work
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        why = "it cancelled itself"
    except SystemExit as error:
        why = f"it tried to end the program (SystemExit: {error.code})"
    return model_content(ToolResult(text=f"[ERROR] the tool {name} ended without a result: {why}", outcome="failed"))


def wrong_arguments(tool: ToolDefinition, error: ValidationError) -> str:
    """Returns what the model reads about arguments that do not fit the tool."""
    wrong, schema = wrong_fields(error.errors()), tool.parameters_json_schema
    required = schema.get("required", ())
    names = [name if name in required else f"{name} (may be left out)" for name in schema.get("properties", {})]
    return f"{tool.name} was not called; its arguments are wrong: {wrong}. It takes: {', '.join(names) or 'none'}."
