"""`COMMANDS`: all `/` commands. A new one is a function and a line here: the menu and `/help` follow from it."""

import base64
import re
from collections.abc import Callable, Coroutine, Iterable, Mapping
from concurrent.futures import CancelledError
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from rich.console import RenderableType
from rich.table import Table

from freeact_sub.errors import FreeactError
from freeact_sub.show.agent_view import Views
from freeact_sub.show.heads import doing
from freeact_sub.show.questions import Questions
from freeact_sub.terminal.commands import looking
from freeact_sub.terminal.commands.context import Compaction, context_text
from freeact_sub.terminal.commands.own import OwnCommand
from freeact_sub.terminal.commands.sessions import FORK, Opening
from freeact_sub.terminal.commands.settings import mode_choices, mode_command, model_choices, model_command
from freeact_sub.terminal.commands.undo import PROMPT_CHARS, Rewind, goes_along
from freeact_sub.terminal.drawing.agents_table import AgentsTable
from freeact_sub.text import one_line

if TYPE_CHECKING:  # slow to import: the caller does it, at its time
    from freeact_sub.agents import Agent
    from freeact_sub.terminal.conversation.present import Present

Result = TypeVar("Result")
COPY_CHARS: Final = 100_000
"""Bound on a text for the clipboard; terminals take no more."""
KEYS: Final = (
    ("Enter", "send the prompt; while the agent works it is queued, and Enter at the empty line sends what is queued now"),
    ("↑", "take the last queued prompt back; earlier prompts, which Ctrl-R searches"),
    ("Alt-Enter", "new line; so does \\ at the end of a line"),
    ("@ ! Tab", "@ names a file whose content goes along, ! runs a command, Tab completes"),
    ("Shift-Tab", "change the mode"),
    ("Esc, Ctrl-C", "cancel the agent in focus, then the run; Ctrl-C once more quits at once"),
    ("Esc Esc", "go back to an earlier prompt, at rest"),
    ("Ctrl-O, Ctrl-T", "show everything that the agent, or a child, has done"),
    ("/2", "of several open questions, the second one"),
    ("NAME", "part of an agent's name, #2, or the beginning of its id"),
)
"""The keys, and what the list of commands leaves open, each with its meaning."""


