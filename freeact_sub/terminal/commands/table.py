"""`COMMANDS`: all `/` commands. A new one is a function and a line here; the menu and `/help` include it."""

import base64
import re
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import CancelledError
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, Final

from rich.table import Table

from freeact_sub.agent_names import short_id
from freeact_sub.errors import FreeactError
from freeact_sub.show.heads import doing
from freeact_sub.show.own_commands import OwnCommand
from freeact_sub.show.rewinding import PROMPT_CHARS, Rewind, context_text, cost_text, goes_along
from freeact_sub.show.wording import ago, session_title
from freeact_sub.terminal.commands import looking
from freeact_sub.terminal.commands.orders import Compaction
from freeact_sub.terminal.commands.sessions import FORK, Opening, earlier_sessions
from freeact_sub.terminal.commands.settings import mode_choices, mode_command, model_choices, model_command
from freeact_sub.terminal.drawing.agents_table import AgentsTable
from freeact_sub.text import one_line

if TYPE_CHECKING:  # slow to import: the caller does it, at its time
    from freeact_sub.agent import Agent
    from freeact_sub.terminal.conversation.console import Console

COPY_CHARS: Final = 100_000
"""Bound on a text for the clipboard; terminals take no more."""


def resume(person: "Console", rest: str) -> None:
    """`/resume [ID]`: without an id a person picks one, where there is a screen for that."""
    agent = person.present.agent
    if rest or agent is None or not person.display.has_pages:
        person.present.waiting.put(Opening(session=rest))
    else:
        person.display.screen.start(_pick(person, agent))


async def _pick(person: "Console", agent: "Agent") -> None:
    from freeact_sub.terminal.picker import Picker, choices_of  # noqa: PLC0415  # slow to import

    store, workspace = agent.sessions, agent.config.workspace
    picker = Picker(lambda: choices_of(store, workspace, agent.session_id))
    await person.display.screen.show_pages(picker)
    if picker.chosen is not None:
        person.present.waiting.put(Opening(session=picker.chosen))


def session_choices(person: "Console") -> Iterable[tuple[str, str]]:
    """The ids of the sessions of this folder, the newest first, each with its title and age."""
    if (agent := person.present.agent) is None:
        return []
    try:
        found = earlier_sessions(agent)
    except FreeactError:
        return []
    now = time.time()
    return [(session.session_id, f"{session_title(session)} · {ago(session.updated, now)}") for session in found]


@dataclass(frozen=True)
class Command:
    """One command."""

    name: str
    words: str
    """A few words about its effect."""
    run: Callable[["Console", str], None]
    """Called with the text after the name."""
    usage: str = ""
    """The form of the text after the name."""
    choices: Callable[["Console"], Iterable[tuple[str, str]]] = lambda _: ()
    """Returns possible texts after the name, with their meanings. Called in another thread."""


def run_command(person: "Console", line: str) -> None:
    """Carries out a line that begins with `/`."""
    name, *rest = line.split(maxsplit=1)
    command = next((command for command in COMMANDS if command.name == name), None)
    if command is None and name in person.present.own_commands:
        person.say(line)
    elif command is None:
        person.display.note(f"unknown command {line} (/help lists them)")
    else:
        command.run(person, rest[0] if rest else "")


def offers(person: "Console", line: str) -> Iterable[tuple[str, str]]:
    """Return completions of a line with `/`, or of `@word`, each with its meaning. Called in another thread."""
    name, space, rest = line.partition(" ")
    if not space:
        own = [(known, command.words) for known, command in person.present.own_commands.items()]
        known = [(command.name, command.words) for command in COMMANDS] + own
        return [(command, words) for command, words in known if command.startswith(name)]
    found = next((command.choices(person) for command in COMMANDS if command.name == name), ())
    return [(f"{name} {choice}", words) for choice, words in found if choice.startswith(rest)]


