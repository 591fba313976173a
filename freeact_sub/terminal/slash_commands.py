"""`COMMANDS`: all `/` commands. A new one is a function and a line here; the menu and `/help` include it.

`/mode`, `/model` and Shift-Tab: a mode counts at once. An agent has one model for as long as it is open. So another agent
gets the next prompt, which continues the same session: with the conversation, and in a new kernel with the variables.
"""

import asyncio
import base64
import json
import os
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from freeact_sub.agent_names import agents_meant, candidates, short_id
from freeact_sub.errors import ConfigError, FreeactError, UntrustedError
from freeact_sub.models.build import FoundModel, check_name, is_full_name, known_models, model_meant, models_of_keys
from freeact_sub.modes import MODES
from freeact_sub.show.heads import doing
from freeact_sub.show.typed_commands import (
    PROMPT_CHARS,
    OwnCommand,
    Rewind,
    context_text,
    cost_text,
    find_agent,
    goes_along,
)
from freeact_sub.show.wording import ago, session_title
from freeact_sub.terminal.drawing.area import AgentsTable
from freeact_sub.terminal.drawing.banner import MODES as WORDS
from freeact_sub.terminal.drawing.banner import mode_words
from freeact_sub.terminal.drawing.parts import Hanging
from freeact_sub.terminal.listing import Chooser, Row
from freeact_sub.terminal.present import FORK, Compaction, Opening, earlier_sessions, session_chooser
from freeact_sub.text import one_line, visible

if TYPE_CHECKING:  # slow to import: the caller does it, at its time
    from freeact_sub.agent import Agent
    from freeact_sub.config.schema import Config
    from freeact_sub.terminal.conversation import Person
    from freeact_sub.terminal.display import Display


FIXED: Final = "the model cannot change here: the conversation is not kept"


def mode_command(person: "Person", name: str) -> None:
    """`/mode [NAME]`."""
    present = person.present
    if name in MODES:
        _choose_mode(person, name)
    elif name:
        person.display.note(f"unknown mode {name!r}: {', '.join(MODES)}")
    elif person.display.has_pages:
        rows = [Row(value=mode, text=mode, note=WORDS[mode], is_present=mode == present.mode) for mode in MODES]
        person.display.screen.start(_pick(person, Chooser("mode: ", lambda: rows, takes="takes it", none=""), mode_command))
    else:
        words = mode_words(present.mode, present.code_rule, present.config.workspace)
        person.display.note(f"mode {words} · sandbox {present.config.kernel.sandbox}")


def mode_choices(_person: "Person") -> Iterable[tuple[str, str]]:
    """Return the modes with their meanings."""
    return [(mode, WORDS[mode]) for mode in MODES]


def next_mode(person: "Person") -> None:
    """Choose the next mode, for Shift-Tab. `full` is offered only if the program started in it."""
    mode = person.present.mode
    modes = MODES if person.present.config.mode == "full" else MODES[:-1]
    _choose_mode(person, modes[(modes.index(mode) + 1) % len(modes)] if mode in modes else modes[0])


def model_command(person: "Person", name: str) -> None:
    """`/model [NAME]`."""
    present = person.present
    config = present.config.model_copy(update={"model": present.model, "base_url": present.base_url})
    full = config.models.names.get(name, name)
    if not isinstance(full, str):
        person.display.note(f"{name} is set by the program and cannot be chosen by name")
    elif is_full_name(full):
        _choose_checked(person, FoundModel(model=full, because=""))
    elif name:
        person.display.screen.start(_choose_meant(person, config, name))
    elif not person.conversation.may_change_settings:
        person.display.note(f"model {present.model or 'not set'} · {FIXED}")
    elif person.display.has_pages:
        person.display.screen.start(_pick_model(person, config))
    else:
        _tell(person, lambda: _models_text(config))


async def _choose_meant(person: "Person", config: "Config", name: str) -> None:
    try:
        _choose_checked(person, await asyncio.to_thread(model_meant, config, name, os.environ))
    except ConfigError as error:
        person.display.note(str(error))


