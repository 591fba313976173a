"""The changing rows above the input line: text, actions, children, questions, waiting prompts, and a note.

`ChildrenRegion` has the children at work, a line for each, in place; finished ones are a count. `/agents` draws the tree of
all agents.
"""

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from freeact_sub.agent_names import short_id
from freeact_sub.show.agent_story import AgentStory, Stories
from freeact_sub.show.heads import doing, head_of_tool
from freeact_sub.show.typed_commands import AT_WORK, status_text
from freeact_sub.show.wording import call_progress_text, strategy_text
from freeact_sub.terminal.drawing.parts import (
    FOLD_ROWS,
    INDENT,
    Cut,
    Folded,
    Indented,
    PlanInPlace,
    colour,
    cut_apart,
    filled,
    head_lines,
    marked,
    open_plans,
    plan_count,
)
from freeact_sub.terminal.drawing.story import Story
from freeact_sub.text import clean, counted, one_line, visible, whole_line

if TYPE_CHECKING:  # slow to import: the caller does it, at its time
    from freeact_sub.agents import AgentInfo


CARD_ALONE = 15
"""Most rows at which only the question is drawn."""
TEXT_ROWS = 16
"""The rows of the agent's growing text."""

QUEUED_SHOWN: Final = 3
"""Most waiting prompts to list, the newest."""


