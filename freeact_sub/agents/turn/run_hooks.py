"""`RunHooks`: all that we do in a turn, as one capability of pydantic-ai; its methods stand in the order of a turn."""

import logging
from collections.abc import AsyncIterable, Awaitable, Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from pydantic import ValidationError
from pydantic_ai import Agent as PydanticAgent
from pydantic_ai import RunContext, ToolDefinition
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.exceptions import ModelRetry, UnexpectedModelBehavior
from pydantic_ai.messages import (
    InstructionPart,
    ModelRequest,
    ModelResponse,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
    ToolCallPart,
    UserContent,
)
from pydantic_ai.models import ModelRequestContext
from pydantic_ai.tools import DeferredToolRequests, DeferredToolResults
from pydantic_ai.usage import UsageLimits
from pydantic_graph import End

from freeact_sub import events as ev
from freeact_sub.agents.rights import SPAWNING
from freeact_sub.agents.runs.results import text_of
from freeact_sub.agents.traces import name_of, traced_run
from freeact_sub.agents.tree_agent import TreeAgent
from freeact_sub.agents.turn.model_calls import ModelCalls, wrong_arguments
from freeact_sub.agents.turn.turns import COUNTED_HERE, RETRIES, Turns
from freeact_sub.channel import Emitter
from freeact_sub.errors import ApprovalDeniedError, LimitReachedError
from freeact_sub.models.borrowed_stream import closed_after
from freeact_sub.models.observers import bills_cache_writes
from freeact_sub.models.traffic import FirstRequest
from freeact_sub.tools import TOOL_NAMES

UNREAD_TURNS: Final = 6
"""The log warns of a run that has read nothing from its cache after this many turns."""
logger = logging.getLogger(__name__)

SALVAGE: Final = (
    "Your budget is used up ({reason}). No tools are left. Report now what you have found and done, and what is missing."
)


