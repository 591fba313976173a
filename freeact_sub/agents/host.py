"""`Host`: our one pydantic-ai capability. Turns, limits, salvage, approvals and the events of tool calls are here.

It is placed last in the list, so that a user's own capabilities come first and what they change is what is counted. A run's
ending is noted here (`ended`) when it is decided, because a user's capability may turn our refusal into a normal result.
"""

import asyncio
from collections.abc import Awaitable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

from pydantic import ValidationError
from pydantic_ai import RunContext, ToolDefinition, ToolDenied, ToolReturn
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.exceptions import ModelRetry, ToolFailed, UnexpectedModelBehavior
from pydantic_ai.messages import BinaryContent, InstructionPart, ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models import ModelRequestContext
from pydantic_ai.tools import DeferredToolRequests, DeferredToolResults

from freeact_sub.agents.ledger import Reservation
from freeact_sub.agents.progress import RequestProgress
from freeact_sub.agents.quote import quote_for, with_max_tokens
from freeact_sub.agents.repeats import TOLD_AT, Repeats, advice
from freeact_sub.agents.substance import problem_with
from freeact_sub.agents.tree import AgentNode
from freeact_sub.budget import Usage
from freeact_sub.calls import Call, CodeAction, SpawnCall, ToolCall
from freeact_sub.errors import (
    ApprovalDeniedError,
    FreeactError,
    KernelLostError,
    LimitReachedError,
    SpawnForbiddenError,
)
from freeact_sub.events import ToolCallStarted, ToolOutput, UsageUpdated
from freeact_sub.models.arguments import Schemas
from freeact_sub.models.replies import situation_of
from freeact_sub.tools import AgentToolset, McpToolset, Outcome, ToolResult, model_content

SALVAGE = (
    "Your budget is used up ({reason}). No tools are left. Report now what you have found and done, and what is missing."
)

MAX_WRONG_ARGUMENTS = 5
"""So many mistakes in one call's arguments are told of."""

INNER_TASKS_SECONDS = 0.5
"""How long a cancelled run waits for tasks that were left behind."""

FATAL = (LimitReachedError, KernelLostError, ApprovalDeniedError)
"""What ends a run when a tool raises it; all else a tool raises is an answer that the model reads."""


