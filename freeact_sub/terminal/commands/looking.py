"""`/diff`, `/tools`, `/permissions`, `/status`, `/config`, `/trust`, `/export`: commands that show and change nothing."""

import asyncio
import json
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rich.text import Text

from freeact_sub.errors import ConfigError, FreeactError, UntrustedError
from freeact_sub.text import one_line, visible

if TYPE_CHECKING:
    from freeact_sub.agent import Agent
    from freeact_sub.config.schema import Config
    from freeact_sub.terminal.conversation.console import Console

FORMATS: Final = {"html": "one page", "ipynb": "a notebook that runs", "md": "text", "jsonl": "one event a line"}
WORDS_CHARS: Final = 76
PAGED_LINES: Final = 40
"""A longer text is shown in a pager."""
DIFF_STYLES: Final = {"+": "green", "-": "red", "@": "cyan"}
LOADING: Final = "the agent is still starting: try again in a moment"


def diff(person: "Console", rest: str) -> None:
    """`/diff [N]`."""
    if (agent := _compared(person, "/diff", rest, ", or its files are not kept")) is not None:
        person.display.screen.start(_diff(person, agent, int(rest or 1)))


def effects(person: "Console", rest: str) -> None:
    """`/effects [N]`."""
    if (agent := _compared(person, "/effects", rest)) is None:
        return
    if person.present.phase == "running":
        person.display.note(
            "the agent is at work: /effects shows what it has changed when it has ended, /diff its files now"
        )
    else:
        person.display.screen.start(_effects(person, agent, int(rest or 1)))


def _compared(person: "Console", command: str, rest: str, perhaps: str = "") -> "Agent | None":
    """The agent whose prompts can be compared with now; None: the person was told why there is nothing to compare."""
    agent = person.present.agent
    if rest and not re.fullmatch(r"[1-9][0-9]{0,5}", rest):
        person.display.note(f"give a number of prompts, such as {command} 3")
    elif agent is None or not agent.undoable:
        person.display.note(f"nothing to compare yet: no prompt has run{perhaps}")
    else:
        return agent
    return None


async def _effects(person: "Console", agent: "Agent", prompts: int) -> None:
    from freeact_sub.terminal.questions.effects_part import drawn_changes  # noqa: PLC0415  # slow to import

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
    _show(person, Text("\n").join([Text(head, "bold"), *problem, *lines]), len(lines))


async def _diff(person: "Console", agent: "Agent", prompts: int) -> None:
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


def tools(person: "Console", _rest: str) -> None:
    """`/tools`."""
    from freeact_sub.tools import TOOLS, AskParent, load_definition  # noqa: PLC0415  # slow to import

    config = person.present.config
    spawning = () if config.subagents.enabled else ("task", "delegate", "subagents")
    names = [tool.name for tool in TOOLS if tool.name not in (AskParent.name, *spawning)]
    words = {name: load_definition(name).description or "" for name in names}
    lines = [f"{name:<22}{one_line(words[name].partition('. ')[0], WORDS_CHARS)}" for name in names]
    servers = [f"agent.mcp.{name}" for name, server in config.mcp_servers.items() if not server.disabled]
    person.display.note("\n".join([*lines, *([f"from code also: {', '.join(servers)}"] if servers else [])]))


def permissions(person: "Console", rest: str) -> None:
    """`/permissions [command]`."""
    from freeact_sub.show.rule_texts import rules_text, ruling_text  # noqa: PLC0415  # slow to import

    config = person.present.config.model_copy(update={"mode": person.present.mode})
    _tell(person, lambda: ruling_text(config, "shell", rest)[1] if rest else rules_text(config))


def status(person: "Console", _rest: str) -> None:
    """`/status`: what the banner said, as it is now."""
    from freeact_sub.terminal.drawing.banner import facts  # noqa: PLC0415  # slow to import

    present = person.present
    chosen = present.config.model_copy(update={"mode": present.mode, "model": present.model})
    session = present.agent.session_id if present.agent is not None else None
    person.display.print(facts(chosen, session or "not kept", present.code_rule))


def config(person: "Console", _rest: str) -> None:
    """`/config`: without secrets."""
    chosen = person.present.config.model_copy(update=person.present.wanted)
    _tell(person, lambda: config_text(chosen))


def config_text(config: "Config") -> str:
    """The settings that differ from the defaults, a line for each, without secrets."""
    from freeact_sub.agents.sessions.known_secrets import known_secrets  # noqa: PLC0415  # slow to import
    from freeact_sub.terminal.questions.trust_question import flat_lines  # noqa: PLC0415

    shown: Any = json.loads(json.dumps(config.model_dump(exclude_defaults=True), default=str))
    text = "\n".join(flat_lines(shown))
    for secret in known_secrets(config, config.mcp_servers):
        text = text.replace(json.dumps(secret, ensure_ascii=False)[1:-1], "…")
    others = "All others have their defaults. Read at the start from .freeact/config.toml, FREEACT_… variables and options."
    return f"{text}\n{others}"


def trust(person: "Console", _rest: str) -> None:
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


def export(person: "Console", rest: str) -> None:
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


def formats(_person: "Console") -> Iterable[tuple[str, str]]:
    """Return the formats with their meanings."""
    return FORMATS.items()


def _tell(person: "Console", text: Callable[[], str]) -> None:
    """Shows the text that a function returns; it may read files."""

    async def tell() -> None:
        try:
            found = await asyncio.to_thread(text)
        except (FreeactError, OSError) as error:
            found = str(error)
        _show(person, Text(visible(found), "dim", overflow="fold"), found.count("\n"))

    person.display.screen.start(tell())


def _show(person: "Console", drawn: Text, lines: int) -> None:
    if lines > PAGED_LINES:
        person.display.page_drawn(drawn)
    else:
        person.display.print(drawn)
