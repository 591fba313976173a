"""Commands: prompts that begin with `/`. One that is not known here is a prompt like any other."""

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from freeact_sub.agent_names import agent_name, short_id
from freeact_sub.errors import FreeactError
from freeact_sub.show.agents_at_work import find_agent
from freeact_sub.show.own_commands import OwnCommand, own_commands, prompt_of
from freeact_sub.show.rewinding import Rewind, context_text, cost_text
from freeact_sub.text import fenced, one_line, visible

if TYPE_CHECKING:
    from freeact_sub.acp.session import Session

FORKED: Final = (
    "`{new}` is this conversation without its last {prompts}, in a copy of this folder as it was then: `{folder}`. Open "
    "that folder in your editor and load it there, or run `freeact-sub --resume {new}`. This conversation stays as it is."
)


@dataclass(frozen=True, kw_only=True)
class SlashCommand:
    """One command."""

    words: str
    run: "Callable[[Session, str], Awaitable[str]]"
    """Carries it out, and returns what the person reads. Args: the session, and the words after the command."""
    hint: str = ""
    """What may follow it. Empty: nothing."""
    at_once: bool = False
    """It is carried out while a prompt is worked on. False: after it."""


def own_of(contents: Mapping[Path, bytes]) -> Mapping[str, OwnCommand]:
    """The person's own commands, by name with `/`. Args: contents: of their files."""
    return own_commands(contents, [f"/{name}" for name in COMMANDS])


def unfolded(text: str, own: Mapping[str, OwnCommand]) -> str:
    """What a prompt stands for: a command of the person's own becomes its text."""
    return prompt_of(text, own) if text.startswith("/") else text


def find(text: str, skills: Mapping[str, str]) -> tuple[str, str] | None:
    """The name and the rest of a command, or of a skill. None: the text is a prompt."""
    if not text.startswith("/"):
        return None
    name, _, rest = text[1:].partition(" ")
    return (name, rest.strip()) if name in COMMANDS or name in skills else None


def available(skills: Mapping[str, str], own: Mapping[str, OwnCommand]) -> list[dict[str, Any]]:
    """The commands, the person's own ones and the skills, as a client lists them."""
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
    """Args: prompts: -1: one is undone, 1: restored; a number that is typed counts for it."""

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
    """Carry out a command, and return what the person reads."""
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
