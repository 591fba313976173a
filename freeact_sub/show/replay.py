"""`session_events`: a stored session as the events of its runs, for front ends that draw it again."""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from freeact_sub import events as ev
from freeact_sub.show.agent_story import AgentStory, Stories

if TYPE_CHECKING:  # slow to import: who has a session has them
    from freeact_sub.sessions import SessionReader, SessionStore, StoredAgent, StoredRun

CUT_OFF: Final = "the program ended before it did"
UNANSWERED: Final = "the program ended before anybody answered"


def session_events(
    session_id: str, *, store: "SessionStore | None" = None, last_prompts: int | None = None
) -> "Iterator[ev.Event]":
    """Yield the events of a stored session, in order, as `Run` yields them, but whole texts without their chunks.

    Prompts that were undone are left out. Each agent and each question that the end of a program has cut off has an end, so
    front ends that draw a live run draw these events, too. The session may be open, also in another program.

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
    """Return the root among the agents of a session. None: it has no agent yet."""
    return next((agent for agent in agents if agent.parent_id is None), None)


def present_runs(reader: "SessionReader", root: "StoredAgent | None") -> "list[StoredRun]":
    """Return the runs of a session's root, without those that were undone."""
    return [] if root is None else [run for run in reader.runs(root.agent_id) if not run.undone]


def events_of(reader: "SessionReader", runs: "Sequence[StoredRun]") -> Iterator[ev.Event]:
    """Yield the events of some runs of the root, with the missing ends of agents and questions."""
    for run in runs:
        yield from with_ends(reader.events(root_run=run.root_run))


def with_ends(events: Iterable[ev.Event], *, goes_on: bool = False) -> Iterator[ev.Event]:
    """Yield stored events, with an end for each run and each question that the end of a program cut off.

    Args:
        events: The events of one or more runs of the root, in order.
        goes_on: The session is open, so the last run may still be at work.
    """
    seen = _Seen()
    for event in events:
        if isinstance(event, ev.AgentStarted) and event.parent_id is None and seen.is_running(event.agent_id):
            yield from seen.missing()  # another program went on with the session
        yield seen.note(event)
    if not goes_on:
        yield from seen.missing()


class _Seen:
    """Agents and questions that have begun in some events, and not ended."""

    def __init__(self) -> None:
        self._stories = Stories()
        self._asked: dict[str, ev.ApprovalRequest | ev.QuestionRequest] = {}

    def note(self, event: ev.Event) -> ev.Event:
        self._stories.observe(event)
        if isinstance(event, ev.ApprovalRequest | ev.QuestionRequest):
            self._asked[event.request_id] = event
        elif isinstance(event, ev.ApprovalDecided | ev.QuestionAnswered):
            self._asked.pop(event.request_id, None)
        return event

    def is_running(self, agent_id: str) -> bool:
        return agent_id in self._stories.by_id and self._stories.by_id[agent_id].is_running

    def missing(self) -> Iterator[ev.Event]:
        """Yield the missing ends, and note them."""
        for story in reversed([*self._stories.by_id.values()]):  # children before their parents
            last = story.runs[-1].ended if story.runs else story.started
            for request in [request for request in self._asked.values() if request.agent_id == story.agent_id]:
                yield self.note(_unanswered(request, last))
            if story.is_running:
                facts = {**_header(story, last), "usage": story.usage, "tree_usage": story.tree_usage}
                seconds = story.seconds(last)
                yield self.note(ev.AgentFinished(**facts, status="cancelled", error=CUT_OFF, seconds=seconds))


def _unanswered(request: ev.ApprovalRequest | ev.QuestionRequest, time: float) -> ev.ApprovalDecided | ev.QuestionAnswered:
    header = {**_header(request, time), "tool_call_id": request.tool_call_id, "request_id": request.request_id}
    if isinstance(request, ev.ApprovalRequest):
        return ev.ApprovalDecided(**header, allowed=False, reason=UNANSWERED)
    return ev.QuestionAnswered(**header, prompt=request.prompt, answered=False, reason=UNANSWERED)


def _header(of: ev.Event | AgentStory, time: float) -> dict[str, Any]:
    return {"agent_id": of.agent_id, "parent_id": of.parent_id, "depth": of.depth, "time": time}
