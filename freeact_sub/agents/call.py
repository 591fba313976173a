"""Tool calls: `make` is the life of one, `permit` decides whether something may be done.

`make` emits ToolCallStarted, counts the call, has rules and if need be a person judge it, runs it, and emits ToolOutput.

A context variable names the agents on whose behalf the present code runs. A user's tool, a `ChildAgent` or a capability may
call the SDK. The children that they start belong to the agent that runs them, and that agent counts as waiting; otherwise it
would hold its slot while it waits for children that queue for one. The variable follows `await`, `asyncio.create_task`,
`gather`, `asyncio.to_thread` and `run_coroutine_threadsafe`, but not a thread made by hand, which needs
`contextvars.copy_context().run`.

`ModelCalls` makes the calls of a model, `run_own_cell` the cells of programs and people; `CodeCalls` (`requests.py`)
makes those of code in a cell. `Repeats` notices a model that goes in circles.
"""

import asyncio
import json
import logging
import re
import secrets
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, TypeVar

from pydantic import ValidationError
from pydantic_ai import ToolDefinition, ToolDenied
from pydantic_ai.exceptions import (
    ApprovalRequired,
    CallDeferred,
    ModelRetry,
    ToolFailed,
    ToolFailedError,
    ToolRetryError,
    UnexpectedModelBehavior,
)
from pydantic_ai.messages import ToolCallPart
from pydantic_ai.tools import DeferredToolRequests, DeferredToolResults

from freeact_sub import events as ev
from freeact_sub.agents.feature import Asker, EndedCall, RequestedCall, RunTool
from freeact_sub.agents.life import TreeAgent, is_raised, tree_agent, with_model_named
from freeact_sub.agents.shared import Shared, no_kernel_left
from freeact_sub.agents.upstream import UnmadeCalls
from freeact_sub.calls import Call, CodeAction, SpawnCall, ToolCall
from freeact_sub.cells import CELL_TOOL
from freeact_sub.errors import ApprovalDeniedError, FreeactError, KernelLostError, LimitReachedError, SpawnForbiddenError
from freeact_sub.events import CodeExecutionOutput
from freeact_sub.kernels import Kernel
from freeact_sub.models.failures import is_expected
from freeact_sub.text import wrong_fields
from freeact_sub.tools import (
    Bounds,
    CellContext,
    JudgedToolset,
    Outcome,
    ToolResult,
    bound_error,
    bound_result,
    head_and_tail,
    model_content,
    outcome_of,
    run_cell,
    text_of,
    with_note,
    without_files,
)

if TYPE_CHECKING:
    from freeact_sub.agents.turn import Turns

T = TypeVar("T")

Refusal: TypeAlias = LimitReachedError | SpawnForbiddenError | ApprovalDeniedError
"""Errors that say why a call is not run."""

NOT_OVER: Final = (ModelRetry, ToolRetryError, ApprovalRequired, CallDeferred)
"""Errors after which the model or pydantic-ai repeats the call; `UnmadeCalls` reports what the model reads."""
_AT_WORK: Final[ContextVar[tuple[TreeAgent, ...]]] = ContextVar("freeact_sub_agents_at_work", default=())
"""Agents, outermost first; of several roots if a tool of one runs another."""

_IN_CELLS: Final[ContextVar[frozenset[str]]] = ContextVar("freeact_sub_in_cells", default=frozenset())
"""The agents and nodes whose kernels run a cell that waits for the present code."""
NO_LOCK: Final = nullcontext()
_NOTED: Final[ContextVar[set[str] | None]] = ContextVar("freeact_sub_own_calls", default=None)
MAX_CHANGED_CHARS: Final = 8_000
"""Characters of code changed by a person that the model reads."""

FATAL: Final = (LimitReachedError, KernelLostError, ApprovalDeniedError)
"""Errors of a tool that end the run; the model reads all others as results."""
WAITED_SECONDS: Final = 5.0
"""Seconds after which a call has waited for something and is no repetition."""

_SLEEPS: Final = re.compile(r"\bsleep\s*\(|(?:^|[\s!;&|])sleep\s+[\d.]", re.MULTILINE)
_ADDRESS: Final = re.compile(r"0x[0-9a-f]+")
"""Memory addresses, which do not distinguish errors."""

logger = logging.getLogger(__name__)


