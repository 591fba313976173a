"""Builds models from settings, and wraps them so that an agent's loop works with weak models and unreliable servers.

- `names`: providers, and what a person may have meant; keys and local servers that can be used at once.
- `build`: the model that the settings name. `mending` and `odd_streams` read servers that keep to their protocol loosely.
- `steady`: for every model: requests that outlive a busy provider (`traffic`), a broken connection and a stall;
  `observers` reports a request's progress and its cost if it is cut off; `failures` describes errors to people.
- `code_actions`: further help for weak models (`replies`, `arguments`). Each model acts by tool calls or by blocks of
  Python, which become tool calls.

Importing this package is cheap: pydantic-ai is imported when a model is built or wrapped.
"""

from freeact_sub.models.build import (
    acting_by,
    acts_by_blocks,
    build_model,
    build_model_settings,
    make_traffic,
    profile_of,
    usable_model,
)
from freeact_sub.models.names import require_model

__all__ = [
    "acting_by",
    "acts_by_blocks",
    "build_model",
    "build_model_settings",
    "make_traffic",
    "profile_of",
    "require_model",
    "usable_model",
]
