"""Builds models from settings. (First version, by the lead, so that others can import it: to be replaced whole by its owner.)"""

from pydantic_ai.models import Model, infer_model

from freeact_sub.config import Config
from freeact_sub.errors import ConfigError


def build_model(config: Config) -> Model:
    """Build the model that the settings name."""
    if config.model is None:
        raise ConfigError("no model: pass --model, or set `model` in .freeact/config.toml")
    return infer_model(config.model)
