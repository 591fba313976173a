"""`session_events`: a stored session as the events of its runs, for front ends that draw it again."""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from freeact_sub.events import AgentFinished, Event
from freeact_sub.show.agent_story import Stories

if TYPE_CHECKING:  # slow to import: who has a session has them
    from freeact_sub.sessions import SessionReader, SessionStore, StoredAgent, StoredRun

CUT_OFF: Final = "the program ended before it did"


def session_events(
    session_id: str, *, store: "SessionStore | None" = None, last_prompts: int | None = None
) -> Iterator[Event]:
    """The events of a stored session, in order, as `Run` yields them, but whole texts without their chunks.

    Prompts that were undone are left out. Each agent that the end of a program has cut off has an end, so front ends that
    draw a live run draw these events, too. The session may be open, also in another program.

    Args:
        session_id: The session's id, or the beginning of it if no other id begins like it.
        store: The store that has it. None: that of the default settings.
        last_prompts: The number of prompts, the last ones. None: all.

    Raises:
        SessionError: There is no such session, or it cannot be read.
    """
    from freeact_sub.sessions import session_store  # noqa: PLC0415  # slow to import

    store = store or session_store()
    with store.reader(store.find(session_id).session_id) as reader:
        runs = present_runs(reader, root_of(reader.agents()))
        yield from events_of(reader, runs if last_prompts is None else runs[max(0, len(runs) - last_prompts) :])


def root_of(agents: "Iterable[StoredAgent]") -> "StoredAgent | None":
    """The root among the agents of a session. None: it has no agent yet."""
    return next((agent for agent in agents if agent.parent_id is None), None)


def present_runs(reader: "SessionReader", root: "StoredAgent | None") -> "list[StoredRun]":
    """The runs of a session's root, without those that were undone."""
    return [] if root is None else [run for run in reader.runs(root.agent_id) if not run.undone]


def events_of(reader: "SessionReader", runs: "Sequence[StoredRun]") -> Iterator[Event]:
    """The events of some runs of the root, with an end for each agent that has none."""
    for run in runs:
        yield from _with_ends(reader.events(root_run=run.root_run))


def _with_ends(events: Iterable[Event]) -> Iterator[Event]:
    views = Stories()
    last: dict[str, Event] = {}
    for event in events:
        views.observe(event)
        last[event.agent_id] = event
        yield event
    for view in reversed(views.by_id.values()):  # children before their parents
        if view.is_running:
            event = last[view.agent_id]
            yield AgentFinished(
                agent_id=event.agent_id,
                parent_id=event.parent_id,
                depth=event.depth,
                time=event.time,
                status="cancelled",
                error=CUT_OFF,
                usage=view.usage,
                tree_usage=view.tree_usage,
                seconds=view.seconds(event.time),
            )
