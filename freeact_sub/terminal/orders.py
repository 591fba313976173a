"""Orders of a person that are queued among the prompts and carried out between runs.

A compaction, a command (`!ls`), and `/new`, `/resume` and `/fork`: start another conversation, continue an earlier one, or
copy this one.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from freeact_sub import events as ev
from freeact_sub.calls import CodeAction, ShellCommand
from freeact_sub.errors import FreeactError, SessionError
from freeact_sub.show.wording import session_line
from freeact_sub.terminal.input.attachments import COMMAND_RUN

if TYPE_CHECKING:  # slow to import
    from freeact_sub.agent import Agent
    from freeact_sub.agents import Run
    from freeact_sub.sessions import StoredSession
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
        """Starts it."""
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
        """Starts it."""
        return agent.run_cell(self.code)

    def answers(self, event: ev.Event) -> bool:
        """Whether the event asks about this command, which the person allowed by typing it. Rules may still deny it."""
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
        """Opens the session. Returns: the open agent to continue with, and a note for the person.

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
                settings = {name: value for name, value in settings.items() if name != "model"}
            other = await opened(open_session, session, settings)
        except FreeactError as error:
            return agent, str(error)
        what = "a new conversation" if session == NEW else f"resumed {session}"
        back = f"; /resume {agent.session_id} goes back" if agent.session_id and agent.history else ""
        return other, what + back

    def _found(self, agent: "Agent") -> str | None:
        """The id of the session; None: list the sessions."""
        if self.session in ("", NEW):
            return self.session or None
        found = agent.sessions.find(self.session).session_id
        if found == agent.session_id:
            raise SessionError(f"{found} is this conversation")
        return found


async def opened(open_session: "OpenSession", session: str, settings: Mapping[str, Any]) -> "Agent":
    """The open agent of a session. Args: see `OpenSession`.

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
    """The sessions of this agent's folder that have a prompt, the newest first, without its own. It reads files.

    Raises:
        SessionError: They cannot be read.
    """
    sessions = agent.sessions.sessions(agent.config.workspace)
    return [session for session in sessions if session.title and session.session_id != agent.session_id]


def sessions_text(agent: "Agent") -> str:
    """The sessions of this agent's folder to choose from, the newest first. It reads files.

    Raises:
        SessionError: They cannot be read.
    """
    found = earlier_sessions(agent)
    if not found:
        return "no earlier conversation in this folder"
    more = [f"and {len(found) - SHOWN} more: freeact-sub sessions list"] if len(found) > SHOWN else []
    return "\n".join([*(session_line(session, folder=False) for session in found[:SHOWN]), *more, "/resume ID resumes one"])
