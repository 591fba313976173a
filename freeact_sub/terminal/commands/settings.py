"""`/mode`, `/model` and Shift-Tab: other settings from the next prompt on.

An agent has one mode and one model for as long as it is open. So another agent gets the next prompt, which continues
the same session: with the conversation, and in a new kernel, behind the mode's wall, with the variables.
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from freeact_sub.errors import ConfigError
from freeact_sub.models.names import check_name
from freeact_sub.modes import MODES
from freeact_sub.terminal.drawing.banner import MODES as WORDS

if TYPE_CHECKING:
    from freeact_sub.agents import Agent
    from freeact_sub.terminal.conversation.ports import Console

FIXED: Final = "mode and model cannot change here: the conversation is not kept"


def mode_command(person: "Console", name: str) -> None:
    """`/mode [NAME]`."""
    present = person.present
    if name in MODES:
        _choose(person, "mode", name)
    elif name:
        person.display.note(f"unknown mode {name!r}: {', '.join(MODES)}")
    else:
        person.display.note(f"mode {present.mode}: {WORDS[present.mode]} · sandbox {present.config.kernel.sandbox}")


def mode_choices(_person: "Console") -> Iterable[tuple[str, str]]:
    """Return the modes with their meanings."""
    return [(mode, WORDS[mode]) for mode in MODES]


def next_mode(person: "Console") -> None:
    """Chooses the next mode, for Shift-Tab. `full` is offered only if the program started in it."""
    mode = person.present.mode
    modes = MODES if person.present.config.mode == "full" else MODES[:-1]
    _choose(person, "mode", modes[(modes.index(mode) + 1) % len(modes)] if mode in modes else modes[0])


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
                _choose(person, "model", wanted)
        else:
            person.display.note(f"{name} is set by the program and cannot be chosen by name")
    else:
        person.display.note(
            f"model {person.present.model or 'not set'} · /model NAME changes it, such as /model anthropic:claude-sonnet-5-5"
        )


def model_choices(person: "Console") -> Iterable[tuple[str, str]]:
    """Return the models that the settings name."""
    return [(name, str(model)) for name, model in person.present.config.models.names.items()]


def changes(agent: "Agent", wanted: Mapping[str, Any]) -> bool:
    """Whether an agent's settings differ from the wanted ones."""
    return any(getattr(agent.config, setting) != value for setting, value in wanted.items())


def _choose(person: "Console", setting: str, value: Any) -> None:
    present = person.present
    if not person.may_change_settings:
        person.display.hint(FIXED)
        return
    present.wanted[setting] = value
    words = f"{setting} {value}" + (f": {WORDS[value]}" if setting == "mode" else "")
    if present.agent is None:
        person.display.hint(f"{words} · from the first prompt")
    elif not changes(present.agent, present.wanted):
        person.display.hint(f"{words} · unchanged")
    elif present.agent.history:
        person.display.hint(f"{words} · from the next prompt, in a new kernel with the variables")
    else:
        person.display.hint(f"{words} · from the next prompt, in a new kernel")
