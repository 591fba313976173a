"""`agent_function`: a typed function whose body is an agent."""

import inspect
import textwrap
import typing
from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Any, Final, ParamSpec, TypeVar

from freeact_sub.strategies.agent_like import AgentLike

P = ParamSpec("P")
R = TypeVar("R")

PROMPT: Final = """\
You are the body of a Python function. Do what it says, for the arguments of this call, and give what it returns.

{signature}
{documentation}

Its arguments are variables in your kernel."""
NO_ARGUMENTS: Final = "It has no arguments."


def agent_function(agent: AgentLike, **options: Any) -> Callable[[Callable[P, Awaitable[R]]], Callable[P, Awaitable[R]]]:
    """Make a function whose body is an agent: each call starts a child, whose answer the function returns.

    ::

        @agent_function(agent)
        async def outliers(values: list[float], limit: float = 3.0) -> list[int]:
            "The positions of values that lie more than `limit` standard deviations from the mean."

        found = await outliers(measured)

    The child reads the signature and the docstring and finds the arguments as variables in its kernel. Its answer is
    validated as the return type; the child must correct a wrong one. The body is never run.

    Args:
        agent: Starts the children.
        options: Further options of `agent.task`, such as `agent` (a named type), `budget`, `branch`.

    Raises:
        TypeError: The function is not an `async def`, or has no docstring.
    """

    def decorate(function: Callable[P, Awaitable[R]]) -> Callable[P, Awaitable[R]]:
        name = getattr(function, "__name__", "it")
        if not inspect.iscoroutinefunction(function):
            raise TypeError(f"agent_function: {name} must be an `async def`: its calls wait for an agent")
        documentation = inspect.getdoc(function)
        if not documentation:
            raise TypeError(f"agent_function: {name} needs a docstring: the agent reads nothing else of the function")
        signature = inspect.signature(function)
        returns = typing.get_type_hints(function).get("return")

        @wraps(function)
        async def call(*args: P.args, **kwargs: P.kwargs) -> R:
            bound = signature.bind(*args, **kwargs)
            bound.apply_defaults()
            text = PROMPT.format(
                signature=f"def {name}{signature}:",
                documentation=textwrap.indent(f'"""{documentation}"""', "    "),
            )
            given = {"description": name, **options}
            if bound.arguments:
                given["inputs"] = dict(bound.arguments)
            else:
                text = text.replace(PROMPT.rpartition("\n")[2], NO_ARGUMENTS)
            if returns not in (None, type(None), str):
                given["output"] = returns
            value: R = (await agent.task(text, **given)).output
            return value

        return call

    return decorate
