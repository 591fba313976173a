"""Each agent's actions in full, for the pager; the scrollback has less.

`Records` keeps them; a `Transcript` draws those of one agent as the conversation does, in blocks that unfold one by one.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final, TypeAlias

from rich.console import RenderableType
from rich.text import Text

from freeact_sub import events as ev
from freeact_sub.cells import size_of
from freeact_sub.show.agent_story import AgentStory, Stories
from freeact_sub.show.blocks import Approval, CallStep, Output, StoryBlock
from freeact_sub.show.heads import head_of_tool
from freeact_sub.show.teller import blocks
from freeact_sub.terminal.drawing.parts import INDENT, Folded, Indented, colour, head_lines, open_plans, plan_text
from freeact_sub.terminal.drawing.story import Story

UNFOLDS: Final = "Enter"
"""The key that unfolds a block."""
MAX_CHARS: Final = 1_000_000
"""Characters kept for one agent. Older events are dropped, and their number is shown."""
EVENT_CHARS: Final = 50
"""Characters that each event counts besides its text, so that many short events are bounded too."""
DRAWN_CHARS: Final = 500
"""Characters that a drawing without an event counts."""

Entry: TypeAlias = ev.Event | RenderableType
"""An event, or another drawing in the conversation."""


@dataclass
class _Record:
    entries: deque[tuple[Entry, int]] = field(default_factory=deque)
    """The entries, each with its characters."""
    chars: int = 0
    dropped: int = 0


class Records:
    """The events of all agents, with a bound for each, and the root's other drawings."""

    def __init__(self) -> None:
        self._by_id: dict[str, _Record] = {}
        self._parents: dict[str, str | None] = {}
        self._root = ""
        self.whole: set[str] = set()
        """The questions whose cells were drawn unfolded."""

    def add(self, event: ev.Event, found: Sequence[StoryBlock]) -> None:
        """Keep an event, unless it describes only a moment. Args: found: its blocks."""
        if all(block.passing for block in found):
            return
        self._parents.setdefault(event.agent_id, event.parent_id)
        if event.parent_id is None and not self._root:
            self._root = event.agent_id
            self._by_id[self._root] = self._by_id.pop("", _Record())
        outputs = [block.output for block in found if isinstance(block, Output) and block.output is not None]
        chars = EVENT_CHARS + (sum(map(size_of, outputs)) or sum(len(block.text) for block in found))
        self._keep(event.agent_id, event, chars)
        if any(block.line or block.reaches_parents for block in found):
            for agent_id in self._above(event):
                self._keep(agent_id, event, chars)

    def add_drawn(self, drawn: RenderableType) -> None:
        """Keep a drawing without an event for the root."""
        self._keep(self._root, drawn, DRAWN_CHARS)

    def _above(self, event: ev.Event) -> list[str]:
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
        """Return the number of an agent's entries, dropped ones included."""
        record = self._by_id.get(agent_id, _Record())
        return len(record.entries) + record.dropped

    def since(self, agent_id: str, seen: int) -> tuple[int, list[Entry]]:
        """Return the entries of an agent after the first so many, preceded by the number of dropped ones."""
        record = self._by_id.get(agent_id, _Record())
        lost = max(0, record.dropped - seen)
        first = max(0, seen - record.dropped)
        return lost, [entry for entry, _ in islice(record.entries, first, None)]


@dataclass(eq=False, kw_only=True)
class Block:
    """A block: an action with its output, or another drawing."""

    folded: list[RenderableType] = field(default_factory=list)
    whole: list[RenderableType] = field(default_factory=list)
    held: list[RenderableType] = field(default_factory=list)
    """The last lines so far of a cell at work, folded."""
    is_foldable: bool = False
    """Whether `whole` shows more than `folded`."""
    is_open: bool = False
    """Whether it is unfolded."""

    @property
    def drawn(self) -> Sequence[RenderableType]:
        """The drawings that are shown."""
        return self.whole if self.is_open else [*self.folded, *self.held]


class Paged:
    """The content of a pager; this one does not change."""

    def __init__(self, *drawn: RenderableType) -> None:
        self._blocks = [Block(folded=[each], whole=[each]) for each in drawn]

    def version(self) -> int:
        """Return a number that changes with new content."""
        return 0

    def news(self) -> Any:
        """Read the new content."""

    def blocks(self, _news: Any) -> Sequence[Block]:
        """Return all blocks, including new ones. Called in another thread."""
        return self._blocks


class Transcript(Paged):
    """The growing record of one agent's work."""

    def __init__(self, records: Records, view: AgentStory) -> None:
        super().__init__(*([] if view.parent_id is None else [Text(view.name, f"bold {colour(view)}")]))
        self._records, self._agent_id = records, view.agent_id
        self._seen = 0
        self._views = Stories()
        self._folded = Story(self._views, of=view.agent_id, folds=True, whole=UNFOLDS)
        self._whole = Story(self._views, of=view.agent_id)
        self._actions: dict[str | None, Block] = {}
        """The block of each call."""

    def version(self) -> int:
        """Return the number of its entries."""
        return self._records.count(self._agent_id)

    def news(self) -> tuple[int, Sequence[Entry]]:
        """Read the new content."""
        seen, self._seen = self._seen, self.version()
        return self._records.since(self._agent_id, seen)

    def blocks(self, news: tuple[int, Sequence[Entry]]) -> Sequence[Block]:
        """Return all blocks, including new ones."""
        lost, entries = news
        if lost:
            self._add(Text(f"{lost:,} earlier entries are not kept", "dim"))
        for entry in entries:
            if isinstance(entry, ev.AgentEvent):
                self._observe(entry)
            else:
                self._folded.forget_last()
                self._whole.forget_last()
                self._add(entry)
        for action in [*self._actions.values()][-1:]:
            output = self._folded.output
            action.held = [Indented(body=Folded(lines=output), columns=INDENT)] if output else []
        pending = [line for call in self._folded.pending for line in head_lines(head_of_tool(call), mark="○ ")]
        if (view := self._views.by_id.get(self._agent_id)) is not None:
            pending += [line for plan in open_plans(view) for line in plan_text(plan)]
        return [*self._blocks, *([Block(folded=pending, whole=pending)] if pending else [])]

    def _observe(self, event: ev.Event) -> None:
        found = blocks(self._views.observe(event), event)
        self._folded.has_folded = False
        folded, whole = self._folded.draw(event, found), self._whole.draw(event, found)
        for block in found:
            if isinstance(block, Approval) and block.request.request_id in self._records.whole:
                folded, whole = (story.whole_cell(block.request, None) for story in (self._folded, self._whole))
            if isinstance(block, CallStep) and not block.call_id:
                self._actions.pop(event.tool_call_id, None)  # a later turn may use the id again
        if folded is None and whole is None:
            return
        action = self._action(event)
        action.folded += [folded] if folded is not None else []
        action.whole += [whole] if whole is not None else []
        action.is_foldable |= self._folded.has_folded

    def _action(self, event: ev.Event) -> Block:
        """Return the block of an event: all parts of an action are below it."""
        call_id = event.tool_call_id if event.agent_id == self._agent_id else None
        block = self._actions.get(call_id)
        if block is None:
            block = Block()
            self._blocks.append(block)
            if call_id is not None:
                for earlier in self._actions.values():
                    earlier.held = []
                self._actions[call_id] = block
        return block

    def _add(self, drawn: RenderableType) -> None:
        self._blocks.append(Block(folded=[drawn], whole=[drawn]))
