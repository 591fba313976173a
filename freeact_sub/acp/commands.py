"""Settings and commands of a client's user: mode, model, and prompts that begin with `/`.

Mode and model are config options, and `modes` for older clients. An unknown command is a prompt like any other.
"""

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from freeact_sub.agent_names import agent_name, short_id
from freeact_sub.config.schema import Config
from freeact_sub.errors import FreeactError
from freeact_sub.modes import MODES, Mode
from freeact_sub.show.typed_commands import OwnCommand, Rewind, context_text, cost_text, find_agent, own_commands, prompt_of
from freeact_sub.text import fenced, one_line, visible

if TYPE_CHECKING:
    from freeact_sub.acp.session import Session

WORDS: Final[dict[Mode, str]] = {
    "plan": "Nothing is written; every cell is asked about.",
    "ask": "What matters is asked about.",
    "auto": "Code runs unasked behind a wall: it writes only in the workspace.",
    "full": "Everything runs unasked, without a wall.",
}
MODE: Final = "mode"
MODEL: Final = "model"
FORKED: Final = (
    "`{new}` is this conversation without its last {prompts}, in a copy of this folder as it was then: `{folder}`. Open "
    "that folder in your editor and load it there, or run `freeact-sub --resume {new}`. This conversation stays as it is."
)


def modes(mode: Mode) -> dict[str, Any]:
    """Return the modes. Args: mode: the current one."""
    return {
        "currentModeId": mode,
        "availableModes": [{"id": each, "name": each.capitalize(), "description": WORDS[each]} for each in MODES],
    }


def config_options(mode: Mode, model: str, models: Sequence[tuple[str, str]]) -> list[dict[str, Any]]:
    """Return all options. Args: models: values and names to choose from."""
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
    """Return the values and names of the models to choose from: the current one, and those in the settings."""
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


@dataclass(frozen=True, kw_only=True)
class SlashCommand:
    """A command that begins with `/`."""

    words: str
    run: "Callable[[Session, str], Awaitable[str]]"
    """The function that carries it out and returns the reply. Args: the session, and the words after the command."""
    hint: str = ""
    """A hint at the arguments."""
    at_once: bool = False
    """Whether the command runs while a prompt is worked on, and not after it."""


def own_of(contents: Mapping[Path, bytes]) -> Mapping[str, OwnCommand]:
    """Return the person's own commands, by name with `/`. Args: contents: of their files."""
    return own_commands(contents, [f"/{name}" for name in COMMANDS])


def unfolded(text: str, own: Mapping[str, OwnCommand]) -> str:
    """Return a prompt, with a command of the person's own replaced by its text."""
    return prompt_of(text, own) if text.startswith("/") else text


def find(text: str, skills: Mapping[str, str]) -> tuple[str, str] | None:
    """Return the name and the rest of a command or a skill. None: the text is a prompt."""
    if not text.startswith("/"):
        return None
    name, _, rest = text[1:].partition(" ")
    return (name, rest.strip()) if name in COMMANDS or name in skills else None


def available(skills: Mapping[str, str], own: Mapping[str, OwnCommand]) -> list[dict[str, Any]]:
    """Return the commands, the person's own ones and the skills, as a client lists them."""
    listed = {name: (command.words, command.hint) for name, command in COMMANDS.items()}
    for name, command in own.items():
        listed.setdefault(name[1:], (command.words, "words for it"))
    for name, words in skills.items():
        listed.setdefault(name, (one_line(visible(words), 120) or "a skill", "what to do"))
    return [
        {"name": name, "description": words, **({"input": {"hint": hint}} if hint else {})}
        for name, (words, hint) in listed.items()
    ]


async def _agents(session: "Session", _: str) -> str:
    return "\n".join(
        f"{'  ' * agent.depth}- `{short_id(agent.agent_id)}` {one_line(agent.description, 60)} {agent.status} · "
        f"{agent.usage}{f' · {one_line(agent.action, 80)}' if agent.action else ''}"
        for agent in session.agent.agents()
    )


def _rewinding(prompts: int) -> "Callable[[Session, str], Awaitable[str]]":
    """Make the function that undoes (-1) or restores (1) a prompt, or as many prompts as the person types."""

    async def done(session: "Session", rest: str) -> str:
        found = re.fullmatch(r"([1-9][0-9]{0,5})?( +--fork)?", rest)
        if found is None or (found[2] and (prompts > 0 or not found[1])):
            return "How many prompts? Give a number."
        rewind = Rewind(prompts=prompts * int(found[1] or 1), forks=found[2] is not None, forked=FORKED)
        told, _ = await rewind.done(session.agent, str)
        return told if rewind.forks else "\n".join(f"- {line}" for line in told.split("\n"))

    return done


async def _send(session: "Session", rest: str) -> str:
    name, _, text = rest.partition(" ")
    run = session.agent.present_run
    if not text.strip():
        return "To whom, and what? `/send NAME text`; `/agents` lists the names."
    found = find_agent(session.agent.agents(), name)
    sent = run is not None and run.send(text.strip(), found.agent_id)
    return f"sent to {agent_name(found.agent_id, found.description)}" if sent else "nobody will read it: it has ended"


async def _cancel(session: "Session", rest: str) -> str:
    if not rest:
        session.cancel()
        return "cancelled"
    found = find_agent(session.agent.agents(), rest)
    if not session.agent.cancel(found.agent_id):
        return f"{agent_name(found.agent_id, found.description)} has ended"
    return f"{agent_name(found.agent_id, found.description)} is cancelled"


async def _compact(session: "Session", rest: str) -> str:
    await session.follow(session.agent.run_compaction(rest))
    return ""


async def _cost(session: "Session", _: str) -> str:
    return cost_text(session.agent.usage, session.agent.config.budget)


async def _context(session: "Session", _: str) -> str:
    return fenced(context_text(session.agent.context()), "text")


async def carried_out(session: "Session", name: str, rest: str) -> str:
    """Carry out a command, and return the reply."""
    try:
        return await COMMANDS[name].run(session, rest)
    except (FreeactError, LookupError) as error:
        return str(error)


COMMANDS: Final[Mapping[str, SlashCommand]] = {
    "agents": SlashCommand(words="list all agents: what each does and has spent", run=_agents, at_once=True),
    "undo": SlashCommand(words="undo the last prompt: conversation, variables and files", run=_rewinding(-1)),
    "rewind": SlashCommand(
        words="undo the last N prompts; --fork: leave them, and begin a new session before them",
        run=_rewinding(-1),
        hint="N [--fork]",
    ),
    "redo": SlashCommand(words="restore a prompt that was undone", run=_rewinding(1)),
    "send": SlashCommand(words="send a message to an agent at work", run=_send, hint="NAME text", at_once=True),
    "cancel": SlashCommand(words="cancel the run, or one agent with its children", run=_cancel, hint="NAME", at_once=True),
    "compact": SlashCommand(words="summarise the conversation now", run=_compact, hint="what to keep above all"),
    "context": SlashCommand(words="show what fills the model's context window", run=_context),
    "cost": SlashCommand(words="show what was spent", run=_cost, at_once=True),
}
