"""`Present`: the state of a conversation, with the entries of its queue, which are carried out between runs.

`Conversation` changes it; `Display` and `Person` read it. An entry is a prompt, a compaction, a command (`!ls`), or `/new`,
`/resume` and `/fork`: start another conversation, continue an earlier one, or copy this one.
"""

import asyncio
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from rich.cells import cell_len, set_cell_size

from freeact_sub import events as ev
from freeact_sub.calls import CodeAction, ShellCommand
from freeact_sub.config.load import is_of_another_provider
from freeact_sub.config.schema import Config
from freeact_sub.errors import ConfigError, FreeactError, SessionError
from freeact_sub.modes import Mode
from freeact_sub.show.typed_commands import OwnCommand, Rewind
from freeact_sub.show.wording import ago, session_facts, session_line, session_title
from freeact_sub.terminal.attachments import COMMAND_RUN, typed_part
from freeact_sub.terminal.drawing.parts import filled
from freeact_sub.terminal.listing import Chooser, Row
from freeact_sub.text import visible

if TYPE_CHECKING:  # slow to import: the caller does it, at its time
    from freeact_sub.agent import Agent
    from freeact_sub.agents import AgentInfo, Run
    from freeact_sub.sessions import SessionStore, StoredSession
    from freeact_sub.show.rule_texts import CodeRule
    from freeact_sub.terminal.run_once import OpenSession


@dataclass(frozen=True, kw_only=True)
class Compaction:
    """`/compact`."""

    keep: str
    """The facts that the summary must keep."""

    @property
    def title(self) -> str:
        """The name of the run."""
        return "a summary"

    def run(self, agent: "Agent") -> "Run":
        """Start the compaction."""
        return agent.run_compaction(self.keep)


@dataclass(frozen=True, kw_only=True)
class TypedCommand:
    """`!command`: a command in the agent's kernel; the next prompt carries its output."""

    command: str

    @property
    def code(self) -> str:
        """The cell that runs it."""
        return f"%%bash\n{self.command}" if "\n" in self.command else f"!{self.command}"

    @property
    def title(self) -> str:
        """The name of the run."""
        return f"!{self.command}"

    def run(self, agent: "Agent") -> "Run":
        """Start the command."""
        return agent.run_cell(self.code)

    def answers(self, event: ev.Event) -> bool:
        """Return whether the event asks about this command, which the person allowed by typing. Rules may still deny it."""
        if not isinstance(event, ev.ApprovalRequest):
            return False
        call = event.call
        is_it = call.command == self.command if isinstance(call, ShellCommand) else call == CodeAction(code=self.code)
        if is_it:
            event.decide(ev.Decision(allowed=True))
        return is_it

    def told(self, event: ev.Event) -> str:
        """Return the text about the command for the model, if the event is its output."""
        if not isinstance(event, ev.CodeExecutionOutput):
            return ""
        return f"{COMMAND_RUN}\n{self.command}\n[Its output:]\n{event.text}"


SHOWN: Final = 20
NEW: Final = "new"
MODEL: Final = ("model", "base_url")
"""The settings that choose a model."""
FORK: Final = "fork"


FORKED: Final = (
    "{new} is a copy of this conversation: /resume {new} continues it here, freeact-sub --resume {new} elsewhere. "
    "Each has its own variables from here on; both share the files of this folder."
)


@dataclass(frozen=True, kw_only=True)
class Opening:
    """A change of session that a person ordered. It is queued among the prompts and carried out between runs."""

    session: str
    """`new`; `fork`: a copy of this one; the id of a session, or its beginning; empty: list the sessions."""

    async def done(
        self, agent: "Agent", open_session: "OpenSession | None", settings: Mapping[str, Any]
    ) -> "tuple[Agent, str]":
        """Open the session. Returns: The open agent to continue with, and a note for the person.

        If it is a new agent, the caller closes the earlier one.
        """
        if open_session is None:
            return agent, "only one conversation is possible here"
        try:
            if self.session == FORK:
                return agent, FORKED.format(new=await agent.fork())
            session = await asyncio.to_thread(self._found, agent)
            if session is None:
                return agent, await asyncio.to_thread(sessions_text, agent)
            if session != NEW:  # it has a model of its own
                settings = {name: value for name, value in settings.items() if name not in MODEL}
            other = await opened(open_session, session, settings)
        except FreeactError as error:
            return agent, str(error)
        what = "a new conversation" if session == NEW else f"resumed {session}"
        back = f"; /resume {agent.session_id} goes back" if agent.session_id and agent.history else ""
        return other, what + back

    def _found(self, agent: "Agent") -> str | None:
        """Return the id of the session; None: list the sessions."""
        if self.session in ("", NEW):
            return self.session or None
        found = agent.sessions.find(self.session).session_id
        if found == agent.session_id:
            raise SessionError(f"{found} is this conversation")
        return found


