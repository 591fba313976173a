"""Cells that a person, not a model, has run in the agent's kernel: under the agent's rules, its mode and its wall."""

from freeact_sub.agents.runs.loop import AgentLoop
from freeact_sub.agents.turn.own_calls import run_own_cell


async def run_user_cell(loop: AgentLoop, code: str) -> str:
    """Run a cell in a run without a model. The answer is empty: the output of the cell is among the events.

    Raises:
        LimitReachedError: The budget has no call left.
        ApprovalDeniedError: It is denied.
        KernelLostError: The kernel is lost for good.
    """
    kernel = loop.resources.kernel
    await kernel.bring_back()
    await run_own_cell(code, "user-", loop.agent, kernel.get, loop.tool_context, may_replace_kernel=True)
    return ""
