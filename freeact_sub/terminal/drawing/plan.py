"""A plan: whole in the scrollback once it is over, and in few rows in its place while its agent works on it."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from freeact_sub.events.plan import PlanState, PlanStatus
from freeact_sub.show.agent_story import AgentStory
from freeact_sub.show.wording import plan_lines, plan_title
from freeact_sub.terminal.drawing.parts import INDENT

MAX_ROWS: Final = 10
"""Rows of a plan in its place."""
FEW_ROWS: Final = 4
"""With fewer, a plan is one line: the step at work."""
STYLES: Final[dict[PlanStatus, str]] = {"pending": "dim", "in_progress": "bold", "completed": "green", "failed": "red"}


def plan_text(plan: PlanState) -> Iterator[Text]:
    """The whole plan."""
    yield Text.assemble(("● ", "cyan"), ("Plan", "bold"), f"  {plan_title(plan)}", overflow="fold")
    yield from _steps(plan)


def open_plans(view: AgentStory) -> list[PlanState]:
    """The plans that an agent works on."""
    return [plan for plan in view.plans.values() if view.is_running and not plan.is_over]


def plan_count(view: AgentStory) -> str:
    """How far an agent is with its own plan, in few characters; empty without one."""
    plan = view.plans.get("")
    return f"{plan.done}/{len(plan.steps)}" if plan is not None and view.is_running else ""


@dataclass(frozen=True, kw_only=True)
class PlanInPlace:
    """A plan in at most so many rows, each a line of the window."""

    plan: PlanState
    rows: int

    @property
    def height(self) -> int:
        """The rows that it takes."""
        wanted = min(len(self.plan.steps) + 1, MAX_ROWS)
        return min(wanted, self.rows) if self.rows >= min(FEW_ROWS, wanted) else 1

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        del console
        for line in self._lines():
            line.no_wrap, line.overflow = True, "ellipsis"
            line.truncate(options.max_width, overflow="ellipsis")
            yield line

    def _lines(self) -> Iterator[Text]:
        steps, at = [*_steps(self.plan)], self._at_work
        if self.height == 1:
            yield Text.assemble(("  Plan", "bold"), f"  {self.plan.done}/{len(steps)} ", steps[at].plain.strip())
            return
        yield Text.assemble(("  Plan", "bold"), f"  {plan_title(self.plan)}")
        room = self.height - 1
        if len(steps) <= room:
            yield from steps
            return
        first = max(0, min(at - (room - 1) // 2, len(steps) - (room - 1)))
        yield from steps[first : first + room - 1]
        yield Text(f"{' ' * INDENT}… {len(steps) - room + 1} more", "dim")

    @property
    def _at_work(self) -> int:
        states = [step.status for step in self.plan.steps]
        return next((states.index(state) for state in ("in_progress", "pending") if state in states), len(states) - 1)


def _steps(plan: PlanState) -> Iterator[Text]:
    for step, line in zip(plan.steps, plan_lines(plan), strict=True):
        yield Text(f"{' ' * INDENT}{line}", STYLES[step.status], overflow="fold")
