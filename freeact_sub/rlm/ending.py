"""Ends an agent's run when code in its kernel has handed over the answer."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Final

from pydantic_ai import RunContext, ToolDefinition
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.result import FinalResult
from pydantic_graph import End

from freeact_sub.cells import CELL_TOOL

_FINAL: Final = re.compile(r"\s*FINAL(?P<var>_VAR)?\((?P<content>.*)\)\s*", re.DOTALL)
"""An answer in the form of the paper, outside of code."""
_IN_CODE: Final = "Write this call into a block that is marked ```repl: only code is run."


@dataclass(kw_only=True)
class AnswersFromCode(AbstractCapability[Any]):
    """Of the root and all below it: a run ends after the cell that has handed over an answer."""

    agent_id: Callable[[], str]
    """The id of the agent on whose behalf this is called."""
    answers: dict[str, str] = field(default_factory=dict)
    """By the id of the agent."""

    async def prepare_tools(self, ctx: RunContext[Any], tool_defs: list[ToolDefinition]) -> list[ToolDefinition]:
        """See pydantic-ai. The model acts by code alone: fewer tools are fewer tokens in each request."""
        del ctx
        return [tool for tool in tool_defs if tool.name == CELL_TOOL]

    async def after_node_run(self, ctx: RunContext[Any], *, node: Any, result: Any) -> Any:
        """See pydantic-ai."""
        del node
        if not isinstance(result, End):
            answer = self.answers.pop(self.agent_id(), None)
            return result if answer is None else End(FinalResult(output=answer))
        written = _FINAL.fullmatch(result.data.output) if isinstance(result.data.output, str) else None
        if written is None:
            return result
        if written["var"]:
            ctx.enqueue(_IN_CODE)
            return result
        return End(replace(result.data, output=written["content"].strip().strip("\"'")))
