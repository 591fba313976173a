"""`FromProgram`: `agent.spawn`, `agent.ask` and `agent.task` for programs, which start children as code in a cell does.

A program that an agent runs, such as a tool, acts on that agent's behalf: its children are that agent's.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Any, Final

from pydantic_core import to_json

from freeact_sub.agents.children.child import Child
from freeact_sub.agents.from_code.ask import AskParams
from freeact_sub.agents.from_code.base import validated
from freeact_sub.agents.maps.many import ManyAsks, outcome
from freeact_sub.agents.maps.typed import typed_for_program
from freeact_sub.agents.root import Root, with_inputs
from freeact_sub.agents.runs.prompt import Prompt, read_prompt
from freeact_sub.agents.runs.results import RunResult
from freeact_sub.config.budget import Budget
from freeact_sub.errors import FreeactError, InvalidRequestError, TaskError
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
        self.many = ManyAsks(root)

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
        return await asyncio.gather(*(outcome(self.spawn_and_run(request)) for request in requests))

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
        adapter, typed = typed_for_program(output)
        return adapter.validate_json(to_json(await loop.asks.ask(asked, typed)))

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