@contextmanager
def acting_as(agent: TreeAgent) -> Iterator[None]:
    """Run the block, and all tasks that it creates, on behalf of this agent."""
    token = _AT_WORK.set((*_AT_WORK.get(), agent))
    try:
        yield
    finally:
        _AT_WORK.reset(token)


def caller_in(shared: Shared) -> TreeAgent | None:
    """Return the agent of this tree on whose behalf the present task runs. None: the program's own code runs."""
    return next((agent for agent in reversed(_AT_WORK.get()) if agent.shared is shared), None)


@contextmanager
def in_cell(kernel_of: str) -> Iterator[None]:
    """Run the block for a cell of this agent or node, which waits for it."""
    token = _IN_CELLS.set(_IN_CELLS.get() | {kernel_of})
    try:
        yield
    finally:
        _IN_CELLS.reset(token)


def in_cell_of(agent_id: str) -> bool:
    """Return whether a cell in this agent's kernel waits for the present code."""
    return agent_id in _IN_CELLS.get()


async def make(
    requested: RequestedCall,
    work: RunTool[T],
    *,
    refused: Callable[[Refusal], EndedCall[T]] | None = None,
    told: Callable[[RequestedCall, EndedCall[T], Sequence[str]], EndedCall[T]] = lambda _, ended, __: ended,
) -> EndedCall[T]:
    """Make a call: emit ToolCallStarted, count it, have it judged, run it, and emit ToolOutput.

    Features stand around its run, the first one outermost.

    Args:
        requested: The call.
        work: Runs it.
        refused: Makes the result of a refused call. None: the reason is raised.
        told: Adds the notes of features to the result that the model reads.

    Raises:
        LimitReachedError: The budget has no call left.
        SpawnForbiddenError: The call would start a child, and none may be started.
        ApprovalDeniedError: The call is denied.
    """
    agent = tree_agent(requested.agent)
    if not requested.is_begun:
        await _announce(requested)
    try:
        try:
            made = requested if requested.is_begun else await _admitted(requested)
        except (LimitReachedError, SpawnForbiddenError, ApprovalDeniedError) as error:
            if refused is None:
                raise
            ended = refused(error)
        else:
            ended = await agent.run.features.call(made, work)
            ended = ended if (notes := _notes(made, ended)) is None else told(made, ended, notes)
    except NOT_OVER:
        raise
    except asyncio.CancelledError:
        if requested.by != "model":  # a run ends with the calls of its model, and reports its own end
            _report(requested, "cancelled", "failed")
        raise
    except (ToolFailed, ToolFailedError) as error:  # a user's tool asks for a retry; its text is bounded already
        text = error.message if isinstance(error, ToolFailed) else text_of(error.tool_failed.content)
        _report(requested, text, "failed")
        raise
    except Exception as error:  # border: front ends show any error, and the caller gets it
        text = head_and_tail(error_text(error), agent.shared.config.kernel.output_chars)
        _report(requested, text, "denied" if isinstance(error, ApprovalDeniedError) else "failed")
        raise
    _report(requested, ended.text, ended.outcome)
    return ended


async def permit(call: Call, asker: Asker) -> ev.Decision | None:
    """Ask the rules, then perhaps a person, whether something may be done. Meanwhile the clocks of run and cell stop.

    Returns:
        The decision, perhaps with other code that the person wants to run. None: do it as it is.

    Raises:
        SpawnForbiddenError: The call would start a child, and none may be started.
        ApprovalDeniedError: The call is denied.
    """
    agent = tree_agent(asker.agent)
    if isinstance(call, SpawnCall):
        call = with_model_named(call, agent)
    if asker.by == "code":
        agent.rights.check(call)
    if isinstance(call, SpawnCall):
        check_spawn(agent)
    try:
        decision = await agent.shared.gate.check(call, asker)
    except ApprovalDeniedError:
        agent.run.denied += 1
        raise
    if call.acts_outside:
        agent.run.note_outside_action()
    return decision


