"""`Records`: what each agent has done, to be looked at when a person asks for it: more than the scrollback has."""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from rich.console import Group, RenderableType
from rich.text import Text

from freeact_sub.show.agent_view import AgentView, Views
from freeact_sub.show.rows import Row
from freeact_sub.terminal.drawing.transcript import Transcript

MAX_CHARS: Final = 1_000_000
"""Kept of one agent; what is older is dropped, and said so."""


@dataclass
class _Record:
    rows: deque[Row] = field(default_factory=deque)
    chars: int = 0
    dropped: int = 0


class Records:
    """The rows of all agents, in memory that is bounded for each."""

    def __init__(self, views: Views) -> None:
        self._views = views
        self._by_id: dict[str, _Record] = {}

    def add(self, view: AgentView, rows: Iterable[Row]) -> None:
        """Keep the rows of an event."""
        for row in rows:
            record = self._by_id.setdefault(view.agent_id, _Record())
            record.rows.append(row)
            record.chars += len(row.text)
            while record.chars > MAX_CHARS and len(record.rows) > 1:
                record.chars -= len(record.rows.popleft().text)
                record.dropped += 1

    def count(self, view: AgentView) -> int:
        """How many rows of an agent there were, those included that are no longer kept."""
        record = self._by_id.get(view.agent_id, _Record())
        return len(record.rows) + record.dropped

    def drawn(self, view: AgentView) -> RenderableType:
        """All that is kept of an agent, in full."""
        record = self._by_id.get(view.agent_id, _Record())
        transcript = Transcript(self._views, with_prompts=True)
        head = [Text(f"{record.dropped:,} earlier entries are not kept", "dim")] if record.dropped else []
        return Group(*head, *(transcript.render(view, row) for row in record.rows))
