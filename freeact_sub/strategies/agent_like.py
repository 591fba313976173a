"""`AgentLike`: the methods that a strategy needs of an agent. `Member`: one voice in a vote, a debate, a mixture or a plan.

`parallel` and `pipeline` work concurrently, with each failure in its place. `Progress` is an agent in the hands of a
strategy, which reports each step: a request, a child, a state of a search. `agent_function` makes a typed function whose
body is an agent.
"""

import asyncio
import contextlib
import dataclasses
import inspect
import json
import secrets
import textwrap
import typing
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import wraps
from types import TracebackType
from typing import Any, Final, ParamSpec, Protocol, Self, TypeAlias, TypeVar

from freeact_sub.errors import StrategyError
from freeact_sub.strategies.trees import SearchNode

T = TypeVar("T")

Stage: TypeAlias = Callable[[Any], Awaitable[Any]]
"""A function of the previous stage's return value."""
CHARS: Final = 300
"""Characters of an action and of a reason that a step has."""
P = ParamSpec("P")
R = TypeVar("R")

PROMPT: Final = """\
You are the body of a Python function. Do what it says, for the arguments of this call, and give what it returns.

{signature}
{documentation}

Its arguments are variables in your kernel."""
NO_ARGUMENTS: Final = "It has no arguments."


async def parallel(thunks: Iterable[Callable[[], Awaitable[T]]]) -> list[T | Exception]:
    """Call all functions concurrently, and wait for all of them.

    `subagents.max_concurrent` and `traffic.max_concurrent` bound how many children and requests work at a time; more wait.

    Args:
        thunks: Async functions without arguments, each called once.

    Returns:
        One item for each, in order: its return value or its exception; a StrategyError if it was cancelled by itself.
    """
    thunks = [*thunks]  # else what iterating raises would come from within the group

    async def one(thunk: Callable[[], Awaitable[T]]) -> T | Exception:
        try:
            return await thunk()
        except Exception as error:  # noqa: BLE001  # border: one failure must not affect the others
            return error

    # not gather: when cancelled, it does not wait for its tasks to end
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one(thunk)) for thunk in thunks]
    return [StrategyError("it was cancelled") if task.cancelled() else task.result() for task in tasks]


async def pipeline(items: Iterable[Any], *stages: Stage) -> list[Any]:
    """Take every item through all stages, without items waiting for each other.

    Args:
        items: The arguments of the first stage.
        stages: Async functions of one argument, in order.

    Returns:
        One item for each, in order: the last stage's return value, or the exception of the stage that failed, which ends the
        item's way.
    """

    async def through(item: Any) -> Any:
        for stage in stages:
            item = await stage(item)
        return item

    return await parallel([lambda item=item: through(item) for item in items])  # type: ignore[misc]  # binds each item


class AgentLike(Protocol):
    """The methods that a strategy needs of an agent: an `Agent` in a program, `agent` in a cell, or a fake in a test."""

    def ask(
        self,
        prompt: str,
        *,
        model: str | None = None,
        output: Any = None,
        history: Sequence[str] = (),
        label: str = "",
    ) -> Awaitable[Any]:
        """Make one model request, without tools.

        Args:
            prompt: The only text that the model reads besides the history.
            model: A name in the setting `models`. None: the agent's own.
            output: The type of the answer. None: text.
            history: Earlier prompts and answers, alternating.
            label: The name that people read.
        """
        ...

    def task(self, prompt: str, **options: Any) -> Awaitable[Any]:
        """Start a child and wait for its end; return a value with `output`, `status` and `agent_id`.

        Args:
            prompt: The child's task.
            options: Such as `description`, `inputs`, `output`, `agent` (a named type), `budget`, `branch`.

        Raises:
            Exception: The child did not complete.
        """
        ...


