"""Turns: a model request, its response, and the tool calls in it; our border to pydantic-ai.

A run is a sequence of turns, which pydantic-ai's `Agent` makes. Our work hangs in its hooks: the methods of `RunHooks`,
which share `Turns`. One turn, in order:

1.  `prepare_tools`: the tools that the agent's type leaves it (`rights.py`). If no turn is left, the run must end, and no
    tools are offered.
2.  `wrap_model_request`: of children that begin alike the first is sent first, so that the others read its prefix from
    the provider's cache (`prefix_of`). `RequestProgress` shows a request that takes long, `InnerTasks` (`upstream.py`)
    notes the tasks of pydantic-ai, and `Booking.paid` gives up a request that brings no response.
3.  The capabilities of features, in front of a user's (`RunPart.capability`): a conversation that would fill the window of
    the model is shortened, which may take a request of its own (`SingleRequests`).
4.  `before_model_request`: withholds the spawning tools if no child may be started. `Booking.reserve` estimates the request
    and sets its bound aside, for the agent and all above it; it may wait for requests of others. If too little is
    left, the request becomes the last report (the salvage), or the run ends.
5.  The request is made, and pydantic-ai streams it; `emit_events` emits text and thinking as they come.
6.  `after_model_request`: `Booking.settle` books the response and emits UsageUpdated. `AnswerCheck.check`
    (`answers.py`) asks once more for an answer that is cut off or empty, or ends the run.
7.  For each tool call in the response, side by side: the arguments are validated. If some are wrong or there is no such
    tool, pydantic-ai answers; `on_tool_validate_error` says in a sentence what is wrong with the arguments, and
    `UnmadeCalls` (`upstream.py`) counts and reports such calls. Else `wrap_tool_execute` has
    `ModelCalls` make the call: `make` (both in `call.py`) emits ToolCallStarted, counts the call, asks
    for approval, runs the tool, and emits ToolOutput. `on_tool_execute_error` turns an exception of the tool into an answer;
    `bound_result` (`tools/toolset.py`) cuts what the model reads.
    The calls of code in a cell go through `make` as well (`requests.py`).
8.  `Repeats` notices a call that repeats with the same result: the model is advised, then the run ends.
9.  `after_node_run`: features read what a person has sent to the working agent, and it is handed on (`PersonMessages`). A
    model that would end its run while children are working is asked about them once, and features may have the run go on.

The decision that the run must end notes its reason (`Turns.ended`), because a user's capability may turn our refusal into a
normal result; the loop makes the status of it. `ask.py` makes one request without tools (`ask`): steps 4 to 6.

`PersonMessages` holds the messages of a person to a working agent until features have read them; then the model does.

`Booking` reserves, makes and counts the model requests of one run, or of one question, one after another. Every request is
booked exactly once. A request that was cut off is booked with an estimate.
"""

import asyncio
import logging
from collections.abc import AsyncIterable, Awaitable, Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import InitVar, dataclass, field, replace
from decimal import Decimal
from typing import Any, Final

from pydantic import ValidationError
from pydantic_ai import Agent as PydanticAgent
from pydantic_ai import RunContext, ToolDefinition
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.exceptions import ModelRetry, UnexpectedModelBehavior, UserError
from pydantic_ai.messages import (
    FunctionToolResultEvent,
    InstructionPart,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    PartDeltaEvent,
    PartStartEvent,
    TextContent,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
    ToolCallPart,
    UserContent,
)
from pydantic_ai.models import ModelRequestContext
from pydantic_ai.result import FinalResult
from pydantic_ai.tools import DeferredToolRequests, DeferredToolResults
from pydantic_ai.usage import RequestUsage, UsageLimits
from pydantic_graph import End

