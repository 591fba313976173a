"""The card of a question: the asking agent, the whole call with its effects, the field that is asked now, and the keys.

`DecisionKeys` answers it by single keys. With `TriedCells` a yes counts only for what was seen.
"""

import asyncio
import os
import shlex
import tempfile
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.padding import Padding
from rich.text import Text

from freeact_sub import events as ev
from freeact_sub.calls import CodeAction, FileOperation, FileWrite, ShellCommand
from freeact_sub.show.agent_story import Stories
from freeact_sub.show.effect_lines import (
    EffectLine,
    LineKind,
    are_seen,
    change_lines,
    effect_line,
    effect_lines,
    is_tried,
    seen_otherwise,
)
from freeact_sub.show.forms import Filling, numbered
from freeact_sub.show.heads import head_of, tells_all
from freeact_sub.show.questions import MAX_OTHERS, YES_NO, Questions, always_words, asks_for
from freeact_sub.show.teller import call_part
from freeact_sub.show.wording import asked_text, cheaper_models, own_words
from freeact_sub.terminal.drawing.parts import CODE_THEME, Cut, colour, draw_part
from freeact_sub.terminal.surface import Purpose, Surface
from freeact_sub.text import counted, visible

SMALL_ROWS: Final = 14
"""Least rows of a card that lists the other questions."""
EFFECT_ROWS: Final = 3
"""Rows that a tried cell's call leaves to its effects, a short call as many as its own; else it stands above the card."""
OPENS: dict[FileOperation, str] = {
    "write": "the code opens it for writing, and what it writes is not known yet",
    "append": "the code opens it to append, and what it adds is not known yet",
    "create": "the code creates it, and what it writes is not known yet",
}
JOINT: Final = " · "
WAITING = "…"
"""A mark in place of the keys while keys are ignored."""


@dataclass(frozen=True, kw_only=True)
class Card:
    """A question in at most so many rows. Its call is whole; only the effects are cut."""

    head: RenderableType
    call: RenderableType
    effects: Callable[[int], RenderableType] | None
    """A drawing of the effects in so many rows. None: the call is not tried."""
    foot: RenderableType
    """The keys, with their notes."""
    rows: int
    listed: tuple[ev.ApprovalRequest | ev.QuestionRequest, ...] = ()
    """The questions in the list below the keys."""
    whole: RenderableType | None = None
    """The whole call, if `call` leaves something out."""

    def has_room(self, rows_of: Callable[[RenderableType], int]) -> bool:
        """Return whether the call is drawn whole, with some of its effects. Args: rows_of: the height of a drawing."""
        rows = rows_of(self.whole or self.call)
        least = min(EFFECT_ROWS, rows) if self.effects is not None else 0
        return rows + least <= self.rows - rows_of(self.head) - rows_of(self.foot)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        def rows_of(drawn: RenderableType) -> int:
            return len(console.render_lines(drawn, options.update(height=None), pad=False))

        room = max(self.rows - rows_of(self.head) - rows_of(self.foot), 1)
        rows = min(rows_of(self.call), max(room - (self.effects is not None), 1))
        yield self.head
        yield Cut(body=self.call, rows=rows)
        if self.effects is not None and room > rows:
            yield self.effects(room - rows)
        yield self.foot


@dataclass(frozen=True, kw_only=True)
class Keys:
    """The line of keys, which is broken between keys only."""

    text: str

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        del console
        row = ""
        for key in self.text.split(JOINT):
            if row and cell_len(row + JOINT + key) > options.max_width:
                yield Text(row, "yellow", overflow="fold")
                row = key
            else:
                row = f"{row}{JOINT}{key}" if row else key
        yield Text(row, "yellow", overflow="fold")


