"""Models from settings, and what stands between a model and an agent's loop so that weak models and servers serve it too.

- `build`: the model that the settings name.
- `servers`: requests that outlive a broken connection and a full context; `progress` tells how far a request is.
- `actions`: code blocks and calls written as text become tool calls. What a reply holds is read by `reading`, wrong
  arguments are put right by `arguments` and `lines`, `steps` decides what is run, `replies` puts it together, with the
  `hints` that some errors get, `blocks` is the mode without tools: all of them pure.

Importing this package is cheap: pydantic-ai is imported when a model is built or wrapped.
"""

from freeact_sub.models.build import acting_by, build_model, build_model_settings, wrap_model
from freeact_sub.models.progress import ModelProgress, watched

__all__ = ["ModelProgress", "acting_by", "build_model", "build_model_settings", "watched", "wrap_model"]
