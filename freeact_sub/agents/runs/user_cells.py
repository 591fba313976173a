"""`UserCells`: the method of `Agent` that runs a person's own code in the agent's kernel."""

import secrets
from abc import ABC, abstractmethod

from freeact_sub.agents.children.spawn import Work
from freeact_sub.agents.runs.loop import AgentLoop
from freeact_sub.agents.runs.results import NO_BOUNDS
from freeact_sub.agents.runs.run import Run
from freeact_sub.agents.turn.calls import EndedCall, RequestedCall, ToolCalls
from freeact_sub.calls import CodeAction
from freeact_sub.config.budget import Budget
from freeact_sub.tools import ExecuteIPythonCell, ToolResult


class UserCells(ABC):
    """A person's code stands under the rules, the mode and the wall of the agent."""

    def run_cell(self, code: str) -> Run:
        """Begin a run in which no model works, and a cell is run in the agent's kernel, as if its model had asked for it.

        It is asked about and denied like a cell of the model's. The model reads nothing of it; what came of it is the
        `CodeExecutionOutput` among the events.

        Args:
            code: Of the cell; `!command` runs a command.

        Raises:
            AgentBusyError: The agent's present run has not ended.
            FreeactError: The agent is not open: use `async with`.
        """
        loop = self._opened
        node, tool = loop.node, ExecuteIPythonCell()

        async def run() -> str:
            call = CodeAction(code=code)
            requested = RequestedCall(
                name=tool.name, args={"code": code}, call=call, tool_call_id=f"user-{secrets.token_hex(4)}"
            )

            async def execute() -> EndedCall[ToolResult]:
                with node.shared.file_attribution.at_work(node.run.files.key):
                    result = await tool.run(tool.arguments(code=code), loop.tool_context(requested.tool_call_id or ""))
                return EndedCall(value=result, text=result.text, outcome=result.outcome)

            await ToolCalls(node).make(requested, execute)
            return ""

        return self._begin(Work(prompt=code, program=run), NO_BOUNDS)

    @property
    @abstractmethod
    def _opened(self) -> AgentLoop: ...

    @abstractmethod
    def _begin(self, work: Work, budget: Budget) -> Run: ...
