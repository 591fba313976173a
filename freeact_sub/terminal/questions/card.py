"""The card of a question: the asking agent, the whole call, and the keys that answer it."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from freeact_sub.actions import FileOperation
from freeact_sub.calls import CodeAction, FileWrite, ShellCommand
from freeact_sub.events import ApprovalRequest, QuestionRequest
from freeact_sub.show.agent_story import Stories
from freeact_sub.show.effect_lines import is_tried
from freeact_sub.show.heads import head_of
from freeact_sub.show.questions import Questions, asks_for
from freeact_sub.show.rows import call_part
from freeact_sub.show.wording import asked_text, cheaper_models, rule_words
from freeact_sub.terminal.drawing.parts import CODE_THEME, Cut, TwoParts, colour, draw_part
from freeact_sub.terminal.questions.effects_part import effects_line, effects_part
from freeact_sub.terminal.questions.form import form_keys, form_part
from freeact_sub.text import visible

SMALL_ROWS = 14
"""With fewer rows the card leaves out the other questions."""
MOST_SMALL = 4
"""With fewer rows for the call and its effects, these take one."""
OPENS: dict[FileOperation, str] = {
    "write": "the code opens it for writing, and what it writes is not known yet",
    "append": "the code opens it to append, and what it adds is not known yet",
    "create": "the code creates it, and what it writes is not known yet",
}
WAITING = "…"
"""Shown instead of the keys while keys are ignored."""


def question_card(
    views: Stories,
    questions: Questions,
    request: ApprovalRequest | QuestionRequest,
    rows: int,
    *,
    keys: str,
    workspace: Path,
) -> RenderableType:
    """The card of the current question.

    Args:
        views: All agents.
        questions: All open questions.
        request: The current one.
        rows: The rows that the card may take; the call is cut to them.
        keys: The line of keys, or a request to confirm.
        workspace: The start of relative paths.
    """
    kind = "Approval" if isinstance(request, ApprovalRequest) else "Question"
    number = Text(f" {kind} 1 of {len(questions.waiting)} ", "bold reverse yellow")
    asks = Text.assemble((asker(views, request), f"bold {colour(views.of(request))}"), " ")
    asks.append(asks_for(request), "bold yellow")
    code = questions.changed_code(request) if isinstance(request, ApprovalRequest) else None
    if code is not None:
        asks.append(", as you have changed it", "bold yellow")
    suggested = rule_words(request.suggested) if isinstance(request, ApprovalRequest) else ""
    others = [Text(line, "dim", no_wrap=True, overflow="ellipsis") for line in _others(views, questions)]
    is_small = rows < SMALL_ROWS  # the keys must be seen
    filling = questions.filling
    if isinstance(request, QuestionRequest) and filling is not None:
        room = max(rows - 4, 2) if is_small else max(rows - 6 - len(others), 2)
        call = Padding(form_part(request, filling, room), (0, 0, 0, 2))
    else:
        room = max(rows - 7, 2) if is_small else max(rows - 6 - len(others) - bool(suggested), 2)
        call = Padding(_with_effects(request, workspace, room, code), (0, 0, 0, 2))
    always = [Text(f"a and p: do not ask again about {suggested}", "dim")] if suggested else []
    if is_small:
        return Group(number, asks, call, *always, Text(keys, "yellow"))
    return Group(Text(), number, asks, call, *always, Text(keys, "yellow"), *others)


def _with_effects(
    request: ApprovalRequest | QuestionRequest, workspace: Path, room: int, code: str | None
) -> RenderableType:
    """The call, and below it what it did in its trial: each has at least half of the rows that it could fill."""
    call = drawn_call(request, workspace, code)
    if not (isinstance(request, ApprovalRequest) and is_tried(request)):
        return Cut(body=call, rows=room)
    if room < MOST_SMALL:
        return Group(Cut(body=call, rows=room - 1), effects_line(request.effects))
    lower, besides = effects_part(request.effects, room)
    return TwoParts(upper=call, lower=lower, besides=besides, rows=room)


def _others(views: Stories, questions: Questions) -> Iterator[str]:
    """The questions that wait behind the current one, each with the text that selects it."""
    behind = questions.waiting[1:]
    for number, request in enumerate(behind[: questions.listed], start=2):
        yield f"/{number} {asker(views, request)}: {head_of(request)}"
    if left := len(behind) - questions.listed:
        yield f"… and {left} more"


def drawn_call(request: ApprovalRequest | QuestionRequest, workspace: Path, code: str | None = None) -> RenderableType:
    """The whole call, or question. Args: code: what a person wants to run instead of a cell's code."""
    if isinstance(request, QuestionRequest):
        return Text(asked_text(request), overflow="fold")
    call = request.call
    if code is not None and isinstance(call, CodeAction):
        call = replace(call, code=code)
    if isinstance(call, ShellCommand):
        from rich.syntax import Syntax  # noqa: PLC0415  # slow to import

        return Syntax(call.text, "bash", theme=CODE_THEME, background_color="default", word_wrap=True)
    if isinstance(call, FileWrite):
        words = "; ".join(filter(None, [_present_file(workspace / call.path), OPENS.get(call.operation)]))
        return Group(draw_part(call_part(call)), Text(f"({words})", "dim", overflow="fold"))
    return draw_part(call_part(call))


def asker(views: Stories, request: ApprovalRequest | QuestionRequest) -> str:
    """Return the names of the agents from below the root to the asking one."""
    chain = views.chain(views.of(request))
    return " → ".join(views.name(view) for view in chain[1:] or chain)


def key_line(questions: Questions, *, counts: bool) -> str:
    """Return the line of keys for the current question. Args: counts: whether keys are accepted yet."""
    request = questions.current
    if request is None or not counts:
        return WAITING
    if questions.asks_back:
        return questions.asks_back
    listed = 1 + questions.listed
    if isinstance(request, QuestionRequest):
        if (filling := questions.filling) is not None:
            return f"{form_keys(filling)} · Esc no answer" + (" · → next" if listed > 1 else "")
        hidden = " (it is not shown)" if request.secret else ""
        return f"type the answer{hidden}, then Enter · Esc no answer" + (" · → next" if listed > 1 else "")
    parts = [
        "y yes · n no",
        " · ".join(f"{number} {name}" for number, name in enumerate(map(visible, cheaper_models(request)), start=1)),
        "a this session · p this project" if request.suggested else "",
        "e edit" if isinstance(request.call, CodeAction) else "",
        "r no, because",
        f"A all {listed} · → next" if listed > 1 else "",
        "? why",
    ]
    return " · ".join(part for part in parts if part)


def _present_file(path: Path) -> str:
    """Return a few words about the present file."""
    try:
        size = path.stat().st_size
    except (OSError, ValueError):
        return "it does not exist yet"
    return f"it has {size:,} bytes now"
