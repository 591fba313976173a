"""`Earlier`: where one was in a session that is resumed: its last exchanges, and what is kept of the rest."""

import shlex
import shutil
import sys
import time
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from freeact_sub.agent_names import agent_name
from freeact_sub.events import Event
from freeact_sub.show.replay import events_of, present_runs, root_of
from freeact_sub.show.wording import session_facts, session_title
from freeact_sub.text import counted, one_line

if TYPE_CHECKING:  # slow to import: the caller does it, at its time
    from freeact_sub.agent import Agent
    from freeact_sub.sessions import SessionStore, StoredAgent, StoredSession

EXCHANGES: Final = 3
"""Prompts that are drawn again, with all that followed from them."""
MAX_EVENTS: Final = 5_000
"""Events of them, the last ones."""
NAMED: Final = 8


@dataclass(frozen=True, kw_only=True)
class Earlier:
    """What is drawn of a session that is resumed."""

    title: str
    about: list[str]
    """Lines about the session."""
    events: list[Event]
    """The last exchanges."""
    came_back: str
    """What else is there of it: variables, which are brought back later, and children. Empty: nothing."""


def read_earlier(agent: "Agent") -> Earlier | None:
    """Reads where one was. It reads files. Returns: None if the session has no prompt.

    Raises:
        SessionError: The session cannot be read.
    """
    if agent.session_id is None:
        return None
    store = agent.sessions
    session = store.find(agent.session_id)
    with store.reader(session.session_id) as reader:
        agents = reader.agents()
        root = root_of(agents)
        runs = present_runs(reader, root)
        if root is None or not runs:
            return None
        events = [*deque(events_of(reader, runs[-EXCHANGES:]), maxlen=MAX_EVENTS)]
    more = len(runs) - EXCHANGES
    all_of_it = f"{counted(more, 'earlier prompt')}: freeact-sub sessions show {session.session_id}"
    return Earlier(
        title=session_title(session),
        about=[
            f"{counted(len(runs), 'prompt')} · {session_facts(session, time.time())}",
            *([all_of_it] if more > 0 else []),
        ],
        events=events,
        came_back=_came_back(store, session, root, [each for each in agents if each.parent_id == root.agent_id]),
    )


def _came_back(store: "SessionStore", session: "StoredSession", root: "StoredAgent", children: "list[StoredAgent]") -> str:
    from freeact_sub.kernels.snapshots.files import saved_names  # noqa: PLC0415  # slow to import
    from freeact_sub.sessions import VARIABLES  # noqa: PLC0415  # slow to import

    names = saved_names(store.folder_of(session.session_id) / VARIABLES / root.agent_id)
    found = []
    if names:
        found.append(f"saved: {counted(len(names), 'variable')}, to be brought back before the next prompt: {_some(names)}")
    if children:
        labels = [agent_name(child.agent_id, one_line(child.description, 40)) for child in children]
        word = "child" if len(labels) == 1 else "children"
        found.append(f"came back: {len(labels)} {word} that the agent can resume: {_some(labels)}")
    return "\n".join(found)


def _some(names: list[str]) -> str:
    more = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {more} more" if more > 0 else "")


def how_to_continue(session_id: str, workspace: Path) -> str:
    """The command that continues a session, as it is to be typed in the present folder."""
    found = shutil.which("freeact-sub")
    started = Path(sys.argv[0])
    if found is not None or started.name == "__main__.py":
        program = "freeact-sub" if found is not None else f"{shlex.quote(sys.executable)} -m freeact_sub"
    else:
        program = shlex.quote(str(started))
    elsewhere = "" if workspace.resolve() == Path.cwd() else f" --workspace {shlex.quote(str(workspace))}"
    return f"{program} --resume {session_id}{elsewhere}"