@dataclass(kw_only=True)
class Host(AbstractCapability[Any]):
    """Counts, asks, and tells; one per run."""

    node: AgentNode
    ours: AgentToolset
    mcp: McpToolset
    salvage: bool
    """At a limit there is one last request, without tools, for a report."""
    hidden: frozenset[str] = frozenset()
    """Tools that the model is not told of, and whose calls are answered all the same."""
    ended: Exception | None = None
    """Why the run must end, once that is decided."""
    text_answers: bool = True
    """The answer is a text: it is looked at whether it is one."""
    asked_for_substance: bool = False
    """The model has ended with a text that is no answer, and was asked for one."""
    repeats: Repeats = field(default_factory=Repeats)
    progress: RequestProgress = field(init=False)
    salvaged: bool = False
    shortened: bool = False
    """The request may answer less than it would, because the budget has no more."""
    reservation: Reservation | None = None
    """For the request that is being made."""
    messages: Sequence[ModelMessage] = field(default_factory=list)
    """The run's history, live: also after an error and a cancel."""
    context: RunContext[Any] | None = None
    """Of the latest step; steering goes through it."""
    inner_tasks: set[asyncio.Task[Any]] = field(default_factory=set)
    """Tasks that pydantic-ai has made for the run."""

    def __post_init__(self) -> None:
        self.progress = RequestProgress(self.node.emitter)

    async def end_inner_tasks(self) -> None:
        """End what a cancelled run has left behind.

        pydantic-ai 2.68 loses sight of its inner tasks (of the run, and of a streamed request) when the run is cancelled in
        the very moment in which they hand over; they would wait for ever.
        """
        tasks = tuple(self.inner_tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=INNER_TASKS_SECONDS)

    async def wrap_run(self, ctx: RunContext[Any], *, handler: Any) -> Any:
        """See pydantic-ai."""
        del ctx
        return await self._as_inner_task(handler())

    async def prepare_tools(self, ctx: RunContext[Any], tool_defs: list[ToolDefinition]) -> list[ToolDefinition]:
        """See pydantic-ai. At a limit no tools are offered."""
        self.context, self.messages = ctx, ctx.messages
        try:
            self.node.account.check_turns()
        except LimitReachedError as error:
            self.ended = self.ended or error
        return [] if self.ended else tool_defs

    async def before_model_request(self, ctx: RunContext[Any], request_context: ModelRequestContext) -> ModelRequestContext:
        """See pydantic-ai. Reserves what the request may take, or makes it the salvage, or ends the run."""
        self.context, self.messages = ctx, ctx.messages
        if self.ended is None:
            try:
                request = await self._reserved(self._without_hidden(request_context), last=False)
            except LimitReachedError as error:
                self.ended = error
            else:
                self.node.account.turns += 1
                return request
        nothing_done = self.node.account.turns == 0
        if self.salvaged or not self.salvage or nothing_done or not isinstance(self.ended, LimitReachedError):
            raise self.ended
        self.salvaged = True
        try:
            return await self._reserved(self._as_salvage(request_context, self.ended), last=True)
        except LimitReachedError:
            raise self.ended from None

    def _without_hidden(self, request: ModelRequestContext) -> ModelRequestContext:
        parameters = request.model_request_parameters
        shown = [tool for tool in parameters.function_tools if tool.name not in self.hidden]
        return replace(request, model_request_parameters=replace(parameters, function_tools=shown))

    def _as_salvage(self, request: ModelRequestContext, reason: Exception) -> ModelRequestContext:
        parameters = request.model_request_parameters
        instructions = [*(parameters.instruction_parts or []), InstructionPart(content=SALVAGE.format(reason=reason))]
        return replace(
            request, model_request_parameters=replace(parameters, function_tools=[], instruction_parts=instructions)
        )

    async def _reserved(self, request: ModelRequestContext, *, last: bool) -> ModelRequestContext:
        account = self.node.account
        quote = quote_for(account, request, salvage=self.salvage, last=last)
        self.reservation = reservation = await account.ledger.reserve(account, quote, last=last)
        if not account.counts_amounts:
            return request
        self.shortened = reservation.output_tokens < quote.output_tokens
        return replace(request, model_settings=with_max_tokens(request, reservation.output_tokens))

    async def wrap_model_request(self, ctx: RunContext[Any], *, request_context: ModelRequestContext, handler: Any) -> Any:
        """See pydantic-ai."""
        del ctx
        try:
            with self.progress.told():
                return await self._as_inner_task(handler(request_context))
        except Exception:
            if self.reservation is not None:
                self.reservation.settle(0, Decimal(0))  # a request that fails is not billed
            raise

    async def _as_inner_task(self, work: Awaitable[Any]) -> Any:
        """Await the work; meanwhile the task in which this happens can be ended by `end_inner_tasks`."""
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("there is no asyncio task")
        self.inner_tasks.add(task)
        try:
            return await work
        finally:
            self.inner_tasks.discard(task)

    async def after_model_request(
        self, ctx: RunContext[Any], *, request_context: ModelRequestContext, response: ModelResponse
    ) -> ModelResponse:
        """See pydantic-ai. Counts what the response cost; a salvage that calls tools all the same has them taken away."""
        del ctx
        usage = usage_of(response)
        self.node.spend(usage)
        if self.reservation is not None:
            self.reservation.settle(usage.tokens, usage.cost_usd)
            if self.shortened and response.finish_reason == "length" and self.ended is None:
                self.ended = self.node.account.reached_amount()
        await self.node.emitter.emit(UsageUpdated(usage=self.node.usage, tree_usage=self.node.tree_usage))
        if self.salvaged:
            offered = {tool.name for tool in request_context.model_request_parameters.output_tools}
            kept = [part for part in response.parts if not isinstance(part, ToolCallPart) or part.tool_name in offered]
            return replace(response, parts=kept)
        if self.text_answers and self.ended is None and response.finish_reason != "length":
            tools = request_context.model_request_parameters.function_tools
            self._look_for_substance(response, {tool.name: tool.parameters_json_schema for tool in tools})
        return response

    def _look_for_substance(self, response: ModelResponse, tools: Schemas) -> None:
        """Ask once for an answer where a run ends without one; then it has failed."""
        problem = None
        if not response.tool_calls:  # else the run goes on, and its whole history need not be looked at
            text = "".join(part.content for part in response.parts if isinstance(part, TextPart))
            problem = problem_with(text, tools, situation_of(self.messages))
        if problem is None:
            self.asked_for_substance = False
        elif not self.asked_for_substance:
            self.asked_for_substance = True
            raise ModelRetry(problem.advice)
        else:
            self.ended = FreeactError(f"the model gave no answer, also when it was asked for one: {problem.what}")
            raise self.ended

    async def on_tool_validate_error(
        self,
        ctx: RunContext[Any],
        *,
        call: ToolCallPart,
        tool_def: ToolDefinition,
        args: Any,
        error: ValidationError | ModelRetry,
    ) -> Any:
        """See pydantic-ai. Wrong arguments are told of in a sentence; as JSON they fill a small model's context."""
        del ctx, call, args
        if isinstance(error, ModelRetry):
            raise error
        raise ModelRetry(_wrong_arguments(tool_def, error)) from error

    async def wrap_tool_execute(
        self, ctx: RunContext[Any], *, call: ToolCallPart, tool_def: ToolDefinition, args: Any, handler: Any
    ) -> Any:
        """See pydantic-ai. Every tool of the agent, a user's own included, is told of, asked for, run, and told of."""
        del ctx, tool_def
        name, call_id, emitter = call.tool_name, call.tool_call_id, self.node.emitter
        shown = args if isinstance(args, dict) else call.args_as_dict()
        await emitter.emit(ToolCallStarted(tool_name=name, args=shown), tool_call_id=call_id)
        try:
            self.node.take_tool_call()
            asked = self._call_of(name, args)
            await self._check(asked, call_id)
        except (LimitReachedError, SpawnForbiddenError) as error:
            if isinstance(error, LimitReachedError):
                self.ended = self.ended or error
            output = ToolOutput(tool_name=name, content=f"[ERROR] not run: {error}", outcome="failed")
            self._look_for_repeats(output, shown)
            await emitter.emit(output, tool_call_id=call_id)
            return model_content(ToolResult(text=output.content, outcome="failed"))
        except ApprovalDeniedError as error:
            output = ToolOutput(tool_name=name, content=str(error), outcome="denied")
            self._look_for_repeats(output, shown)
            await emitter.emit(output, tool_call_id=call_id)
            if self.node.tree.config.on_denial == "end":
                self.ended = error
                raise
            return ToolDenied(str(error))
        try:
            runs_code = isinstance(asked, CodeAction)
            with self.node.tree.writers.at_work(self.node.files.key) if runs_code else nullcontext():
                result = await self._run_tool(name, handler(args))
        except (ModelRetry, ToolFailed) as error:
            retried = isinstance(error, ModelRetry)
            output = ToolOutput(tool_name=name, content=str(error), outcome="retried" if retried else "failed")
            await emitter.emit(output, tool_call_id=call_id)
            raise
        output = ToolOutput(tool_name=name, content=_text_of(result), outcome=_outcome_of(result))
        self._look_for_repeats(output, shown)
        await emitter.emit(output, tool_call_id=call_id)
        return result

    def _look_for_repeats(self, output: ToolOutput, args: dict[str, Any]) -> None:
        """Tell a model that goes in circles; if it goes on, the run ends."""
        failed = output.outcome == "failed"  # a person may say no to one thing after the other
        times = self.repeats.seen(self.node.account.turns, output.tool_name, args, output.content, failed=failed)
        if times > TOLD_AT:
            self.ended = self.ended or LimitReachedError("repeats", amount=times, bound=TOLD_AT)
        elif times == TOLD_AT and self.context is not None:
            self.context.enqueue(advice(times, failed=failed))

    async def _run_tool(self, name: str, work: Awaitable[Any]) -> Any:
        """Await a tool. One that ends as if it, or the whole program, were to end has failed; nobody else ends with it."""
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

    async def on_tool_execute_error(
        self, ctx: RunContext[Any], *, call: ToolCallPart, tool_def: ToolDefinition, args: Any, error: Exception
    ) -> Any:
        """See pydantic-ai. A tool that raises gives an answer; its siblings go on."""
        del ctx, call, tool_def, args
        if isinstance(error, FATAL):
            self.ended = error
            raise error
        if isinstance(error, UnexpectedModelBehavior) and isinstance(error.__cause__, ModelRetry | ValidationError):
            raise error  # its retries are used up: an answer here would loop for ever
        what = str(error) if isinstance(error, FreeactError) else f"{type(error).__name__}: {error}"
        return model_content(ToolResult(text=f"[ERROR] {what}", outcome="failed"))

    async def handle_deferred_tool_calls(
        self, ctx: RunContext[Any], *, requests: DeferredToolRequests
    ) -> DeferredToolResults | None:
        """See pydantic-ai. A user's tool that requires approval has had it already, from our gate."""
        del ctx
        approved = {call.tool_call_id: True for call in requests.approvals}
        return DeferredToolResults(approvals=dict(approved)) if approved else None

    def _call_of(self, name: str, args: Any) -> Call:
        call = self.ours.call_of(name, args) or self.mcp.call_of(name, args)
        return call or ToolCall(tool_name=name, args=dict(args) if isinstance(args, dict) else {"arguments": args})

    async def _check(self, call: Call, tool_call_id: str) -> None:
        node = self.node
        if isinstance(call, SpawnCall):
            node.check_spawn()
        await node.tree.gate.check(
            call, node.policy, node.emitter, path=node.path, tool_call_id=tool_call_id, pause=node.clocks_paused()
        )


