"""Models from settings, and what stands between a model and an agent's loop so that weak models and servers serve it too.

- `names`: providers, and what a person may have meant; `found`: keys and local servers that can be used at once.
- `build`: the model that the settings name. `odd_chunks` and `odd_streams` read servers that keep to
  OpenAI's protocol loosely.
- `steady`: what every model needs: requests that outlive a busy provider (`traffic`), a broken connection and a stall
  (`silence`); `progress` tells how far a request is, `attempts` what those took that were cut off, `failures` words errors
  for people.
- `small`: what weak models need besides. Each model acts by tool calls or by blocks of Python, which become tool calls.

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