def question_card(
    views: Stories,
    questions: Questions,
    request: ev.ApprovalRequest | ev.QuestionRequest,
    rows: int,
    *,
    keys: str,
    workspace: Path,
    is_above: bool = False,
    saved: int = 0,
) -> Card:
    """Return the card of the current question.

    Args:
        views: All agents.
        questions: All open questions.
        request: The current one.
        rows: The rows that the card may take.
        keys: The line of keys, or a request to confirm.
        workspace: The start of relative paths.
        is_above: The whole call stands above the card, and not in it.
        saved: Rows to save below the call: the first by shorter words, the others in the list of questions.
    """
    kind = "Approval" if isinstance(request, ev.ApprovalRequest) else "Question"
    title = f" {kind} {questions.number_of(request)} of {len(questions.waiting)} "
    asks = Text.assemble((asker(views, request), f"bold {colour(views.of(request))}"), " ")
    asks.append(asks_for(request), "bold yellow")
    code = questions.changed_code(request) if isinstance(request, ev.ApprovalRequest) else None
    if code is not None:
        asks.append(", as you have changed it", "bold yellow")
    is_small = rows < SMALL_ROWS  # the keys must be seen
    listed = () if is_small else tuple(questions.behind[: max(MAX_OTHERS + 1 - saved, 0)])
    head = [Text(title, "bold reverse yellow"), asks]
    means = always_words(request, is_short=is_small or saved > 0) if isinstance(request, ev.ApprovalRequest) else ""
    foot: list[RenderableType] = [*([Text(means, "dim")] if means else []), Keys(text=keys)]
    if not is_small:
        head[:0] = [Text()]
        foot += [Text(line, "dim", no_wrap=True, overflow="ellipsis") for line in _others(views, questions, listed)]
    effects = None
    if isinstance(request, ev.ApprovalRequest) and is_tried(request):
        effects = partial(_effects, request)
    whole = None
    if isinstance(request, ev.QuestionRequest) and questions.filling is not None:
        call = form_part(request, questions.filling, max(rows - len(head) - len(foot) - 1, 2))
        whole = form_part(request, questions.filling)
    elif is_above:
        call = Text(_stands_above(request, code), "yellow")
    else:
        call = drawn_call(request, workspace, code)
    return Card(
        head=Group(*head),
        call=Padding(call, (0, 0, 0, 2)),
        effects=effects,
        foot=Group(*foot),
        rows=rows,
        listed=listed,
        whole=whole,
    )


def _effects(request: ev.ApprovalRequest, rows: int) -> RenderableType:
    """Return the effects of the call in its trial, in so many rows."""
    if rows == 1:
        return Padding(effects_line(request.effects), (0, 0, 0, 2))
    drawn, besides = effects_part(request.effects, rows)
    return Padding(Cut(body=drawn, rows=rows, besides=besides, of=" of effects"), (0, 0, 0, 2))


def _stands_above(request: ev.ApprovalRequest | ev.QuestionRequest, code: str | None) -> str:
    if isinstance(request, ev.QuestionRequest):
        text, what = asked_text(request), ""
    else:
        text = code if code is not None else request.call.text
        what = " of code" if isinstance(request.call, CodeAction) else ""
    lines = text.strip("\n").count("\n") + 1
    return f"{counted(lines, 'line')}{what} above (ctrl-o)"


def list_line(views: Stories, questions: Questions, request: ev.ApprovalRequest | ev.QuestionRequest) -> str:
    """Return the line of a question that waits behind the current one, with the text that selects it."""
    return f"/{questions.number_of(request)} {asker(views, request)}: {head_of(request)}"


def is_whole_in_list(views: Stories, questions: Questions, request: ev.ApprovalRequest, columns: int) -> bool:
    """Return whether the line of a question shows all of its call. Args: columns: the width of the window."""
    return tells_all(request.call) and cell_len(list_line(views, questions, request)) <= columns


def _others(
    views: Stories, questions: Questions, listed: Sequence[ev.ApprovalRequest | ev.QuestionRequest]
) -> Iterator[str]:
    for request in listed:
        yield list_line(views, questions, request)
    if left := len(questions.waiting) - 1 - len(listed):
        yield f"… and {left} more"


def drawn_call(request: ev.ApprovalRequest | ev.QuestionRequest, workspace: Path, code: str | None = None) -> RenderableType:
    """Return the whole call, or question. Args: code: a person's code to run instead of a cell's."""
    if isinstance(request, ev.QuestionRequest):
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


