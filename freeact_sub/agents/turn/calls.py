"""`ToolCalls`: the life of a tool call, whether the model or code in a cell makes it.

It emits ToolCallStarted, counts the call, has rules and if need be a person judge it, runs it, and emits ToolOutput.

A context variable names the agents on whose behalf the present code runs. A user's tool, a `ChildAgent` or a capability may
call the SDK. The children that they start belong to the agent that runs them, and that agent counts as waiting; otherwise it
would hold its slot while it waits for children that queue for one. The variable follows `await`, `asyncio.create_task`,
`gather`, `asyncio.to_thread` and `run_coroutine_threadsafe`, but not a thread made by hand, which needs
`contextvars.copy_context().run`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from functools import partial
from typing import ClassVar, Final, Literal, TypeAlias, TypeVar

from pydantic_ai.exceptions import ApprovalRequired, CallDeferred, ModelRetry, ToolFailed, ToolFailedError, ToolRetryError

from freeact_sub.agents.call import EndedCall, Maker, RequestedCall
from freeact_sub.agents.children.type_effects import check_spawn, with_model_named
from freeact_sub.agents.shared import Shared
from freeact_sub.agents.tree_agent import TreeAgent
from freeact_sub.calls import Call, SpawnCall
from freeact_sub.errors import ApprovalDeniedError, FreeactError, LimitReachedError, SpawnForbiddenError
from freeact_sub.events import ToolCallStarted, ToolOutput
from freeact_sub.kernels import CellClock
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


class ToolCalls:
    """Makes the calls of one agent."""

    by: ClassVar[Maker] = "model"
    """Who makes them."""
    tries: ClassVar[bool] = True
    """A cell may be tried in a copy of the agent's kernel while a person is asked."""
    reports_cancel: ClassVar[bool] = False
    """Cancelled calls are reported. The model's are not: the run ends with them and reports its own end."""

    def __init__(self, agent: TreeAgent) -> None:
        self.agent = agent

    async def make(
        self,
        requested: RequestedCall,
        run: Callable[[], Awaitable[EndedCall[T]]],
        *,
        refused: Callable[[Refusal], EndedCall[T]] | None = None,
        on_changed: Callable[[str], None] = lambda _: None,
        told: Callable[[EndedCall[T], Sequence[str]], EndedCall[T]] = lambda ended, _: ended,
        again: bool = False,
    ) -> EndedCall[T]:
        """Emits ToolCallStarted, counts the call, asks for approval, runs it, emits ToolOutput.

        Features stand around its run, the first one outermost.

        Args:
            requested: The call.
            run: Runs it.
            refused: Makes the result of a refused call. None: the reason is raised.
            on_changed: Called before `run` with the code that a person wants to run instead.
            told: Adds the notes of features to the result that the model reads.
            again: Its tool began it, and runs again because a person has approved it meanwhile: only the rest remains.

        Raises:
            LimitReachedError: The budget has no call left.
            SpawnForbiddenError: It would start a child, and none may be started.
            ApprovalDeniedError: The call is denied.
        """
        await self._start(requested, again)
        try:
            try:
                changed = await self._admit(requested, again)
            except (LimitReachedError, SpawnForbiddenError, ApprovalDeniedError) as error:
                if refused is None:
                    raise
                ended = refused(error)
            else:
                if changed is not None:
                    on_changed(changed)
                made = requested.with_code(changed)
                ended = self._told(made, await self.agent.run.features.call(made, run), told)
        except NOT_OVER:
            raise
        except asyncio.CancelledError:
            if self.reports_cancel:
                self._report(requested, "cancelled", "failed")
            raise
        except (ToolFailed, ToolFailedError) as error:  # a user's tool asks for a retry; its text is bounded already
            text = error.message if isinstance(error, ToolFailed) else text_of(error.tool_failed.content)
            self._report(requested, text, "failed")
            raise
        except Exception as error:  # border: front ends show any error, and the caller gets it
            text = head_and_tail(error_text(error), self.agent.shared.config.kernel.output_chars)
            self._report(requested, text, "denied" if isinstance(error, ApprovalDeniedError) else "failed")
            raise
        self._report(requested, ended.text, ended.outcome)
        return ended

    def _told(
        self, made: RequestedCall, ended: EndedCall[T], told: Callable[[EndedCall[T], Sequence[str]], EndedCall[T]]
    ) -> EndedCall[T]:
        """Hand the notes of features on to the model: those on a call of code, with the result of its cell."""
        notes = self.agent.run.cell_notes
        if made.by == "code":
            notes.setdefault(made.tool_call_id, []).extend(ended.notes)
            return ended
        return told(ended, [*dict.fromkeys((*notes.pop(made.tool_call_id, ()), *ended.notes))])

    async def _start(self, requested: RequestedCall, again: bool) -> None:
        if again:
            return
        started = ToolCallStarted(
            tool_name=requested.name, args=requested.args, call_id=requested.call_id, label=requested.label
        )
        await self.agent.emitter.emit(started, tool_call_id=requested.tool_call_id)

    async def _admit(self, requested: RequestedCall, again: bool) -> str | None:
        """Counts a call, and has it judged; returns what `ask_for` returns."""
        if again:
            return None
        self.agent.run.account.take_tool_call()
        return await self.ask_for(requested.call, requested.tool_call_id, requested.clock)

    async def ask_for(self, call: Call, tool_call_id: str | None = None, clock: CellClock | None = None) -> str | None:
        """Asks the rules, then perhaps a person, whether a call may be made. Meanwhile the clocks of run and cell stop.

        Returns:
            The code that the person wants to run instead. None: unchanged.

        Raises:
            SpawnForbiddenError: It would start a child, and none may be started.
            ApprovalDeniedError: The call is denied.
        """
        agent = self.agent
        if isinstance(call, SpawnCall):
            call = with_model_named(call, agent)
        self._check_allowed(call)
        decision = await agent.shared.gate.check(
            call,
            agent.present_policy,
            agent.emitter,
            path=agent.path,
            tool_call_id=tool_call_id,
            pause=self._paused(clock),
            advisers=agent.run.features.advisers(agent, tool_call_id),
            try_out=partial(agent.run.features.try_out, agent) if self.tries else None,
        )
        if call.acts_outside:
            agent.run.note_outside_action()
        return None if decision is None else decision.code

    def _check_allowed(self, call: Call) -> None:
        if isinstance(call, SpawnCall):
            check_spawn(self.agent)

    @contextmanager
    def _paused(self, clock: CellClock | None) -> Iterator[None]:
        with self.agent.run.clocks_paused(), clock.paused() if clock is not None else nullcontext():
            yield

    def _report(self, requested: RequestedCall, text: str, outcome: Literal["success", "failed", "denied"]) -> None:
        output = ToolOutput(
            tool_name=requested.name, content=text, outcome=outcome, call_id=requested.call_id, label=requested.label
        )
        self.agent.emitter.put(output, tool_call_id=requested.tool_call_id)  # an ending does not wait for the reader


def error_text(error: Exception) -> str:
    """Returns the text of an error, with the type of foreign ones."""
    return str(error) if isinstance(error, FreeactError) else f"{type(error).__name__}: {error}"
