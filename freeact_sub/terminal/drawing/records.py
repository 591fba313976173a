"""`Records`: keeps all that each agent has done, for a person to look at: more than the scrollback has."""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from rich.console import Group, RenderableType
from rich.text import Text

from freeact_sub.show.agent_story import AgentStory, Stories
from freeact_sub.show.rows import Row
from freeact_sub.terminal.drawing.transcript import Transcript

MAX_CHARS: Final = 1_000_000
"""Characters that are kept of one agent; older rows are dropped, and their number is shown."""


@dataclass
class _Record:
    rows: deque[Row] = field(default_factory=deque)
    chars: int = 0
    dropped: int = 0


class Records:
    """Keeps the rows of all agents, with a bound for each."""

    def __init__(self, views: Stories) -> None:
        self._views = views
        self._by_id: dict[str, _Record] = {}

    def add(self, view: AgentStory, rows: Iterable[Row]) -> None:
        """Keeps the rows of an event."""
        for row in rows:
            record = self._by_id.setdefault(view.agent_id, _Record())
            record.rows.append(row)
            record.chars += len(row.text)
            while record.chars > MAX_CHARS and len(record.rows) > 1:
                record.chars -= len(record.rows.popleft().text)
                record.dropped += 1

    def count(self, view: AgentStory) -> int:
        """The number of an agent's rows, including those that are no longer kept."""
        record = self._by_id.get(view.agent_id, _Record())
        return len(record.rows) + record.dropped

    def drawn(self, view: AgentStory) -> RenderableType:
        """All kept rows of an agent, in full."""
        record = self._by_id.get(view.agent_id, _Record())
        transcript = Transcript(self._views, with_prompts=True)
        head = [Text(f"{record.dropped:,} earlier entries are not kept", "dim")] if record.dropped else []
        return Group(*head, *(transcript.render(view, row) for row in record.rows))
