"""`FromProgram`: `agent.spawn`, `agent.ask` and `agent.task` for programs, which start children as code in a cell does.

A program that an agent runs, such as a tool, acts on that agent's behalf: its children are that agent's.
"""

import asyncio
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, Final

from pydantic import PydanticSchemaGenerationError, PydanticUserError, TypeAdapter, ValidationError
from pydantic_core import to_json

from freeact_sub.agents.children.child import Child
from freeact_sub.agents.from_code.ask import AskParams, output_type_of, typed_answer_of
from freeact_sub.agents.from_code.base import validated
from freeact_sub.agents.root import Root, with_inputs
from freeact_sub.agents.runs.prompt import Prompt, read_prompt
from freeact_sub.agents.runs.results import AnswerT, RunResult
from freeact_sub.agents.turn.single_request import TypedAnswer
from freeact_sub.config.budget import Budget
from freeact_sub.errors import FreeactError, InvalidRequestError, TaskError
from freeact_sub.text import wrong_fields
from freeact_sub.tools import SpawnRequest

FIELDS: Final = frozenset(field.name for field in fields(SpawnRequest)) - {
    "prompt",
    "content",
    "prepare",
    "tool_call_id",
    "output_schema",
}


class FromProgram:
    """See above."""

    def __init__(self, root: Root) -> None:
        self._root = root

    async def spawn(self, request: SpawnRequest | str) -> Child:
        """See `Agent.spawn`."""
        if isinstance(request, str):
            request = SpawnRequest(prompt=request)
        return await self._root.callers_loop.children.spawn(request)

    async def spawn_and_run(self, request: SpawnRequest | str) -> RunResult:
        """See `Agent.spawn_and_run`."""
        child = await self.spawn(request)
        try:
            result = await child.result()
        except (asyncio.CancelledError, FreeactError):
            child.cancel()
            raise
        await self._root.settle()
        return result

    async def run_parallel(self, requests: Iterable[SpawnRequest | str]) -> list[RunResult | Exception]:
        """See `Agent.run_parallel`."""
        return await asyncio.gather(*(_outcome(self.spawn_and_run(request)) for request in requests))

    async def ask(self, prompt: str, output: Any, model: str | None, history: Sequence[str], label: str) -> Any:
        """See `Agent.ask`."""
        loop = self._root.callers_loop
        if not loop.agent.run.is_live:
            raise FreeactError(
                "agent.ask must be called within a run, whose budget pays for it, such as "
                "`await agent.run_program(lambda: agent.ask(...)).result()`"
            )
        params = {"prompt": prompt, "model": model, "history": [*history], "label": label}
        asked = validated(AskParams.model_validate, params, "agent.ask")
        if output is None or output is str:
            return await loop.asks.ask(asked, None)
        adapter, typed = _typed(output)
        return adapter.validate_json(to_json(await loop.asks.ask(asked, typed)))

    async def ask_many(self, prompts: Iterable[str], output: Any, model: str | None) -> list[Any]:
        """See `Agent.ask_many`."""
        loop = self._root.callers_loop
        if output is not None and output is not str:
            _typed(output)  # a wrong type is said once
        left, answers = enumerate(prompts), dict[int, Any]()

        async def work() -> None:
            for place, prompt in left:
                answers[place] = await _outcome(self.ask(prompt, output, model, (), ""))

        async with loop.children.busy(), asyncio.TaskGroup() as group:
            for _ in range(loop.agent.shared.config.models.max_concurrent):
                group.create_task(work())
        return [answers[place] for place in range(len(answers))]

    async def progress(self, step: Mapping[str, Any]) -> None:
        """See `Agent.progress`."""
        loop = self._root.callers_loop
        if loop.agent.run.is_live:
            await loop.progress.report(step)

    async def task(self, prompt: Prompt, options: Mapping[str, Any]) -> RunResult[Any]:
        """See `Agent.task`."""
        result = await self.spawn_and_run(request_of(prompt, options))
        if result.status != "completed":
            raise TaskError(result)
        return result


async def _outcome(work: Awaitable[AnswerT]) -> AnswerT | Exception:
    """Return the result of one of several pieces of work, or its exception."""
    try:
        return await work
    except Exception as error:  # noqa: BLE001  # border: one that fails must not affect the others
        return error


def request_of(prompt: Prompt, options: Mapping[str, Any]) -> SpawnRequest:
    """Return the request for a child. Args: options: see `Agent.task`.

    Raises:
        InvalidRequestError: An option is invalid; the message names it.
    """
    rest = {name: value for name, value in options.items() if value is not None}
    inputs, output, turns = rest.pop("inputs", {}), rest.pop("output", None), rest.pop("max_turns", None)
    if unknown := [name for name in rest if name not in FIELDS]:
        raise InvalidRequestError(
            f"agent.task: unknown option {unknown[0]!r}: the known ones are {', '.join(sorted(FIELDS))}"
        )
    budget = validated(Budget.model_validate, rest.pop("budget", {}), "agent.task: budget")
    if turns is not None:
        budget = budget.model_copy(update={"turns": turns})
    if output is not None:
        rest["output_type"] = output
    text, content = read_prompt(prompt)
    return SpawnRequest(prompt=text, content=content, budget=budget, prepare=with_inputs(inputs) if inputs else None, **rest)


def _typed(output: Any) -> tuple[TypeAdapter[Any], TypedAnswer]:
    """Return the adapter of a type and the answer asked of the model; an invalid answer goes back to it."""
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(output)
        schema = adapter.json_schema()
    except (PydanticUserError, PydanticSchemaGenerationError, TypeError, NameError) as error:
        raise InvalidRequestError(f"agent.ask: output: {output!r} has no JSON schema: {error}") from error
    plain = typed_answer_of(schema)

    async def check(value: Any) -> str:
        try:
            adapter.validate_json(to_json(value))
        except ValidationError as error:
            return wrong_fields(error.errors())
        return ""

    def value_of(arguments: dict[str, Any]) -> Any:
        value = plain.value_of(arguments)
        adapter.validate_json(to_json(value))  # a ValueError: pydantic-ai asks again
        return value

    return adapter, replace(plain, output_type=output_type_of(schema, check), value_of=value_of)
