"""What a JSON schema says of an answer, as pydantic-ai's `output_type`."""

from collections.abc import Mapping
from typing import Any

from pydantic_ai import StructuredDict
from pydantic_ai.exceptions import UserError

from freeact_sub.errors import ConfigError


def output_type_of(schema: Mapping[str, Any]) -> Any:
    """The type of an answer that a JSON schema describes.

    Raises:
        ConfigError: The schema is not that of an object.
    """
    try:
        return StructuredDict(dict(schema))
    except (UserError, RecursionError) as error:
        raise ConfigError(str(error)) from error
