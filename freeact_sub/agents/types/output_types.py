"""Turns the JSON schema of an agent type into pydantic-ai's `output_type`."""

from collections.abc import Mapping
from typing import Any

from pydantic_ai import ModelRetry, StructuredDict, ToolOutput
from pydantic_ai.exceptions import UserError

from freeact_sub.errors import ConfigError


def output_type_of(schema: Mapping[str, Any]) -> Any:
    """Return the output type for the JSON schema of an object; the model must correct an answer that does not fit.

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
        raise ConfigError(f"it is no JSON schema: {error.message}") from error
    except (UserError, RecursionError) as error:
        raise ConfigError(str(error)) from error
    validator = validator_type(schema, registry=Registry())  # empty: no schema is fetched from anywhere

    def hand_over(answer: dict[str, Any]) -> dict[str, Any]:
        problems = [f"{error.json_path}: {error.message}"[:500] for error in validator.iter_errors(answer)]
        if problems:
            raise ModelRetry(f"The answer is not what was asked for: {'; '.join(problems[:5])}")
        return answer

    hand_over.__annotations__["answer"] = structured
    return ToolOutput(hand_over, name="hand_over", description="Hand over your answer. This ends your work.")
