"""Finds the models that answer, below their wrappers."""

from pydantic_ai.models import Model
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.wrapper import WrapperModel


def models_in(model: Model) -> tuple[Model, ...]:
    """The model itself without wrappers, or its fallback chain in order."""
    if isinstance(model, FallbackModel):
        return tuple(inner for one in model.models for inner in models_in(one))
    return models_in(model.wrapped) if isinstance(model, WrapperModel) else (model,)
