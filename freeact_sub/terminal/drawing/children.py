"""`ChildrenRegion`: the children at work, a line for each, in place. Finished ones are a count."""

import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from freeact_sub.show.agent_story import AgentStory, Stories
from freeact_sub.show.heads import doing
from freeact_sub.show.wording import call_progress_text, strategy_text
from freeact_sub.terminal.drawing.parts import colour, filled, marked
from freeact_sub.terminal.drawing.plan import plan_count
from freeact_sub.text import counted, one_line

MAX_ROWS: Final = 12
NAME_COLUMNS: Final = 28
MARGIN: Final = 3
"""Columns at the right that stay free: a row as wide as the window folds as soon as that becomes narrower."""
WIDE: Final = 100 - MARGIN
"""The least number of columns for turns and cost."""
MEDIUM: Final = 70 - MARGIN
"""The least number of columns for tokens."""
WAITS: Final = "queued"


def present_children(views: Stories) -> list[AgentStory]:
    """The children of the root's present run, each below its parent, in order of start."""
    root = views.root
    if root is None:
        return []
    below: dict[str, list[AgentStory]] = defaultdict(list)
    for view in views.by_id.values():
        if view.parent_id is not None and (view.is_running or view.started >= root.started):
            below[view.parent_id].append(view)

    def walk(agent_id: str) -> Iterator[AgentStory]:
        for view in below.pop(agent_id, ()):
            yield view
            yield from walk(view.agent_id)

    return [*walk(root.agent_id)]


def progress_lines(views: Stories) -> list[Text]:
    """A line for each strategy at work, and for each call of the root that tells how far it is; a child's row says that."""
    lines = []
    for view in views.by_id.values():
        is_root = view.parent_id is None
        texts = [strategy_text(step) for step in view.strategies.values()]
        texts += map(call_progress_text, view.reached.values() if is_root else ())
        name = "" if is_root else f"{views.name(view)}: "
        lines += [Text.assemble(("  ◆ ", colour(view)), name, text) for text in texts if view.is_running]
    return lines


@dataclass(frozen=True, kw_only=True)
class ChildrenRegion:
    """The region, in at most so many rows."""

    views: Stories
    rows: int = MAX_ROWS

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        del console
        columns = options.max_width - MARGIN
        every = present_children(self.views)
        live = [view for view in every if view.is_running]
        ended = _counts(view for view in every if not view.is_running)
        progress = progress_lines(self.views)[: max(1, self.rows // 3)]
        for line in progress:
            yield _cut(line, columns)
        rows = min(self.rows, MAX_ROWS) - bool(ended) - len(progress)
        shown = live if len(live) <= rows else _most_urgent(live, max(rows - 1, 0))
        width = max((_name_columns(self.views, view) for view in shown), default=0)
        for view in shown:
            yield self._line(view, min(width, NAME_COLUMNS, columns // 2), columns)
        hidden = [view for view in live if view not in shown]
        if hidden:
            yield _cut(Text(f"  … {len(hidden)} more: {_states(hidden)}", "dim"), columns)
        if ended:
            yield _cut(Text(f"  {ended}", "dim"), columns)

    def _line(self, view: AgentStory, width: int, columns: int) -> Text:
        asks, waits = bool(view.questions), view.status == WAITS
        mark = ("? ", "bold yellow") if asks else ("○ ", "dim") if waits else ("● ", colour(view))
        name = " " * (2 * (view.depth - 1)) + self.views.name(view)
        figures = _figures(view, columns)
        room = columns - 3 - width - 2 - cell_len(figures) - 2
        does = "waiting for a free place" if waits else " ".join(filter(None, [plan_count(view), doing(view)]))
        line = Text("  ", no_wrap=True, end="\n")
        line.append(*mark)
        line.append(filled(name, width), f"bold {colour(view)}")
        if room > 4:
            line.append(f"  {filled(one_line(does, 200), room - 1)}", "yellow" if asks else "")
        line.append(f" {figures}", "dim")
        return _cut(line, columns)


def _figures(view: AgentStory, columns: int) -> str:
    usage = view.usage
    parts = [f"{view.seconds(time.time()):.0f} s"]
    if columns >= WIDE:
        parts.append(counted(usage.turns, "turn"))
    if columns >= MEDIUM:
        parts.append(marked(f"{usage.tokens_text} tok"))
    if columns >= WIDE and usage.cost_text:
        parts.append(marked(usage.cost_text))
    return " · ".join(parts)


def _name_columns(views: Stories, view: AgentStory) -> int:
    return 2 * (view.depth - 1) + cell_len(views.name(view))


def _most_urgent(live: list[AgentStory], rows: int) -> list[AgentStory]:
    """Return the asking children, then the working ones, then the waiting ones, in the order of the tree."""
    ranked = sorted(live, key=lambda view: (not view.questions, view.status == WAITS))[:rows]
    kept = {view.agent_id for view in ranked}
    return [view for view in live if view.agent_id in kept]


def _states(views: list[AgentStory]) -> str:
    counts = Counter("asks" if view.questions else WAITS if view.status == WAITS else "at work" for view in views)
    return ", ".join(f"{count} {state}" for state, count in counts.items())


def _counts(views: Iterator[AgentStory]) -> str:
    """The counts of ended children by status; empty if none has ended."""
    counts = Counter(view.status for view in views)
    done = counts.pop("completed", 0)
    parts = [f"✓ {done} done"] if done else []
    return " · ".join([*parts, *(f"✗ {count} {status.replace('_', ' ')}" for status, count in counts.items())])


def _cut(line: Text, columns: int) -> Text:
    line.truncate(columns, overflow="ellipsis")
    line.no_wrap = True
    return line