def check_spawn(agent: TreeAgent) -> None:
    """Raise SpawnForbiddenError, naming the limit and its setting, if an agent may not start a child now."""
    shared = agent.shared
    if not shared.config.subagents.enabled:
        raise SpawnForbiddenError("starting children is disabled (setting `subagents.enabled`)")
    denied = agent.rights.denied_by("task")
    if denied is not None:
        raise SpawnForbiddenError(
            f"agents of type {denied.name!r}, and those below them, may not start children (`tools.deny` of the type); "
            "do the work yourself"
        )
    if not agent.may_spawn:
        raise SpawnForbiddenError(
            f"this agent is at depth {agent.depth} and may not start children "
            "(setting `subagents.max_depth`, or `depth` of a budget); do the work yourself"
        )
    try:
        agent.run.account.check_spawn()
    except LimitReachedError as error:
        raise SpawnForbiddenError(str(error)) from error
    if shared.kernel_places.would_never_come(agent):
        raise no_kernel_left(shared.kernel_places)


def asks_for(agent: TreeAgent) -> Callable[[Call], Awaitable[ev.Decision | None]]:
    """Return a function that asks by `permit` on behalf of an agent, in the run of it that is live then."""

    async def ask(call: Call) -> ev.Decision | None:
        return await permit(call, Asker(agent=agent))

    return ask


def _notes(made: RequestedCall, ended: EndedCall[Any]) -> list[str] | None:
    """Return the notes that the model reads with a result. None: code made the call, and its cell has them."""
    kept = tree_agent(made.agent).run.cell_notes
    if made.by != "code":
        return [*dict.fromkeys((*kept.pop(made.tool_call_id, ()), *ended.notes))]
    kept.setdefault(made.tool_call_id, []).extend(ended.notes)
    return None


async def _announce(requested: RequestedCall) -> None:
    started = ev.ToolCallStarted(
        tool_name=requested.name, args=requested.args, call_id=requested.call_id, label=requested.label
    )
    await requested.agent.emitter.emit(started, tool_call_id=requested.tool_call_id)


async def _admitted(requested: RequestedCall) -> RequestedCall:
    """Count a call, and have it judged; return it with the changes of a person."""
    account = tree_agent(requested.agent).run.account
    while True:
        try:
            account.take_tool_call()
            break
        except LimitReachedError as error:
            if not await is_raised(error, account, requested):
                raise
    decision = await permit(requested.call, requested) if requested.is_asked else None
    return requested.with_code(None if decision is None else decision.code)


def _report(requested: RequestedCall, text: str, outcome: Literal["success", "failed", "denied"]) -> None:
    output = ev.ToolOutput(
        tool_name=requested.name, content=text, outcome=outcome, call_id=requested.call_id, label=requested.label
    )
    requested.agent.emitter.put(output, tool_call_id=requested.tool_call_id)  # an ending does not wait for the reader


def error_text(error: Exception) -> str:
    """Return the text of an error, with the type of foreign ones."""
    return str(error) if isinstance(error, FreeactError) else f"{type(error).__name__}: {error}"


class Repeats:
    """Counter of repeated calls, which notices a model that goes in circles.

    A repeat is the same call with the same result in consecutive responses; errors are the same if their last lines are.
    Parallel calls in one response count once: asking five children the same question is a vote, not a circle. A call whose
    result changes does not count, nor does one that waits: to check every half minute whether a file exists is legitimate.
    """

    def __init__(self) -> None:
        self._known: tuple[str, str, str] | None = None
        self._turn = -1
        self._times = 0

    def count(self, turn: int, tool: str, args: Mapping[str, Any], text: str, *, failed: bool, seconds: float = 0.0) -> int:
        """Count a call with its result.

        Args:
            turn: The number of the response that made it.
            tool: The tool's name.
            args: The arguments.
            text: The result.
            failed: The result is an error.
            seconds: The seconds it took.

        Returns:
            The number of equal calls in a row. 0: the call waited for something.
        """
        if seconds > WAITED_SECONDS or _SLEEPS.search(str(args.get("code", ""))):
            self._known = None
            return 0
        call = (tool, json.dumps(args, sort_keys=True, default=str), _last_line(text) if failed else text)
        if call != self._known:
            self._times = 1
        elif turn != self._turn:
            self._times += 1
        self._known, self._turn = call, turn
        return self._times


def advice(times: int, *, failed: bool) -> str:
    """Return the advice for a model that goes in circles."""
    what = "error" if failed else "result"
    other = "read the error, change what it names, or try another way" if failed else "use this result, or try another way"
    return (
        f"[NOTE] You have made this call, with the same {what}, {times} times in a row. Once more, and the run ends. "
        f"Do something else: {other}; print what you do not know; or answer now with what you have."
    )


