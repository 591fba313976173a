"""Mode and model of a session, as a client shows and sets them: config options, and `modes` for older clients."""

from collections.abc import Sequence
from typing import Any, Final

from freeact_sub.config.schema import Config
from freeact_sub.modes import MODES, Mode

WORDS: Final[dict[Mode, str]] = {
    "plan": "Nothing is written; every cell is asked about.",
    "ask": "What matters is asked about.",
    "auto": "Code runs unasked behind a wall: it writes only in the workspace.",
    "full": "Everything runs unasked, without a wall.",
}
MODE: Final = "mode"
MODEL: Final = "model"


def modes(mode: Mode) -> dict[str, Any]:
    """The modes. Args: mode: the present one."""
    return {
        "currentModeId": mode,
        "availableModes": [{"id": each, "name": each.capitalize(), "description": WORDS[each]} for each in MODES],
    }


def config_options(mode: Mode, model: str, models: Sequence[tuple[str, str]]) -> list[dict[str, Any]]:
    """All options. Args: models: values and names to choose from."""
    choices = [(each, each.capitalize(), WORDS[each]) for each in MODES]
    found = [_select(MODE, "Mode", mode, choices, "How much the agent may do without asking.")]
    if models:
        found.append(
            _select(
                MODEL, "Model", model, [(value, name, "") for value, name in models], "It answers from the next prompt on."
            )
        )
    return found


def models_of(config: Config, present: str) -> list[tuple[str, str]]:
    """The models that a person may choose: the present one, and those that the settings name. Values and names."""
    found = {present: present} if present else {}
    for name, model in config.models.names.items():
        if isinstance(model, str):
            found.setdefault(model, name)
            if model == present:
                found[model] = f"{name} ({model})"
    return list(found.items())


def _select(option: str, name: str, value: str, choices: Sequence[tuple[str, str, str]], words: str) -> dict[str, Any]:
    return {
        "type": "select",
        "id": option,
        "name": name,
        "description": words,
        "category": option,
        "currentValue": value,
        "options": [
            {"value": choice, "name": label, **({"description": about} if about else {})} for choice, label, about in choices
        ],
    }
