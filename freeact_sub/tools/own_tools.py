"""Functions of the program as tools (`OwnTools`): models call them as their own, code in cells by `agent.tools`."""

import asyncio
import inspect
import logging
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final

from pydantic import ValidationError
from pydantic_ai import FunctionToolset, RunContext, ToolDefinition, ToolReturn
from pydantic_ai import Tool as FunctionTool
from pydantic_ai.exceptions import ApprovalRequired, CallDeferred, ModelRetry, ToolFailed, UserError
from pydantic_ai.toolsets import AbstractToolset, ToolsetTool

from freeact_sub.errors import ConfigError, FreeactError, InvalidRequestError
from freeact_sub.text import wrong_fields
from freeact_sub.tools.tool import built_in_names

NOT_IN_CELLS: Final = "code in a cell cannot call the tool {name}: it is carried out elsewhere, later"

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class OwnTools:
    """The functions that a program gives its agents."""

    toolset: FunctionToolset[Any] | None = None
    """The functions, if there are any."""
    deps: Any = field(default=None, repr=False)
    """The value of `RunContext.deps`."""

    @property
    def toolsets(self) -> Sequence[AbstractToolset[Any]]:
        """The toolsets of a model's turns."""
        return () if self.toolset is None else (self.toolset,)

    @cached_property
    def names(self) -> Sequence[str]:
        """The names of the tools."""
        return () if self.toolset is None else tuple(self.toolset.tools)

    async def definitions(self, context: RunContext[Any]) -> list[ToolDefinition]:
        """Return the present tools, with their descriptions and schemas."""
        return [tool.tool_def for tool in (await self._tools(context)).values()]

    async def prepare(self, name: str, args: Mapping[str, Any], context: RunContext[Any]) -> "OwnCall":
        """Return a call whose arguments are valid.

        Raises:
            InvalidRequestError: There is no such tool, it cannot be called from code, or arguments are wrong.
        """
        tool = (await self._tools(context)).get(name)
        if tool is None:
            raise InvalidRequestError(f"agent.tools has no {name!r}; it has: {', '.join(self.names) or 'nothing'}")
        if tool.tool_def.kind not in ("function", "unapproved"):
            raise InvalidRequestError(NOT_IN_CELLS.format(name=name))
        context = replace(context, tool_name=name, max_retries=tool.max_retries)
        try:
            valid = tool.args_validator.validate_python(dict(args), context=context.validation_context)
            if tool.args_validator_func is not None and inspect.isawaitable(
                found := tool.args_validator_func(context, **valid)
            ):
                await found
        except ValidationError as error:
            raise InvalidRequestError(f"agent.tools.{name}: {wrong_fields(error.errors())}") from error
        except ModelRetry as error:
            raise InvalidRequestError(f"agent.tools.{name}: {error.message}") from error
        except ApprovalRequired:
            return OwnCall(tool, valid, context, needs_approval=True)
        except CallDeferred:
            raise InvalidRequestError(NOT_IN_CELLS.format(name=name)) from None
        return OwnCall(tool, valid, context, needs_approval=tool.tool_def.kind == "unapproved")

    async def _tools(self, context: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        return {} if self.toolset is None else await self.toolset.get_tools(context)


@dataclass(frozen=True)
class OwnCall:
    """A call of a tool by code in a cell."""

    tool: ToolsetTool[Any]
    args: dict[str, Any]
    context: RunContext[Any]
    needs_approval: bool
    """Whether a person must agree, whatever mode and rules say."""

    async def run(self, *, approved: bool) -> Any:
        """Run the tool and return its value.

        Raises:
            ApprovalRequired: The tool says that a person must agree.
            InvalidRequestError: The tool asks for other arguments.
            FreeactError: The tool has failed.
        """
        name, context = self.tool.tool_def.name, replace(self.context, tool_call_approved=approved)
        try:
            value = await self.tool.toolset.call_tool(name, self.args, context, self.tool)
        except ApprovalRequired:
            if approved:
                raise FreeactError(f"the tool {name} asks for approval again and again") from None
            raise
        except CallDeferred:
            raise InvalidRequestError(NOT_IN_CELLS.format(name=name)) from None
        except (ModelRetry, ToolFailed) as error:
            raise InvalidRequestError(f"agent.tools.{name}: {error.message}") from error
        except FreeactError:
            raise
        except asyncio.CancelledError:
            if (task := asyncio.current_task()) is not None and task.cancelling():
                raise
            raise FreeactError(f"the tool {name} cancelled itself") from None
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # border: a program's function may raise anything
            logger.warning("the tool %s failed", name, exc_info=True)
            raise FreeactError(f"the tool {name} failed: {type(error).__name__}: {error}") from error
        return value.return_value if isinstance(value, ToolReturn) else value


def make_own_tools(tools: Sequence[FunctionTool[Any] | Callable[..., Any]], deps: Any) -> OwnTools:
    """Make tools of functions.

    Raises:
        ConfigError: One cannot be a tool, or has the name of another; the message names it.
    """
    if not tools:
        return OwnTools(deps=deps)
    toolset: FunctionToolset[Any] = FunctionToolset()
    for tool in tools:
        name = tool.name if isinstance(tool, FunctionTool) else getattr(tool, "__name__", repr(tool))
        if not isinstance(tool, FunctionTool) and not callable(tool):
            raise ConfigError(f"tools: {name} is neither a function nor a Tool of pydantic-ai")
        if name in built_in_names():
            raise ConfigError(f"tools: {name!r} is the name of a built-in tool: give yours another one")
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # it may return a frame, of which there is no schema
                toolset.add_tool(tool) if isinstance(tool, FunctionTool) else toolset.add_function(tool)
        except (UserError, TypeError, ValueError, NameError) as error:
            raise ConfigError(f"tools: {name!r} cannot be a tool: {error}") from error
        except Exception as error:  # border: pydantic fails in many ways on a foreign signature
            raise ConfigError(f"tools: {name!r} cannot be a tool: {type(error).__name__}: {error}") from error
    return OwnTools(toolset, deps)