def _choose_checked(person: "Person", found: FoundModel) -> None:
    try:
        check_name(person.present.config.model_copy(update={"model": found.model}))
    except ConfigError as error:
        person.display.note(str(error))
    else:
        _choose_model(person, found)


async def _pick_model(person: "Person", config: "Config") -> None:
    models: list[FoundModel] = []

    def load() -> list[Row]:
        models[:] = known_models(config, os.environ)
        return [
            Row(
                value=str(at),
                text=found.model,
                note=found.because,
                is_present=(found.model, found.base_url or config.base_url) == (config.model, config.base_url),
            )
            for at, found in enumerate(models)
        ]

    none = "no model is found: set a provider's key, start a local server, or type /model PROVIDER:NAME"
    chooser = Chooser("model: ", load, takes="takes it", none=none)
    await _pick(person, chooser, lambda person, value: _choose_checked(person, models[int(value)]))


def _models_text(config: "Config") -> str:
    lines = [f"{found.model}  ({found.because})" for found in known_models(config, os.environ)]
    return "\n".join([f"model {config.model or 'not set'}", *lines, "/model NAME changes it; a part of a name is enough"])


def model_choices(person: "Person") -> Iterable[tuple[str, str]]:
    """Return the models that the settings name, and one of each provider whose key is set."""
    found = [(model.model, model.because) for model in models_of_keys(os.environ)]
    return [*((name, str(model)) for name, model in person.present.config.models.names.items()), *found]


def use_mode(display: "Display", agent: "Agent", mode: Any) -> bool:
    """Bring an agent into a mode; return False, and say why, if it cannot have it."""
    try:
        agent.mode = mode
    except FreeactError as error:
        display.note(str(error))
        return False
    return True


def _choose_mode(person: "Person", mode: Any) -> None:
    present = person.present
    words = f"mode {mode}: {WORDS[mode]}"
    if present.agent is None:
        present.wanted["mode"] = mode
        person.display.hint(f"{words} · from the first prompt")
    elif present.mode == mode:
        person.display.hint(f"mode {mode_words(mode, present.code_rule, present.config.workspace)} · unchanged")
    elif use_mode(person.display, present.agent, mode):
        present.wanted["mode"] = mode  # other sessions, too
        person.display.hint(f"mode {mode_words(mode, present.code_rule, present.config.workspace)}")


def _choose_model(person: "Person", found: FoundModel) -> None:
    present, model, shown = person.present, found.model, str(found)
    if not person.conversation.may_change_settings:
        person.display.hint(FIXED)
        return
    present.wanted.pop("base_url", None)
    present.wanted |= {"model": model, **({"base_url": found.base_url} if found.base_url is not None else {})}
    if present.agent is None:
        person.display.hint(f"model {shown} · from the first prompt")
    elif (model, present.base_url) == (present.agent.config.model, present.agent.config.base_url):
        person.display.hint(f"model {shown} · unchanged")
    elif present.agent.history:
        person.display.hint(f"model {shown} · from the next prompt, in a new kernel with the variables")
    else:
        person.display.hint(f"model {shown} · from the next prompt, in a new kernel")


FORMATS: Final = {"html": "one page", "ipynb": "a notebook that runs", "md": "text", "jsonl": "one event a line"}
WORDS_CHARS: Final = 76
PAGED_LINES: Final = 40
"""Most lines of a text outside a pager."""
DIFF_STYLES: Final = {"+": "green", "-": "red", "@": "cyan"}
LOADING: Final = "the agent is still starting: try again in a moment"


def diff(person: "Person", rest: str) -> None:
    """`/diff [N]`."""
    if (agent := _compared(person, "/diff", rest, ", or its files are not kept")) is not None:
        person.display.screen.start(_diff(person, agent, int(rest or 1)))