@dataclass(frozen=True, kw_only=True)
class Member:
    """A voice that answers by one model request or, with `acts`, as a child agent that runs code."""

    name: str = ""
    """The name for the other members and in events."""
    role: str = ""
    """Text before each question, such as `You are a sceptic.`"""
    model: str | None = None
    """A name in the setting `models`. None: the agent's own. A child has the model of its type."""
    acts: bool = False
    """Whether the member is a child agent, with a kernel and tools."""
    agent_type: str | None = None
    """The named type of the child."""

    def __post_init__(self) -> None:
        if self.model is not None and (self.acts or self.agent_type is not None):
            raise ValueError("a Member that acts uses the model of its agent type: give `agent_type` instead of `model`")

    async def answer(self, agent: AgentLike, prompt: str, *, output: Any = None, history: Sequence[str] = ()) -> Any:
        """Return the member's answer.

        Args:
            agent: Asks, or starts the child.
            prompt: The question.
            output: The type of the answer. None: text.
            history: Its earlier prompts and answers, alternating.

        Raises:
            Exception: It gave no answer.
        """
        told = f"{self.role}\n\n{prompt}" if self.role and not history else prompt
        if not self.acts and self.agent_type is None:
            return await agent.ask(told, model=self.model, output=output, history=history, label=self.name)
        options = {"description": self.name or None, "output": output, "agent": self.agent_type}
        given = {name: value for name, value in options.items() if value is not None}
        return (await agent.task(_with_history(told, history), **given)).output


def members(given: int | str | Member | Sequence[Member | str], word: str) -> tuple[Member, ...]:
    """Return members. Args: given: a number, a `Member`, a model name, or a list of these. word: names one member.

    Raises:
        ValueError: There are none.
    """
    if isinstance(given, int):
        found = [Member(name=f"{word} {number}") for number in range(1, given + 1)]
    else:
        those = [given] if isinstance(given, str | Member) else given
        found = [Member(name=each, model=each) if isinstance(each, str) else each for each in those]
    if not found:
        raise ValueError(f"at least one {word} is needed")
    return tuple(found)


def text_of(answer: Any) -> str:
    """Return an answer as text: strings unchanged, other values as JSON, or as Python shows them if JSON cannot."""
    if isinstance(answer, str):
        return answer
    try:
        return json.dumps(answer, default=_plain, ensure_ascii=False, sort_keys=True)
    except (TypeError, ValueError):  # keys that are not text, or a value that holds itself
        return repr(answer)


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    if isinstance(value, set | frozenset):
        return sorted(value, key=repr)
    dump = getattr(value, "model_dump", None)  # a pydantic model; pydantic is not imported for this
    return dump(mode="json") if callable(dump) else str(value)


def _with_history(prompt: str, history: Sequence[str]) -> str:
    if not history:
        return prompt
    turns = [f"{'You answered' if index % 2 else 'You were asked'}:\n{text}" for index, text in enumerate(history)]
    return "\n\n".join(["What was said before:", *turns, "Now:", prompt])


class Progress:
    """An agent in the hands of a strategy, which reports each request and child that has ended, if it has `progress`."""

    def __init__(self, agent: AgentLike, strategy: str, of: int | None = None) -> None:
        """Args: of: the number of steps, if known."""
        self._agent = agent
        self._step: dict[str, Any] = {"strategy": strategy, "strategy_id": secrets.token_hex(4), "step": 0, "of": of}

    async def ask(self, prompt: str, **options: Any) -> Any:
        """Make one model request, without tools."""
        return await self._reported(lambda: self._agent.ask(prompt, **options))

    async def task(self, prompt: str, **options: Any) -> Any:
        """Start a child and wait for its end; return a value with `output`, `status` and `agent_id`."""
        return await self._reported(lambda: self._agent.task(prompt, **options))

    async def _reported(self, work: Callable[[], Awaitable[Any]]) -> Any:
        [found] = await parallel([work])  # work that is cancelled by itself is a failure, and cancels nothing else
        await self.report()
        if isinstance(found, Exception):
            raise found
        return found

    async def state(self, node: SearchNode, best: SearchNode | None) -> None:
        """Report a state of a search. Args: best: the best one up to now."""
        searched = {
            "node_id": node.name,
            "parent": node.parent.name if node.parent is not None else "",
            "action": node.action[:CHARS],
            "state": node.status[:CHARS],
            "score": node.score,
            "value": node.value,
            "visits": node.visits,
            "reason": node.reason[:CHARS],
            "terminal": node.terminal,
        }
        await self.report(node=searched, best=best.name if best is not None else "")

    async def report(self, *, step: int = 1, **more: Any) -> None:
        """Report that so many further steps have ended."""
        self._step["step"] += step
        tell = getattr(self._agent, "progress", None)
        if tell is not None:
            await tell(**self._step, **more)

    async def __aenter__(self) -> Self:
        await self.report(step=0)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is None:
            await self.report(step=0, done=True)
        elif issubclass(kind, Exception):  # the end of a cancelled strategy waits for nobody
            with contextlib.suppress(Exception):  # the strategy's own error counts
                await self.report(step=0, done=True)


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
