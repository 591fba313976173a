"""`COMMANDS`: all `/` commands. A new one is a function and a line here: the menu and `/help` follow from it."""

import base64
import re
from collections.abc import Callable, Coroutine, Iterable, Mapping
from concurrent.futures import CancelledError
from dataclasses import dataclass
from itertools import zip_longest
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from rich.console import RenderableType

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
KEYS: Final = """\
Text is the next prompt. While the agent works it waits above the line: Enter at the empty line has the agent read it
before its next request, the arrow key up takes it back. @ names a file, whose text goes along. Alt-Enter, or \\ at the end
of a line, begins a new line, Ctrl-R searches earlier prompts, Tab completes, Ctrl-O shows all that was folded, Ctrl-T a
child. Shift-Tab changes the mode. Ctrl-C or Esc cancels the agent in focus, the next one the run; Ctrl-C once more leaves
at once. Esc twice, at rest, goes back to an earlier prompt. A question is answered by one key, which stands below it; of
several, /2 takes the second one first. NAME is a part of an agent's name, #2, or the beginning of its id."""


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
        talk.note(f"unknown command {line}: /help lists them")
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


def help_text(own: Mapping[str, OwnCommand] = MappingProxyType({})) -> str:
    """The list of commands and keys. Args: own: the person's own commands."""
    shown = [(f"{command.name} {command.usage}".rstrip(), command.words) for command in COMMANDS]
    shown += [(name, command.words) for name, command in own.items()]
    width = max(len(usage) for usage, _ in shown)
    return "\n".join([*(f"{usage:{width}}  {words}" for usage, words in shown), "", KEYS])


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
        talk.note("who is to be told what: /send NAME text")
    else:
        talk.send_waiting()


def _always(how: str) -> Callable[[Talk, str], None]:
    def answer(talk: Talk, rest: str) -> None:
        if talk.questions.current is None:
            talk.note("no question is open")
        elif not talk.questions.answer(f"{how} {rest}"):
            talk.note(f"that is no pattern: {rest} (KIND:GLOB, such as shell:git push *)")

    return answer


def _rewind(talk: Talk, rest: str) -> None:
    if re.fullmatch(r"[1-9][0-9]{0,5}", rest):
        talk.queue(Rewind(prompts=-int(rest), to_change=True))
    else:
        talk.note("how many prompts are to be undone: /rewind N, such as /rewind 3")


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
    talk.note(looking.LOADING if talk.agent is None else f"all runs, with all children: {talk.agent.usage}")


def _mcp(talk: Talk, _rest: str) -> None:
    servers = [] if talk.agent is None else [name for name, server in talk.agent.config.mcp_servers.items()]
    talk.note(f"MCP servers: {', '.join(servers)}" if servers else "there are no MCP servers (mcp.json)")


def _context(talk: Talk, _rest: str) -> None:
    talk.note(looking.LOADING if talk.agent is None else context_text(talk.agent.context()))


def _copy(talk: Talk, _rest: str) -> None:
    """OSC 52, which most terminals obey, over ssh too."""
    answer = talk.views.root.answer if talk.views.root is not None else ""
    if not answer:
        talk.note("there is no answer yet")
        return
    content = base64.b64encode(answer[:COPY_CHARS].encode()).decode()
    talk.write_raw(f"\x1b]52;c;{content}\x07")
    talk.note("the last answer is in the clipboard, where the terminal lets programs write it")


COMMANDS: Final = (
    Command(name="/help", words="this list", run=lambda talk, _: talk.note(help_text(talk.own_commands))),
    Command(name="/agents", words="the tree of agents: what each does, and what it has spent", run=_agents),
    Command(
        name="/show",
        usage="[NAME]",
        words="all that an agent has done (Ctrl-O; of a child Ctrl-T)",
        run=lambda talk, rest: talk.show_agent(rest),
        choices=_shown,
    ),
    Command(
        name="/send",
        usage="[NAME text]",
        words="tell one agent something, before its next request; alone: the root all that waits",
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
        words="Ctrl-C first cancels this agent; without a name the run",
        run=lambda talk, rest: talk.control("/focus", rest, ""),
    ),
    Command(name="/always", usage="PATTERN", words="answer a question: yes, and to all like it", run=_always("always")),
    Command(name="/project", usage="PATTERN", words="the same, always in this project", run=_always("project")),
    Command(name="/new", words="a new conversation", run=lambda talk, _: talk.queue(Opening(session="new"))),
    Command(name="/clear", words="the same", run=lambda talk, _: talk.queue(Opening(session="new"))),
    Command(
        name="/resume",
        usage="[ID]",
        words="go on with an earlier conversation; without ID they are listed",
        run=lambda talk, rest: talk.queue(Opening(session=rest)),
    ),
    Command(
        name="/fork",
        words="a copy of this conversation, with its variables; both go on",
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
        words="conversation, variables and files as before the last prompt",
        run=lambda talk, _: talk.queue(Rewind(prompts=-1)),
    ),
    Command(
        name="/rewind",
        usage="N",
        words="the same, before the last N prompts, the first of which comes back to the line (Esc Esc)",
        run=_rewind,
        choices=_prompts,
    ),
    Command(name="/redo", words="what was undone, one prompt", run=lambda talk, _: talk.queue(Rewind(prompts=1))),
    Command(name="/context", words="what fills the model's context window", run=_context),
    Command(name="/cost", words="what was spent", run=_cost),
    Command(
        name="/model",
        usage="[NAME]",
        words="another model answers, from the next prompt on",
        run=model_command,
        choices=model_choices,
    ),
    Command(
        name="/mode",
        usage="[NAME]",
        words="how much runs without a question: plan, ask, auto, full (Shift-Tab)",
        run=mode_command,
        choices=mode_choices,
    ),
    Command(name="/mcp", words="the MCP servers there are", run=_mcp),
    Command(name="/tools", words="the tools that the agent has", run=looking.tools),
    Command(
        name="/permissions",
        usage="[command]",
        words="the rules there are; or what they say of a command, and which one does",
        run=looking.permissions,
    ),
    Command(
        name="/diff", usage="[N]", words="what has changed of files since before the last N prompts (1)", run=looking.diff
    ),
    Command(name="/config", words="the settings that are none of the defaults", run=looking.config),
    Command(name="/trust", words="which settings of this workspace nobody has looked at", run=looking.trust),
    Command(
        name="/export",
        usage="[FORMAT] [FILE]",
        words="this conversation as a file: html, ipynb, md or jsonl",
        run=looking.export,
        choices=looking.formats,
    ),
    Command(name="/copy", words="put the last answer into the clipboard", run=_copy),
    Command(name="/exit", words="leave (so do exit, quit and Ctrl-D)", run=lambda talk, _: talk.leave()),
    Command(name="/quit", words="leave", run=lambda talk, _: talk.leave()),
)
