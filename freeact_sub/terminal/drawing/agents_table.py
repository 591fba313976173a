"""Draws the tree of agents for `/agents`."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

from freeact_sub.activity import LABEL_CHARS
from freeact_sub.agent_names import short_id
from freeact_sub.show.agent_story import Stories
from freeact_sub.show.agents_at_work import AT_WORK, status_text
from freeact_sub.terminal.drawing.parts import colour, marked
from freeact_sub.text import counted, one_line, visible

if TYPE_CHECKING:  # slow to import: the caller does it, at its time
    from freeact_sub.agents import AgentInfo

WIDE: Final = 96
"""In a terminal of at least so many columns each agent has one row; otherwise up to three."""

COLUMNS: Final[tuple[tuple[str, Literal["left", "right"], bool], ...]] = (
    ("agent", "left", True),
    ("label", "left", False),
    ("status", "left", True),
    ("does", "left", False),
    ("turns", "right", True),
    ("time", "right", True),
    ("tokens", "right", True),
    ("cost", "right", True),
)
"""The heading, side, and whether it keeps its width if there is little room, of each column."""

Row: TypeAlias = "tuple[str, str, AgentInfo]"
"""The text before an agent on its first row, the text on its other rows, and the agent."""


@dataclass(frozen=True, kw_only=True)
class AgentsTable:
    """Draws all agents, children below their parents."""

    agents: Sequence["AgentInfo"]
    views: Stories

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        del console
        if options.max_width >= WIDE:
            yield self._table()
        else:
            yield from self._lines()
        for agent in self.agents:
            if agent.fan_out is not None and agent.status in AT_WORK:
                within = f" Within {agent.fan_out.bound}." if agent.fan_out.bound else ""
                yield Text.assemble(self._name(agent), (f" {visible(agent.fan_out.summary + within)}", "dim"))

    def _lines(self) -> Iterator[Text]:
        for first, others, agent in _rows(self.agents):
            label, action = self._label(agent), agent.action
            name = (first, self._name(agent), f" {label}" if label else "", f" · {status_text(agent)}")
            yield Text.assemble(*name, overflow="ellipsis", no_wrap=True)
            numbers = (
                f"{counted(agent.usage.turns, 'turn')} · {agent.seconds:.1f} s · {marked(agent.usage.tokens_text)} tokens"
            )
            cost = marked(agent.usage.cost_text)
            for line in (f"{numbers} · {cost}" if cost else numbers, action):
                if line:
                    yield Text.assemble(others, (line, "dim"), overflow="ellipsis", no_wrap=True)

    def _table(self) -> Table:
        table = Table(box=None, pad_edge=False, header_style="bold")
        columns = COLUMNS if any(agent.usage.cost_text for agent in self.agents) else COLUMNS[:-1]
        for heading, justify, keeps_width in columns:
            table.add_column(heading, justify=justify, no_wrap=keeps_width)
        for first, _, agent in _rows(self.agents):
            cells = (
                Text.assemble(first, self._name(agent)),
                _cut(self._label(agent)),
                status_text(agent),
                _cut(agent.action),
                str(agent.usage.turns),
                f"{agent.seconds:.1f} s",
                marked(agent.usage.tokens_text),
                marked(agent.usage.cost_text),
            )
            table.add_row(*cells[: len(columns)])
        return table

    def _label(self, agent: "AgentInfo") -> str:
        view = self.views.by_id.get(agent.agent_id)
        return view.label if view is not None else one_line(agent.description, LABEL_CHARS)

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


def _cut(text: str) -> Text:
    return Text(text, overflow="ellipsis", no_wrap=True)