@dataclass(kw_only=True)
class RunHooks(AbstractCapability[Any]):
    """Our hooks in the turns of one run. Notes in `Turns` why the run must end."""

    turns: Turns
    calls: ModelCalls
    verify: Callable[..., Awaitable[str]] | None
    """Checks an answer: see `Verifier.reason_to_go_on`. None: nothing does."""
    _is_cut_off: bool = field(default=False, init=False)
    """The latest request was made, and has brought no response."""
    _prefix: FirstRequest = field(init=False)

    def __post_init__(self) -> None:
        self._prefix = self.turns.agent.shared.prefixes.of(prefix_of(self.turns.agent))

    async def answer(
        self,
        prompt: str | Sequence[UserContent],
        *,
        output_type: Any,
        instructions: str,
        before: Sequence[AbstractCapability[Any]],
    ) -> Any:
        """Make turns up to the answer, and return it.

        Args:
            prompt: The run's.
            output_type: The type of the answer, as pydantic-ai's `output_type`.
            instructions: The system prompt.
            before: Their hooks come before those of a user's capabilities; ours come after them.
        """
        agent, shared = self.turns.agent, self.turns.agent.shared
        turn_loop: PydanticAgent[Any, Any] = PydanticAgent(
            agent.model,
            name=name_of(agent),
            description=agent.description or None,
            output_type=output_type,
            instructions=instructions,
            toolsets=[*filter(None, (self.calls.ours, self.calls.mcp)), *shared.toolsets],
            capabilities=[*before, *shared.capabilities, self],
            model_settings=shared.request_settings(agent.model, agent.choices.thinking),
            # `Turns` counts outputs in a row, pydantic-ai those of the whole run
            retries={"tools": RETRIES, "output": COUNTED_HERE},
        )
        limit = agent.run.account.budget.turns
        with self.turns.open():
            result = await turn_loop.run(
                prompt,
                deps=shared.own_tools.deps,
                message_history=agent.run.record.history or None,
                event_stream_handler=event_stream_handler_of(agent.emitter, self._prefix.is_known),
                infer_name=False,
                # a backstop for steps of a user's capability that bypass our hooks; ours acts first
                usage_limits=UsageLimits(request_limit=None if limit is None else limit + 1),
            )
        self.turns.messages = result.all_messages()
        return result.output

    async def wrap_run(self, ctx: RunContext[Any], *, handler: Any) -> Any:
        """See pydantic-ai. Calls that the run could not make are reported when it has ended."""
        self.turns.step(ctx)
        try:
            with self.turns.inner_tasks.noted(), traced_run(self.turns.agent):
                result = await handler()
        except BaseException as error:
            if isinstance(error, UnexpectedModelBehavior):
                self.calls.unmade.end(self.turns.messages, str(error))
            messages = self.turns.messages
            if self._is_cut_off and messages and isinstance(messages[-1], ModelRequest):
                # else a prompt without an answer would run into the next one
                cut_off = ModelResponse(parts=[], model_name=self.turns.agent.model.model_name, state="interrupted")
                cut_off = replace(cut_off, run_id=ctx.run_id, conversation_id=ctx.conversation_id)
                self.turns.messages = [*messages, cut_off]
            raise
        finally:
            self._prefix.is_known()
        self.calls.unmade.end(self.turns.messages)
        return result

    async def prepare_tools(self, ctx: RunContext[Any], tool_defs: list[ToolDefinition]) -> list[ToolDefinition]:
        """See pydantic-ai. Offers the tools that the agent's type leaves it, and none if no turn is left."""
        turns = self.turns
        turns.step(ctx)
        rights, servers = turns.agent.begins_as.rights, turns.agent.shared.servers
        rights.check_names({*TOOL_NAMES, *(tool.name for tool in tool_defs)}, servers)
        tools = [tool for tool in tool_defs if rights.has_tool(tool.name)]
        try:
            turns.agent.run.account.check("turns")
        except LimitReachedError as error:
            turns.end(error)
        return [] if turns.ended else tools

    async def wrap_model_request(self, ctx: RunContext[Any], *, request_context: ModelRequestContext, handler: Any) -> Any:
        """See pydantic-ai. Shows a request that takes long, and gives one up that brings no response."""
        del ctx
        self._is_cut_off = False
        await self._prefix.wait()
        with self.turns.progress.shown(), self.turns.inner_tasks.noted(), self.turns.booking.paid():
            try:
                return await handler(request_context)
            except BaseException:
                self._is_cut_off = self.turns.booking.is_open
                raise
            finally:
                self._prefix.is_known()

    async def before_model_request(self, ctx: RunContext[Any], request_context: ModelRequestContext) -> ModelRequestContext:
        """See pydantic-ai. Reserves what the request may take, makes it the last report of the run, or ends the run.

        The tools that start children are withheld if none may be started; a call to one is refused anyway.
        """
        turns, agent = self.turns, self.turns.agent
        turns.count_unusable(request_context)
        self.calls.unmade.tell(ctx.messages)
        if not agent.begins_as.may_spawn:
            request_context = _without_tools(request_context, SPAWNING)
        turns.step(ctx)
        agent.run.parameters = request_context.model_request_parameters
        if turns.ended is None:
            try:
                wait = turns.kept_answer is None  # with an answer at hand the agent does not wait for other requests
                return await turns.booking.reserve(request_context, salvage=self._salvages, wait=wait)
            except LimitReachedError as error:
                turns.ended = error
        # either it was cut off, and a report would say less; or it was complete, and the model was only asked about children
        has_answer = bool(turns.answers.so_far) or turns.kept_answer is not None
        may_report = self._salvages and not turns.reporting and agent.run.account.taken("turns") > 0 and not has_answer
        if not may_report or not isinstance(turns.ended, LimitReachedError):
            raise turns.ended
        turns.reporting = True
        try:
            return await turns.booking.reserve(_as_salvage(request_context, turns.ended), salvage=True, last=True)
        except LimitReachedError:
            raise turns.ended from None

    async def after_model_request(
        self, ctx: RunContext[Any], *, request_context: ModelRequestContext, response: ModelResponse
    ) -> ModelResponse:
        """See pydantic-ai. Books what the request took, before anybody reads the response, and checks an answer.

        Calls in a last report are removed.
        """
        del ctx
        turns, parameters = self.turns, request_context.model_request_parameters
        outputs = {tool.name for tool in parameters.output_tools}
        turns.kept_answer = None
        await turns.booking.settle(response)
        turns.agent.run.children_asked = children_asked(response)
        warn_of_unread_cache(turns.agent)
        if turns.booking.shortened and response.finish_reason == "length" and turns.ended is None:
            turns.ended = turns.agent.run.account.amount_error()
            turns.answers.keep_piece(response)
        if turns.reporting:
            kept = [part for part in response.parts if not isinstance(part, ToolCallPart) or part.tool_name in outputs]
            response = replace(response, parts=kept)
        turns.check(response, {tool.name: tool.parameters_json_schema for tool in parameters.function_tools})
        self.calls.unmade.responded(response, outputs)
        return response

    async def on_tool_validate_error(
        self,
        ctx: RunContext[Any],
        *,
        call: ToolCallPart,
        tool_def: ToolDefinition,
        args: Any,
        error: ValidationError | ModelRetry,
    ) -> Any:
        """See pydantic-ai. Says in one sentence what is wrong with arguments; JSON would fill a small model's context."""
        del ctx, call, args
        if isinstance(error, ModelRetry):
            raise error
        raise ModelRetry(wrong_arguments(tool_def, error)) from error

    async def handle_deferred_tool_calls(
        self, ctx: RunContext[Any], *, requests: DeferredToolRequests
    ) -> DeferredToolResults | None:
        """See pydantic-ai."""
        del ctx
        return self.calls.approve(requests)

    async def wrap_tool_execute(
        self, ctx: RunContext[Any], *, call: ToolCallPart, tool_def: ToolDefinition, args: Any, handler: Any
    ) -> Any:
        """See pydantic-ai. Makes the call."""
        del ctx
        return await self.calls.make(call, tool_def, args, handler)

    async def on_tool_execute_error(
        self, ctx: RunContext[Any], *, call: ToolCallPart, tool_def: ToolDefinition, args: Any, error: Exception
    ) -> Any:
        """See pydantic-ai. Turns a tool's exception into a result; its siblings continue."""
        del ctx, call, tool_def, args
        return self.calls.failed(error)

    async def after_node_run(self, ctx: RunContext[Any], *, node: Any, result: Any) -> Any:
        """See pydantic-ai. Hands on what a person has sent; lets features say why it must go on."""
        del node
        turns = self.turns
        may_go_on = turns.ended is None and not turns.reporting and turns.may_go_on
        try:
            await turns.person_messages.judge(ctx, at_end=isinstance(result, End))
        except ApprovalDeniedError as error:
            turns.end(error)
            raise
        if isinstance(result, End):
            question = ""
            if may_go_on and not ctx.pending_messages:
                question = await turns.agent.run.features.answer(text_of(result.data.output))
            if self.verify and not (question or ctx.pending_messages or turns.ended or turns.reporting):
                answer = turns.answers.whole(result.data.output)
                question = await self.verify(answer, may_go_on=may_go_on)
            if question:
                turns.kept_answer = replace(result.data, output=turns.answers.whole(result.data.output))
                turns.answers.reset()
                turns.person_messages.ends = False
                ctx.enqueue(question)
        return result

    @property
    def _salvages(self) -> bool:
        return self.turns.agent.shared.config.subagents.salvage