def help_table(own: Mapping[str, OwnCommand], keys: Iterable[tuple[str, str]]) -> Table:
    """The commands and keys. Args: own: the person's own commands. keys: the keys, each with its meaning."""
    table = Table.grid("", "", padding=(0, 2, 0, 0))
    for command in COMMANDS:
        table.add_row(f"{command.name} {command.usage}".rstrip(), command.words)
    for name, own_command in own.items():
        table.add_row(name, own_command.words)
    table.add_row()
    for key, words in keys:
        table.add_row(key, words)
    return table


def _help(person: "Console", _rest: str) -> None:
    person.display.print(help_table(person.present.own_commands, person.display.keys))


def _in_turn(asked: Rewind | Opening) -> Callable[["Console", str], None]:
    """Queues it among the prompts."""
    return lambda person, _: person.present.waiting.put(asked)


def _agents(person: "Console", _rest: str) -> None:
    if person.present.agent is None:
        person.display.note("no agent is at work")
    else:
        person.display.print(AgentsTable(agents=person.present.agent.agents(), views=person.display.views))


def _send(person: "Console", rest: str) -> None:
    who, _, text = rest.partition(" ")
    if text.strip():
        person.control("/send", who, text.strip())
    elif who or not person.present.waiting.typed:
        person.display.note("name an agent and a message: /send NAME text")
    else:
        person.send_waiting()


def _always(how: str) -> Callable[["Console", str], None]:
    def answer(person: "Console", rest: str) -> None:
        if person.display.questions.current is None:
            person.display.note("no question is open")
        elif not person.display.questions.answer(f"{how} {rest}"):
            person.display.note(f"not a pattern: {rest} (KIND:GLOB, such as shell:git push *)")

    return answer


def _rewind(person: "Console", rest: str) -> None:
    if (found := re.fullmatch(r"([1-9][0-9]{0,5})( +--fork)?", rest)) is not None:
        forks = found[2] is not None
        person.present.waiting.put(Rewind(prompts=-int(found[1]), to_change=not forks, forks=forks))
    else:
        person.display.note("give a number of prompts, such as /rewind 3, or /rewind 3 --fork")


def _prompts(person: "Console") -> Iterable[tuple[str, str]]:
    if (agent := person.present.agent) is None or not agent.undoable:
        return []
    prompts = [one_line(person.present.as_typed(prompt), PROMPT_CHARS) for prompt in reversed(agent.undoable)]
    try:
        words = [goes_along(report) for report in person.result_of(agent.undo_previews())]
    except (FreeactError, TimeoutError, CancelledError):
        words = []
    shown = (f"{prompt}  {word}".rstrip() for prompt, word in zip_longest(prompts, words, fillvalue=""))
    return [(str(number), text) for number, text in enumerate(shown, start=1)]


def _shown(person: "Console") -> Iterable[tuple[str, str]]:
    views = [*person.display.views.by_id.values()]
    return [(short_id(view.agent_id), f"{view.label or 'agent'}: {doing(view) or view.status}") for view in views]


def _at_work(person: "Console") -> Iterable[tuple[str, str]]:
    working = [view for view in person.display.views.by_id.values() if view.is_running]
    return [(short_id(view.agent_id), f"{view.label or 'agent'}: {doing(view)}") for view in working]


def _cost(person: "Console", _rest: str) -> None:
    agent = person.present.agent
    person.display.note(looking.LOADING if agent is None else cost_text(agent.usage, agent.config.budget))


def _mcp(person: "Console", _rest: str) -> None:
    agent = person.present.agent
    servers = [] if agent is None else [*agent.config.mcp_servers]
    person.display.note(f"MCP servers: {', '.join(servers)}" if servers else "no MCP servers (mcp.json)")


def _context(person: "Console", _rest: str) -> None:
    person.display.note(looking.LOADING if person.present.agent is None else context_text(person.present.agent.context()))


def _copy(person: "Console", _rest: str) -> None:
    """Copy by OSC 52, which most terminals support, also over ssh."""
    answer = person.display.views.root.answer if person.display.views.root is not None else ""
    if not answer:
        person.display.note("no answer to copy yet")
        return
    content = base64.b64encode(answer[:COPY_CHARS].encode()).decode()
    person.display.screen.write_raw(f"\x1b]52;c;{content}\x07")
    person.display.note("copied the last answer, if the terminal lets programs write its clipboard")


