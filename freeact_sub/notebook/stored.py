"""A stored session in a notebook: the host reads it, and a cell draws it, prompt by prompt, with a block for each agent."""

import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path

from freeact_sub.events import AgentStarted, Event
from freeact_sub.notebook.display import Page
from freeact_sub.notebook.ipython_shell import CellDisplay
from freeact_sub.notebook.render import prompt_html
from freeact_sub.sessions import SessionStore, StoredSession, newest
from freeact_sub.show.replay import with_ends
from freeact_sub.show.wording import session_title
from freeact_sub.text import visible


def read_stored(store: SessionStore, session_id: str, agent_id: str | None) -> tuple[list[Event], bool]:
    """The events of a session, and whether it goes on.

    Args:
        store: The store that has it.
        session_id: Its id, or the beginning of its id.
        agent_id: The id or the key of the one agent that is wanted. None: all.

    Raises:
        SessionError: There is no such session or agent, or it cannot be read.
    """
    session = store.find(session_id)
    with store.reader(session.session_id) as reader:
        wanted = None if agent_id is None else reader.agent(agent_id).agent_id
        goes_on = store.is_open(session.session_id)
        events = [event for event in with_ends(reader.events(), goes_on=goes_on) if wanted in (None, event.agent_id)]
    return events, goes_on


def show_stored(events: Iterable[Event], *, goes_on: bool) -> None:
    """Draws a session in the output of this cell. Args: see what `read_stored` returns."""
    screen = CellDisplay()
    for prompt, page in pages_of(events):
        _show_prompt(prompt, screen)
        if not goes_on:
            for story in page.stories.by_id.values():
                story.cut_off()
        Page(screen).show(page)


def stored_session(store: SessionStore, session_id: str | None) -> StoredSession:
    """A session by its id or the beginning of it. None: the latest one of this folder.

    Raises:
        SessionError: There is none, or it cannot be read.
    """
    return newest(store, Path.cwd()) if session_id is None else store.find(session_id)


def session_words(session: StoredSession) -> str:
    """A session, in one line."""
    return f"{session.session_id}: {session_title(session)}"


def pages_of(events: Iterable[Event]) -> Iterator[tuple[str, Page]]:
    """One page for each prompt of the root; a single page for the events of a child alone."""
    prompt, page = "", Page()
    for event in events:
        if isinstance(event, AgentStarted) and (event.parent_id is None or not page.stories.by_id):
            if page.stories.by_id:
                yield prompt, page
            prompt, page = event.prompt, Page()
        if isinstance(event, AgentStarted) or event.agent_id in page.stories.by_id:
            page.take(event)
    if page.stories.by_id:
        yield prompt, page


def _show_prompt(prompt: str, screen: CellDisplay) -> None:
    text = "\n".join(f"> {line}" for line in visible(prompt).split("\n"))
    screen.publish(f"freeact-{uuid.uuid4().hex}", {"text/html": prompt_html(prompt), "text/plain": text}, update=False)
