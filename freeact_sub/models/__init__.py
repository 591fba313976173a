"""Builds models from settings, and wraps them so that an agent's loop works with weak models and unreliable servers.

- `build`: the model that the settings name, and suggestions for wrong names.
- `code_actions`: the wrapper around every model, which tells what a reply is. A model acts by tool calls or by blocks of
  Python (`blocks`), which become tool calls. `arguments` repairs the errors of weak models.
- `wire`: the reader of each protocol's stream, and of its end; `repairs`: small repairs that odd servers need, a list.
- `sending`: when a request is sent, for a busy provider and after a failure; `observers` reports a request's progress
  and its cost if it is cut off; `failures` reads errors.

Importing this package is cheap: pydantic-ai is imported when a model is built or wrapped.
"""

from freeact_sub.models.build import build_model, build_model_settings, make_traffic, require_model, usable_model

__all__ = ["build_model", "build_model_settings", "make_traffic", "require_model", "usable_model"]
