"""`/mode`, `/model` and Shift-Tab: other settings.

A mode counts at once. An agent has one model for as long as it is open. So another agent gets the next prompt, which
continues the same session: with the conversation, and in a new kernel with the variables.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from freeact_sub.errors import ConfigError, FreeactError
from freeact_sub.models.names import check_name
from freeact_sub.modes import MODES
from freeact_sub.terminal.drawing.banner import MODES as WORDS
from freeact_sub.terminal.drawing.banner import mode_words

if TYPE_CHECKING:
    from freeact_sub.agent import Agent
    from freeact_sub.terminal.conversation.console import Console
    from freeact_sub.terminal.conversation.display import Display

FIXED: Final = "the model cannot change here: the conversation is not kept"


def mode_command(person: "Console", name: str) -> None:
    """`/mode [NAME]`."""
    present = person.present
    if name in MODES:
        _choose_mode(person, name)
    elif name:
        person.display.note(f"unknown mode {name!r}: {', '.join(MODES)}")
    else:
        words = mode_words(present.mode, present.code_rule, present.config.workspace)
        person.display.note(f"mode {words} · sandbox {present.config.kernel.sandbox}")


def mode_choices(_person: "Console") -> Iterable[tuple[str, str]]:
    """Return the modes with their meanings."""
    return [(mode, WORDS[mode]) for mode in MODES]


def next_mode(person: "Console") -> None:
    """Chooses the next mode, for Shift-Tab. `full` is offered only if the program started in it."""
    mode = person.present.mode
    modes = MODES if person.present.config.mode == "full" else MODES[:-1]
    _choose_mode(person, modes[(modes.index(mode) + 1) % len(modes)] if mode in modes else modes[0])


def model_command(person: "Console", name: str) -> None:
    """`/model [NAME]`."""
    if name:
        wanted = person.present.config.models.names.get(name, name)
        if isinstance(wanted, str):
            try:
                check_name(person.present.config.model_copy(update={"model": wanted}))
            except ConfigError as error:
                person.display.note(str(error))
            else:
                _choose_model(person, wanted)
        else:
            person.display.note(f"{name} is set by the program and cannot be chosen by name")
    else:
        person.display.note(
            f"model {person.present.model or 'not set'} · /model NAME changes it, such as /model anthropic:claude-sonnet-5-5"
        )


def model_choices(person: "Console") -> Iterable[tuple[str, str]]:
    """Return the models that the settings name."""
    return [(name, str(model)) for name, model in person.present.config.models.names.items()]


def use_mode(display: "Display", agent: "Agent", mode: Any) -> bool:
    """Bring an agent into a mode; returns False, and says why, if it cannot have it."""
    try:
        agent.mode = mode
    except FreeactError as error:
        display.note(str(error))
        return False
    return True


def _choose_mode(person: "Console", mode: Any) -> None:
    present = person.present
    words = f"mode {mode}: {WORDS[mode]}"
    if present.agent is None:
        present.wanted["mode"] = mode
        person.display.hint(f"{words} · from the first prompt")
    elif present.mode == mode:
        person.display.hint(f"{words} · unchanged")
    elif use_mode(person.display, present.agent, mode):
        present.wanted["mode"] = mode  # other sessions, too
        person.display.hint(f"mode {mode_words(mode, present.code_rule, present.config.workspace)}")


def _choose_model(person: "Console", model: str) -> None:
    present = person.present
    if not person.may_change_settings:
        person.display.hint(FIXED)
        return
    present.wanted["model"] = model
    if present.agent is None:
        person.display.hint(f"model {model} · from the first prompt")
    elif present.agent.config.model == model:
        person.display.hint(f"model {model} · unchanged")
    elif present.agent.history:
        person.display.hint(f"model {model} · from the next prompt, in a new kernel with the variables")
    else:
        person.display.hint(f"model {model} · from the next prompt, in a new kernel")
