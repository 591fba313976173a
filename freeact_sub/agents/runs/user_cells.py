"""Code that a person, not a model, has run in the agent's kernel: under the agent's rules, its mode and its wall."""

import secrets

from freeact_sub.agents.call import EndedCall, RequestedCall
from freeact_sub.agents.runs.loop import AgentLoop
from freeact_sub.agents.turn.calls import make
from freeact_sub.calls import CodeAction
from freeact_sub.tools import ExecuteIPythonCell, ToolResult


async def run_user_cell(loop: AgentLoop, code: str) -> str:
    """Run a cell in a run without a model. Its answer is empty: what came of the cell is among the events."""
    await loop.resources.kernel.past.bring_back()
    await run_code(loop, code, "user-")
    return ""


async def run_code(loop: AgentLoop, code: str, prefix: str) -> EndedCall[ToolResult]:
    """Run a cell in the agent's kernel during a run, as if its model had asked for it. Args: prefix: of the call's id.

    Raises:
        LimitReachedError: The budget has no call left.
        ApprovalDeniedError: It is denied.
        KernelLostError: The kernel is lost for good.
    """
    agent, tool = loop.agent, ExecuteIPythonCell()
    call_id = f"{prefix}{secrets.token_hex(4)}"

    async def execute(_: RequestedCall) -> EndedCall[ToolResult]:
        result = await tool.run(tool.arguments(code=code), loop.tool_context(call_id))
        return EndedCall(value=result, text=result.text, outcome=result.outcome)

    requested = RequestedCall(
        agent=agent, by="program", name=tool.name, args={"code": code}, call=CodeAction(code=code), tool_call_id=call_id
    )
    return await make(requested, execute)