def children_asked(response: ModelResponse) -> int:
    """Count the children that a response starts and waits for."""
    count = 0
    for call in response.tool_calls:
        args = call.args_as_dict()  # what is no JSON becomes a dict too
        if call.tool_name == "task" and not args.get("background"):
            count += 1
        elif call.tool_name == "delegate" and isinstance(subtasks := args.get("subtasks"), list):
            count += len(subtasks)
    return count


def _without_tools(request: ModelRequestContext, names: Sequence[str]) -> ModelRequestContext:
    parameters = request.model_request_parameters
    offered = [tool for tool in parameters.function_tools if tool.name not in names]
    return replace(request, model_request_parameters=replace(parameters, function_tools=offered))


def _as_salvage(request: ModelRequestContext, reason: Exception) -> ModelRequestContext:
    parameters = request.model_request_parameters
    instructions = [*(parameters.instruction_parts or []), InstructionPart(content=SALVAGE.format(reason=reason))]
    return replace(request, model_request_parameters=replace(parameters, function_tools=[], instruction_parts=instructions))


def event_stream_handler_of(
    emitter: Emitter, on_event: Callable[[], None]
) -> Callable[[RunContext[Any], AsyncIterable[Any]], Awaitable[None]]:
    """The `event_stream_handler` of pydantic-ai. Args: on_event: called with each event of a response."""

    async def handle(_: RunContext[Any], events: AsyncIterable[Any]) -> None:
        await emit_events(events, emitter, on_event)

    return handle


