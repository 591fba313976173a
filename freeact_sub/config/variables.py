"""Environment variables that a settings file names: `${VAR}` and `${VAR:-default}`."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from freeact_sub.errors import ConfigError


def fill_variables(value: Any, variables: Mapping[str, str], path: Path) -> Any:
    """Fills in `${VAR}` and `${VAR:-default}` in all texts of a value.

    Args:
        value: A JSON value.
        variables: The environment variables.
        path: The file of the value, for the error.

    Raises:
        ConfigError: A variable without a default is not set.
    """
    if isinstance(value, dict):
        return {name: fill_variables(item, variables, path) for name, item in value.items()}
    if isinstance(value, list):
        return [fill_variables(item, variables, path) for item in value]
    if not isinstance(value, str):
        return value

    def fill(match: re.Match[str]) -> str:
        name, default = match["name"], match["default"]
        if name in variables:
            return variables[name]
        if default is not None:
            return default
        raise ConfigError(f"{path} needs the environment variable {name}: set it, or write ${{{name}:-default}}")

    return re.sub(r"\$\{(?P<name>\w+)(?::-(?P<default>(?:[^}$]|\$(?!\{))*+))?\}", fill, value)
