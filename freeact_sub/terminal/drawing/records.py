"""`Records`: keeps each agent's actions in full, for the pager; the scrollback has less."""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, TypeAlias

from rich.console import RenderableType

from freeact_sub.cells import size_of
from freeact_sub.events import (
    AgentFinished,
    AgentMessage,
    AgentStarted,
    ApprovalDecided,
    ApprovalRequest,
    CodeExecutionOutputChunk,
    Event,
    KernelLost,
    Notice,
    QuestionAnswered,
)
from freeact_sub.show.rows import Row

MAX_CHARS: Final = 1_000_000
"""The characters kept for one agent. Older events are dropped, and their number is shown."""
EVENT_CHARS: Final = 50
"""The characters that each event counts in addition to its text, so that many short events are bounded too."""
TOLD: Final = (
    AgentFinished,
    AgentMessage,
    AgentStarted,
    ApprovalDecided,
    ApprovalRequest,
    KernelLost,
    Notice,
    QuestionAnswered,
)
"""Events that are also kept for the agent's ancestors, which show them in a line."""
DRAWN_CHARS: Final = 500
"""The characters that a drawing without an event counts."""

Entry: TypeAlias = Event | RenderableType
"""An event, or another drawing in the conversation."""


@dataclass
class _Record:
    entries: deque[tuple[Entry, int]] = field(default_factory=deque)
    """Each with its characters."""
    chars: int = 0
    dropped: int = 0


class Records:
    """Keeps the events of all agents, with a bound for each, and the root's other drawings."""

    def __init__(self) -> None:
        self._by_id: dict[str, _Record] = {}
        self._parents: dict[str, str | None] = {}
        self._root = ""

    def add(self, event: Event, rows: Iterable[Row]) -> None:
        """Keeps an event. Args: rows: its rows."""
        if event.momentary:
            return
        self._parents.setdefault(event.agent_id, event.parent_id)
        if event.parent_id is None and not self._root:
            self._root = event.agent_id
            self._by_id[self._root] = self._by_id.pop("", _Record())
        chars = EVENT_CHARS + sum(len(row.text) for row in rows)
        if isinstance(event, CodeExecutionOutputChunk):
            chars = EVENT_CHARS + size_of(event.output)  # its rows may come later
        self._keep(event.agent_id, event, chars)
        if isinstance(event, TOLD):
            for agent_id in self._above(event):
                self._keep(agent_id, event, chars)

    def add_drawn(self, drawn: RenderableType) -> None:
        """Keeps a drawing without an event for the root."""
        self._keep(self._root, drawn, DRAWN_CHARS)

    def _above(self, event: Event) -> list[str]:
        found: list[str] = []
        parent = event.parent_id
        while parent is not None and parent not in found:
            found.append(parent)
            parent = self._parents.get(parent)
        return found

    def _keep(self, agent_id: str, entry: Entry, chars: int) -> None:
        record = self._by_id.setdefault(agent_id, _Record())
        record.entries.append((entry, chars))
        record.chars += chars
        while record.chars > MAX_CHARS and len(record.entries) > 1:
            record.chars -= record.entries.popleft()[1]
            record.dropped += 1

    def count(self, agent_id: str) -> int:
        """The number of an agent's entries, including those that are no longer kept."""
        record = self._by_id.get(agent_id, _Record())
        return len(record.entries) + record.dropped

    def since(self, agent_id: str, seen: int) -> tuple[int, list[Entry]]:
        """Return the entries of an agent after the first so many, preceded by the number of dropped ones."""
        record = self._by_id.get(agent_id, _Record())
        lost = max(0, record.dropped - seen)
        first = max(0, seen - record.dropped)
        return lost, [entry for entry, _ in islice(record.entries, first, None)]
