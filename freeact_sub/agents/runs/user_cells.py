"""`UserCells`: the method of `Agent` that runs a person's own code in the agent's kernel."""

import secrets

from freeact_sub.agents.agent_base import AgentBase
from freeact_sub.agents.children.spawn import Work
from freeact_sub.agents.runs.loop import AgentLoop
from freeact_sub.agents.runs.results import NO_BOUNDS
from freeact_sub.agents.runs.run import Run
from freeact_sub.agents.turn.calls import EndedCall, RequestedCall, ToolCalls
from freeact_sub.calls import CodeAction
from freeact_sub.tools import ExecuteIPythonCell, ToolResult


class UserCells(AgentBase):
    """A person's code stands under the rules, the mode and the wall of the agent."""

    def run_cell(self, code: str) -> Run[str]:
        """Begin a run in which no model works, and a cell is run in the agent's kernel, as if its model had asked for it.

        It is asked about and denied like a cell of the model's. The model reads nothing of it; what came of it is the
        `CodeExecutionOutput` among the events.

        Args:
            code: The code of the cell; `!command` runs a command.

        Raises:
            AgentBusyError: The agent's present run has not ended.
            FreeactError: The agent is not open: use `async with`.
        """
        loop = self._opened

        async def run() -> str:
            await loop.bring_back()
            await run_code(loop, code, "user-")
            return ""

        return self._begin(Work(prompt=code, program=run), NO_BOUNDS)


async def run_code(loop: AgentLoop, code: str, prefix: str) -> EndedCall[ToolResult]:
    """Run a cell in the agent's kernel during a run, as if its model had asked for it. Args: prefix: of the call's id.

    Raises:
        LimitReachedError: The budget has no call left.
        ApprovalDeniedError: It is denied.
        KernelLostError: The kernel is lost for good.
    """
    node, tool = loop.node, ExecuteIPythonCell()
    call_id = f"{prefix}{secrets.token_hex(4)}"

    async def execute() -> EndedCall[ToolResult]:
        with node.shared.file_attribution.at_work(node.run.files.key):
            result = await tool.run(tool.arguments(code=code), loop.tool_context(call_id))
        return EndedCall(value=result, text=result.text, outcome=result.outcome)

    requested = RequestedCall(name=tool.name, args={"code": code}, call=CodeAction(code=code), tool_call_id=call_id)
    return await ToolCalls(node).make(requested, execute)
