"""`/resume`: a person picks an earlier conversation, or completes its id."""

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

from freeact_sub.errors import FreeactError
from freeact_sub.show.wording import ago, session_title
from freeact_sub.terminal.commands.sessions import Opening, earlier_sessions

if TYPE_CHECKING:
    from freeact_sub.agents import Agent
    from freeact_sub.terminal.conversation.ports import Console


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