def effects(person: "Person", rest: str) -> None:
    """`/effects [N]`."""
    if (agent := _compared(person, "/effects", rest)) is None:
        return
    if person.present.phase == "running":
        person.display.note(
            "the agent is at work: /effects shows what it has changed when it has ended, /diff its files now"
        )
    else:
        person.display.screen.start(_effects(person, agent, int(rest or 1)))


def _compared(person: "Person", command: str, rest: str, perhaps: str = "") -> "Agent | None":
    """Return the agent whose prompts can be compared with now; None: the person was told why there is nothing to compare."""
    agent = person.present.agent
    if rest and not re.fullmatch(r"[1-9][0-9]{0,5}", rest):
        person.display.note(f"give a number of prompts, such as {command} 3")
    elif agent is None or not agent.undoable:
        person.display.note(f"nothing to compare yet: no prompt has run{perhaps}")
    else:
        return agent
    return None


async def _effects(person: "Person", agent: "Agent", prompts: int) -> None:
    from freeact_sub.terminal.card import drawn_changes  # noqa: PLC0415  # slow to import

    try:
        found = await agent.effects(prompts)
    except FreeactError as error:
        person.display.note(str(error))
        return
    since = "your last prompt" if prompts == 1 else f"your last {prompts} prompts"
    undo = "/undo" if prompts == 1 else f"/rewind {prompts}"
    lines = drawn_changes(found)
    head = (
        f"changed since {since} ({undo} takes it back):" if lines else f"no variable and no file has changed since {since}"
    )
    problem = [Text(f"not compared: {visible(found.reason)}", "yellow")] if found.reason else []
    lines = [Text(head, "bold"), *problem, *lines]
    _show(person, Text("\n").join(lines), len(lines), Hanging(lines=lines))


async def _diff(person: "Person", agent: "Agent", prompts: int) -> None:
    try:
        text = await agent.diff(prompts)
    except FreeactError as error:
        person.display.note(str(error))
        return
    lines = (Text(visible(line), DIFF_STYLES.get(line[:1], ""), overflow="fold") for line in text.splitlines())
    drawn = Text("\n").join(lines)
    if not text:
        person.display.note("no file has changed since the last prompt" if prompts == 1 else "no file has changed")
    else:
        _show(person, drawn, text.count("\n"))


def tools(person: "Person", _rest: str) -> None:
    """`/tools`."""
    from freeact_sub.features.background import Subagents  # noqa: PLC0415  # slow to import
    from freeact_sub.features.memory import Remember  # noqa: PLC0415
    from freeact_sub.features.plan import UpdatePlan  # noqa: PLC0415
    from freeact_sub.features.questions import AskUser  # noqa: PLC0415
    from freeact_sub.tools import TOOLS, load_definition  # noqa: PLC0415

    config = person.present.config
    spawning = () if config.subagents.enabled else ("task", "delegate", "subagents")
    tools = (*TOOLS, Subagents(), AskUser(), UpdatePlan(), Remember())
    names = [tool.name for tool in tools if tool.name not in spawning]
    words = {name: load_definition(name).description or "" for name in names}
    lines = [f"{name:<22}{one_line(words[name].partition('. ')[0], WORDS_CHARS)}" for name in names]
    servers = [f"agent.mcp.{name}" for name, server in config.mcp_servers.items() if not server.disabled]
    person.display.note("\n".join([*lines, *([f"from code also: {', '.join(servers)}"] if servers else [])]))


def permissions(person: "Person", rest: str) -> None:
    """`/permissions [command]`."""
    from freeact_sub.show.rule_texts import rules_text, ruling_text  # noqa: PLC0415  # slow to import

    config = person.present.config.model_copy(update={"mode": person.present.mode})
    _tell(person, lambda: ruling_text(config, "shell", rest)[1] if rest else rules_text(config))


