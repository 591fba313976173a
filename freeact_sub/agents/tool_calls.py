"""Makers of tool calls: `ModelCalls` for the model, `run_own_cell` for programs and people. All calls go through `make`.

`Repeats` notices a model that goes in circles.
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
from typing import TYPE_CHECKING, Any, Final

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

from freeact_sub.agents.call import Refusal, error_text, make, permit
from freeact_sub.agents.life import TreeAgent
from freeact_sub.agents.requested_call import EndedCall, RequestedCall
from freeact_sub.agents.upstream import UnmadeCalls
from freeact_sub.calls import Call, CodeAction, ToolCall
from freeact_sub.cells import CELL_TOOL
from freeact_sub.errors import ApprovalDeniedError, KernelLostError, LimitReachedError
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
    model_content,
    outcome_of,
    run_cell,
    text_of,
    with_note,
    without_files,
)

if TYPE_CHECKING:
    from freeact_sub.agents.turn import Turns

NO_LOCK: Final = nullcontext()
_NOTED: Final[ContextVar[set[str] | None]] = ContextVar("freeact_sub_own_calls", default=None)


class Repeats:
    """Notices a model that goes in circles.

    It counts the same call with the same result in consecutive responses; errors are the same if their last lines are.
    Parallel calls in one response count once: asking five children the same question is a vote, not a circle. A call whose
    result changes does not count, nor does one that waits: to check every half minute whether a file exists is legitimate.
    """

    def __init__(self) -> None:
        self._known: tuple[str, str, str] | None = None
        self._turn = -1
        self._times = 0

    def count(self, turn: int, tool: str, args: Mapping[str, Any], text: str, *, failed: bool, seconds: float = 0.0) -> int:
        """Counts a call with its result.

        Args:
            turn: The number of the response that made it.
            tool: The tool's name.
            args: Its arguments.
            text: Its result.
            failed: The result is an error.
            seconds: How long it took.

        Returns:
            How many times in a row the same has now happened. 0: the call waited for something.
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
    """Returns the advice for a model that goes in circles."""
    what = "error" if failed else "result"
    other = "read the error, change what it names, or try another way" if failed else "use this result, or try another way"
    return (
        f"[NOTE] You have made this call, with the same {what}, {times} times in a row. Once more, and the run ends. "
        f"Do something else: {other}; print what you do not know; or answer now with what you have."
    )


def _last_line(text: str) -> str:
    lines = [line for line in text.strip().splitlines() if line.strip()]
    return _ADDRESS.sub("#", lines[-1]) if lines else "(no text)"


logger = logging.getLogger(__name__)

MAX_CHANGED_CHARS: Final = 8_000
"""Characters of code changed by a person that the model reads."""

FATAL: Final = (LimitReachedError, KernelLostError, ApprovalDeniedError)
"""Errors of a tool that end the run; the model reads all others as results."""
WAITED_SECONDS: Final = 5.0
"""A call that takes longer has waited for something and is not a repetition."""

_SLEEPS: Final = re.compile(r"\bsleep\s*\(|(?:^|[\s!;&|])sleep\s+[\d.]", re.MULTILINE)
"""Code that sleeps, in Python or in a shell."""
_ADDRESS: Final = re.compile(r"0x[0-9a-f]+")
"""Memory addresses, which do not distinguish errors."""


@dataclass(kw_only=True)
class ModelCalls:
    """Makes every call of the model in one run, including those of a user's tools."""

    turns: "Turns"
    toolsets: Sequence[JudgedToolset]
    """Those that know what a call of them is: the built-in tools, and those of features."""
    unmade: UnmadeCalls = field(init=False)
    _repeats: Repeats = field(default_factory=Repeats, init=False)
    _deferred: set[str] = field(default_factory=set, init=False)
    """Ids of calls that need approval by what the tool says before it runs."""
    _approved: set[str | None] = field(default_factory=set, init=False)
    """Ids of calls that a person approved when the tool said so while it ran: it runs again."""

    def __post_init__(self) -> None:
        self.unmade = UnmadeCalls(agent=self.turns.agent)

    async def make(
        self, part: ToolCallPart, tool: ToolDefinition, args: Any, run_tool: Callable[[Any], Awaitable[Any]]
    ) -> Any:
        """Make a call and return what the model reads.

        Args:
            part: The call in the model's response.
            tool: The tool.
            args: Its arguments, which are valid.
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
        ended = await make(requested, work, refused=self._refused, told=_told)
        if (reason := self.turns.agent.run.must_end) is not None:
            self.turns.end(reason)
        self._count_repeats(requested, ended)
        return ended.value

    def failed(self, error: Exception) -> Any:
        """Return what the model reads of an exception of a tool. Raises one that ends the run."""
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
        """Runs a tool. If it asks for approval while it runs, a person is asked, and pydantic-ai runs it again."""
        try:
            return await work
        except ApprovalRequired:
            if isinstance(requested.call, ToolCall) and not requested.call.requires_approval:
                await permit(replace(requested.call, requires_approval=True), requested)
                self._approved.add(requested.tool_call_id)
            raise

    def _refused(self, reason: Refusal) -> EndedCall[Any]:
        """Returns why a call was not run, for the model; with `on_denial = "end"` a denial ends the run."""
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
        """Runs the tool, and bounds its result or error to what the model may read."""
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
        for toolset in self.toolsets:
            if (call := toolset.call_of(name, args)) is not None:
                return call
        given = dict(args) if isinstance(args, dict) else {"arguments": args}
        return ToolCall(tool_name=name, args=given, requires_approval=requires_approval)


def _told(made: RequestedCall, ended: EndedCall[Any], notes: Sequence[str]) -> EndedCall[Any]:
    """The result as the model reads it, behind the notes on it."""
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
    """Returns what the model reads about arguments that do not fit the tool."""
    wrong, schema = wrong_fields(error.errors()), tool.parameters_json_schema
    required = schema.get("required", ())
    names = [name if name in required else f"{name} (may be left out)" for name in schema.get("properties", {})]
    return f"{tool.name} was not called; its arguments are wrong: {wrong}. It takes: {', '.join(names) or 'none'}."


@contextmanager
def calls_noted(ids: set[str]) -> Iterator[None]:
    """Add the id of each call that the block makes. Events about a call have it as their `tool_call_id`."""
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
        code: Its code.
        prefix: The beginning of the call's id.
        agent: The agent or the node that makes the call.
        kernel: Returns the kernel.
        context_of: Returns the context of the cell's run, from the id of the call.
        lock: Held while the cell runs.
        is_asked: Rules and people judge the cell, not only what it does.
        may_replace_kernel: A kernel that ends in the cell is no error if another one may take its place.

    Raises:
        LimitReachedError: The budget has no call left.
        ApprovalDeniedError: It is denied.
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
