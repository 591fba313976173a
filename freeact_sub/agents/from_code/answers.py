"""Turns a JSON schema from a kernel into pydantic-ai's `output_type`, for a child that returns a value.

The schema's size is checked before pydantic-ai resolves its references, because a few lines can expand to gigabytes. Answers
are not validated here for a similar reason (a pattern can take for ever): the requesting kernel does that (`check`).
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from pydantic import TypeAdapter
from pydantic_ai import StructuredDict, ToolDefinition

from freeact_sub.agents.turn.single_request import TypedAnswer
from freeact_sub.agents.types.output_types import DESCRIPTION, NAME, output_tool
from freeact_sub.errors import InvalidRequestError

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
        raise InvalidRequestError(f"output: no tool can be made of its JSON schema: {error}") from error


def _is_wrapped(schema: Mapping[str, Any]) -> bool:
    return schema.get("type") != "object"


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
