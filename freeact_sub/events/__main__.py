"""`python -m freeact_sub.events` writes the JSON Schema of events, as docs/events.schema.json has it."""

import json

from freeact_sub.events import json_schema

print(json.dumps(json_schema(), indent=2))  # noqa: T201  # that is what it is called for