def status(person: "Person", _rest: str) -> None:
    """`/status`: what the banner said, as it is now."""
    from freeact_sub.terminal.drawing.banner import facts  # noqa: PLC0415  # slow to import

    present = person.present
    chosen = present.config.model_copy(update={"mode": present.mode, "model": present.model})
    session = present.agent.session_id if present.agent is not None else None
    person.display.print(facts(chosen, session or "not kept", present.code_rule))


def config(person: "Person", _rest: str) -> None:
    """`/config`: without secrets."""
    chosen = person.present.config.model_copy(update=person.present.wanted)
    _tell(person, lambda: config_text(chosen))


def config_text(config: "Config") -> str:
    """Return the settings that differ from the defaults, a line for each, without secrets."""
    from freeact_sub.features.sessions.agent_session import known_secrets  # noqa: PLC0415  # slow to import
    from freeact_sub.terminal.asking import flat_lines  # noqa: PLC0415

    shown: Any = json.loads(json.dumps(config.model_dump(exclude_defaults=True), default=str))
    text = "\n".join(flat_lines(shown))
    for secret in known_secrets(config, config.mcp_servers):
        text = text.replace(json.dumps(secret, ensure_ascii=False)[1:-1], "…")
    others = "All others have their defaults. Read at the start from .freeact/config.toml, FREEACT_… variables and options."
    return f"{text}\n{others}"


def trust(person: "Person", _rest: str) -> None:
    """`/trust`."""
    _tell(person, lambda: _trust_text(person.present.config.workspace))


def _trust_text(workspace: Path) -> str:
    from freeact_sub.config.load import load_config  # noqa: PLC0415
    from freeact_sub.config.schema import user_folder  # noqa: PLC0415
    from freeact_sub.config.trust import Trust  # noqa: PLC0415

    try:
        load_config(workspace, trust=Trust(user_folder()))
    except UntrustedError as error:
        names = "\n".join(f"  {path}" for path in error.files)
        return f"new or changed since you last looked, so they do not count now; the next start asks about them:\n{names}"
    except ConfigError as error:
        return str(error)
    return "you have seen all settings of this workspace as they are now"


def memory(person: "Person", _rest: str) -> None:
    """`/memory`."""
    from freeact_sub.features.memory import memory_text  # noqa: PLC0415  # slow to import

    _tell(person, lambda: memory_text(person.present.config))


def export(person: "Person", rest: str) -> None:
    """`/export [FORMAT] [FILE]`."""
    to, _, name = (rest or "html").partition(" ")
    session = person.present.agent.session_id if person.present.agent is not None else None
    if to not in FORMATS:
        person.display.note(f"unknown format {to!r}: {', '.join(FORMATS)}")
    elif session is None:
        person.display.note(LOADING if person.present.agent is None else "this conversation is not kept")
    else:
        file = Path(name.strip() or f"{session}.{to}").expanduser()
        _tell(person, lambda: _exported(session, to, file))


def _exported(session: str, to: Any, file: Path) -> str:
    from freeact_sub.export import export_session  # noqa: PLC0415

    if file.exists():
        return f"{file} exists: name another with /export FORMAT FILE"
    export_session(session, to, file=file)
    return f"written: {file.absolute()}"


def formats(_person: "Person") -> Iterable[tuple[str, str]]:
    """Return the formats with their meanings."""
    return FORMATS.items()


def _tell(person: "Person", text: Callable[[], str]) -> None:
    """Show the text that a function returns; it may read files."""

    async def tell() -> None:
        try:
            found = await asyncio.to_thread(text)
        except (FreeactError, OSError) as error:
            found = str(error)
        _show(person, Text(visible(found), "dim", overflow="fold"), found.count("\n"))

    person.display.screen.start(tell())


def _show(person: "Person", drawn: Text, lines: int, in_rows: RenderableType | None = None) -> None:
    """Show lines. Args: in_rows: the same for the scrollback, where long lines go on in further rows."""
    if lines > PAGED_LINES:
        person.display.page_drawn(drawn)
    else:
        person.display.print(in_rows or drawn)


COPY_CHARS: Final = 100_000
"""Bound on a text for the clipboard; terminals take no more."""


