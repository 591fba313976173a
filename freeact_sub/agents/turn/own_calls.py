"""Cells that no model asks for: of the program's own code, such as `agent.execute`, or of a person.

Whoever makes them may note the ids of their calls.
"""

import secrets
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any, Final

from freeact_sub.agents.call import make
from freeact_sub.agents.requested_call import EndedCall, RequestedCall
from freeact_sub.agents.tree_agent import TreeAgent
from freeact_sub.calls import CodeAction
from freeact_sub.cells import CELL_TOOL
from freeact_sub.errors import KernelLostError
from freeact_sub.events import CodeExecutionOutput
from freeact_sub.kernels import Kernel
from freeact_sub.tools import CellContext, Outcome, run_cell

NO_LOCK: Final = nullcontext()
_NOTED: Final[ContextVar[set[str] | None]] = ContextVar("freeact_sub_own_calls", default=None)


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
