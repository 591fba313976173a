"""`python -m freeact_sub.events` writes the JSON Schema of events, as docs/events.schema.json has it."""

import json
from typing import Annotated, Any

from pydantic import ConfigDict, Field, TypeAdapter

from freeact_sub.events import Event


def json_schema() -> dict[str, Any]:
    """The JSON Schema of what `AgentEvent.to_json` writes."""
    adapter = TypeAdapter[Event](
        Annotated[Event, Field(discriminator="type")], config=ConfigDict(use_attribute_docstrings=True)
    )
    schema = adapter.json_schema(mode="serialization")
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Event"} | schema


if __name__ == "__main__":
    print(json.dumps(json_schema(), indent=2))  # noqa: T201  # that is what it is called for