def usage_of(response: ModelResponse) -> Usage:
    """What a response has cost."""
    cost: Decimal | None
    try:
        cost = response.cost().total_price
    except (LookupError, ValueError):
        cost = None
    measured = bool(response.usage.input_tokens or response.usage.output_tokens)
    return Usage(
        turns=1,
        input_tokens=response.usage.input_tokens,
        output_tokens=response.usage.output_tokens,
        cost_usd=cost,
        unpriced_turns=0 if cost is not None and measured else 1,
    )


def _outcome_of(result: Any) -> Outcome:
    """Of our own tools, from what they returned; a user's tool that returns has succeeded."""
    metadata = result.metadata if isinstance(result, ToolReturn) else None
    return "failed" if isinstance(metadata, dict) and metadata.get("outcome") == "failed" else "success"


def _wrong_arguments(tool: ToolDefinition, error: ValidationError) -> str:
    """What a model is told whose call does not fit its tool."""
    wrong = "; ".join(f"{'.'.join(map(str, item['loc']))}: {item['msg']}" for item in error.errors()[:MAX_WRONG_ARGUMENTS])
    schema = tool.parameters_json_schema
    required = schema.get("required", ())
    names = [name if name in required else f"{name} (may be left out)" for name in schema.get("properties", {})]
    return f"{tool.name} was not called; its arguments are wrong: {wrong}. It takes: {', '.join(names) or 'none'}."


def _text_of(result: Any) -> str:
    """A tool's result as people read it."""
    if isinstance(result, ToolReturn):
        result = result.return_value
    if isinstance(result, list | tuple):
        return "\n".join(_text_of(item) for item in result)
    if isinstance(result, BinaryContent):
        return f"[{result.media_type}, {len(result.data):,} bytes]"
    return str(result)