COMMANDS: Final = (
    Command("/help", "list commands and keys", _help),
    Command("/agents", "list all agents: what each does and has spent", _agents),
    Command(
        "/show",
        "show everything an agent has done (Ctrl-O; a child: Ctrl-T)",
        lambda person, rest: person.show_agent(rest),
        usage="[NAME]",
        choices=_shown,
    ),
    Command(
        "/send",
        "send a message to an agent at work; alone: what is queued, to the root",
        _send,
        usage="[NAME text]",
        choices=_at_work,
    ),
    Command(
        "/cancel",
        "cancel the run, or one agent with its children",
        lambda person, rest: person.control("/cancel", rest, ""),
        usage="[NAME]",
        choices=_at_work,
    ),
    Command(
        "/focus",
        "let Ctrl-C cancel this agent first; without NAME the run",
        lambda person, rest: person.control("/focus", rest, ""),
        usage="[NAME]",
        choices=_at_work,
    ),
    Command("/always", "answer yes to the question and all like it, in this session", _always("always"), usage="PATTERN"),
    Command("/project", "the same, in this project", _always("project"), usage="PATTERN"),
    Command("/new", "begin a new conversation", _in_turn(Opening(session="new"))),
    Command("/clear", "the same", _in_turn(Opening(session="new"))),
    Command(
        "/resume", "resume an earlier conversation; without ID choose one", resume, usage="[ID]", choices=session_choices
    ),
    Command("/fork", "copy this conversation with its variables; both continue", _in_turn(Opening(session=FORK))),
    Command(
        "/compact",
        "summarise the conversation now; the text says what to keep above all",
        lambda person, rest: person.present.waiting.put(Compaction(keep=rest)),
        usage="[text]",
    ),
    Command("/undo", "undo the last prompt: conversation, variables and files", _in_turn(Rewind(prompts=-1))),
    Command(
        "/rewind",
        "undo the last N prompts; the first of them comes back to the line (Esc Esc); --fork: in a new session",
        _rewind,
        usage="N [--fork]",
        choices=_prompts,
    ),
    Command("/redo", "restore a prompt that was undone", _in_turn(Rewind(prompts=1))),
    Command("/context", "show what fills the model's context window", _context),
    Command("/cost", "show what was spent, and what a prompt may take", _cost),
    Command(
        "/model",
        "show the model, or change it from the next prompt on",
        model_command,
        usage="[NAME]",
        choices=model_choices,
    ),
    Command(
        "/mode",
        "show or change how much runs without asking: plan, ask, auto, full (Shift-Tab)",
        mode_command,
        usage="[NAME]",
        choices=mode_choices,
    ),
    Command("/mcp", "list the MCP servers", _mcp),
    Command("/tools", "list the agent's tools", looking.tools),
    Command(
        "/permissions", "list the rules, or show what they decide about a command", looking.permissions, usage="[command]"
    ),
    Command("/diff", "show how files have changed since the last prompt, or the last N", looking.diff, usage="[N]"),
    Command(
        "/effects",
        "show which variables and files have changed since the last prompt, or the last N; /undo takes it back",
        looking.effects,
        usage="[N]",
    ),
    Command("/status", "show the model, the mode, the folder, the Python of cells, the session", looking.status),
    Command("/config", "show the settings that differ from the defaults", looking.config),
    Command("/trust", "list the settings of this workspace that you have not seen", looking.trust),
    Command(
        "/export",
        "write this conversation to a file: html, ipynb, md or jsonl",
        looking.export,
        usage="[FORMAT] [FILE]",
        choices=looking.formats,
    ),
    Command("/copy", "copy the last answer to the clipboard", _copy),
    Command("/exit", "quit (also: exit, quit, Ctrl-D)", lambda person, _: person.leave()),
    Command("/quit", "quit", lambda person, _: person.leave()),
)
