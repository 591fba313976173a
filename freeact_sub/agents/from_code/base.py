"""`HostRequests` dispatches requests of code in a cell. `CodeCalls` carries out the calls among them."""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from typing import Any, Final, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from freeact_sub.agents.call import acting_as, in_cell, make, permit
from freeact_sub.agents.feature import Handler
from freeact_sub.agents.requested_call import Asker, EndedCall, RequestedCall
from freeact_sub.agents.tree_agent import TreeAgent
from freeact_sub.calls import Call, ShellCommand
from freeact_sub.errors import FreeactError, InvalidRequestError
from freeact_sub.events import Decision
from freeact_sub.kernels import CellClock
from freeact_sub.text import wrong_fields
from freeact_sub.tools import head_and_tail

T = TypeVar("T")

END_SECONDS: Final = 10.0
"""Seconds to wait for cancelled calls."""
MAX_PROBLEM_CHARS: Final = 1000


class Params(BaseModel):
    """The parameters of a request, which code in a kernel has written."""

    model_config = ConfigDict(extra="forbid", strict=True, defer_build=True)


class HostRequests:
    """Replies to the requests of code in one agent's kernel."""

    def __init__(self, agent: TreeAgent) -> None:
        self._agent = agent
        self._makers: list[Callable[[], Mapping[str, Handler]]] = []
        """Make handlers, once the code asks something."""
        self._handlers: dict[str, Handler] = {}

    def add(self, make: Callable[[], Mapping[str, Handler]]) -> None:
        """Add handlers. Args: make: called when the code next asks something."""
        self._makers.append(make)

    def serve(self, agent: TreeAgent, make: Callable[[], Mapping[str, Handler]]) -> None:
        """Reply on behalf of another agent, which now owns the kernel, with these handlers alone."""
        self._agent, self._handlers, self._makers = agent, {}, [make]

    async def reply(self, method: str, params: Mapping[str, Any], clock: CellClock | None) -> Any:
        """Reply to a request of the code in the kernel."""
        while self._makers:
            self._handlers.update(self._makers.pop(0)())
        handler = self._handlers.get(method)
        if handler is None and self._agent.owner is not None:
            raise FreeactError(
                f"code in a node cannot call {method!r}, because no agent works in it: start a child with branch_of"
            )
        if handler is None:
            raise FreeactError(f"unknown request {method!r}: this agent has no feature that answers it")
        waits = nullcontext() if clock is None else in_cell(self._agent.agent_id)
        with acting_as(self._agent.principal), waits:
            return await handler(params, clock)


def new_call_id() -> str:
    """The id of a call from code."""
    return f"call-{secrets.token_hex(4)}"


class CodeCalls:
    """Carries out the calls of code in an agent's cells, if the agent has the tool."""

    def __init__(self, agent: TreeAgent) -> None:
        self.agent = agent
        self._open: set[asyncio.Task[Any]] = set()
        """The tasks of open calls."""

    async def check(self, call: Call, clock: CellClock | None) -> Decision | None:
        """Asks the rules, then perhaps a person, whether a call may be made: see `permit`."""
        decision = await permit(call, self.asker(clock))
        if isinstance(call, ShellCommand):
            self.agent.run.features.did(self.agent, call)
        return decision

    def asker(self, clock: CellClock | None) -> Asker:
        """The code that asks."""
        return Asker(agent=self.agent, by="code", tool_call_id=tool_call_id_of(clock), clock=clock)

    async def carry_out(
        self,
        name: str,
        call: Call,
        args: Mapping[str, Any],
        clock: CellClock | None,
        work: Callable[[], Awaitable[EndedCall[T]]],
        call_id: str = "",
    ) -> T:
        """Carry out a call as if the model had made it, and return the value for the code: see `make`.

        Raises:
            FreeactError: The call is denied or fails.
        """
        limit = self.agent.shared.config.kernel.output_chars

        async def run(_: RequestedCall) -> EndedCall[T]:
            ended = await work()
            return replace(ended, text=head_and_tail(ended.text, limit))

        requested = RequestedCall(
            agent=self.agent,
            by="code",
            name=name,
            args=dict(args),
            call=call,
            tool_call_id=tool_call_id_of(clock),
            clock=clock,
            call_id=call_id or new_call_id(),
        )
        with self._open_call():
            return (await make(requested, run)).value

    @contextmanager
    def _open_call(self) -> Iterator[None]:
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("there is no asyncio task")
        self._open.add(task)
        try:
            yield
        finally:
            self._open.discard(task)

    async def end(self) -> None:
        """Cancel open calls and wait until they have ended, because their run ends."""
        tasks = set(self._open)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=END_SECONDS)


def validated(validate: Callable[[Any], T], params: Any, what: str) -> T:
    """Validate the parameters of a request.

    Args:
        validate: A pydantic validation.
        params: The parameters.
        what: Begins the message of the error.

    Raises:
        InvalidRequestError: Parameters are invalid; the message names them.
    """
    try:
        return validate(params)
    except ValidationError as error:
        raise InvalidRequestError(f"{what}: {wrong_fields(error.errors())[:MAX_PROBLEM_CHARS]}") from error


def paused(clock: CellClock | None) -> AbstractContextManager[None]:
    """Stop the clock of the requesting cell, if there is one, during work that has a limit of its own."""
    return nullcontext() if clock is None else clock.paused()


def tool_call_id_of(clock: CellClock | None) -> str | None:
    """Return the id of the requesting cell's call."""
    return clock.tool_call_id if clock is not None else None
