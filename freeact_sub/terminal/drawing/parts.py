"""The parts that drawings are made of: the console's settings, colours, indentation, bounded heights, texts, calls, plans.

Text is drawn as `rich.text.Text`, which parses no markup. Long code is folded to its first lines; long output to its first
and last lines, because a log's news is at its end. A plan stands whole in the scrollback once it is over, and in few rows
in its place while its agent works on it.
"""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any, Final, Literal, TextIO, TypeVar

from rich.ansi import AnsiDecoder
from rich.cells import cell_len, chop_cells, set_cell_size
from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderableType, RenderHook, RenderResult
from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from rich.theme import Theme

from freeact_sub.events.progress import PlanState, PlanStatus
from freeact_sub.show.agent_story import AgentStory
from freeact_sub.show.blocks import Part, Tone
from freeact_sub.show.heads import Head
from freeact_sub.show.wording import plan_lines, plan_title
from freeact_sub.text import colours_only, counted, one_line, value_text, visible

COLOURS: Final = ("cyan", "magenta", "green", "yellow", "blue", "bright_cyan", "bright_magenta", "bright_green")
"""The colours of agents in order of appearance; red is reserved for errors."""

INDENT: Final = 2
MAX_DEPTH: Final = 10
"""Levels of agents that are indented."""
MIN_WIDTH: Final = 20
MAX_COLUMNS: Final = 2_000
"""Bound on a line that scrolls sideways."""

CODE_THEME: Final = "ansi_dark"  # the terminal's own colours

STYLES: Final[dict[Tone, str]] = {
    "": "",
    "good": "green",
    "bad": "red",
    "success": "bold green",
    "failure": "bold red",
    "warning": "yellow",
    "question": "bold yellow",
    "prompt": "bold",
    "thought": "dim italic",
    "quiet": "dim",
}

# no backgrounds: the terminal may be light or dark
_THEME: Final = Theme({"markdown.code": "bold cyan", "markdown.code_block": "cyan"})


_SHOWN: Final = Style(conceal=False, blink=False, blink2=False)


def make_console(file: TextIO, *, colours: bool = True) -> Console:
    """Return a console without markup, highlighting and blanks at line ends."""
    system: Literal["auto"] | None = "auto" if colours else None
    console = Console(file=file, markup=False, highlight=False, emoji=False, theme=_THEME, color_system=system)
    console.push_render_hook(_EndsLines())
    return console


class _EndsLines(RenderHook):
    """Lines without the blanks that rich puts at their ends: people would copy them."""

    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        return [_Trimmed(body=renderable) for renderable in renderables]


class SidewaysConsole(Console):
    """A console for sideways scrolling: tables and outputs, which folding would spoil, may be wider than it."""

    def __init__(self, file: TextIO) -> None:
        super().__init__(file=file, markup=False, highlight=False, emoji=False, theme=_THEME)
        self.push_render_hook(_EndsLines())


def colour(view: AgentStory) -> str:
    """Return the agent's colour."""
    return COLOURS[view.number % len(COLOURS)]


def indent_of(view: AgentStory) -> int:
    """Return the indent of an agent's actions, in columns."""
    return INDENT * min(view.depth, MAX_DEPTH)


def coloured(text: str) -> list[Text]:
    """Return the text's lines with the colours of its escape sequences; all other sequences are removed."""
    decoder = AnsiDecoder()
    lines = [decoder.decode_line(colours_only(line)) for line in text.split("\n")]
    for line in lines:
        if line.spans:
            line.stylize(_SHOWN)  # a colour may not hide the text
    return lines


