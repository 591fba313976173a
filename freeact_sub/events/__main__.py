"""The JSON Schema of events, as `python -m freeact_sub.events` writes it for docs/events.schema.json."""

import ast
import inspect
import json
from dataclasses import is_dataclass
from itertools import pairwise
from textwrap import dedent
from typing import Annotated, Any, get_args

from pydantic import ConfigDict, Field, TypeAdapter

from freeact_sub.events import Event


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of the output of `AgentEvent.to_json`."""
    adapter = TypeAdapter[Event](
        Annotated[Event, Field(discriminator="type")], config=ConfigDict(use_attribute_docstrings=True)
    )
    schema = adapter.json_schema(mode="serialization")
    for event in get_args(Event):
        fields = schema["$defs"][event.__name__]["properties"]
        for name, text in _docs_of_fields(event).items():
            fields[name].setdefault("description", text)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Event"} | schema


def _docs_of_fields(event: type) -> dict[str, str]:
    """Return the docstrings of the fields, with those of base classes: pydantic reads only a class's own."""
    found: dict[str, str] = {}
    for base in filter(is_dataclass, event.__mro__):
        (definition,) = ast.parse(dedent(inspect.getsource(base))).body
        for field, text in pairwise(getattr(definition, "body", [])):
            match field, text:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(words))):
                    found.setdefault(name, inspect.cleandoc(words))
    return found


if __name__ == "__main__":
    print(json.dumps(json_schema(), indent=2))  # noqa: T201  # that is what it is called for
