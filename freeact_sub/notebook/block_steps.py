"""The steps and the status of an agent's block in a notebook, made from its story; `render.py` draws them."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from freeact_sub.events import AgentFinished, AgentStarted, Response, Thoughts
from freeact_sub.show.agent_story import AgentStory
from freeact_sub.show.rows import rows
from freeact_sub.show.safe_html import TEXT_CHARS
from freeact_sub.show.steps import ANSWER_CHARS, Approval, CallStep, PlanItem, StoryItem, StoryLimits, StrategySteps
from freeact_sub.show.wording import call_progress_text, ending_notes, plan_lines, plan_title, strategy_text
from freeact_sub.text import counted, shortened

WAITING: Final = "waiting for you"
MOST_ASKS: Final = 5
"""More questions to a model, one after the other, are one line."""
LIMITS: Final = StoryLimits(first=11, last=60, outputs=40, text_chars=TEXT_CHARS, display_chars=6_000_000)
"""The number of items that a block keeps: an agent may run for hours, and each step redraws its block."""


@dataclass(frozen=True)
class Said:
    """A text of the model, or a remark on the run."""

    text: str
    kind: str = "note"
    """`answer`, `thoughts`, `note`, `plan`, `gap` for items that were left out, or `error`."""


Step = CallStep | Approval | Said


def steps_of(story: AgentStory) -> list[Step]:
    """What a block shows, in order."""
    first = next((item for item in story.items if isinstance(item, AgentStarted)), None)
    steps: list[Step] = []
    for index, item in enumerate(story.items):
        if index == LIMITS.first and story.kept.left_out:
            steps.append(Said(f"… {counted(story.kept.left_out, 'step')} left out …", "gap"))
        if item is not first:
            steps += _steps_of(story, item)
    return [*_folded(steps)]


def _folded(steps: Iterable[Step]) -> Iterator[Step]:
    """Tell many answered questions to a model, such as those of a map, in one line."""
    for is_answer, group in groupby(steps, _is_answered_question):
        found = [*group]
        yield from (
            [Said(f"{len(found):,} questions to a model, answered")] if is_answer and len(found) > MOST_ASKS else found
        )


def _is_answered_question(step: Step) -> bool:
    return isinstance(step, CallStep) and step.name == "ask" and step.outcome == "success" and not step.approvals


def _steps_of(story: AgentStory, item: StoryItem) -> Iterator[Step]:
    match item:
        case CallStep() | Approval():
            yield item
        case Response():
            yield Said(shortened(item.content, ANSWER_CHARS), "answer")
        case Thoughts():  # those of a child are for readers of the stream
            yield from [] if story.depth else [Said(shortened(item.content, ANSWER_CHARS), "thoughts")]
        case AgentStarted():
            yield Said(f"resumed: {item.prompt}")
        case AgentFinished():
            yield from [Said(item.error, "error")] if item.error else []
            yield from map(Said, (*item.doubts, *item.warnings))
            is_said = any(isinstance(other, Response) and other.content == item.output for other in story.items)
            yield from [Said(shortened(item.output, ANSWER_CHARS), "answer")] if item.output.strip() and not is_said else []
        case PlanItem():
            yield Said("\n".join([f"Plan: {plan_title(item.plan)}", *plan_lines(item.plan)]), "plan")
        case StrategySteps():
            pass  # the foot shows it
        case str():
            yield Said(item)
        case _:
            yield from (Said(row.text) for row in rows(story, item) if not row.passing)


def shown_status(story: AgentStory) -> str:
    """The status in a person's words."""
    return WAITING if story.questions else story.status.replace("_", " ")


def status_line(story: AgentStory, now: float) -> str:
    """Status, spending and duration."""
    if story.finished:
        return " · ".join([shown_status(story), *ending_notes(story.finished)])
    parts = [shown_status(story)]
    if story.pause:
        parts.append(story.pause)
    parts += [*map(strategy_text, story.strategies.values()), *map(call_progress_text, story.reached.values())]
    if story.usage.turns or story.usage.tokens:
        parts.append(str(story.usage))
    if story.tree_usage != story.usage:
        parts.append(f"with its children: {story.tree_usage}")
    return " · ".join([*parts, f"{story.seconds(now):.0f} s"])


def notes_of(call: CallStep) -> list[str]:
    """The steps below the outputs of a call."""
    ended = call.status.replace("_", " ")
    return [*([f"the cell ended: {ended}"] if ended not in ("", "ok", "error") else []), *call.notes]


def result_of(call: CallStep) -> str:
    """Return the result, unless the cell's output or the decision on an approval already shows it."""
    cell_ran = call.code is not None and call.status
    was_denied = call.outcome == "denied" and any(approval.decision for approval in call.approvals)
    return "" if cell_ran or was_denied else shortened(call.result, TEXT_CHARS)
