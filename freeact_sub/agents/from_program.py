"""`agent.ask` and `agent.task` for programs, with the same meaning as in a cell, so that strategies run in both."""

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, Final, overload

from pydantic import PydanticSchemaGenerationError, PydanticUserError, TypeAdapter, ValidationError
from pydantic_core import to_json

from freeact_sub.agents.children.with_children import WithChildren
from freeact_sub.agents.factory import ExecutionContext
from freeact_sub.agents.from_code.answers import output_type_of, typed_answer_of
from freeact_sub.agents.from_code.ask import AskParams
from freeact_sub.agents.from_code.base import validated
from freeact_sub.agents.runs.results import AnswerT, RunResult
from freeact_sub.agents.turn.single_request import TypedAnswer
from freeact_sub.config.budget import Budget
from freeact_sub.errors import FreeactError, InvalidRequestError, TaskError
from freeact_sub.kernels import Kernel, put_values
from freeact_sub.text import wrong_fields
from freeact_sub.tools import SpawnRequest

FIELDS: Final = frozenset(field.name for field in fields(SpawnRequest)) - {
    "prompt",
    "prepare",
    "tool_call_id",
    "output_schema",
}


class AsInACell(WithChildren):
    """The methods of `Agent` that mirror `agent` in a cell."""

    @property
    def execution_context(self) -> ExecutionContext:
        """The agent on whose behalf this is called, the root or a descendant: `budget_left`, `depth`, `cancelled`."""
        return self._callers_loop.node.context

    @overload
    async def ask(self, prompt: str, *, model: str | None = None, history: Sequence[str] = (), label: str = "") -> str: ...
    @overload
    async def ask(
        self,
        prompt: str,
        *,
        output: type[AnswerT],
        model: str | None = None,
        history: Sequence[str] = (),
        label: str = "",
    ) -> AnswerT: ...
    @overload
    async def ask(
        self, prompt: str, *, output: Any, model: str | None = None, history: Sequence[str] = (), label: str = ""
    ) -> Any: ...
    async def ask(
        self,
        prompt: str,
        *,
        model: str | None = None,
        output: Any = str,
        history: Sequence[str] = (),
        label: str = "",
    ) -> Any:
        """Make one model request without tools or kernel, in a run that pays for it (see `run_program`).

        Args:
            prompt: The only text that the model reads besides the history.
            model: A name in the setting `models`. None: the agent's own model.
            output: The type of the answer, such as `int`, a dataclass or a pydantic model; the call returns a value of it.
            history: Earlier prompts and answers, alternating; the model reads them as a conversation.
            label: Its name for people, in events and front ends.

        Raises:
            FreeactError: No run is live, or the request is denied or fails.
        """
        loop = self._callers_loop
        if not loop.node.run.is_live:
            raise FreeactError(
                "agent.ask needs a run that pays for it: call it within one, such as "
                "`await agent.run_program(lambda: agent.ask(...)).result()`"
            )
        params = {"prompt": prompt, "model": model, "history": [*history], "label": label}
        asked = validated(AskParams.model_validate, params, "agent.ask")
        if output is None or output is str:
            return await loop.asks.ask(asked, None)
        adapter, typed = _typed(output)
        return adapter.validate_json(to_json(await loop.asks.ask(asked, typed)))

    async def progress(self, **step: Any) -> None:
        """Report a step of a strategy to the reader of the events; where no run is live, nobody reads.

        Args:
            step: The fields of a `StrategyStep`: `strategy` and `step`, perhaps `strategy_id`, `of`, `done`, `node`, `best`.

        Raises:
            InvalidRequestError: A field is invalid.
        """
        loop = self._callers_loop
        if loop.node.run.is_live:
            await loop.progress.report(step)

    @overload
    async def task(self, prompt: str, *, output: type[AnswerT], **options: Any) -> RunResult[AnswerT]: ...
    @overload
    async def task(self, prompt: str, *, output: None = None, **options: Any) -> RunResult[str]: ...
    @overload
    async def task(self, prompt: str, *, output: Any, **options: Any) -> RunResult[Any]: ...
    async def task(self, prompt: str, *, output: Any = None, **options: Any) -> RunResult[Any]:
        """Start a child and wait until it ends.

        Args:
            prompt: The child's task.
            output: The type of its answer. None: text.
            options: `inputs` (values that it finds as variables in its kernel, by name), `max_turns`, `budget` (a `Budget`,
                or a dict), and all other fields of `SpawnRequest`.

        Raises:
            TaskError: The child did not complete; `error.result` has what it achieved.
            FreeactError: The child cannot be started, or an option is invalid.
        """
        result = await self.spawn_and_run(request_of(prompt, {"output": output, **options}))
        if result.status != "completed":
            raise TaskError(result)
        return result


def request_of(prompt: str, options: Mapping[str, Any]) -> SpawnRequest:
    """Return the request for a child. Args: options: see `Agent.task`.

    Raises:
        InvalidRequestError: An option is invalid; the message names it.
    """
    rest = {name: value for name, value in options.items() if value is not None}
    inputs, output, turns = rest.pop("inputs", {}), rest.pop("output", None), rest.pop("max_turns", None)
    if unknown := [name for name in rest if name not in FIELDS]:
        raise InvalidRequestError(f"agent.task: there is no option {unknown[0]!r}: known are {', '.join(sorted(FIELDS))}")
    budget = validated(Budget.model_validate, rest.pop("budget", {}), "agent.task: budget")
    if turns is not None:
        budget = budget.model_copy(update={"turns": turns})
    if output is not None:
        rest["output_type"] = output
    return SpawnRequest(prompt=prompt, budget=budget, prepare=_prepare(inputs) if inputs else None, **rest)


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


def _prepare(inputs: Mapping[str, Any]) -> Any:
    async def prepare(kernel: Kernel) -> str:
        lines = "\n".join(f"- {line}" for line in await put_values(inputs, kernel))
        return f"These variables are in your kernel, until it is reset:\n{lines}"

    return prepare
