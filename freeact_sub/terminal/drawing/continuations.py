"""Draws how models continue a session side by side: what each does, and what became of it."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from rich.table import Table
from rich.text import Text

from freeact_sub.terminal.drawing.agents_table import marked
from freeact_sub.text import counted, duration, one_line, visible

if TYPE_CHECKING:  # slow to import: the caller does it, at its time
    from freeact_sub.agents import Continuation

MODEL_CHARS: Final = 28
ANSWER_CHARS: Final = 300
GOOD: Final = "completed"
DENIED: Final = "all denied"


def progress_table(continuations: Sequence["Continuation"]) -> Table:
    """What each does now."""
    table = _table(("model", "status", "cost", "does"))
    for each in continuations:
        does = each.action if each.status == "working" else one_line(each.error or each.answer, ANSWER_CHARS)
        table.add_row(_model(each), _status(each), _cost(each), _cut(does))
    return table


def result_table(continuations: Sequence["Continuation"]) -> Table:
    """What became of each."""
    table = _table(("", "model", "status", "cost", "time", "files", "answer"))
    for number, each in enumerate(continuations, 1):
        said = each.error or next(iter(each.answer.strip().splitlines()), "")
        facts = (_cost(each), duration(each.seconds), files_text(each))
        table.add_row(str(number), _model(each), _status(each), *facts, _cut(one_line(said, ANSWER_CHARS)))
    return table


def facts_of(continuation: "Continuation") -> list[str]:
    """Status, cost, time, files and the first line of the answer, as texts."""
    said = continuation.error or next(iter(continuation.answer.strip().splitlines()), "")
    facts = [_status(continuation).plain, _cost(continuation), duration(continuation.seconds), files_text(continuation)]
    return [*facts, visible(one_line(said, ANSWER_CHARS))]


def files_text(continuation: "Continuation") -> str:
    """The changed files and lines: `2 files +10 -3`."""
    if continuation.files_problem:
        return "unknown"
    if not continuation.files:
        return "none"
    lines = [lines for _, lines in continuation.files if lines is not None]
    came, went = sum(came for came, _ in lines), sum(went for _, went in lines)
    return f"{counted(len(continuation.files), 'file')} +{came} -{went}"


def _table(headings: Iterable[str]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in headings:
        table.add_column(heading, no_wrap=heading not in ("model", "does", "answer"))  # these give way
    return table


def _model(continuation: "Continuation") -> Text:
    """The model; of a long name its end, which tells models apart."""
    name = visible(continuation.model)
    return Text(name if len(name) <= MODEL_CHARS else f"…{name[1 - MODEL_CHARS :]}")


def _status(continuation: "Continuation") -> Text:
    status = DENIED if continuation.unattended else continuation.status
    return Text(status, "red" if status not in (GOOD, "waiting", "working") else "")


def _cost(continuation: "Continuation") -> str:
    usage = continuation.usage
    return marked(usage.cost_text or (f"{usage.tokens_text} tokens" if usage.tokens else ""))


def _cut(text: str) -> Text:
    return Text(visible(text), overflow="ellipsis", no_wrap=True)