async def opened(open_session: "OpenSession", session: str, settings: Mapping[str, Any]) -> "Agent":
    """Return the open agent of a session. Args: see `OpenSession`.

    Raises:
        FreeactError: It cannot be opened.
    """
    agent = await asyncio.to_thread(open_session, session, settings)
    try:
        await agent.open()
        agent.keep_undo()
    except BaseException:
        await agent.aclose()
        raise
    return agent


def earlier_sessions(agent: "Agent") -> "list[StoredSession]":
    """Return the sessions of this agent's folder that have a prompt, the newest first, without its own. Reads files.

    Raises:
        SessionError: They cannot be read.
    """
    sessions = agent.sessions.sessions(agent.config.workspace)
    return [session for session in sessions if session.title and session.session_id != agent.session_id]


WIDE: Final = 76
"""Least columns in which a session shows more than its age."""
GROUPS: Final = ("this folder", "other folders", "runs of one prompt")


def session_rows(store: "SessionStore", workspace: Path, without: str | None = None) -> list[Row]:
    """Return all sessions that have a prompt, as rows. Args: without: the id of one to leave out.

    Raises:
        SessionError: They cannot be read.
    """
    prompts: dict[str, list[str]] = {}
    for session_id, prompt in store.prompts():
        prompts.setdefault(session_id, []).append(prompt)
    found = []
    for session in store.sessions():
        if not session.title or session.session_id == without:
            continue
        is_here = session.workspace == workspace
        group = 2 if session.once else 0 if is_here else 1
        words = [session.session_id, session.title, str(session.workspace), *prompts.get(session.session_id, ())]
        row = Row(
            value=session.session_id,
            text=session_line(session, folder=True),
            words="\n".join(words),
            group=GROUPS[group],
            drawn=partial(session_row, session, names_folder=group == 1, is_open=store.is_open(session.session_id)),
        )
        found.append((group, group == 2 and not is_here, row))
    return [row for *_, row in sorted(found, key=lambda each: each[:2])]


def session_chooser(store: "SessionStore", workspace: Path, without: str | None = None) -> Chooser:
    """Return the list of `session_rows`."""
    return Chooser("resume: ", lambda: session_rows(store, workspace, without), takes="resumes", none="no session to resume")


def session_row(session: "StoredSession", columns: int, *, names_folder: bool, is_open: bool) -> str:
    """Return a session in one row: its title, and at the right end its age and size. Args: is_open: by another program."""
    is_wide, now = columns >= WIDE, time.time()
    facts = session_facts(session, now) if is_wide else ago(session.updated, now)
    if is_open:
        facts = f"open elsewhere · {facts}" if is_wide else "open"
    title = visible(session_title(session))
    if names_folder and is_wide:
        title = f"{visible(session.workspace.name)}: {title}"
    return set_cell_size(f"{filled(title, max(columns - cell_len(facts) - 2, 8))}  {facts}", columns)


def sessions_text(agent: "Agent") -> str:
    """Return the sessions of this agent's folder to choose from, the newest first. Reads files.

    Raises:
        SessionError: They cannot be read.
    """
    found = earlier_sessions(agent)
    if not found:
        return "no earlier conversation in this folder"
    more = [f"and {len(found) - SHOWN} more: freeact-sub sessions list"] if len(found) > SHOWN else []
    return "\n".join([*(session_line(session, folder=False) for session in found[:SHOWN]), *more, "/resume ID resumes one"])


Phase: TypeAlias = Literal["starting", "idle", "reading", "running", "cancelling", "undoing", "opening", "ending"]
Asked: TypeAlias = str | TypedCommand | Compaction | Rewind | Opening
"""An entry of the queue, carried out when the agent is idle; a text is a prompt."""
Typed: Final = str | TypedCommand
"""The entries that a cancel returns to the person."""