def asker(views: Stories, request: ev.ApprovalRequest | ev.QuestionRequest) -> str:
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
    waits = " · → next" if len(questions.waiting) > 1 else ""
    if isinstance(request, ev.QuestionRequest):
        if (filling := questions.filling) is not None:
            return f"{form_keys(filling)} · Esc no answer" + waits
        hidden = " (it is not shown)" if request.secret else ""
        return f"type the answer{hidden}, then Enter · Esc no answer" + waits
    approvals, at_once = len(questions.approvals), len(questions.answered_by_one_key)
    parts = [
        YES_NO,
        " · ".join(f"{number} {name}" for number, name in enumerate(map(visible, cheaper_models(request)), start=1)),
        "a this session · p this project" if request.suggested else "",
        "e edit" if isinstance(request.call, CodeAction) else "",
        "r no, because",
        f"A all {at_once}" if at_once else f"A lists all {approvals}" if approvals > 1 else "",
        waits.removeprefix(" · "),
        "? why",
    ]
    return JOINT.join(part for part in parts if part)


def _present_file(path: Path) -> str:
    try:
        size = path.stat().st_size
    except (OSError, ValueError):
        return "it does not exist yet"
    return f"it has {size:,} bytes now"


MARGIN: Final = 10
"""Columns beside a choice."""
ALL_ROWS: Final = 10_000
"""More rows than a question has."""


def form_part(request: ev.QuestionRequest, filling: Filling, rows: int = ALL_ROWS) -> RenderableType:
    """Return the question and its present field, in at most so many rows: the choices come first, the words are cut."""
    title = [Text(filling.title, "bold", no_wrap=True, overflow="ellipsis")] if filling.title else []
    refused = [Text(filling.refused, "red", no_wrap=True, overflow="ellipsis")] if filling.refused else []
    choices = _seen(filling, max(rows - len(title) - len(refused) - 1, 1))
    left = max(rows - len(title) - len(refused) - len(choices), 1)
    words = filling.given if filling.is_last_look else own_words(request)
    said = [Cut(body=Text(words, overflow="fold"), rows=left)] if words else []
    return Group(*said, *title, *choices, *refused)


def is_cut(request: ev.QuestionRequest, columns: int) -> bool:
    """Return whether a choice is longer than its row."""
    return any(len(row) > columns - MARGIN for field in request.fields for row in numbered(field))


def form_keys(filling: Filling) -> str:
    """Return the possible input and keys."""
    hint = f"{filling.hint}, then Enter"
    if filling.field.kind == "boolean":
        _, also, nothing = filling.hint.partition("; nothing ")
        hint = f"{YES_NO}{' · Enter ' if also else ''}{nothing}"
    if filling.marked is not None:
        hint = "Space marks · Enter goes on"
    parts = [hint, "↑ ↓ choose" if filling.rows else "", "← back" if filling.at else ""]
    return " · ".join(part for part in parts if part)