def _last_line(text: str) -> str:
    lines = [line for line in text.strip().splitlines() if line.strip()]
    return _ADDRESS.sub("#", lines[-1]) if lines else "(no text)"


@dataclass(kw_only=True)
class ModelCalls:
    """Calls of the model in one run, including those of a user's tools."""

    turns: "Turns"
    toolsets: Sequence[JudgedToolset]
    """Toolsets that know their calls: the built-in tools, and those of features."""
    unmade: UnmadeCalls = field(init=False)
    _repeats: Repeats = field(default_factory=Repeats, init=False)
    _deferred: set[str] = field(default_factory=set, init=False)
    """Ids of calls whose tool asked for approval before it ran."""
    _approved: set[str | None] = field(default_factory=set, init=False)
    """Ids of calls that a person approved when the tool asked while it ran: it runs again."""

    def __post_init__(self) -> None:
        self.unmade = UnmadeCalls(agent=self.turns.agent)

    async def make(
        self, part: ToolCallPart, tool: ToolDefinition, args: Any, run_tool: Callable[[Any], Awaitable[Any]]
    ) -> Any:
        """Make a call and return what the model reads.

        Args:
            part: The call in the model's response.
            tool: The tool.
            args: The arguments, which are valid.
            run_tool: Runs the tool with arguments.
        """
        self.unmade.made(part.tool_call_id)
        needs = tool.kind == "unapproved" or part.tool_call_id in self._deferred
        self._deferred.discard(part.tool_call_id)
        call = self._call_of(part.tool_name, args, requires_approval=needs)
        given = args if isinstance(args, dict) else part.args_as_dict()
        requested = RequestedCall(
            agent=self.turns.agent,
            by="model",
            name=part.tool_name,
            args={"code": call.code} if isinstance(call, CodeAction) else given,  # its title is the label
            call=call,
            tool_call_id=part.tool_call_id,
            is_begun=part.tool_call_id in self._approved,
        )

        async def work(made: RequestedCall) -> EndedCall[Any]:
            try:
                return await self._run(made, self._with_approval(made, run_tool(made.args if made.is_changed else args)))
            except ApprovalDeniedError as error:
                if error is self.turns.ended:  # the tool itself has raised it
                    raise
                return self._refused(error)

        self._approved.discard(part.tool_call_id)  # models use ids again
        try:
            ended = await make(requested, work, refused=self._refused, told=_told)
        except ApprovalDeniedError as error:
            if error is self.turns.ended or error.ends_run:
                raise
            ended = self._refused(error)  # a feature has denied it
        if (reason := self.turns.agent.run.must_end) is not None:
            self.turns.end(reason)
        self._count_repeats(requested, ended)
        return ended.value

    def failed(self, error: Exception) -> Any:
        """Return the model's text about an exception of a tool. Raises one that ends the run."""
        if isinstance(error, FATAL):
            self.turns.ended = error
            raise error
        if isinstance(error, UnexpectedModelBehavior) and isinstance(error.__cause__, ModelRetry | ValidationError):
            raise error  # its retries are used up: a result here would loop for ever
        if not is_expected(error):
            logger.warning("a tool of %s failed", self.turns.agent.label, exc_info=error)
        return model_content(ToolResult(text=f"[ERROR] {error_text(error)}", outcome="failed"))

    def approve(self, requests: DeferredToolRequests) -> DeferredToolResults | None:
        """Approve calls of tools that require approval: our gate asks about them, in every mode."""
        self._deferred.update(call.tool_call_id for call in requests.approvals)
        approved = {call.tool_call_id: True for call in requests.approvals}
        return DeferredToolResults(approvals=dict(approved)) if approved else None

    async def _with_approval(self, requested: RequestedCall, work: Awaitable[Any]) -> Any:
        """Run a tool. If it asks for approval while it runs, a person is asked, and pydantic-ai runs it again."""
        try:
            return await work
        except ApprovalRequired:
            if isinstance(requested.call, ToolCall) and not requested.call.requires_approval:
                await permit(replace(requested.call, requires_approval=True), requested)
                self._approved.add(requested.tool_call_id)
            raise

    def _refused(self, reason: Refusal) -> EndedCall[Any]:
        """Return why a call was not run, for the model; with `on_denial = "end"` a denial ends the run."""
        if isinstance(reason, ApprovalDeniedError):
            if reason.ends_run or self.turns.agent.shared.config.on_denial == "end":
                self.turns.ended = reason
                raise reason
            return EndedCall(value=ToolDenied(str(reason)), text=str(reason), outcome="denied")
        if isinstance(reason, LimitReachedError):
            self.turns.end(reason)
        result = ToolResult(text=f"[ERROR] not run: {reason}", outcome="failed")
        return EndedCall(value=model_content(result), text=result.text, outcome="failed")

    async def _run(self, requested: RequestedCall, work: Awaitable[Any]) -> EndedCall[Any]:
        """Run the tool, and bound its result or error to what the model may read."""
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
        seconds = time.monotonic() - began
        result = await bound_result(result, bounds, call_id)
        return EndedCall(value=result, text=text_of(result), outcome=outcome_of(result), seconds=seconds)

    def _count_repeats(self, requested: RequestedCall, ended: EndedCall[Any]) -> None:
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
        for toolset in self.toolsets:
            if (call := toolset.call_of(name, args)) is not None:
                return call
        given = dict(args) if isinstance(args, dict) else {"arguments": args}
        return ToolCall(tool_name=name, args=given, requires_approval=requires_approval)


