"""`--output` of `freeact-sub map`: the fields of an answer, as `topic: price|delivery, angry: bool`."""

import re
from decimal import Decimal, InvalidOperation
from typing import Any, Final, Literal

from pydantic import BaseModel, create_model

from freeact_sub.config.budget import Budget
from freeact_sub.errors import ConfigError

TYPES: Final[dict[str, Any]] = {"": str, "text": str, "int": int, "float": float, "bool": bool, "list": list[str]}
HELP: Final = "write --output 'topic: price|delivery|other, angry: bool, reason'; types are text, int, float, bool, list"


def fields_of(text: str) -> type[BaseModel]:
    """Return the type of an answer with these fields.

    Raises:
        ConfigError: The text cannot be read.
    """
    fields: dict[str, Any] = {}
    for part in filter(None, map(str.strip, text.split(","))):
        name, _, kind = (word.strip() for word in part.partition(":"))
        if not name.isidentifier() or name.startswith("_"):
            raise ConfigError(f"--output: {name!r} is not a name for a field: {HELP}")
        if name in fields:
            raise ConfigError(f"--output: the field {name!r} is there twice")
        fields[name] = (_type(kind), ...)
    if not fields:
        raise ConfigError(f"--output: it has no field: {HELP}")
    try:
        return create_model("Answer", **fields)
    except (NameError, TypeError) as error:
        raise ConfigError(f"--output: {error}: {HELP}") from error


def _type(kind: str) -> Any:
    if kind in TYPES:
        return TYPES[kind]
    words = tuple(word.strip() for word in kind.split("|"))
    if len(words) < 2 or not all(words):  # a choice between two
        raise ConfigError(f"--output: {kind!r} is not a type: {HELP}")
    return Literal[words]


def budget_of(text: str) -> Budget:
    """Return the bound of `--budget`: dollars, as `3` or `$0.50`, or tokens, as `200000 tokens`.

    Raises:
        ConfigError: The text cannot be read.
    """
    tokens = re.fullmatch(r"\s*([\d_,]+)(k?)\s*tokens\s*", text)
    if tokens is not None and tokens[1].strip("_,"):
        return Budget(tokens=int(re.sub("[_,]", "", tokens[1])) * (1000 if tokens[2] else 1))
    try:
        amount = Decimal(text.strip().removeprefix("$"))
        if amount.is_finite() and amount > 0:
            return Budget(cost_usd=amount)
    except InvalidOperation:
        pass
    raise ConfigError(f"--budget: {text!r} is no bound: write dollars, as 3 or $0.50, or tokens, as '200000 tokens'")