class Talk(Protocol):
    """The part of the conversation that a command may use."""

    @property
    def present(self) -> "Present":
        """The state of the conversation."""
        ...

    @property
    def may_change_settings(self) -> bool:
        """Whether another agent can continue the session."""
        ...

    @property
    def agent(self) -> "Agent | None":
        """The agent; None until it is open."""
        ...

    @property
    def views(self) -> Views:
        """All agents."""
        ...

    @property
    def questions(self) -> Questions:
        """The open questions."""
        ...

    @property
    def own_commands(self) -> Mapping[str, OwnCommand]:
        """The person's own commands by name, with the `/`."""
        ...

    def say(self, text: str) -> None:
        """Puts a prompt at the end of those that wait."""
        ...

    def note(self, text: str) -> None:
        """Prints a note for the person."""
        ...

    def hint(self, text: str) -> None:
        """Shows a note until the next line is entered."""
        ...

    def print(self, drawn: RenderableType) -> None:
        """Puts something into the scrollback."""
        ...

    def send_waiting(self) -> None:
        """Gives the prompts that wait to the agent at work."""
        ...

    def control(self, name: str, who: str, text: str) -> None:
        """Cancels an agent, puts it into focus, or sends it a message."""
        ...

    def queue(self, asked: Compaction | Rewind | Opening) -> None:
        """Queues a command among the prompts, for when the agent is at rest."""
        ...

    def result_of(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Calls a function in the conversation's loop, within 2 s. Called in another thread.

        Raises:
            TimeoutError: It takes longer.
        """
        ...

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Runs a coroutine beside all else, which ends with the conversation at the latest."""
        ...

    def page(self, drawn: RenderableType) -> None:
        """Shows something long in a pager."""
        ...

    def show_agent(self, words: str) -> None:
        """Shows all that an agent has done, in a pager."""
        ...

    def write_raw(self, text: str) -> None:
        """Writes a sequence that the terminal obeys and does not draw."""
        ...

    def leave(self) -> None:
        """Ends the conversation."""
        ...


@dataclass(frozen=True, kw_only=True)
class Command:
    """One command."""

    name: str
    words: str
    """A few words about its effect."""
    run: Callable[[Talk, str], None]
    """Called with the text after the name."""
    usage: str = ""
    """The form of the text after the name."""
    choices: Callable[[Talk], Iterable[tuple[str, str]]] = lambda _: ()
    """Possible texts after the name, each with its meaning. Called in another thread."""


def run_command(talk: Talk, line: str) -> None:
    """Carries out a line that begins with `/`."""
    name, *rest = line.split(maxsplit=1)
    command = next((command for command in COMMANDS if command.name == name), None)
    if command is None and name in talk.own_commands:
        talk.say(line)
    elif command is None:
        talk.note(f"unknown command {line} (/help lists them)")
    else:
        command.run(talk, rest[0] if rest else "")


def offers(talk: Talk, line: str) -> Iterable[tuple[str, str]]:
    """See `Keyboard.offers`."""
    name, space, rest = line.partition(" ")
    if not space:
        own = [(known, command.words) for known, command in talk.own_commands.items()]
        known = [(command.name, command.words) for command in COMMANDS] + own
        return [(command, words) for command, words in known if command.startswith(name)]
    found = next((command.choices(talk) for command in COMMANDS if command.name == name), ())
    return [(f"{name} {choice}", words) for choice, words in found if choice.startswith(rest)]


def help_table(own: Mapping[str, OwnCommand]) -> Table:
    """The commands and keys. Args: own: the person's own commands."""
    table = Table.grid("", "", padding=(0, 2, 0, 0))
    for command in COMMANDS:
        table.add_row(f"{command.name} {command.usage}".rstrip(), command.words)
    for name, own_command in own.items():
        table.add_row(name, own_command.words)
    table.add_row()
    for keys, words in KEYS:
        table.add_row(keys, words)
    return table


def _agents(talk: Talk, _rest: str) -> None:
    if talk.agent is None:
        talk.note("no agent is at work")
    else:
        talk.print(AgentsTable(agents=talk.agent.agents(), views=talk.views))


def _send(talk: Talk, rest: str) -> None:
    who, _, text = rest.partition(" ")
    if text.strip():
        talk.control("/send", who, text.strip())
    elif who or not talk.present.waiting.typed:
        talk.note("name an agent and a message: /send NAME text")
    else:
        talk.send_waiting()


def _always(how: str) -> Callable[[Talk, str], None]:
    def answer(talk: Talk, rest: str) -> None:
        if talk.questions.current is None:
            talk.note("no question is open")
        elif not talk.questions.answer(f"{how} {rest}"):
            talk.note(f"not a pattern: {rest} (KIND:GLOB, such as shell:git push *)")

    return answer


def _rewind(talk: Talk, rest: str) -> None:
    if re.fullmatch(r"[1-9][0-9]{0,5}", rest):
        talk.queue(Rewind(prompts=-int(rest), to_change=True))
    else:
        talk.note("give a number of prompts, such as /rewind 3")


def _prompts(talk: Talk) -> Iterable[tuple[str, str]]:
    if (agent := talk.agent) is None or not agent.undoable:
        return []
    prompts = [one_line(prompt, PROMPT_CHARS) for prompt in reversed(agent.undoable)]
    try:
        words = [goes_along(report) for report in talk.result_of(agent.undo_previews())]
    except (FreeactError, TimeoutError, CancelledError):
        words = []
    shown = (f"{prompt}  {word}".rstrip() for prompt, word in zip_longest(prompts, words, fillvalue=""))
    return [(str(number), text) for number, text in enumerate(shown, start=1)]


def _shown(talk: Talk) -> Iterable[tuple[str, str]]:
    views = [*talk.views.by_id.values()]
    return [(f"#{view.number}", f"{talk.views.name(view)}: {doing(view) or view.status}") for view in views]


def _cost(talk: Talk, _rest: str) -> None:
    talk.note(looking.LOADING if talk.agent is None else f"all runs, children included: {talk.agent.usage}")


def _mcp(talk: Talk, _rest: str) -> None:
    servers = [] if talk.agent is None else [name for name, server in talk.agent.config.mcp_servers.items()]
    talk.note(f"MCP servers: {', '.join(servers)}" if servers else "no MCP servers (mcp.json)")


def _context(talk: Talk, _rest: str) -> None:
    talk.note(looking.LOADING if talk.agent is None else context_text(talk.agent.context()))


def _copy(talk: Talk, _rest: str) -> None:
    """OSC 52, which most terminals obey, over ssh too."""
    answer = talk.views.root.answer if talk.views.root is not None else ""
    if not answer:
        talk.note("no answer to copy yet")
        return
    content = base64.b64encode(answer[:COPY_CHARS].encode()).decode()
    talk.write_raw(f"\x1b]52;c;{content}\x07")
    talk.note("copied the last answer, if the terminal lets programs write its clipboard")


COMMANDS: Final = (
    Command(name="/help", words="list commands and keys", run=lambda talk, _: talk.print(help_table(talk.own_commands))),
    Command(name="/agents", words="list all agents: what each does and has spent", run=_agents),
    Command(
        name="/show",
        usage="[NAME]",
        words="show everything an agent has done (Ctrl-O; a child: Ctrl-T)",
        run=lambda talk, rest: talk.show_agent(rest),
        choices=_shown,
    ),
    Command(
        name="/send",
        usage="[NAME text]",
        words="send a message to an agent at work; alone: what is queued, to the root",
        run=_send,
    ),
    Command(
        name="/cancel",
        usage="[NAME]",
        words="cancel the run, or one agent with its children",
        run=lambda talk, rest: talk.control("/cancel", rest, ""),
    ),
    Command(
        name="/focus",
        usage="[NAME]",
        words="let Ctrl-C cancel this agent first; without NAME the run",
        run=lambda talk, rest: talk.control("/focus", rest, ""),
    ),
    Command(
        name="/always",
        usage="PATTERN",
        words="answer yes to the question and all like it, in this session",
        run=_always("always"),
    ),
    Command(name="/project", usage="PATTERN", words="the same, in this project", run=_always("project")),
    Command(name="/new", words="begin a new conversation", run=lambda talk, _: talk.queue(Opening(session="new"))),
    Command(name="/clear", words="the same", run=lambda talk, _: talk.queue(Opening(session="new"))),
    Command(
        name="/resume",
        usage="[ID]",
        words="resume an earlier conversation; without ID list them",
        run=lambda talk, rest: talk.queue(Opening(session=rest)),
    ),
    Command(
        name="/fork",
        words="copy this conversation with its variables; both continue",
        run=lambda talk, _: talk.queue(Opening(session=FORK)),
    ),
    Command(
        name="/compact",
        usage="[text]",
        words="summarise the conversation now; the text says what to keep above all",
        run=lambda talk, rest: talk.queue(Compaction(keep=rest)),
    ),
    Command(
        name="/undo",
        words="undo the last prompt: conversation, variables and files",
        run=lambda talk, _: talk.queue(Rewind(prompts=-1)),
    ),
    Command(
        name="/rewind",
        usage="N",
        words="undo the last N prompts; the first of them comes back to the line (Esc Esc)",
        run=_rewind,
        choices=_prompts,
    ),
    Command(name="/redo", words="restore a prompt that was undone", run=lambda talk, _: talk.queue(Rewind(prompts=1))),
    Command(name="/context", words="show what fills the model's context window", run=_context),
    Command(name="/cost", words="show what was spent", run=_cost),
    Command(
        name="/model",
        usage="[NAME]",
        words="show the model, or change it from the next prompt on",
        run=model_command,
        choices=model_choices,
    ),
    Command(
        name="/mode",
        usage="[NAME]",
        words="show or change how much runs without asking: plan, ask, auto, full (Shift-Tab)",
        run=mode_command,
        choices=mode_choices,
    ),
    Command(name="/mcp", words="list the MCP servers", run=_mcp),
    Command(name="/tools", words="list the agent's tools", run=looking.tools),
    Command(
        name="/permissions",
        usage="[command]",
        words="list the rules, or show what they decide about a command",
        run=looking.permissions,
    ),
    Command(
        name="/diff", usage="[N]", words="show how files have changed since the last prompt, or the last N", run=looking.diff
    ),
    Command(name="/config", words="show the settings that differ from the defaults", run=looking.config),
    Command(name="/trust", words="list the settings of this workspace that you have not seen", run=looking.trust),
    Command(
        name="/export",
        usage="[FORMAT] [FILE]",
        words="write this conversation to a file: html, ipynb, md or jsonl",
        run=looking.export,
        choices=looking.formats,
    ),
    Command(name="/copy", words="copy the last answer to the clipboard", run=_copy),
    Command(name="/exit", words="quit (also: exit, quit, Ctrl-D)", run=lambda talk, _: talk.leave()),
    Command(name="/quit", words="quit", run=lambda talk, _: talk.leave()),
)
