"""Handles `ask`: single model requests from code in a cell or a program (`await agent.ask(...)`).

A typed answer is described by a JSON schema from the kernel, which becomes pydantic-ai's `output_type`, here and for a child
that returns a value. Its size is checked before pydantic-ai resolves its references, because a few lines can expand to
gigabytes. Answers are not validated here for a similar reason (a pattern can take for ever): that kernel does it.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from pydantic import (
    Field,
    PydanticSchemaGenerationError,
    PydanticUserError,
    TypeAdapter,
    ValidationError,
    field_validator,
)
from pydantic_ai import StructuredDict, ToolDefinition
from pydantic_core import to_json, to_jsonable_python

from freeact_sub.agents.budgets.ledger import Account
from freeact_sub.agents.from_code.base import CodeCalls, Params, paused, validated
from freeact_sub.agents.output_types import DESCRIPTION, NAME, check_output, output_tool
from freeact_sub.agents.requested_call import EndedCall
from freeact_sub.agents.runs.results import text_of
from freeact_sub.agents.turn.single_request import SingleRequests, TypedAnswer
from freeact_sub.calls import ToolCall
from freeact_sub.errors import InvalidRequestError
from freeact_sub.kernels import CellClock
from freeact_sub.text import wrong_fields

MAX_NODES: Final = 10_000
"""The largest schema, with references resolved."""
MAX_LEVELS: Final = 50
WRAPPED: Final = "value"
"""Tools take objects, so an answer of another type becomes the only field of one."""
REFERENCE: Final = "#/$defs/"


def output_type_of(schema: Mapping[str, Any], check: Callable[[Any], Awaitable[str]]) -> Any:
    """Return the output type of a child.

    Args:
        schema: The answer's.
        check: Returns what is wrong with an answer, empty if nothing is. The model must correct a wrong answer.

    Raises:
        InvalidRequestError: The schema is too large, or refers to itself.
    """
    return output_tool(_structured(schema), check, lambda answer: _unwrapped(schema, answer))


def typed_answer_of(schema: Mapping[str, Any]) -> TypedAnswer:
    """Return the answer expected of `ask`; the requesting kernel validates it against its type.

    Raises:
        InvalidRequestError: The schema is too large, or refers to itself.
    """

    async def nothing_wrong(_: Any) -> str:
        return ""

    parameters = TypeAdapter(_structured(schema)).json_schema()
    described = parameters.pop("description", None)
    tool = ToolDefinition(
        name=NAME,
        description=DESCRIPTION if described is None else f"{DESCRIPTION}. {described}",  # pydantic-ai's form
        parameters_json_schema=parameters,
        kind="output",
    )
    return TypedAnswer(
        output_type=output_type_of(schema, nothing_wrong), tool=tool, value_of=lambda answer: _unwrapped(schema, answer)
    )


def _structured(schema: Mapping[str, Any]) -> Any:
    check_size(schema)
    try:
        return StructuredDict(_wrap(schema) if _is_wrapped(schema) else dict(schema))
    except Exception as error:  # border: pydantic-ai may fail in any way on a foreign schema
        raise InvalidRequestError(f"output: its JSON schema cannot be used: {error}") from error


def _is_wrapped(schema: Mapping[str, Any]) -> bool:
    return schema.get("type") != "object"


def typed_for_program(output: Any) -> tuple[TypeAdapter[Any], TypedAnswer]:
    """Return the adapter of a type and the answer asked of the model; an invalid answer goes back to it.

    Raises:
        InvalidRequestError: The type has no JSON schema.
    """
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(check_output(output, "agent.ask"))
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


def _unwrapped(schema: Mapping[str, Any], answer: dict[str, Any]) -> Any:
    return answer[WRAPPED] if _is_wrapped(schema) and WRAPPED in answer else answer


def _wrap(schema: Mapping[str, Any]) -> dict[str, Any]:
    inner = {name: value for name, value in schema.items() if name != "$defs"}
    definitions = {"$defs": schema["$defs"]} if "$defs" in schema else {}
    return {"type": "object", "properties": {WRAPPED: inner}, "required": [WRAPPED], **definitions}


def check_size(schema: Mapping[str, Any]) -> None:
    """Refuse a schema that would be too large with its references resolved.

    Raises:
        InvalidRequestError: It is too large or too deep, refers to itself, or has a dangling reference.
    """
    definitions = schema.get("$defs")
    definitions = definitions if isinstance(definitions, Mapping) else {}
    known: dict[str, int] = {}

    def size(node: Any, above: tuple[str, ...], level: int) -> int:
        if level > MAX_LEVELS:
            raise InvalidRequestError(f"output: its JSON schema is more than {MAX_LEVELS} levels deep")
        if isinstance(node, Mapping):
            reference = node.get("$ref")
            own = definition(str(reference), above, level) if reference is not None else 0
            total = 1 + own + sum(size(value, above, level + 1) for key, value in node.items() if key != "$defs")
        else:
            total = 1 + sum(size(value, above, level + 1) for value in node) if isinstance(node, list) else 1
        if total > MAX_NODES:
            raise InvalidRequestError(f"output: its JSON schema has more than {MAX_NODES:,} parts")
        return total

    def definition(reference: str, above: tuple[str, ...], level: int) -> int:
        name = reference.removeprefix(REFERENCE)
        if not reference.startswith(REFERENCE) or name not in definitions:
            raise InvalidRequestError(f"output: its JSON schema refers to {reference!r}, which is not in its $defs")
        if name in above:
            raise InvalidRequestError(f"output: {name} contains itself, which models do not support: use a list")
        if name not in known:
            known[name] = size(definitions[name], (*above, name), level + 1)
        return known[name]

    size(schema, (), 0)


class AskParams(Params):
    """The parameters of `agent.ask`."""

    prompt: str = Field(min_length=1)
    model: str | None = None
    output: dict[str, Any] | None = None
    """The answer's JSON schema. None: text."""
    history: list[str] = Field(default_factory=list)
    """Earlier prompts and answers, alternating."""
    label: str = ""
    """Its name for people."""
    together: int = Field(default=1, ge=1)
    """The number of requests that code makes at once, this one included."""

    @field_validator("history")
    @classmethod
    def _ends_with_an_answer(cls, history: list[str]) -> list[str]:
        if len(history) % 2:
            raise ValueError("prompts and answers must alternate, and the last one must be an answer")
        return history