def _seen(filling: Filling, room: int) -> list[Text]:
    """Return the choices around the highlighted one, as many as there is room for."""
    at = filling.highlighted
    first = min(max((at or 0) - room // 2, 0), max(len(filling.rows) - room, 0))
    shown = filling.rows[first : first + room]
    marked = filling.marked
    marks = {number: "" if marked is None else "[x] " if number in marked else "[ ] " for number in range(len(filling.rows))}
    return [
        Text(
            f"{'>' if number == at else ' '} {marks[number]}{row}",
            "bold cyan" if number == at else "",
            no_wrap=True,
            overflow="ellipsis",
        )
        for number, row in enumerate(shown, start=first)
    ]


STYLES: Final[dict[LineKind, str]] = {
    "head": "dim",
    "warning": "yellow",
    "output": "",
    "variable": "cyan",
    "file": "bold",
    "added": "green",
    "removed": "red",
    "context": "dim",
}
INDENTED: Final = ("output", "variable", "added", "removed", "context")


def effects_part(effects: ev.Effects | None, most: int | None = None) -> tuple[RenderableType, int]:
    """Draw effects, and count the lines left out: a cell may write more text than can be drawn in time.

    Args:
        effects: None: the trial has not ended yet.
        most: Bound on the lines.
    """
    lines = [*effect_lines(effects)]
    drawn = lines[:most]
    return Group(*map(_drawn, drawn)), len(lines) - len(drawn)


def effects_line(effects: ev.Effects | None) -> Text:
    """Return the one row of effects in a small card."""
    drawn = _drawn(effect_line(effects))
    drawn.no_wrap, drawn.overflow = True, "ellipsis"
    return drawn


def drawn_changes(effects: ev.Effects) -> list[Text]:
    """Draw the changes, a line each; empty if there are none."""
    return [_drawn(line) for line in change_lines(effects)]


def _drawn(line: EffectLine) -> Text:
    text = f"  {line.text}" if line.kind in INDENTED else line.text
    if line.kind in ("head", "warning"):
        return Text(text, STYLES[line.kind], overflow="fold")
    return Text(text, STYLES[line.kind], no_wrap=True, overflow="ellipsis")


CLOSED = "the question has closed: your code did not run"
NOT_EDITED = "the text is as it was: the editor ($VISUAL, $EDITOR) did not start, failed, or left no readable file"
REMEMBER: dict[str, ev.Remember] = {"a": "session", "p": "project"}


class DecisionKeys:
    """Single keys that answer the current question of `Questions`."""

    def __init__(
        self,
        questions: Questions,
        screen: Surface,
        note: Callable[[str], None],
        list_whole: Callable[[Sequence[ev.ApprovalRequest]], None] = lambda _: None,
    ) -> None:
        """Make the keys.

        Args:
            questions: One of them is open.
            screen: Lends its line.
            note: Prints a note for the person.
            list_whole: Prints the whole calls of several questions.
        """
        self._questions = questions
        self._list_whole = list_whole
        self._screen = screen
        self._note = note

    def press(self, key: str) -> bool:
        """Handle one key; return False if it is the beginning of a text."""
        request = self._questions.waiting[0]
        if key == "→":
            self._questions.next()
            return True
        if isinstance(request, ev.QuestionRequest):
            filling = self._questions.filling
            if filling is not None and filling.field.kind == "boolean" and key in ("y", "n"):
                return self._questions.answer(key)
            if filling is None or key not in ("←", "↑", "↓", " "):
                return False
            if key == " ":
                return filling.mark()
            return filling.back() if key == "←" else filling.move(-1 if key == "↑" else 1)
        if self._questions.asks_back:
            return key in ("y", "n") and self._questions.answer(key)
        return self._decided(request, key)

    def _decided(self, request: ev.ApprovalRequest, key: str) -> bool:
        match key:
            case "y" | "n":
                self._decide(request, ev.Decision(allowed=key == "y"))
            case "a" | "p":
                self._always(request, REMEMBER[key])
            case "r":
                self._screen.line.lend("reason")
            case "e":
                self._edit(request)
            case "A":
                self._allow_all(request)
            case "?":
                self._note(f"why it asks: {request.reason}")
            case _ if key.isdecimal() and len(key) == 1 and 0 < int(key) <= len(models := cheaper_models(request)):
                self._decide(request, ev.Decision(allowed=True, model=models[int(key) - 1]))
            case _:
                return False
        return True

    def written(self, purpose: Purpose, text: str) -> None:
        """Handle the text that the person wrote for a question; an empty one cancels it."""
        request = self._questions.current
        if not isinstance(request, ev.ApprovalRequest) or not text.strip():
            return
        if purpose == "reason":
            self._decide(request, ev.Decision(allowed=False, reason=text.strip()))
        else:
            self._run_instead(request, text)

    def _decide(self, request: ev.ApprovalRequest, decision: ev.Decision) -> None:
        self._questions.decide(request, decision)

    def _always(self, request: ev.ApprovalRequest, remember: ev.Remember) -> None:
        if request.suggested:
            self._decide(request, ev.Decision(allowed=True, remember=remember))
        else:
            self._note("such calls need an answer each time: y or n")

    def _allow_all(self, request: ev.ApprovalRequest) -> None:
        """Allow the calls that the person has before them. If there are others, they are listed first."""
        at_once = self._questions.answered_by_one_key
        if not at_once and len(approvals := self._questions.approvals) > 1:
            self._list_whole([other for other in approvals if other is not request])
        for approval in at_once or ([request] if len(self._questions.approvals) == 1 else []):
            self._decide(approval, ev.Decision(allowed=True))

    def _edit(self, request: ev.ApprovalRequest) -> None:
        if not isinstance(request.call, CodeAction):
            self._note("only code can be edited before it runs")
            return
        code = self._questions.changed_code(request) or request.call.code
        if editor():
            self._screen.start(self._edit_outside(request, code))
        else:
            self._screen.line.lend("code", code)

    async def _edit_outside(self, request: ev.ApprovalRequest, code: str) -> None:
        changed = await edited(code, self._screen.run_outside)
        if changed is None:
            self._note(NOT_EDITED)
        elif changed.strip() and changed.strip() != code.strip():
            self._run_instead(request, changed)

    def _run_instead(self, request: ev.ApprovalRequest, code: str) -> None:
        if not self._questions.run_instead(request, code.strip("\n")):
            self._note(CLOSED)


def editor() -> list[str]:
    """Return the person's editor as a command; empty if none is set."""
    words = os.environ.get("VISUAL") or os.environ.get("EDITOR") or ""
    try:
        return shlex.split(words)
    except ValueError:  # a quotation mark is left open: no program has that name, which is then told
        return [words]


async def edited(text: str, run: Callable[[Sequence[str]], Awaitable[bool]], name: str = "edit.py") -> str | None:
    """Let the person change a text in their editor, which `run` starts; return None if that fails.

    Args: name: the file's, by which editors know its language.
    """
    with tempfile.TemporaryDirectory(prefix="freeact-sub-") as folder:
        file = Path(folder) / name
        await asyncio.to_thread(file.write_text, text, encoding="utf-8", errors="surrogatepass")
        if not await run([*editor(), str(file)]):
            return None
        try:
            return await asyncio.to_thread(file.read_text, encoding="utf-8", errors="surrogatepass")
        except (OSError, UnicodeDecodeError):
            return None


class TriedCells:
    """Trials of the cells of `Questions`, and of code to run instead, with the yes to them."""

    def __init__(
        self,
        questions: Questions,
        start: Callable[[Coroutine[Any, Any, None]], None],
        show: Callable[[ev.ApprovalRequest, ev.Effects], None],
        note: Callable[[str], None],
    ) -> None:
        """Args: start: lets work run until the end of the screen. show: shows the effects of a question's last trial."""
        self._questions, self._start, self._show, self._note = questions, start, show, note
        self._checked: set[str] = set()
        """Questions with a known answer, if the effects that the person saw still hold."""
        questions.take_yes, questions.take_code = self._take_yes, self._take_code

    def begin(self, request: ev.ApprovalRequest) -> None:
        """Try a cell, or the code to run instead; nothing else."""
        if is_tried(request):
            self._start(self._try(request))

    async def _try(self, request: ev.ApprovalRequest) -> None:
        code = self._questions.changed_code(request)
        effects = await request.effects_ready(code)
        if request in self._questions.waiting and code == self._questions.changed_code(request):
            self._show(request, effects)

    def _take_code(self, request: ev.ApprovalRequest) -> bool:
        """Return whether changed code is tried and asked about; where nothing can be tried, it runs."""
        if (effects := request.effects) is not None and not are_seen(effects):
            return False
        self._questions.shows_again(request)
        self.begin(request)
        return True

    def _take_yes(self, request: ev.ApprovalRequest, decision: ev.Decision) -> bool:
        """Return whether the yes is looked at first: the person has seen effects."""
        seen = request.effects
        if not isinstance(request.call, CodeAction) or not are_seen(seen):
            return False
        if request.request_id not in self._checked:
            self._checked.add(request.request_id)
            self._start(self._decide(request, decision, seen))
        return True

    async def _decide(self, request: ev.ApprovalRequest, decision: ev.Decision, seen: ev.Effects) -> None:
        """Decide, unless the cell would now do something else than the person has seen: that is shown, and asked again."""
        try:
            now = await seen_otherwise(request, decision, seen)
            if request not in self._questions.waiting:
                return
            if now is not None:
                self._questions.shows_again(request)
                self._show(request, now)
                return
            if not request.decide(decision) and decision.code is not None:
                self._note(CLOSED)
            self._questions.withdraw(request.request_id)
            self._show(request, seen)
        except ValueError as error:  # the pattern is none: the question stays open
            self._note(str(error))
        finally:
            self._checked.discard(request.request_id)