def resume(person: "Person", rest: str) -> None:
    """`/resume [ID]`: without an id a person picks one, where there is a screen for that."""
    agent = person.present.agent
    if rest or agent is None or not person.display.has_pages:
        person.present.waiting.put(Opening(session=rest))
    else:
        chooser = session_chooser(agent.sessions, agent.config.workspace, agent.session_id)
        person.display.screen.start(_pick(person, chooser, resume))


async def _pick(person: "Person", chooser: Chooser, take: Callable[["Person", str], None]) -> None:
    await person.display.screen.show_pages(chooser)
    if chooser.chosen is not None:
        take(person, chooser.chosen)


def session_choices(person: "Person") -> Iterable[tuple[str, str]]:
    """Return the ids of the sessions of this folder, the newest first, each with its title and age."""
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
    run: Callable[["Person", str], None]
    """The function of the command, called with the text after the name."""
    usage: str = ""
    """The form of the text after the name."""
    choices: Callable[["Person"], Iterable[tuple[str, str]]] = lambda _: ()
    """A function that returns possible texts after the name, with their meanings. Called in another thread."""


def run_command(person: "Person", line: str) -> None:
    """Carry out a line that begins with `/`. The beginning of only one command stands for it; other lines come back."""
    name, *rest = line.split(maxsplit=1)
    command = next((command for command in COMMANDS if command.name == name), None)
    if command is not None:
        command.run(person, person.display.screen.line.pastes.unfolded(rest[0]) if rest else "")
    elif name in person.present.own_commands:
        person.say(line)  # a prompt: what was pasted into it is unfolded in its turn
    else:
        servers = [f"/{server}:" for server in person.present.config.mcp_servers]
        begun = [known for known, _ in offers(person, name)] + [known for known in servers if known.startswith(name)]
        if len(begun) == 1 and not rest and begun[0] not in servers:
            run_command(person, begun[0])
            return
        person.display.hint(_no_command(name, begun, [known for known, _ in offers(person, "/")]))
        person.display.screen.line.put_back(line)


def _no_command(name: str, begun: Sequence[str], known: Sequence[str]) -> str:
    """Return the sentence about a name of no command. Args: begun: the names that it begins. known: all names."""
    from difflib import get_close_matches  # noqa: PLC0415  # only an error needs it

    if name != "/" and len(begun) > 1:
        return f"{name} begins several commands: {', '.join(begun)}"
    near = begun or get_close_matches(name, known, n=1)
    if name == "/" or not near:
        return f"unknown command {name} (/help lists them)"
    return f"unknown command {name}: did you mean {near[0]}?"


def offers(person: "Person", line: str) -> Iterable[tuple[str, str]]:
    """Return completions of a line with `/`, or of `@word`, each with its meaning. Called in another thread."""
    name, space, rest = line.partition(" ")
    if not space:
        own = [(known, command.words) for known, command in person.present.own_commands.items()]
        known = [(command.name, command.words) for command in COMMANDS] + own
        return [(command, words) for command, words in known if command.startswith(name)]
    found = next((command.choices(person) for command in COMMANDS if command.name == name), ())
    return [(f"{name} {choice}", words) for choice, words in found if choice.startswith(rest)]


def help_table(own: Mapping[str, OwnCommand], keys: Iterable[tuple[str, str]]) -> Table:
    """Return the commands and keys. Args: own: the person's own commands. keys: the keys, each with its meaning."""
    table = Table.grid("", "", padding=(0, 2, 0, 0))
    for command in COMMANDS:
        table.add_row(f"{command.name} {command.usage}".rstrip(), command.words)
    for name, own_command in own.items():
        table.add_row(name, own_command.words)
    table.add_row()
    for key, words in keys:
        table.add_row(key, words)
    return table


def _help(person: "Person", _rest: str) -> None:
    person.display.print(help_table(person.present.own_commands, person.display.keys))