class Waiting:
    """The waiting entries, in order."""

    def __init__(self) -> None:
        self._asked: list[Asked] = []
        self._changed = asyncio.Event()
        self.is_awaited = False
        """Whether an entry would begin at once."""
        self.began_at_once = False
        """Whether the last entry began at once."""

    @property
    def typed(self) -> list[str]:
        """The typed prompts and commands among the entries, the next one first."""
        return [asked if isinstance(asked, str) else asked.title for asked in self._asked if isinstance(asked, Typed)]

    @property
    def count(self) -> int:
        """The number of entries."""
        return len(self._asked)

    def put(self, asked: Asked) -> None:
        """Add an entry at the end."""
        self.began_at_once, self.is_awaited = self.is_awaited, False
        self._asked.append(asked)
        self._changed.set()

    def take_back(self, count: int = 0, kinds: Any = Typed) -> list[Any]:
        """Remove entries and return them in order.

        Args:
            count: Their number, from the last one on. 0: all.
            kinds: Their types.
        """
        found = [number for number, asked in enumerate(self._asked) if isinstance(asked, kinds)][-count:]
        return [self._asked.pop(number) for number in reversed(found)][::-1]

    def expect(self) -> None:
        """Note that the next entry begins as soon as it is there."""
        self.is_awaited = not self._asked

    async def next(self) -> Asked:
        """Wait for the next entry, and take it out."""
        while not self._asked:
            self._changed.clear()
            await self._changed.wait()
        self.is_awaited = False
        return self._asked.pop(0)


@dataclass(kw_only=True)
class Present:
    """The state of a conversation."""

    config: Config
    """The settings at the beginning of the conversation."""
    once: bool
    """Whether the program has only one prompt."""
    phase: Phase = "starting"
    agent: "Agent | None" = None
    run: "Run | None" = None
    prompt: str = ""
    """The prompt of the run."""
    focus: "AgentInfo | None" = None
    """The agent that Ctrl-C cancels first. None: the run."""
    waiting: Waiting = field(default_factory=Waiting)
    asked_to_leave: float | None = None
    """Time of the last Ctrl-D that was asked back, on the event loop's clock, if nothing was entered since."""
    sent: list[tuple[str, str]] = field(default_factory=list)
    """The lines that were sent to the agent at work, each with the text that its model gets."""
    sent_to_children: dict[str, list[str]] = field(default_factory=dict)
    """The lines that were sent to children at work, by the id of each."""
    own_commands: Mapping[str, OwnCommand] = field(default_factory=dict)
    """The person's own commands, by name with the `/`; read once, when the conversation begins."""
    wanted: dict[str, Any] = field(default_factory=dict)
    """Settings (`mode`, `MODEL`) that the person has chosen, for the agents that are opened from now on."""

    _code_rule: "tuple[Any, CodeRule | None]" = (None, None)
    """The inputs of the last `code_rule`, and its result."""
    typed: dict[str, str] = field(default_factory=dict)
    """The typed lines, by the prompts that were made of them."""

    def as_typed(self, prompt: str) -> str:
        """Return the typed part of a prompt, without attached text."""
        return self.typed[prompt] if prompt in self.typed else typed_part(prompt)

    def as_seen(self, event: ev.Event) -> ev.Event:
        """Return the event as people see it: without the texts that are attached to a prompt of theirs."""
        if isinstance(event, ev.AgentStarted) and event.parent_id is None:
            return replace(event, prompt=self.as_typed(event.prompt))
        return event

    @property
    def mode(self) -> Mode:
        """The mode."""
        return self.agent.mode if self.agent is not None else self.wanted.get("mode", self.config.mode)

    @property
    def code_rule(self) -> "CodeRule | None":
        """The rule by which cells run unasked, although the mode asks. None: they are asked about."""
        session = self.agent.allowed if self.agent is not None else ()
        marks = tuple(map(_changed, self.config.permission_files))
        if not session and not any(marks):
            return None
        if self._code_rule[0] != (key := (self.mode, session, marks)):
            from freeact_sub.show.rule_texts import code_rule  # noqa: PLC0415  # slow to import

            rule = self._code_rule[1]
            with suppress(ConfigError):  # a file is being changed: its last rules count
                rule = code_rule(self.config.model_copy(update={"mode": self.mode}), session)
            self._code_rule = (key, rule)
        return self._code_rule[1]

    @property
    def model(self) -> str | None:
        """The model of the next prompt, where it has a name."""
        model: str | None = self.wanted.get("model", (self.agent.config if self.agent is not None else self.config).model)
        return model

    @property
    def base_url(self) -> str | None:
        """The address of the model of the next prompt. None: the provider's own."""
        base = self.config if self.agent is None or "model" in self.wanted else self.agent.config
        is_elsewhere = is_of_another_provider(self.wanted.get("model"), base.model)
        base_url: str | None = self.wanted.get("base_url", None if is_elsewhere else base.base_url)
        return base_url


def _changed(file: Path) -> int:
    """Return the time of a file's last change; 0: there is none."""
    try:
        return file.stat().st_mtime_ns
    except OSError:
        return 0