from freeact_sub import events as ev
from freeact_sub.agents.answers import AnswerCheck
from freeact_sub.agents.call import ModelCalls, wrong_arguments
from freeact_sub.agents.feature import Asker
from freeact_sub.agents.life import TreeAgent, is_raised, name_of, traced_run
from freeact_sub.agents.money import (
    BYTES_PER_TOKEN,
    REPORT_TOKENS,
    Account,
    Estimate,
    Reservation,
    estimate_input,
    estimate_request,
    price_of,
    size_of,
    with_max_tokens,
)
from freeact_sub.agents.results import text_of
from freeact_sub.agents.rights import SPAWNING
from freeact_sub.agents.upstream import COUNTED_BY_US, RETRIES, InnerTasks, UnusableReplies
from freeact_sub.channel import Emitter
from freeact_sub.config.budget import Usage
from freeact_sub.errors import ApprovalDeniedError, LimitReachedError
from freeact_sub.events import ModelProgress, Notice, UsageUpdated
from freeact_sub.models.arguments import Schemas
from freeact_sub.models.borrowed_stream import closed_after
from freeact_sub.models.observers import Attempt, Bill, Meter, bills_cache_writes, charge_to, watch
from freeact_sub.models.sending import FirstRequest
from freeact_sub.text import whole_text
from freeact_sub.tools import TOOL_NAMES

FIRST_SECONDS: Final = 2.0
"""Seconds before a request shows progress."""
STEP_SECONDS: Final = 1.0
UNREAD_TURNS: Final = 6
"""Turns without a read from the cache after which the log warns."""
logger = logging.getLogger(__name__)

SALVAGE: Final = (
    "Your budget is used up ({reason}). No tools are left. Report now what you have found and done, and what is missing."
)


class Booking:
    """Payment for the requests of one agent."""

    def __init__(self, agent: TreeAgent, account: Account, *, of_conversation: bool = True) -> None:
        """Open the booking.

        Args:
            agent: The agent.
            account: The account that pays: the agent's, or a descendant's.
            of_conversation: Whether the requests carry the agent's conversation, or are questions beside it.
        """
        self._agent = agent
        self._account = account
        self._of_conversation = of_conversation
        self._reservation: Reservation | None = None
        self._bill = Bill(book=self._book_cut_off, check_again=account.check_again)
        self.shortened = False
        """Whether the budget bounds the request's output."""

    @contextmanager
    def open(self) -> Iterator[None]:
        """Make requests inside this block; leaving it ends an open one."""
        try:
            with charge_to(self._bill):
                yield
        finally:
            self.give_up()

    async def reserve(
        self, request: ModelRequestContext, *, salvage: bool, last: bool = False, wait: bool = True
    ) -> ModelRequestContext:
        """Reserve for a request, and return the request to send.

        Args:
            request: The request as prepared.
            salvage: A last report may follow at a limit.
            last: This is the last report.
            wait: Wait for other requests that may leave enough.

        Raises:
            LimitReachedError: Not enough is left.
            FreeactError: Money is bounded, and the model's price is unknown.
        """
        account = self._account
        self._give_back()  # of a request that this one continues
        priced = any(above.bound("cost_usd") is not None for above in account.self_and_ancestors())
        estimate = estimate_request(request, priced=priced, last=last) if account.counts_amounts else Estimate()
        if salvage and not last:
            estimate = replace(estimate, report_tokens=REPORT_TOKENS)
        while True:
            try:
                self._reservation = await account.ledger.reserve(account, estimate, last=last, wait=wait)
                break
            except LimitReachedError as error:
                if last or not wait or not await is_raised(error, account, Asker(agent=self._agent)):
                    raise
        if not account.counts_amounts:
            return request
        self.shortened = self._reservation.output_tokens < estimate.output_tokens
        return replace(request, model_settings=with_max_tokens(request, self._reservation.output_tokens))

    @property
    def is_open(self) -> bool:
        """Whether a request is being made."""
        return self._reservation is not None

    @contextmanager
    def paid(self) -> Iterator[None]:
        """Make a request inside the block; one that brings no response is given up."""
        try:
            yield
        except BaseException:
            self.give_up()
            raise

    async def settle(self, response: ModelResponse) -> None:
        """Book an answered request."""
        attempt, self._bill.attempt = self._bill.attempt, None
        usage = usage_of(response, attempt)
        self._book(usage)
        self.give_up()
        context_tokens = usage.input_tokens + usage.output_tokens if self._of_conversation else None
        await self._agent.emitter.emit(self._updated(context_tokens))

    def give_up(self) -> None:
        """End the request; one without an answer is booked as far as it got. Can be called again."""
        if self._bill.attempt is not None:
            self._bill.close()
        self._give_back()

    def _give_back(self) -> None:
        if self._reservation is not None:
            self._reservation.give_up()
            self._reservation = None

    def _book_cut_off(self, attempt: Attempt) -> None:
        self._book(usage_of_cut_off(attempt))
        self._agent.emitter.put(self._updated())

    def _book(self, usage: Usage) -> None:
        self._account.book(usage)

    def _updated(self, context_tokens: int | None = None) -> UsageUpdated:
        account = self._agent.run.account
        return UsageUpdated(
            usage=account.own_usage,
            tree_usage=account.usage,
            context_tokens=context_tokens,
            window_tokens=self._agent.window_tokens,
        )