def story_area(
    views: Stories, story: Story, card: Callable[[int], RenderableType] | None, rows: int, *, text: str = ""
) -> RenderableType | None:
    """Return the changing rows, at most so many; None if there are none. The question for the person stands last.

    Args:
        views: All agents.
        story: What was drawn of them.
        card: Draws the open question, in at most so many rows.
        rows: The bound on rows.
        text: The root's whole response, as long as it may be asked for again.
    """
    parts: list[RenderableType] = []
    children = [*progress_lines(views), *(view for view in present_children(views) if view.is_running)]
    if card is not None:
        few = min(len(children) + 2, MAX_ROWS + 1, rows // 3) if children and rows > CARD_ALONE else 0
        parts.append(card(rows - few))
        rows = few
    if children and rows > 1:
        room = min(MAX_ROWS, rows - 1)
        parts[:0] = [Text(), ChildrenRegion(views=views, rows=room)]
        rows -= 1 + min(room, len(children) + 1)
    for plan in open_plans(views.root) if card is None and views.root is not None else ():
        if rows > 2:
            block = PlanInPlace(plan=plan, rows=max(1, rows // 2))
            parts[:0] = [Text(), block]
            rows -= 1 + block.height
    if card is None and (root := views.root) is not None and rows > 1:
        parts[:0] = _says(root, story, min(rows, TEXT_ROWS), text, alone=not children)
    return Group(*parts) if parts else None


def _says(root: AgentStory, story: Story, rows: int, text: str, *, alone: bool) -> list[RenderableType]:
    """Return the end of the root's text, thoughts or output, or the seconds of its model's silence."""
    if shown := clean(root.writing or ("" if root.thinking else text)).strip("\n"):
        from freeact_sub.terminal.drawing.markdown import markdown  # noqa: PLC0415  # slow to import

        return [Text(), Cut(body=markdown(shown), rows=rows - 1, tail=True)]
    if shown := clean(root.thinking).strip("\n"):
        return [Text(), Cut(body=Text(shown, "dim italic", overflow="fold"), rows=rows - 1, tail=True)]
    held: list[RenderableType] = [line for event in story.pending for line in head_lines(head_of_tool(event), mark="○ ")]
    parts: list[RenderableType] = [Cut(body=Group(*held), rows=rows)] if held and alone else []
    shown = clean(root.output_text).strip("\n")
    if lines := [*story.output, *(Text(line, "dim") for line in shown.split("\n") if shown)]:
        parts.append(Cut(body=Indented(body=Folded(lines=lines), columns=INDENT), rows=min(rows, FOLD_ROWS), tail=True))
    return parts or ([waits] if (waits := silence(root)) else [])


def waiting_lines(prompts: Sequence[str], hint: str, *, can_send: bool) -> list[RenderableType]:
    """Draw waiting prompts.

    Args:
        prompts: The waiting prompts as they were typed, the next one first.
        hint: A note that stays until something else is entered; empty: none.
        can_send: An agent at work can get the prompts now.
    """
    lines = [Text(f"queued: {visible(whole_line(prompt))}", "dim", no_wrap=True, overflow="ellipsis") for prompt in prompts]
    if (left := len(prompts) - QUEUED_SHOWN) > 0:
        lines[:left] = [Text(f"… {left} more queued", "dim")]
    if prompts:
        lines.append(Text(f"{'Enter sends them now · ' if can_send else ''}↑ takes the last one back", "dim"))
    if hint:
        lines.append(Text(visible(hint), "dim", overflow="fold"))
    return [*lines]


def silence(view: AgentStory) -> Text | None:
    """Return a line about the seconds of a model's silence; None if it is not silent."""
    progress = view.progress
    if progress is None:
        return None
    if progress.pause:
        return Text(f"{progress.pause} · Ctrl-N tries now", "dim italic")
    rate = progress.tokens_per_second
    speed = f", {rate:.1f} tokens/s" if rate is not None else "" if progress.tokens else ", no token yet"
    return Text(f"waiting for the model: {progress.seconds:.0f} s{speed}", "dim italic")


MAX_ROWS: Final = 12
NAME_COLUMNS: Final = 28
"""Most columns of a child's name, where two fifths of the window are not more."""
MARGIN: Final = 3
"""Columns at the right that stay free: a row as wide as the window folds as soon as that becomes narrower."""
WIDE: Final = 100 - MARGIN
"""Least columns for turns and cost."""
MEDIUM: Final = 70 - MARGIN
"""Least columns for tokens."""
LINE_CHARS: Final = 200
"""The characters of a label, and of what a child does, that a line may show."""
WAITS: Final = "queued"


def present_children(views: Stories) -> list[AgentStory]:
    """Return the children of the root's present run, each below its parent, in order of start."""
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
    """Return a line for each strategy at work, and for each call of the root that tells its progress."""
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
        for view, name in zip(shown, _names(shown, min(max(NAME_COLUMNS, columns * 2 // 5), columns // 2)), strict=True):
            yield self._line(view, name, columns)
        hidden = [view for view in live if view not in shown]
        if hidden:
            yield _cut(Text(f"  … {len(hidden)} more: {_states(hidden)}", "dim"), columns)
        if ended:
            yield _cut(Text(f"  {ended}", "dim"), columns)

    def _line(self, view: AgentStory, name: str, columns: int) -> Text:
        asks, waits = bool(view.questions), view.status == WAITS
        mark = ("? ", "bold yellow") if asks else ("○ ", "dim") if waits else ("● ", colour(view))
        figures = _figures(view, columns)
        room = columns - 3 - cell_len(name) - 2 - cell_len(figures) - 2
        does = "waiting for a free place" if waits else " ".join(filter(None, [plan_count(view), doing(view)]))
        line = Text("  ", no_wrap=True, end="\n")
        line.append(*mark)
        line.append(name, f"bold {colour(view)}")
        if room > 4:
            line.append(f"  {filled(one_line(does, LINE_CHARS), room - 1)}", "yellow" if asks else "")
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


def _names(views: Sequence[AgentStory], most: int) -> list[str]:
    """Return the names of children, indented by their depths, all in as many columns as the longest needs."""
    ids = [f"{'  ' * (view.depth - 1)}{short_id(view.agent_id)} " for view in views]
    room = max(most - max(map(cell_len, ids), default=0), 0)
    labels = cut_apart([one_line(view.description, LINE_CHARS) for view in views], room)
    names = [f"{name}{label}".rstrip() for name, label in zip(ids, labels, strict=True)]
    return [filled(name, max(map(cell_len, names))) for name in names]


def _most_urgent(live: list[AgentStory], rows: int) -> list[AgentStory]:
    """Return the asking children, then the working ones, then the waiting ones, in the order of the tree."""
    ranked = sorted(live, key=lambda view: (not view.questions, view.status == WAITS))[:rows]
    kept = {view.agent_id for view in ranked}
    return [view for view in live if view.agent_id in kept]


def _states(views: list[AgentStory]) -> str:
    counts = Counter("asks" if view.questions else WAITS if view.status == WAITS else "at work" for view in views)
    return ", ".join(f"{count} {state}" for state, count in counts.items())


def _counts(views: Iterator[AgentStory]) -> str:
    counts = Counter(view.status for view in views)
    done = counts.pop("completed", 0)
    parts = [f"✓ {done} done"] if done else []
    return " · ".join([*parts, *(f"✗ {count} {status.replace('_', ' ')}" for status, count in counts.items())])


def _cut(line: Text, columns: int) -> Text:
    line.truncate(columns, overflow="ellipsis")
    line.no_wrap = True
    return line


STATUS_COLUMNS: Final = 26
"""Columns of a row besides the label: those of the tree, the name and the status."""
WIDE_TABLE: Final = 96
"""Least columns of a terminal in which each agent has one row; in others up to three."""

COLUMNS: Final[tuple[tuple[str, Literal["left", "right"], bool], ...]] = (
    ("agent", "left", True),
    ("label", "left", True),
    ("status", "left", True),
    ("does", "left", False),
    ("turns", "right", True),
    ("time", "right", True),
    ("tokens", "right", True),
    ("cost", "right", True),
)
"""Each column's heading, side, and whether it keeps its width if there is little room."""

Row: TypeAlias = "tuple[str, str, AgentInfo]"
"""The text before an agent on its first row, the text on its other rows, and the agent."""


@dataclass(frozen=True, kw_only=True)
class AgentsTable:
    """All agents, children below their parents."""

    agents: Sequence["AgentInfo"]
    views: Stories

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        del console
        if options.max_width >= WIDE_TABLE:
            yield self._table(self._labels(options.max_width // 4))
        else:
            yield from self._lines(self._labels(options.max_width - STATUS_COLUMNS))
        for agent in self.agents:
            if agent.fan_out is not None and agent.status in AT_WORK:
                within = f" Within {agent.fan_out.bound}." if agent.fan_out.bound else ""
                yield Text.assemble(self._name(agent), (f" {visible(agent.fan_out.summary + within)}", "dim"))

    def _lines(self, labels: Mapping[str, str]) -> Iterator[Text]:
        for first, others, agent in _rows(self.agents):
            label, action = labels[agent.agent_id], agent.action
            name = (first, self._name(agent), f" {label}" if label else "", f" · {status_text(agent)}")
            yield Text.assemble(*name, overflow="ellipsis", no_wrap=True)
            numbers = (
                f"{counted(agent.usage.turns, 'turn')} · {agent.seconds:.1f} s · {marked(agent.usage.tokens_text)} tokens"
            )
            cost = marked(agent.usage.cost_text)
            for line in (f"{numbers} · {cost}" if cost else numbers, action):
                if line:
                    yield Text.assemble(others, (line, "dim"), overflow="ellipsis", no_wrap=True)

    def _table(self, labels: Mapping[str, str]) -> Table:
        table = Table(box=None, pad_edge=False, header_style="bold")
        columns = COLUMNS if any(agent.usage.cost_text for agent in self.agents) else COLUMNS[:-1]
        for heading, justify, keeps_width in columns:
            table.add_column(heading, justify=justify, no_wrap=keeps_width)
        for first, _, agent in _rows(self.agents):
            cells = (
                Text.assemble(first, self._name(agent)),
                labels[agent.agent_id],
                status_text(agent),
                _cut_cell(agent.action),
                str(agent.usage.turns),
                f"{agent.seconds:.1f} s",
                marked(agent.usage.tokens_text),
                marked(agent.usage.cost_text),
            )
            table.add_row(*cells[: len(columns)])
        return table

    def _labels(self, columns: int) -> Mapping[str, str]:
        views = self.views.by_id
        whole = {
            agent.agent_id: views[agent.agent_id].description if agent.agent_id in views else agent.description
            for agent in self.agents
        }
        return dict(zip(whole, cut_apart([one_line(label, LINE_CHARS) for label in whole.values()], columns), strict=True))

    def _name(self, agent: "AgentInfo") -> tuple[str, str]:
        view = self.views.by_id.get(agent.agent_id)
        return short_id(agent.agent_id), colour(view) if view else ""


def _rows(agents: Sequence["AgentInfo"]) -> Iterator[Row]:
    children: dict[str | None, list[AgentInfo]] = defaultdict(list)
    for agent in agents:
        children[agent.parent_id].append(agent)

    def below(parent_id: str | None, lines: str) -> Iterator[Row]:
        for index, agent in enumerate(children[parent_id], start=1):
            is_last = index == len(children[parent_id])
            branch, trunk = ("", "") if parent_id is None else ("└ ", "  ") if is_last else ("├ ", "│ ")
            own = "│ " if agent.agent_id in children else "  "
            yield lines + branch, lines + trunk + own, agent
            yield from below(agent.agent_id, lines + trunk)

    return below(None, "")


def _cut_cell(text: str) -> Text:
    return Text(text, overflow="ellipsis", no_wrap=True)
