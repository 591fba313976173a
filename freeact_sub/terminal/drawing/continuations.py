"""Draws how models continue a session side by side: what each does, and what became of it."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from rich.cells import cell_len, set_cell_size
from rich.console import Group
from rich.text import Text

from freeact_sub.terminal.drawing.parts import marked
from freeact_sub.text import counted, duration, one_line, visible

if TYPE_CHECKING:  # slow to import: the caller does it, at its time
    from freeact_sub.strategies.comparing import Continuation

MODEL_CHARS: Final = 28
ANSWER_CHARS: Final = 300
HEADINGS: Final = ("model", "status", "cost", "time", "files")
INDENT: Final = "   "
AT_WORK: Final = ("waiting", "working")
GOOD: Final = "completed"
DENIED: Final = "all denied"


def progress_lines(continuations: Sequence["Continuation"]) -> Group:
    """What each does now."""
    does = [each.action if each.status == "working" else _said(each) for each in continuations]
    return Group(*_lines(continuations, [[text] for text in does], done=False))


def result_lines(continuations: Sequence["Continuation"]) -> Group:
    """What became of each, with its answer and its session below it."""
    return Group(*_lines(continuations, [[_said(each), each.fork.session_id] for each in continuations], done=True))


def facts_of(continuation: "Continuation") -> list[str]:
    """Status, cost, time, files and the first line of the answer, as texts."""
    facts = [_status(continuation), _cost(continuation), _time(continuation), files_text(continuation)]
    return [*facts, visible(_said(continuation))]


def files_text(continuation: "Continuation") -> str:
    """The changed files and lines: `2 files +10 -3`."""
    if continuation.files_problem:
        return "unknown"
    if not continuation.files:
        return "none"
    lines = [lines for _, lines in continuation.files if lines is not None]
    came, went = sum(came for came, _ in lines), sum(went for _, went in lines)
    return f"{counted(len(continuation.files), 'file')} +{came} -{went}"


def _lines(continuations: Sequence["Continuation"], below: Sequence[Sequence[str]], *, done: bool) -> Iterator[Text]:
    """A heading, and of each continuation a row with lines below it. Args: done: with time and files."""
    count = len(HEADINGS) if done else len(HEADINGS) - 2
    rows = [[_model(each), _status(each), _cost(each), _time(each), files_text(each)][:count] for each in continuations]
    widths = [max(map(cell_len, column)) for column in zip(HEADINGS, *rows, strict=False)]
    yield _row("", HEADINGS[:count], widths, "bold")
    for number, (row, more) in enumerate(zip(rows, below, strict=True), 1):
        yield _row(str(number), row, widths, "red" if row[1] not in (*AT_WORK, GOOD) else "")
        for text in filter(None, more):
            yield Text(f"{INDENT}{visible(text)}", "dim", no_wrap=True, overflow="ellipsis")


def _row(number: str, cells: Sequence[str], widths: Sequence[int], style: str) -> Text:
    text = "  ".join(set_cell_size(cell, width) for cell, width in zip(cells, widths, strict=False))
    return Text(f"{number:<{len(INDENT)}}{text}".rstrip(), style, no_wrap=True, overflow="ellipsis")


def _model(continuation: "Continuation") -> str:
    """The model; of a long name its end, which tells models apart."""
    name = visible(continuation.model)
    return name if len(name) <= MODEL_CHARS else f"…{name[1 - MODEL_CHARS :]}"


def _status(continuation: "Continuation") -> str:
    return DENIED if continuation.unattended else continuation.status


def _cost(continuation: "Continuation") -> str:
    usage = continuation.usage
    return marked(usage.cost_text or (f"{usage.tokens_text} tokens" if usage.tokens else ""))


def _time(continuation: "Continuation") -> str:
    return duration(continuation.seconds)


def _said(continuation: "Continuation") -> str:
    """The first line of the answer, or why there is none."""
    return one_line(continuation.error or next(iter(continuation.answer.strip().splitlines()), ""), ANSWER_CHARS)