@dataclass(frozen=True, kw_only=True)
class Indented:
    """A renderable with an indent; lines that are too long for the window are not cut."""

    body: RenderableType
    columns: int
    mark: tuple[str, str] = ("", "")
    """Text at the end of the first row's indent, and its style: what stands in further rows goes on below the body."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = max(MIN_WIDTH, options.max_width - self.columns)
        mark, style = self.mark
        for line in Segment.split_lines(console.render(self.body, options.update(width=width, height=None))):
            yield Segment(" " * (self.columns - cell_len(mark)))
            yield from [Segment(mark, console.get_style(style))] if mark else []
            yield from without_trailing_space(line)
            yield Segment.line()
            mark = " " * cell_len(mark)


@dataclass(frozen=True, kw_only=True)
class Hanging:
    """Lines of one style each; the further rows of a long one stand two columns to the right of its first."""

    lines: Sequence[Text]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for line in self.lines:
            begin = len(line.plain) - len(line.plain.lstrip(" "))
            if len(line.plain) <= begin + INDENT:
                yield line
                continue
            body = line[begin + INDENT :]
            body.no_wrap, body.overflow = False, "fold"
            yield Indented(body=body, columns=begin + INDENT, mark=(line.plain[begin : begin + INDENT], str(line.style)))


@dataclass(frozen=True, kw_only=True)
class Folded:
    """Lines as a terminal folds them: a long one continues in the next row at any character."""

    lines: Sequence[Text]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = MAX_COLUMNS if isinstance(console, SidewaysConsole) else options.max_width
        for row in in_rows(self.lines, width):
            yield from row.render(console)
            yield Segment.line()


@dataclass(frozen=True, kw_only=True)
class Cut:
    """Rows up to a bound: the first ones with the number of omitted ones, or the last ones."""

    body: RenderableType
    rows: int
    tail: bool = False
    besides: int = 0
    """Rows that the body leaves out: it has at least `rows` then."""
    of: str = ""
    """The words that follow the number of omitted rows."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        lines = console.render_lines(self.body, options.update(height=None), pad=False)
        left = len(lines) + self.besides - self.rows
        if left > 0:
            lines = lines[left:] if self.tail else lines[: self.rows - 1]
        for line in lines:
            yield from line
            yield Segment.line()
        if left > 0 and not self.tail:
            yield Text(f"… {left + 1} more lines{self.of} (ctrl-o)", "yellow")


@dataclass(frozen=True, kw_only=True)
class _Trimmed:
    body: ConsoleRenderable

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        line: list[Segment] = []
        for segment in console.render(self.body, options):
            *ended, rest = [segment.text] if segment.control else segment.text.split("\n")
            for text in ended:
                yield from without_trailing_space([*line, Segment(text, segment.style)])
                yield Segment.line()
                line = []
            line.append(Segment(rest, segment.style, segment.control))
        yield from line


def without_trailing_space(line: list[Segment]) -> Iterator[Segment]:
    """Yield the line without the blanks at its end that nobody sees."""
    end = len(line)
    while end and not line[end - 1].text.strip(" ") and not _shows_blanks(line[end - 1].style):
        end -= 1
    for index, segment in enumerate(line[:end]):
        keeps = index < end - 1 or _shows_blanks(segment.style)
        yield segment if keeps else Segment(segment.text.rstrip(" "), segment.style, segment.control)


def _shows_blanks(style: Style | None) -> bool:
    if style is None:
        return False
    has_background = style.bgcolor is not None and not style.bgcolor.is_default
    return has_background or bool(style.reverse or style.underline or style.strike)


def draw_part(part: Part) -> RenderableType:
    """Draw a part of a row, such as a call in full."""
    match part.form:
        case "markdown":
            from freeact_sub.terminal.drawing.markdown import markdown  # noqa: PLC0415

            return markdown(part.text)
        case "code":
            from rich.syntax import Syntax  # noqa: PLC0415

            return Syntax(part.text, "python", theme=CODE_THEME, background_color="default", word_wrap=True)
        case "arguments":
            return _arguments(part.data)
        case "output" | "bundle":
            return Folded(lines=coloured(part.text))
        case "text":
            return Text(part.text, STYLES[part.tone], overflow="fold")