class AskRequests:
    """Handles `ask`."""

    def __init__(self, calls: CodeCalls, single_requests: SingleRequests) -> None:
        self._calls, self._single_requests = calls, single_requests
        self.handlers = {"ask": self._ask}

    async def _ask(self, params: Mapping[str, Any], clock: CellClock | None) -> Any:
        asked = validated(AskParams.model_validate, params, "agent.ask")
        typed = None if asked.output is None else typed_answer_of(asked.output)
        return to_jsonable_python(await self.ask(asked, typed, clock))

    async def ask(
        self,
        asked: AskParams,
        typed: TypedAnswer | None,
        clock: CellClock | None = None,
        *,
        of_program: bool = False,
        payer: Account | None = None,
    ) -> Any:
        """Make the request as a call of the agent, with events, counting and rules, and return the model's answer.

        Args:
            asked: The request.
            typed: The form of the answer. None: text.
            clock: That of the requesting cell. None: a program asks.
            of_program: A program asks, not code in a cell.
            payer: See `SingleRequests.ask`.

        Raises:
            FreeactError: The request is denied or fails.
        """

        async def work() -> EndedCall[Any]:
            with paused(clock):
                answer = await self._single_requests.ask(
                    asked.prompt,
                    model=asked.model,
                    typed=typed,
                    history=asked.history,
                    by="program" if of_program else "code",
                    together=asked.together,
                    payer=payer,
                )
            return EndedCall(value=answer, text=text_of(answer), outcome="success")

        args = asked.model_dump(exclude={"together"}, exclude_none=True, exclude_defaults=True)
        return await self._calls.carry_out("ask", ToolCall(tool_name="ask", args=args, harmless=True), args, clock, work)