def usage_of(response: ModelResponse, attempt: Attempt | None) -> Usage:
    """Return the usage of a response. Args: attempt: its request. None: nothing was sent."""
    tokens, cost = response.usage, _cost_of(response)
    # some servers count the one and not the other
    estimated = attempt is not None and not (tokens.input_tokens and (tokens.output_tokens or not response.parts))
    if attempt is not None and estimated:
        tokens, cost = _estimated(attempt, response), None
    if attempt is not None and cost is None:
        cost = price_of(attempt.model)(tokens)
    return _usage(tokens, cost, turns=1, estimated=estimated)


def usage_of_cut_off(attempt: Attempt) -> Usage:
    """Return the usage of an attempt whose answer nobody received: an estimate, unless the answer had arrived."""
    if attempt.response is not None:
        return usage_of(attempt.response, attempt)
    tokens = _estimated(attempt, attempt.received)
    return _usage(tokens, price_of(attempt.model)(tokens), turns=0, estimated=True)


def _usage(tokens: RequestUsage, cost: Decimal | None, *, turns: int, estimated: bool) -> Usage:
    return Usage(
        turns=turns,
        input_tokens=tokens.input_tokens,
        output_tokens=tokens.output_tokens,
        cache_read_tokens=tokens.cache_read_tokens,
        cache_write_tokens=tokens.cache_write_tokens,
        cost_usd=cost,
        unpriced_turns=int(cost is None),
        estimated_requests=int(estimated),
    )


def _estimated(attempt: Attempt, response: ModelResponse | None) -> RequestUsage:
    """Return the tokens sent and received, counted by the provider where it has counted."""
    counted = RequestUsage() if response is None else response.usage
    received = 0 if response is None else sum(size_of(part) for part in response.parts) // BYTES_PER_TOKEN
    return replace(
        counted,
        input_tokens=counted.input_tokens or estimate_input(attempt.messages, attempt.parameters),
        output_tokens=max(counted.output_tokens, received),
    )


def _cost_of(response: ModelResponse) -> Decimal | None:
    try:
        return response.cost().total_price
    except (LookupError, ValueError):
        return None


@dataclass(kw_only=True, eq=False)
class PersonMessages:
    """The messages of one run."""

    agent: TreeAgent
    ends: bool = False
    """Whether the run is about to end: no more messages are taken."""
    _waiting: list[str] = field(default_factory=list)

    def put(self, ctx: RunContext[Any], text: str) -> bool:
        """Take a message. Return False if nobody will read it."""
        if self.ends:
            return False
        try:
            queued = ctx.enqueue(whole_text(text))
        except UserError:  # the run has made its last request
            return False
        if queued is not None:
            ctx.dequeue(queued)  # the queue is open, and the model reads nothing before features do
            self._waiting.append(text)
        return True

    async def judge(self, ctx: RunContext[Any], *, at_end: bool) -> None:
        """Let features read the new messages, and hand on the ones that the model may read.

        Args:
            ctx: The context of the present step.
            at_end: The run ends unless there is something to read.

        Raises:
            ApprovalDeniedError: A feature ends the run.
        """
        goes_on = False
        while self._waiting:
            text = self._waiting.pop(0)
            try:
                told = await self.agent.run.features.opening(text, is_prompt=False)
            except ApprovalDeniedError as error:
                if error.ends_run:
                    raise
                self.agent.emitter.put(Notice(content=error.reason))
                continue
            ctx.enqueue(whole_text("\n\n".join(filter(None, (text, told)))))
            goes_on = True
        self.ends = at_end and not goes_on