def _arguments(args: dict[str, Any]) -> RenderableType:
    lines = [Text.assemble((f"{visible(name)} = ", "bold"), visible(value_text(value))) for name, value in args.items()]
    return Text("\n", overflow="fold").join(lines) if lines else Text("(no arguments)", "dim")


def highlighted(code: str) -> list[Text]:
    """Return lines of Python in the terminal's own colours."""
    from rich.syntax import Syntax  # noqa: PLC0415  # slow to import

    text = Syntax("", "python", theme=CODE_THEME, background_color="default").highlight(code)
    text.rstrip()
    lines = [*text.split("\n", allow_blank=True)]
    for line in lines:
        line.overflow = "fold"
    return lines


def filled(text: str, columns: int, *, keeps_end: bool = False) -> str:
    """Return the text in exactly so many columns, with an ellipsis for what is left out: the end, or else the middle."""
    text = text.replace("\u200d", "")  # rich fails to cut some texts with it
    if cell_len(text) > columns:
        end = columns // 2 - 1 if keeps_end else 0
        last = set_cell_size(text[::-1], end)[::-1].lstrip() if end > 0 else ""
        text = f"{set_cell_size(text, columns - 1 - cell_len(last)).rstrip()}…{last}"
    return set_cell_size(text, columns)


def cut_apart(labels: Sequence[str], columns: int) -> list[str]:
    """Return labels in at most so many columns: without their middles, or, where those differ, without what they share."""

    def fitted(text: str, *, keeps_end: bool = False) -> str:
        return filled(text, min(columns, cell_len(text)), keeps_end=keeps_end)

    found = [fitted(label, keeps_end=True) for label in labels]
    shared = os.path.commonprefix([label for label in labels if label])  # noqa: RUF071  # its characters are compared
    at = shared.rfind(" ") + 1
    if not at or len({*found}) == len({*labels}):
        return found
    head = shared[: min(at, columns // 3)].rstrip()
    return [fitted(label if cell_len(label) <= columns else f"{head}…{label[at:]}") for label in labels]


def marked(text: str) -> str:
    """Return a number for a column; a lower bound is marked."""
    return text.replace("at least ", "≥ ")


def link(path: str) -> Text:
    """Return a file's path, relative to the present folder if it is below it; a click opens it if the terminal can."""
    shown = one_line(path, 300)
    file = Path(path)
    if shown != path or not file.is_absolute():
        return Text(shown, "dim")
    here = Path.cwd()
    shown = str(file.relative_to(here)) if file.is_relative_to(here) else shown
    return Text(shown, Style(dim=True, link=file.as_uri()), overflow="fold")


def styled(line: Text, style: str) -> Text:
    """Return the line with a style below its own styles."""
    line.stylize_before(style)
    line.overflow = "fold"
    return line


def head_lines(
    head: Head, fold: Callable[[Iterable[Text]], list[Text]] | None = None, mark: str = "● ", *, failed: bool = False
) -> Iterator[RenderableType]:
    """Yield the head line of an action, and its code below it. Args: failed: it is known to have failed."""
    line = Text.assemble((head.kind, "bold"), *([f"  {head.words}"] if head.words else []), overflow="fold")
    if head.is_title:
        line.no_wrap, line.overflow = True, "ellipsis"
    yield Indented(body=line, columns=INDENT, mark=(mark, STYLES["failure"] if failed else "cyan"))
    if head.code:
        code = highlighted(head.code)
        yield Indented(body=Text("\n").join(fold(code) if fold else code), columns=INDENT)


FOLD_ROWS: Final = 12
"""Lines of code or output that one action shows."""
TAB_COLUMNS: Final = 8
LAST_ROWS: Final = 5
"""The output's last lines among them."""

Line = TypeVar("Line")


def left_out(count: int, where: str | Text, *, of_rows: bool = False) -> Text:
    """Return the line that replaces folded lines. Args: where: the way to show them. of_rows: long lines count by rows."""
    what = counted(count, "more row" if of_rows else "more line")
    return Text.assemble((f"… {what} (", "dim"), where, (")", "dim"), style="dim", overflow="fold")


def in_rows(lines: Iterable[Text], columns: int) -> list[Text]:
    """Return the lines, long ones cut into rows as by a terminal. Args: columns: a row's; 0: nothing is cut."""
    found = []
    for line in lines:
        line.expand_tabs(TAB_COLUMNS)
        if not columns or line.cell_len <= columns:
            found.append(line)
        else:
            ends = accumulate(map(len, chop_cells(line.plain, columns)))
            found += line.divide([*ends][:-1])
    return found


def parts_of(lines: Sequence[Line], last: int) -> tuple[Sequence[Line], int, Sequence[Line]]:
    """Return the first lines, the number of folded lines, and the last lines. Args: last: the number of last lines."""
    more = len(lines) - FOLD_ROWS
    if more <= 0:
        return lines, 0, ()
    return lines[: FOLD_ROWS - last], more, lines[len(lines) - last :]


class CellOutput:
    """The folded output of one cell: its first lines are drawn at once, its last ones at its end."""

    def __init__(self) -> None:
        self.left_out = 0
        """Lines between the first and the held ones."""
        self.held: deque[Text] = deque()
        """The present last lines, not drawn yet."""
        self.of_rows = False
        """Whether a line was so long that its rows are counted."""
        self._drawn = 0

    def add(self, lines: Sequence[Text], columns: int = 0) -> list[Text]:
        """Add lines; return the ones to draw at once. Args: columns: see `in_rows`."""
        first, rows = [], in_rows(lines, columns)
        self.of_rows |= len(rows) > len(lines)
        for line in rows:
            if self._drawn < FOLD_ROWS - LAST_ROWS:
                self._drawn += 1
                first.append(line)
            else:
                self.held.append(line)
                if len(self.held) > LAST_ROWS:
                    self.held.popleft()
                    self.left_out += 1
        return first

    def settled(self) -> list[Text]:
        """Return the held lines if none before them are folded; they are drawn before the next block."""
        if self.left_out:
            return []
        lines = [*self.held]
        self.held.clear()
        self._drawn += len(lines)
        return lines

    def shown(self, where: str) -> list[Text]:
        """Return the lines that are not drawn yet, while the output grows. Args: see `left_out`."""
        return [*([left_out(self.left_out, where, of_rows=self.of_rows)] if self.left_out else []), *self.held]


MAX_ROWS: Final = 10
"""Rows of a plan in its place."""
FEW_ROWS: Final = 4
"""Least rows of a whole plan; with fewer it is one line: the step at work."""
STEP_STYLES: Final[dict[PlanStatus, str]] = {"pending": "dim", "in_progress": "bold", "completed": "green", "failed": "red"}


def plan_text(plan: PlanState) -> Iterator[Indented]:
    """Yield the whole plan."""
    title = Text.assemble(("Plan", "bold"), f"  {plan_title(plan)}", overflow="fold")
    yield Indented(body=title, columns=INDENT, mark=("● ", "cyan"))
    for step in _steps(plan):
        mark, text = step.divide([INDENT + 2])
        yield Indented(body=text, columns=len(mark), mark=(mark.plain, str(step.style)))


def open_plans(view: AgentStory) -> list[PlanState]:
    """Return the plans that an agent works on."""
    return [plan for plan in view.plans.values() if view.is_running and not plan.is_over]


def plan_count(view: AgentStory) -> str:
    """Return an agent's progress in its own plan, in few characters; empty without one."""
    plan = view.plans.get("")
    return f"{plan.done}/{len(plan.steps)}" if plan is not None and view.is_running else ""


@dataclass(frozen=True, kw_only=True)
class PlanInPlace:
    """A plan in at most so many rows, each a line of the window."""

    plan: PlanState
    rows: int

    @property
    def height(self) -> int:
        """The number of rows."""
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
        yield Text(f"{' ' * INDENT}{line}", STEP_STYLES[step.status], overflow="fold")
