"""`AgentToolset`: the built-in tools as a pydantic-ai toolset, for our agents or any pydantic-ai agent."""

import functools
import importlib.resources
import json
from collections.abc import Callable, Sequence
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from pydantic import BaseModel, TypeAdapter
from pydantic_ai import RunContext, ToolDefinition
from pydantic_ai.toolsets import AbstractToolset, ToolsetTool

from freeact_sub.calls import Call
from freeact_sub.tools.result_bounds import model_content
from freeact_sub.tools.tool import Tool, ToolContext

MAX_RETRIES = 5
"""Calls in a row that may have invalid arguments; the bound on turns applies as well."""


class AgentToolset(AbstractToolset[Any]):
    """The tools of one agent, by name."""

    def __init__(self, tools: Sequence[Tool], make_context: Callable[[str], ToolContext]) -> None:
        """Args: make_context: makes the context for a tool call id."""
        self._tools = {tool.name: tool for tool in tools}
        self._make_context = make_context

    @property
    def id(self) -> str:
        """See pydantic-ai."""
        return "freeact-sub"

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        """See pydantic-ai."""
        del ctx
        return {
            name: ToolsetTool(
                toolset=self,
                tool_def=load_definition(name),
                max_retries=MAX_RETRIES,
                args_validator=_validator(tool.arguments),
            )
            for name, tool in self._tools.items()
        }

    async def call_tool(self, name: str, tool_args: Any, ctx: RunContext[Any], tool: ToolsetTool[Any]) -> Any:
        """Runs a tool; its pictures follow its text."""
        del tool
        result = await self._tools[name].run(self._arguments(name, tool_args), self._make_context(ctx.tool_call_id or ""))
        return model_content(result)

    def call_of(self, name: str, tool_args: Any) -> Call | None:
        """The call to judge before the tool runs. None: the tool is not ours."""
        tool = self._tools.get(name)
        return None if tool is None else tool.call(self._arguments(name, tool_args))

    def _arguments(self, name: str, tool_args: Any) -> Any:
        kind = self._tools[name].arguments
        return tool_args if isinstance(tool_args, kind) else kind.model_validate(tool_args)


@functools.cache
def _validator(arguments: type[BaseModel]) -> Any:
    return TypeAdapter(arguments).validator


@functools.cache
def load_definition(name: str) -> ToolDefinition:
    """Loads `tools/NAME.json`, the model's description of a tool; a wheel has it beside this module."""
    return ToolDefinition(**json.loads((_definitions() / f"{name}.json").read_text(encoding="utf-8")))


@functools.cache
def built_in_names() -> frozenset[str]:
    """The names of all built-in tools, also of those that an agent does not have."""
    return frozenset(file.name.removesuffix(".json") for file in _definitions().iterdir() if file.name.endswith(".json"))


def _definitions() -> Traversable:
    packaged = importlib.resources.files("freeact_sub.tools") / "definitions"
    return packaged if packaged.is_dir() else Path(__file__).parents[2] / "tools"
