"""`typed_for_program`: the answers that a program asks for, as values of its own types."""

from dataclasses import replace
from typing import Any

from pydantic import PydanticSchemaGenerationError, PydanticUserError, TypeAdapter, ValidationError
from pydantic_core import to_json

from freeact_sub.agents.from_code.ask import output_type_of, typed_answer_of
from freeact_sub.agents.turn.single_request import TypedAnswer
from freeact_sub.agents.types.output_types import check_output
from freeact_sub.errors import InvalidRequestError
from freeact_sub.text import wrong_fields


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