def _in_turn(asked: Rewind | Opening) -> Callable[["Person", str], None]:
    """Return a command that queues an entry among the prompts."""
    return lambda person, _: person.present.waiting.put(asked)


def _agents(person: "Person", _rest: str) -> None:
    if person.present.agent is None:
        person.display.note("no agent is at work")
    else:
        person.display.print(AgentsTable(agents=person.present.agent.agents(), views=person.display.views))


def _control(person: "Person", name: str, who: str, text: str) -> None:
    """Cancel an agent, put it into focus, or send it a message."""
    present = person.present
    run = present.run
    may_be_a_child = name == "/cancel" and who  # it may be at work in the background
    if present.agent is None or (run is None and not may_be_a_child):
        person.display.note("no agent is at work")
        return
    try:
        agent = find_agent(present.agent.agents(), who or present.agent.agent_id, person.display.views.labels)
    except LookupError as error:
        person.display.note(str(error))
        return
    is_root, called = agent.parent_id is None, person.display.name(agent)
    match name:
        case "/cancel" if is_root:
            person.conversation.cancel()
        case "/cancel":
            present.agent.cancel(agent.agent_id)
        case "/focus":
            present.focus = None if is_root else agent
            person.display.note(f"Ctrl-C cancels {'the run' if is_root else f'{called} first, then the run'}")
        case _ if run is not None and run.send(text, agent.agent_id):
            if is_root:
                present.sent.append((text, text))
            else:
                present.sent_to_children.setdefault(agent.agent_id, []).append(text)
            person.display.note(f"sent to {called}: {text}")
        case _:
            person.display.note(f"{called} takes no messages now: it has not started, or is about to end")


def _show_agent(person: "Person", words: str) -> None:
    views = person.display.views
    found = agents_meant(words, views.labels)
    if not words:
        person.display.page_agent(views.root)
    elif len(found) == 1:
        person.display.page_agent(views.by_id[found[0]])
    elif found:
        person.display.note(f"{words} matches several agents: {candidates(found, views.labels)}; type the id of one")
    else:
        person.display.note(f"no agent is named {words} (/agents lists them)")


def _send(person: "Person", rest: str) -> None:
    who, _, text = rest.partition(" ")
    if text.strip():
        _control(person, "/send", who, text.strip())
    elif who or not person.present.waiting.typed:
        person.display.note("name an agent and a message: /send NAME text")
    else:
        person.send_waiting()


def _always(how: str) -> Callable[["Person", str], None]:
    def answer(person: "Person", rest: str) -> None:
        if person.display.questions.current is None:
            person.display.note("no question is open")
        elif not person.display.questions.answer(f"{how} {rest}"):
            person.display.note(f"not a pattern: {rest} (KIND:GLOB, such as shell:git push *)")

    return answer


def _rewind(person: "Person", rest: str) -> None:
    if (found := re.fullmatch(r"([1-9][0-9]{0,5})( +--fork)?", rest)) is not None:
        forks = found[2] is not None
        person.present.waiting.put(Rewind(prompts=-int(found[1]), to_change=not forks, forks=forks))
    else:
        person.display.note("give a number of prompts, such as /rewind 3, or /rewind 3 --fork")


def _prompts(person: "Person") -> Iterable[tuple[str, str]]:
    if (agent := person.present.agent) is None or not agent.undoable:
        return []
    prompts = [one_line(person.present.as_typed(prompt), PROMPT_CHARS) for prompt in reversed(agent.undoable)]
    try:
        words = [goes_along(report) for report in person.result_of(agent.undo_previews())]
    except (FreeactError, TimeoutError, CancelledError):
        words = []
    shown = (f"{prompt}  {word}".rstrip() for prompt, word in zip_longest(prompts, words, fillvalue=""))
    return [(str(number), text) for number, text in enumerate(shown, start=1)]


def _shown(person: "Person") -> Iterable[tuple[str, str]]:
    views = [*person.display.views.by_id.values()]
    return [(short_id(view.agent_id), f"{view.label or 'agent'}: {doing(view) or view.status}") for view in views]


