"""`Records`: keeps all that each agent has done, for a person to look at: more than the scrollback has."""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.text import Text

from freeact_sub.cells import size_of
from freeact_sub.events import (
    AgentFinished,
    AgentStarted,
    CodeExecutionOutputChunk,
    Event,
    ModelProgress,
    ResponseChunk,
    ThoughtsChunk,
    UsageUpdated,
)
from freeact_sub.show.agent_story import AgentStory, Stories
from freeact_sub.show.heads import head_of_tool
from freeact_sub.show.rows import Row
from freeact_sub.terminal.drawing.parts import colour
from freeact_sub.terminal.drawing.story import Story, head_lines

MAX_CHARS: Final = 1_000_000
"""Characters that are kept of one agent; older events are dropped, and their number is shown."""
EVENT_CHARS: Final = 50
"""Characters that an event counts for besides its text, so that a great many short ones are bounded too."""
PASSING: Final = (ModelProgress, ResponseChunk, ThoughtsChunk, UsageUpdated)
"""Events of a moment: nothing of them is kept."""


@dataclass
class _Record:
    events: deque[tuple[Event, int]] = field(default_factory=deque)
    """Each with its characters."""
    chars: int = 0
    dropped: int = 0


class Records:
    """Keeps the events of all agents, with a bound for each."""

    def __init__(self) -> None:
        self._by_id: dict[str, _Record] = {}

    def add(self, event: Event, rows: Iterable[Row]) -> None:
        """Keeps an event. Args: rows: its rows."""
        if isinstance(event, PASSING):
            return
        chars = EVENT_CHARS + sum(len(row.text) for row in rows)
        if isinstance(event, CodeExecutionOutputChunk):
            chars = EVENT_CHARS + size_of(event.output)  # its rows may come later
        self._keep(event.agent_id, event, chars)
        if event.parent_id is not None and isinstance(event, AgentStarted | AgentFinished):
            self._keep(event.parent_id, event, chars)

    def _keep(self, agent_id: str, event: Event, chars: int) -> None:
        record = self._by_id.setdefault(agent_id, _Record())
        record.events.append((event, chars))
        record.chars += chars
        while record.chars > MAX_CHARS and len(record.events) > 1:
            record.chars -= record.events.popleft()[1]
            record.dropped += 1

    def count(self, agent_id: str) -> int:
        """The number of an agent's events, including those that are no longer kept."""
        record = self._by_id.get(agent_id, _Record())
        return len(record.events) + record.dropped

    def drawn(self, view: AgentStory) -> RenderableType:
        """All that is kept of an agent, in full, as the scrollback would show it; of a child below its name."""
        record = self._by_id.get(view.agent_id, _Record())
        title = Text(view.name, f"bold {colour(view)}") if view.parent_id is not None else None
        return _Retold(view.agent_id, title, tuple(event for event, _ in record.events), record.dropped)


@dataclass(frozen=True)
class _Retold:
    """Draws events once more; it may do so in another thread."""

    agent_id: str
    title: Text | None
    events: Sequence[Event]
    dropped: int

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        del console, options
        if self.title is not None:
            yield self.title
        if self.dropped:
            yield Text(f"{self.dropped:,} earlier entries are not kept", "dim")
        views = Stories()
        story = Story(views, of=self.agent_id)
        for event in self.events:
            views.observe(event)
            if (drawn := story.draw(event)) is not None:
                yield drawn
        for call in story.pending:
            yield from head_lines(head_of_tool(call), mark="○ ")