@dataclass(kw_only=True)
class RequestProgress:
    """Progress of the requests of one run, shown as ModelProgress: a slow model must not look dead."""

    emitter: Emitter
    _meter: Meter | None = field(default=None, init=False)
    """The meter of the latest request whose state has changed."""
    _paused: bool = field(default=False, init=False)

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Watch the run inside the block: pydantic-ai opens requests in the run's task, wherever it calls the hooks."""
        with watch(self._note):
            yield

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Show the progress of the request that is made inside the block, if it takes long."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        self._meter, self._paused = None, False
        timers: list[asyncio.TimerHandle] = []

        def emit() -> None:
            if self.emitter.channel.is_idle and not self._paused:  # a slow reader has more important events to read
                self.emitter.put(self._event(loop.time() - began))
            timers[:] = [loop.call_later(STEP_SECONDS, emit)]

        timers.append(loop.call_later(FIRST_SECONDS, emit))
        try:
            yield
        finally:
            timers[0].cancel()

    def _note(self, meter: Meter) -> None:
        self._meter, before, self._paused = meter, self._paused, meter.is_paused
        if self._paused or before:
            self.emitter.put(self._event(meter.state.seconds))

    def _event(self, seconds: float) -> ModelProgress:
        if self._meter is None:
            return ModelProgress(seconds=seconds, tokens=0)
        known = self._meter.state
        return ModelProgress(
            seconds=seconds,
            tokens=known.pieces,
            tokens_per_second=known.pieces_per_second,
            paused_seconds=known.paused_seconds,
            paused_because=known.paused_because,
        )


@dataclass(kw_only=True)
class Turns:
    """The turns of one run."""

    agent: TreeAgent
    answers: AnswerCheck
    account: InitVar[Account | None] = None
    """The account that pays. None: the agent's."""
    is_question: InitVar[bool] = False
    """Whether the turns are a question beside the agent's conversation."""
    booking: Booking = field(init=False)
    progress: RequestProgress = field(init=False)
    person_messages: PersonMessages = field(init=False)
    inner_tasks: InnerTasks = field(default_factory=InnerTasks)
    ended: Exception | None = None
    """The reason why the run must end. None: undecided."""
    reporting: bool = False
    """Whether the run is making its last request, a report without tools at a limit."""
    kept_answer: FinalResult[Any] | None = None
    """The answer to which the run returns after the model was asked about working children."""
    messages: Sequence[ModelMessage] = ()
    """The live history, valid also after an error or a cancel."""
    context: RunContext[Any] | None = None
    """The context of the latest step; steering goes through it."""
    unusable: UnusableReplies = field(default_factory=UnusableReplies)

    def __post_init__(self, account: Account | None, is_question: bool) -> None:
        self.booking = Booking(self.agent, account or self.agent.run.account, of_conversation=not is_question)
        self.person_messages = PersonMessages(agent=self.agent)
        self.progress = RequestProgress(emitter=self.agent.emitter)

    @property
    def expected(self) -> Sequence[ModelMessage]:
        """The live history, and the messages for the next request."""
        waiting = (self.context and self.context.pending_messages) or ()
        return [*self.messages, *(message for pending in waiting for message in pending.messages)]

    @property
    def may_go_on(self) -> bool:
        """Whether the budget may have room for another request."""
        try:
            self.agent.run.account.check_request()
        except LimitReachedError:
            return False
        return True

    @property
    def last_text(self) -> str:
        """The newest text of the model in this run, the result of a run that did not complete."""
        if self.answers.so_far:
            return self.answers.so_far
        run_id = self.context and self.context.run_id
        for message in reversed(self.messages):
            if isinstance(message, ModelResponse) and message.run_id == run_id and message.text:
                return message.text
        return ""

    @contextmanager
    def open(self) -> Iterator[None]:
        """Make requests inside this block."""
        with self.progress.watched(), self.booking.open():
            yield

    def step(self, ctx: RunContext[Any]) -> None:
        """Note the latest step."""
        self.context, self.messages = ctx, ctx.messages
        self.person_messages.ends = False

    def send(self, text: str | TextContent, *, of_person: bool) -> bool | None:
        """Send the model a text before its next request. Return None before its first request, False after its last.

        Args:
            text: The message.
            of_person: Whether a person sends it, so that features read it first.
        """
        if self.context is None:
            return None
        if of_person and isinstance(text, str):
            return self.person_messages.put(self.context, text)
        try:
            self.context.enqueue(whole_text(text) if isinstance(text, str) else text)
        except UserError:  # the run has made its last request
            return False
        return True

    def check(self, response: ModelResponse, tools: Schemas | None = None) -> None:
        """Check that a response is a complete answer. Args: tools: those that the model may call.

        Raises:
            ModelRetry: The model must be asked once more.
            FreeactError: The run must end with this response, which has no text to return.
        """
        if self.reporting:
            self.answers.check_report(response)
        elif self.ended is None:
            self.ended = self.answers.check(response, tools, self.messages)
            if self.ended is not None and (response.tool_calls or not (self.answers.texts and response.text)):
                raise self.ended  # otherwise the run ends by itself, with the text

    def end(self, error: Exception) -> None:
        """Decide that the run must end; the first reason counts."""
        self.ended = self.ended or error

    async def is_raised(self, error: LimitReachedError) -> bool:
        """Return whether a bound that the run has reached is higher now."""
        return await is_raised(error, self.agent.run.account, Asker(agent=self.agent))

    def whole_answer(self, output: Any) -> Any:
        """Return the complete answer of a run that has ended.

        Raises:
            FreeactError: The run had to end without one.
        """
        if self.ended is not None:
            raise self.ended
        return self.answers.whole(output)