def _at_work(person: "Person") -> Iterable[tuple[str, str]]:
    working = [view for view in person.display.views.by_id.values() if view.is_running]
    return [(short_id(view.agent_id), f"{view.label or 'agent'}: {doing(view)}") for view in working]


def _cost(person: "Person", _rest: str) -> None:
    agent = person.present.agent
    person.display.note(LOADING if agent is None else cost_text(agent.usage, agent.config.budget))


def _mcp(person: "Person", _rest: str) -> None:
    agent = person.present.agent
    servers = [] if agent is None else [*agent.config.mcp_servers]
    person.display.note(f"MCP servers: {', '.join(servers)}" if servers else "no MCP servers (mcp.json)")


def _context(person: "Person", _rest: str) -> None:
    person.display.note(LOADING if person.present.agent is None else context_text(person.present.agent.context()))


def _copy(person: "Person", _rest: str) -> None:
    """Copy by OSC 52, which most terminals support, also over ssh."""
    answer = person.display.views.root.answer if person.display.views.root is not None else ""
    if not answer:
        person.display.note("no answer to copy yet")
        return
    content = base64.b64encode(answer[:COPY_CHARS].encode()).decode()
    person.display.screen.write_raw(f"\x1b]52;c;{content}\x07")
    person.display.note("copied the last answer, if the terminal lets programs write its clipboard")


def _detach(person: "Person", _rest: str) -> None:
    away = person.conversation.away
    if away is None:
        person.display.note("this program ends with its terminal: freeact-sub, and freeact-sub run --detach, outlive theirs")
    elif not away.detach():
        person.display.note("nothing is at work: the conversation is saved, and ends")
        person.leave()


COMMANDS: Final = (
    Command("/help", "list commands and keys", _help),
    Command("/agents", "list all agents: what each does and has spent", _agents),
    Command(
        "/show",
        "show everything an agent has done (Ctrl-O; a child: Ctrl-T)",
        _show_agent,
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
        lambda person, rest: _control(person, "/cancel", rest, ""),
        usage="[NAME]",
        choices=_at_work,
    ),
    Command(
        "/focus",
        "let Ctrl-C cancel this agent first; without NAME the run",
        lambda person, rest: _control(person, "/focus", rest, ""),
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
        "choose the model of the next prompts; a part of its name is enough",
        model_command,
        usage="[NAME]",
        choices=model_choices,
    ),
    Command(
        "/mode",
        "choose how much runs without asking: plan, ask, auto, full (Shift-Tab)",
        mode_command,
        usage="[NAME]",
        choices=mode_choices,
    ),
    Command("/mcp", "list the MCP servers", _mcp),
    Command("/tools", "list the agent's tools", tools),
    Command("/memory", "show the notes for later sessions in this folder, and where they are", memory),
    Command("/permissions", "list the rules, or show what they decide about a command", permissions, usage="[command]"),
    Command("/diff", "show how files have changed since the last prompt, or the last N", diff, usage="[N]"),
    Command(
        "/effects",
        "show which variables and files have changed since the last prompt, or the last N; /undo takes it back",
        effects,
        usage="[N]",
    ),
    Command("/status", "show the model, the mode, the folder, the Python of cells, the session", status),
    Command("/config", "show the settings that differ from the defaults", config),
    Command("/trust", "list the settings of this workspace that you have not seen", trust),
    Command(
        "/export",
        "write this conversation to a file: html, ipynb, md or jsonl",
        export,
        usage="[FORMAT] [FILE]",
        choices=formats,
    ),
    Command("/copy", "copy the last answer to the clipboard", _copy),
    Command("/detach", "leave the agent at its work: freeact-sub attach comes back, from any terminal", _detach),
    Command("/exit", "quit (also: exit, quit, Ctrl-D)", lambda person, _: person.leave()),
    Command("/quit", "quit", lambda person, _: person.leave()),
)