async def emit_events(events: AsyncIterable[Any], emitter: Emitter, on_event: Callable[[], None] = lambda: None) -> None:
    """Emit chunks and whole blocks of text and thinking."""
    blocks = _Blocks()
    async with closed_after(events) as following:
        await _emit_each(following, blocks, emitter, on_event)
    if (whole := blocks.ended()) is not None:
        await emitter.emit(whole)


async def _emit_each(events: AsyncIterable[Any], blocks: "_Blocks", emitter: Emitter, on_event: Callable[[], None]) -> None:
    async for event in events:
        on_event()
        if isinstance(event, PartDeltaEvent):
            translated = blocks.continued(event)
        else:
            if isinstance(event, PartStartEvent) and (whole := blocks.ended()) is not None:
                await emitter.emit(whole)
            translated = blocks.begun(event) if isinstance(event, PartStartEvent) else None
        if translated is not None:
            await emitter.emit(translated)


class _Blocks:
    """Makes events of the texts of a response; our streams do not tell of the end of a part."""

    def __init__(self) -> None:
        self._index = -1
        """Of the newest part, if that is text or thinking."""
        self._texts: list[str] = []
        """Of that part."""
        self._whole: type[ev.Response | ev.Thoughts] = ev.Response

    def begun(self, event: PartStartEvent) -> ev.AgentEvent | None:
        """The newest part has begun. Returns its first chunk, if it has text already."""
        part = event.part
        if not isinstance(part, TextPart | ThinkingPart):
            self._index = -1
            return None
        self._index, self._whole = event.index, ev.Response if isinstance(part, TextPart) else ev.Thoughts
        return self._chunk(event.index, ev.ResponseChunk if self._whole is ev.Response else ev.ThoughtsChunk, part.content)

    def continued(self, event: PartDeltaEvent) -> ev.AgentEvent | None:
        """A part has grown. Returns the chunk, if it is text."""
        delta = event.delta
        if isinstance(delta, TextPartDelta):
            return self._chunk(event.index, ev.ResponseChunk, delta.content_delta)
        if isinstance(delta, ThinkingPartDelta):
            return self._chunk(event.index, ev.ThoughtsChunk, delta.content_delta)
        return None

    def ended(self) -> ev.AgentEvent | None:
        """The newest part is whole, or there is none. Returns its block, if it has text."""
        text, self._texts = "".join(self._texts), []
        return self._whole(content=text) if text else None

    def _chunk(self, index: int, kind: type[ev.ResponseChunk | ev.ThoughtsChunk], text: str | None) -> ev.AgentEvent | None:
        if not text:
            return None
        if index == self._index:
            self._texts.append(text)
        return kind(content=text)


def prefix_of(agent: TreeAgent) -> Hashable | None:
    """Return what tells the prefix of a child's first request from others. None: it has no sibling that could write it."""
    if agent.parent is None or not bills_cache_writes(agent.model, agent.shared.model_settings):
        return None
    if agent.run.record.history and not agent.continues:
        return None
    policy = (agent.policy.mode, agent.may_spawn, agent.in_background, agent.choices.thinking)
    return (agent.parent.agent_id, id(agent.model), agent.rights.type_name, agent.choices.tools, policy, agent.continues)


def warn_of_unread_cache(agent: TreeAgent) -> None:
    """Log it, once, if a run of several turns has read nothing from a cache that its provider has."""
    account = agent.run.account
    if account.taken("turns") != UNREAD_TURNS or account.own_usage.cache_read_tokens:
        return
    if bills_cache_writes(agent.model, agent.shared.model_settings):
        logger.warning(
            "%s has made %d requests to %s and read nothing from its cache: something changes the beginning of its requests "
            "(a capability, a tool, or a proxy)",
            agent.label,
            UNREAD_TURNS,
            agent.model.model_id,
        )