def _told(made: RequestedCall, ended: EndedCall[Any], notes: Sequence[str]) -> EndedCall[Any]:
    """Return the result as the model reads it, behind the notes on it."""
    for note in filter(None, ("\n".join(notes), _changed_note(made.args["code"]) if made.is_changed else "")):
        value = with_note(ended.value, note)
        ended = replace(ended, value=value, text=text_of(value))
    return ended


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
    """Return the model's text about arguments that do not fit the tool."""
    wrong, schema = wrong_fields(error.errors()), tool.parameters_json_schema
    required = schema.get("required", ())
    names = [name if name in required else f"{name} (may be left out)" for name in schema.get("properties", {})]
    return f"{tool.name} was not called; its arguments are wrong: {wrong}. It takes: {', '.join(names) or 'none'}."


@contextmanager
def calls_noted(ids: set[str]) -> Iterator[None]:
    """Collect the id of each call that the block makes: the `tool_call_id` of events about it."""
    token = _NOTED.set(ids)
    try:
        yield
    finally:
        _NOTED.reset(token)


async def run_own_cell(
    code: str,
    prefix: str,
    agent: TreeAgent,
    kernel: Callable[[], Awaitable[Kernel]],
    context_of: Callable[[str], CellContext],
    lock: AbstractAsyncContextManager[Any] = NO_LOCK,
    *,
    is_asked: bool = True,
    may_replace_kernel: bool = False,
) -> CodeExecutionOutput:
    """Run a cell without a model, as a call with events.

    Args:
        code: The code.
        prefix: The beginning of the call's id.
        agent: The agent or the node that makes the call.
        kernel: Returns the kernel.
        context_of: Returns the context of the cell's run, from the id of the call.
        lock: Held while the cell runs.
        is_asked: Rules and people judge the cell, not only what it does.
        may_replace_kernel: A kernel that ends in the cell is no error if another one may take its place.

    Raises:
        LimitReachedError: The budget has no call left.
        ApprovalDeniedError: The call is denied.
        KernelLostError: The kernel has ended.
    """
    call_id = f"{prefix}{secrets.token_hex(8)}"
    if (ids := _NOTED.get()) is not None:
        ids.add(call_id)

    async def work(made: RequestedCall) -> EndedCall[CodeExecutionOutput]:
        async with lock:
            live = await kernel()
            output = await run_cell(made.args["code"], live, context_of(call_id))
        if live.lost_reason is not None and not (may_replace_kernel and live.may_be_replaced):
            raise KernelLostError(f"the kernel of {agent.label} is gone: {live.lost_reason}")
        outcome: Outcome = "success" if output.status == "ok" else "failed"
        return EndedCall(value=output, text=output.text, outcome=outcome)

    requested = RequestedCall(
        agent=agent,
        by="program",
        is_asked=is_asked,
        name=CELL_TOOL,
        args={"code": code},
        call=CodeAction(code=code),
        tool_call_id=call_id,
    )
    return (await make(requested, work)).value