@dataclass(kw_only=True)
class RunHooks(AbstractCapability[Any]):
    """Hooks of this package in the turns of one run. They note in `Turns` why the run must end."""

    turns: Turns
    calls: ModelCalls
    verify: Callable[..., Awaitable[str]] | None
    """A check of an answer (`Verifier.reason_to_go_on`), if there is one."""
    _is_cut_off: bool = field(default=False, init=False)
    """Whether the latest request was made and has brought no response."""
    _first: FirstRequest | None = field(init=False)
    """The run's first request. None: no agent waits for it, and it waits for none."""

    def __post_init__(self) -> None:
        agent = self.turns.agent
        prefix = prefix_of(agent)
        self._first = None if prefix is None else agent.shared.prefixes.of(prefix)

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
            prompt: The run's prompt.
            output_type: The type of the answer, as pydantic-ai's `output_type`.
            instructions: The system prompt.
            before: Capabilities whose hooks come before a user's; ours come after a user's.
        """
        agent, shared = self.turns.agent, self.turns.agent.shared
        turn_loop: PydanticAgent[Any, Any] = PydanticAgent(
            agent.model,
            name=name_of(agent),
            description=agent.description or None,
            output_type=output_type,
            instructions=instructions,
            toolsets=[*self.calls.toolsets, *shared.toolsets],
            capabilities=[*before, *shared.capabilities, self],
            model_settings=shared.request_settings(agent.model, agent.choices.thinking),
            retries={"tools": RETRIES, "output": COUNTED_BY_US},
        )
        limit = agent.run.account.budget.turns
        with self.turns.open():
            result = await turn_loop.run(
                prompt,
                deps=shared.own_tools.deps,
                message_history=agent.run.record.history or None,
                event_stream_handler=event_stream_handler_of(agent.emitter, self._hear),
                infer_name=False,
                # a backstop for steps of a user's capability that bypass our hooks; ours acts first
                usage_limits=UsageLimits(request_limit=None if limit is None else limit + 1),
            )
        self.turns.messages = result.all_messages()
        return result.output

    async def wrap_run(self, ctx: RunContext[Any], *, handler: Any) -> Any:
        """Run pydantic-ai's graph; calls that the run could not make are reported when it has ended."""
        self.turns.step(ctx)
        try:
            with self.turns.inner_tasks.noted(), traced_run(self.turns.agent):
                result = await handler()
        except BaseException as error:
            if isinstance(error, UnexpectedModelBehavior):
                self.calls.unmade.end(str(error))
            messages = self.turns.messages
            if self._is_cut_off and messages and isinstance(messages[-1], ModelRequest):
                # else a prompt without an answer would run into the next one
                cut_off = ModelResponse(parts=[], model_name=self.turns.agent.model.model_name, state="interrupted")
                cut_off = replace(cut_off, run_id=ctx.run_id, conversation_id=ctx.conversation_id)
                self.turns.messages = [*messages, cut_off]
            raise
        finally:
            self._let_others_go_on()
        return result

    def _let_others_go_on(self) -> None:
        """Release the agents that wait for the first request of this run: it is answered, or has failed."""
        if self._first is not None:
            self._first.is_known()

    async def prepare_tools(self, ctx: RunContext[Any], tool_defs: list[ToolDefinition]) -> list[ToolDefinition]:
        """Return the tools that the agent's type leaves it, or none if no turn is left."""
        turns = self.turns
        turns.step(ctx)
        rights, servers = turns.agent.begins_as.rights, turns.agent.shared.servers
        rights.check_names({*TOOL_NAMES, *(tool.name for tool in tool_defs)}, servers)
        tools = [tool for tool in tool_defs if rights.has_tool(tool.name)]
        account = turns.agent.run.account
        while turns.ended is None:
            try:
                account.check("turns")
                break
            except LimitReachedError as error:
                if turns.kept_answer is not None or not await turns.is_raised(error):
                    turns.end(error)
        if ctx.usage_limits is not None and ctx.usage_limits.request_limit is not None:
            ctx.usage_limits.request_limit = account.bound("turns") + 1
        return [] if turns.ended else tools

    async def wrap_model_request(self, ctx: RunContext[Any], *, request_context: ModelRequestContext, handler: Any) -> Any:
        """Show a request that takes long, and give one up that brings no response."""
        del ctx
        self._is_cut_off = False
        if self._first is not None:
            await self._first.wait()
        with self.turns.progress.shown(), self.turns.inner_tasks.noted(), self.turns.booking.paid():
            try:
                return await handler(request_context)
            except BaseException:
                self._is_cut_off = self.turns.booking.is_open
                raise
            finally:
                self._let_others_go_on()

    async def before_model_request(self, ctx: RunContext[Any], request_context: ModelRequestContext) -> ModelRequestContext:
        """Reserve for the request, make it the last report of the run, or end the run.

        The tools that start children are withheld if none may be started; a call to one is refused anyway.
        """
        turns, agent = self.turns, self.turns.agent
        turns.unusable.count(request_context)
        if self.calls.unmade.over is not None:
            turns.end(self.calls.unmade.over)
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
        """Book the request before anybody reads the response, and check an answer.

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
            error = turns.agent.run.account.amount_error()
            if not await turns.is_raised(error):
                turns.ended = error
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
        """Say in one sentence what is wrong with arguments; JSON would fill a small model's context."""
        del ctx, call, args
        if isinstance(error, ModelRetry):
            raise error
        raise ModelRetry(wrong_arguments(tool_def, error)) from error

    async def handle_deferred_tool_calls(
        self, ctx: RunContext[Any], *, requests: DeferredToolRequests
    ) -> DeferredToolResults | None:
        """Approve calls that wait for approval."""
        del ctx
        return self.calls.approve(requests)

    async def wrap_tool_execute(
        self, ctx: RunContext[Any], *, call: ToolCallPart, tool_def: ToolDefinition, args: Any, handler: Any
    ) -> Any:
        """Make the call."""
        del ctx
        return await self.calls.make(call, tool_def, args, handler)

    async def on_tool_execute_error(
        self, ctx: RunContext[Any], *, call: ToolCallPart, tool_def: ToolDefinition, args: Any, error: Exception
    ) -> Any:
        """Turn a tool's exception into a result; its siblings continue."""
        del ctx, call, tool_def, args
        return self.calls.failed(error)

    async def after_node_run(self, ctx: RunContext[Any], *, node: Any, result: Any) -> Any:
        """Hand on the messages of people; let features say why the run must go on."""
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

    def _hear(self, event: Any) -> None:
        self._let_others_go_on()
        if isinstance(event, FunctionToolResultEvent):
            self.calls.unmade.answered(event.part)

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
    emitter: Emitter, on_event: Callable[[Any], None]
) -> Callable[[RunContext[Any], AsyncIterable[Any]], Awaitable[None]]:
    """Return an `event_stream_handler` of pydantic-ai. Args: on_event: called with each event."""

    async def handle(_: RunContext[Any], events: AsyncIterable[Any]) -> None:
        await emit_events(events, emitter, on_event)

    return handle


