"""`Transcript`: an agent's actions in the look of the conversation, as blocks that unfold one by one."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from rich.console import RenderableType
from rich.text import Text

from freeact_sub.events import AgentEvent, Event, ToolCallStarted
from freeact_sub.show.agent_story import AgentStory, Stories
from freeact_sub.show.heads import head_of_tool
from freeact_sub.show.rows import rows
from freeact_sub.terminal.drawing.parts import INDENT, Folded, Indented, colour, head_lines
from freeact_sub.terminal.drawing.plan import open_plans, plan_text
from freeact_sub.terminal.drawing.records import Entry, Records
from freeact_sub.terminal.drawing.story import Story

UNFOLDS: Final = "Enter"
"""The key that unfolds a block."""


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
        """What is shown of it."""
        return self.whole if self.is_open else [*self.folded, *self.held]


class Transcript:
    """Grows with the work of one agent."""

    def __init__(self, records: Records, view: AgentStory) -> None:
        """Args: records: where all is kept. view: the agent."""
        self._records, self._agent_id = records, view.agent_id
        self._seen = 0
        self._views = Stories()
        self._folded = Story(self._views, of=view.agent_id, folds=True, whole=UNFOLDS)
        self._whole = Story(self._views, of=view.agent_id)
        self._blocks: list[Block] = []
        self._actions: dict[str | None, Block] = {}
        """The block of each call."""
        if view.parent_id is not None:
            self._add(Text(view.name, f"bold {colour(view)}"))

    def version(self) -> int:
        """See `Paged`."""
        return self._records.count(self._agent_id)

    def news(self) -> tuple[int, Sequence[Entry]]:
        """See `Paged`."""
        seen, self._seen = self._seen, self.version()
        return self._records.since(self._agent_id, seen)

    def blocks(self, news: tuple[int, Sequence[Entry]]) -> list[Block]:
        """See `Paged`."""
        lost, entries = news
        if lost:
            self._add(Text(f"{lost:,} earlier entries are not kept", "dim"))
        for entry in entries:
            if isinstance(entry, AgentEvent):
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

    def _observe(self, event: Event) -> None:
        found = [*rows(self._views.observe(event), event)]
        self._folded.has_folded = False
        folded, whole = self._folded.draw(event, found), self._whole.draw(event, found)
        if isinstance(event, ToolCallStarted) and not event.call_id:
            self._actions.pop(event.tool_call_id, None)  # a later turn may use the id again
        if folded is None and whole is None:
            return
        block = self._action(event)
        block.folded += [folded] if folded is not None else []
        block.whole += [whole] if whole is not None else []
        block.is_foldable |= self._folded.has_folded

    def _action(self, event: Event) -> Block:
        """The block that an event belongs to: all that an action does is below it."""
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
