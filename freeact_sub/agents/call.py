"""`make`: the life of a tool call, whoever makes it; `permit`: whether something may be done.

It emits ToolCallStarted, counts the call, has rules and if need be a person judge it, runs it, and emits ToolOutput.

A context variable names the agents on whose behalf the present code runs. A user's tool, a `ChildAgent` or a capability may
call the SDK. The children that they start belong to the agent that runs them, and that agent counts as waiting; otherwise it
would hold its slot while it waits for children that queue for one. The variable follows `await`, `asyncio.create_task`,
`gather`, `asyncio.to_thread` and `run_coroutine_threadsafe`, but not a thread made by hand, which needs
`contextvars.copy_context().run`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final, Literal, TypeAlias, TypeVar

from pydantic_ai.exceptions import ApprovalRequired, CallDeferred, ModelRetry, ToolFailed, ToolFailedError, ToolRetryError

from freeact_sub import events as ev
from freeact_sub.agents.choices import with_model_named
from freeact_sub.agents.life import TreeAgent, tree_agent
from freeact_sub.agents.requested_call import Asker, EndedCall, RequestedCall, Work
from freeact_sub.agents.shared import Shared, no_kernel_left
from freeact_sub.calls import Call, SpawnCall
from freeact_sub.errors import ApprovalDeniedError, FreeactError, LimitReachedError, SpawnForbiddenError
from freeact_sub.tools import head_and_tail, text_of

T = TypeVar("T")

Refusal: TypeAlias = LimitReachedError | SpawnForbiddenError | ApprovalDeniedError
"""Why a call is not run."""

NOT_OVER: Final = (ModelRetry, ToolRetryError, ApprovalRequired, CallDeferred)
"""Errors after which the model or pydantic-ai repeats the call; `UnmadeCalls` reports what the model reads."""
_AT_WORK: Final[ContextVar[tuple[TreeAgent, ...]]] = ContextVar("freeact_sub_agents_at_work", default=())
"""Outermost first; of several roots if a tool of one runs another."""

_IN_CELLS: Final[ContextVar[frozenset[str]]] = ContextVar("freeact_sub_in_cells", default=frozenset())
"""The agents and nodes whose kernels run a cell that waits for the present code."""


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
    """Whether a cell in this agent's kernel waits for the present code."""
    return agent_id in _IN_CELLS.get()


async def make(
    requested: RequestedCall,
    work: Work[T],
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
        SpawnForbiddenError: It would start a child, and none may be started.
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
        The decision, perhaps with the code that the person wants to run instead. None: it may be done as it is.

    Raises:
        SpawnForbiddenError: It would start a child, and none may be started.
        ApprovalDeniedError: It is denied.
    """
    agent = tree_agent(asker.agent)
    if isinstance(call, SpawnCall):
        call = with_model_named(call, agent)
    if asker.by == "code":
        agent.rights.check(call)
    if isinstance(call, SpawnCall):
        check_spawn(agent)
    decision = await agent.shared.gate.check(call, asker)
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
    """Return a function that asks on behalf of an agent, in whichever run of it is live then: see `permit`."""

    async def ask(call: Call) -> ev.Decision | None:
        return await permit(call, Asker(agent=agent))

    return ask


def _notes(made: RequestedCall, ended: EndedCall[Any]) -> list[str] | None:
    """The notes that the model reads with a result. None: it is that of code, and it reads them with that of the cell."""
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
    """Count a call, and have it judged; return it as a person wants it."""
    tree_agent(requested.agent).run.account.take_tool_call()
    decision = await permit(requested.call, requested) if requested.is_asked else None
    return requested.with_code(None if decision is None else decision.code)


def _report(requested: RequestedCall, text: str, outcome: Literal["success", "failed", "denied"]) -> None:
    output = ev.ToolOutput(
        tool_name=requested.name, content=text, outcome=outcome, call_id=requested.call_id, label=requested.label
    )
    requested.agent.emitter.put(output, tool_call_id=requested.tool_call_id)  # an ending does not wait for the reader


def error_text(error: Exception) -> str:
    """Returns the text of an error, with the type of foreign ones."""
    return str(error) if isinstance(error, FreeactError) else f"{type(error).__name__}: {error}"
