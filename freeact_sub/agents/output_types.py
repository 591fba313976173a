"""Typed answers, as pydantic-ai's `output_type`: the model calls the tool `hand_over`."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pydantic import BaseModel
from pydantic_ai import Agent as PydanticAgent
from pydantic_ai import ModelRetry, StructuredDict, ToolOutput
from pydantic_ai.exceptions import UserError

from freeact_sub.errors import ConfigError, FreeactError, InvalidRequestError
from freeact_sub.kernels import block_type
from freeact_sub.text import one_line

NAME: Final = "hand_over"
DESCRIPTION: Final = "Hand over your answer. This ends your work."
OF_PYDANTIC_AI: Final = "final_result"
"""pydantic-ai's."""
CANNOT: Final = (
    "Say that you cannot give the answer, and why, when what you need is missing: instead of an answer that you made up. "
    "This ends your work."
)


def check_output(output: Any, call: str) -> Any:
    """Return the type of an answer as it is.

    Raises:
        InvalidRequestError: It is a value, such as the name of a type, or a type of which no answer can be made.
    """
    if isinstance(output, str | bytes | int | float | Mapping | BaseModel):
        raise InvalidRequestError(f"{call}: output is a type, such as `int` or a pydantic model, not {output!r:.60}")
    if output is not str and not block_type(output):
        try:
            PydanticAgent(output_type=output)
        except Exception as error:  # border: pydantic fails in many ways on what is no type
            why = one_line(str(error).partition(". ")[0], 200) or type(error).__name__
            raise InvalidRequestError(f"{call}: output is a type, of which an answer can be made: {why}") from error
    return output


def output_tool(
    answer_type: Any,
    check: Callable[[Any], Awaitable[str]],
    value_of: Callable[[dict[str, Any]], Any] = lambda answer: answer,
) -> Any:
    """Return the output type for answers of a type.

    Args:
        answer_type: pydantic-ai's type of the tool's argument.
        check: Returns what is wrong with a value, empty if nothing is. The model must correct a wrong answer.
        value_of: Extracts the value from the argument.
    """

    async def hand_over(answer: dict[str, Any]) -> Any:
        value = value_of(answer)
        if problem := await check(value):
            raise ModelRetry(f"The answer does not have the requested type: {problem}")
        return value

    hand_over.__annotations__["answer"] = answer_type
    return ToolOutput(hand_over, name=NAME, description=DESCRIPTION)


def schema_output_type(schema: Mapping[str, Any]) -> Any:
    """Return the output type for the JSON schema of an object, which the host validates.

    Not for a schema from code in a kernel: matching an answer against a pattern can take for ever.

    Raises:
        ConfigError: It is not the JSON schema of an object.
    """
    import jsonschema  # noqa: PLC0415  # slow to import, and few agents have such a schema
    from referencing import Registry  # noqa: PLC0415

    validator_type = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
    try:
        validator_type.check_schema(schema)
        structured = StructuredDict(dict(schema))
    except jsonschema.SchemaError as error:
        raise ConfigError(f"it is not a JSON schema: {error.message}") from error
    except (UserError, RecursionError) as error:
        raise ConfigError(str(error)) from error
    validator = validator_type(schema, registry=Registry())  # empty: no schema is fetched from anywhere

    async def check(answer: dict[str, Any]) -> str:
        problems = [f"{error.json_path}: {error.message}"[:500] for error in validator.iter_errors(answer)]
        return "; ".join(problems[:5])

    return output_tool(structured, check)


@dataclass(frozen=True)
class Refusal:
    """The answer of a child that cannot give one of the requested type."""

    reason: str

    @property
    def sentence(self) -> str:
        """Why the run has failed."""
        return f"it cannot give the answer: {self.reason}"


def or_refusal(output_type: Any) -> Any:
    """Return the output type of a child: a value of this type, or the reason why it cannot give one."""
    if isinstance(output_type, type) and not issubclass(output_type, str):
        output_type = ToolOutput(output_type, name=OF_PYDANTIC_AI)
    if not isinstance(output_type, ToolOutput):
        return output_type  # a text can say why, and in other forms there is no place for it
    return [output_type, ToolOutput(cannot_answer, name="cannot_answer", description=CANNOT)]


async def cannot_answer(reason: str) -> Refusal:
    """See `CANNOT`."""
    return Refusal(reason)


def by_value(output_type: Any, take: Callable[[str, Any], Awaitable[Any]]) -> Any:
    """Return the output type for frames and arrays, of which the model names the variable; any other type as it is.

    Args:
        output_type: The type of the answer.
        take: Takes a variable of the agent's kernel that has this type.
    """
    if not (name := block_type(output_type)):
        return output_type

    async def hand_over(variable: str) -> Any:
        try:
            return await take(variable, output_type)
        except FreeactError as error:
            raise ModelRetry(f"The answer does not have the requested type: {error}") from error

    description = f"{DESCRIPTION} Name the variable in your kernel that holds it, a {name}."
    return ToolOutput(hand_over, name=NAME, description=description)