async def emit_events(events: AsyncIterable[Any], emitter: Emitter, on_event: Callable[[Any], None]) -> None:
    """Emit chunks and whole blocks of text and thinking. Args: on_event: called with each event."""
    blocks = _Blocks()
    async with closed_after(events) as following:
        async for event in following:
            on_event(event)
            for told in blocks.read(event):
                await emitter.emit(told)
    if (whole := blocks.ended()) is not None:
        await emitter.emit(whole)


class _Blocks:
    """Maker of events from the texts of a response; our streams do not tell of the end of a part."""

    def __init__(self) -> None:
        self._index = -1
        """The index of the newest part, if that is text or thinking."""
        self._texts: list[str] = []
        """The texts of that part."""
        self._whole: type[ev.Response | ev.Thoughts] = ev.Response

    def read(self, event: Any) -> Iterator[ev.AgentEvent]:
        """Yield the events for the texts in an event of pydantic-ai."""
        told: list[ev.AgentEvent | None] = []
        if isinstance(event, PartDeltaEvent):
            told = [self._continued(event)]
        elif isinstance(event, PartStartEvent):
            told = [self.ended(), self._begun(event)]
        return (each for each in told if each is not None)

    def _begun(self, event: PartStartEvent) -> ev.AgentEvent | None:
        """Begin the newest part. Return its first chunk, if it has text already."""
        part = event.part
        if not isinstance(part, TextPart | ThinkingPart):
            self._index = -1
            return None
        self._index, self._whole = event.index, ev.Response if isinstance(part, TextPart) else ev.Thoughts
        return self._chunk(event.index, ev.ResponseChunk if self._whole is ev.Response else ev.ThoughtsChunk, part.content)

    def _continued(self, event: PartDeltaEvent) -> ev.AgentEvent | None:
        """Continue a part. Return the chunk, if it is text."""
        delta = event.delta
        if isinstance(delta, TextPartDelta):
            return self._chunk(event.index, ev.ResponseChunk, delta.content_delta)
        if isinstance(delta, ThinkingPartDelta):
            return self._chunk(event.index, ev.ThoughtsChunk, delta.content_delta)
        return None

    def ended(self) -> ev.AgentEvent | None:
        """End the newest part, if there is one. Return its block, if it has text."""
        text, self._texts = "".join(self._texts), []
        return self._whole(content=text) if text else None

    def _chunk(self, index: int, kind: type[ev.ResponseChunk | ev.ThoughtsChunk], text: str | None) -> ev.AgentEvent | None:
        if not text:
            return None
        if index == self._index:
            self._texts.append(text)
        return kind(content=text)


def prefix_of(agent: TreeAgent) -> Hashable | None:
    """Return a key of the prefix of a child's first request. None: it has no sibling that could write it."""
    if agent.parent is None or not bills_cache_writes(agent.model, agent.shared.model_settings):
        return None
    if agent.run.record.history and not agent.continues:
        return None
    policy = (agent.policy.mode, agent.may_spawn, agent.in_background, agent.choices.thinking)
    return (agent.parent.agent_id, id(agent.model), agent.rights.type_name, agent.choices.tools, policy, agent.continues)


def warn_of_unread_cache(agent: TreeAgent) -> None:
    """Log, once, that a run of several turns has read nothing from its provider's cache."""
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
