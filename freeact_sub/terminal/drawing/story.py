"""`Story`: a run as people follow it, one below the other in the terminal's scrollback.

The root's part: the person's prompts, the agent's words, each action as one head line with its code and output, folded.
The children's part: only their ends. While they work they stand in a region of their own (`children.py`), and `Records`
keeps all that they do. Only blanks stand in front of text that people copy.

An action is held back until it has output: while there is a question about it, or no output yet, it is drawn among the
changing rows (`pending`), so that it is on the screen once.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.style import Style
from rich.text import Text

from freeact_sub.agent_names import short_id
from freeact_sub.calls import CodeAction
from freeact_sub.events import (
    AgentFinished,
    AgentMessage,
    AgentStarted,
    ApprovalAnswered,
    CodeExecutionOutput,
    CodeExecutionOutputChunk,
    Event,
    KernelLost,
    Notice,
    QuestionAnswered,
    Response,
    Thoughts,
    ToolCallStarted,
    ToolOutput,
)
from freeact_sub.show.agent_story import AgentStory, Stories
from freeact_sub.show.heads import Head, head_of_call, head_of_tool
from freeact_sub.show.rows import Row, rows
from freeact_sub.show.steps import shows
from freeact_sub.show.wording import MESSAGES, ending_notes, question_and_answer
from freeact_sub.terminal.drawing.parts import Folded, colour, coloured
from freeact_sub.terminal.drawing.transcript import CODE_THEME, draw_part
from freeact_sub.text import clean, counted, one_line

FOLD_ROWS: Final = 12
"""Lines of code, of output, or of an error, that one action shows."""
ERROR_ENDS: Final = 5
"""Lines of them that are an error's last ones, which say what it is."""
SLOW_SECONDS: Final = 2.0
"""Seconds of a cell after which its head line shows them."""
INDENT: Final = 2

Drawn = Iterator[RenderableType]


class Story:
    """Draws the events of a run, one after the other."""

    def __init__(self, views: Stories, *, whole: str = "ctrl-o") -> None:
        """Args: views: observes each event before it is drawn here. whole: the key or option that shows what is folded."""
        self._views = views
        self._whole = whole
        self._prompt = ""
        self._stands = False
        self._after_head = False
        """Whether the last block is a head without code: the next head needs no space above it."""
        self._after_code = False
        """Whether the last block is code: its output is set apart."""
        self._held: dict[tuple[str | None, str, str], ToolCallStarted] = {}
        """The heads of calls without output yet, by `tool_call_id`, tool and `call_id`."""
        self._lines: dict[str, int] = {}
        """The number of output lines of each call of the root."""
        self._parents: set[str] = set()
        """The calls that have started children."""

    def draw(self, event: Event, found: Iterable[Row] | None = None) -> RenderableType | None:
        """The drawing that the event adds; None for nothing.

        Args:
            event: The event.
            found: Its rows; None: they are worked out here.
        """
        view = self._views.of(event)
        shown = list(rows(view, event) if found is None else found)
        drawn = [*(self._root(view, event, shown) if view.parent_id is None else self._child(view, event))]
        return Group(*drawn) if drawn else None

    @property
    def pending(self) -> Sequence[ToolCallStarted]:
        """The root's actions without output yet."""
        return tuple(self._held.values())

    def is_last(self, _request: object) -> bool:
        """Whether a question's call was drawn last: it never is."""
        return False

    def forget_last(self) -> None:
        """Takes in that something was drawn that is no event."""
        self._stands, self._after_head, self._after_code = True, False, False

    # The root

    def _root(self, view: AgentStory, event: Event, shown: list[Row]) -> Drawn:
        match event:
            case ToolCallStarted():
                if event.args.get("code") != self._prompt:  # a command that a person has typed stands there already
                    self._held[event.tool_call_id, event.tool_name, event.call_id] = event
            case CodeExecutionOutputChunk():
                yield from self._release(event.tool_call_id)
                yield from self._output(event.tool_call_id or "", shown)
            case CodeExecutionOutput():
                yield from self._release(event.tool_call_id)
                yield from self._output(event.tool_call_id or "", [row for row in shown if row.goes_on])
                yield from self._cell_end(event)
            case ToolOutput():
                yield from self._release(event.tool_call_id, event.tool_name, event.call_id)
                yield from self._result(event, shown)
            case ApprovalAnswered():
                yield from self._answered(view, event)
            case QuestionAnswered():
                yield from self._release(event.tool_call_id)
                yield from self._note(question_and_answer(event), "dim" if event.answered else "red")
            case AgentFinished():
                yield from self._release_all()
                yield from self._ended(event, shown)
            case _:
                yield from self._said(event, shown)

    def _said(self, event: Event, shown: list[Row]) -> Drawn:
        match event:
            case AgentStarted():
                self._lines.clear()
                self._parents.clear()
                self._prompt = event.prompt
                lines = clean(event.prompt).strip("\n").split("\n")
                yield from self._block(*self._folded(Text(line, "bold", overflow="fold") for line in _quoted(lines)))
            case Thoughts() | Response():
                for row in shown:
                    folded = self._folded(coloured(row.parts[0].text)) if isinstance(event, Thoughts) else ()
                    styled: list[RenderableType] = [_styled(line, "dim italic") for line in folded]
                    whole = styled or [draw_part(row.parts[0])]
                    yield from self._block(*whole)
            case KernelLost():
                yield from self._note(f"the kernel was lost, with all its variables: {clean(event.reason)}", "bold red")
            case Notice():
                yield from self._note(clean(event.content), "yellow")
            case AgentMessage():
                other = self._views.by_id.get(event.recipient_id)
                name = self._views.name(other) if other else short_id(event.recipient_id)
                yield from self._note(f"{MESSAGES[event.kind]} {name}: {clean(event.content)}", "yellow")

    def _answered(self, view: AgentStory, event: ApprovalAnswered) -> Drawn:
        request = view.asked(event.request_id)
        if event.code is not None:
            for key in [key for key in self._held if key[0] == event.tool_call_id]:
                del self._held[key]
            yield from self._head(head_of_call(CodeAction(code=event.code)))
            yield from self._note("you changed the code; the agent is told", "dim")
            return
        yield from self._release(event.tool_call_id)
        if request is not None and not self._is_shown(view, event, request.call):
            yield from self._head(head_of_call(request.call))
        if not event.allowed:
            reason = f": {one_line(event.reason, 300)}" if event.reason else ""
            yield from self._note(f"denied{reason}", "red")

    def _is_shown(self, view: AgentStory, event: ApprovalAnswered, call: Any) -> bool:
        own = (started for started in view.calls if started.tool_call_id == event.tool_call_id)
        return any(shows(started.tool_name, started.args, call) for started in own)

    def _result(self, event: ToolOutput, shown: list[Row]) -> Drawn:
        """The return of a tool; a child's answer stands where it ended."""
        if event.tool_name == "task" and event.tool_call_id in self._parents:
            return
        for row in shown:
            tone = "red" if row.tone == "bad" else "dim"
            for part in row.parts:
                yield from self._below(*(_styled(line, tone) for line in self._folded(coloured(part.text))))

    def _cell_end(self, event: CodeExecutionOutput) -> Drawn:
        more = self._lines.pop(event.tool_call_id or "", 0) - FOLD_ROWS
        file = event.output_file
        if more > 0:
            where = Text(", or ", "dim") + link(file) if file else Text()
            yield from self._below(Text(f"… {more:,} more ({self._whole}", "dim") + where + Text(")", "dim"))
        if event.left_out_chars:
            yield from self._below(Text(f"{event.left_out_chars:,} characters of output are not shown here", "yellow"))
        if file and more <= 0:
            yield from self._below(Text("full output: ", "dim") + link(file))
        for picture in event.picture_files:
            yield from self._below(Text("picture: ", "dim") + link(picture))
        if event.status != "ok":
            yield from self._below(Text(f"{event.status.replace('_', ' ')} after {event.seconds:.1f} s", "red"))
        elif event.seconds >= SLOW_SECONDS:
            yield from self._below(Text(f"{event.seconds:.1f} s", "dim"))

    def _output(self, call_id: str, shown: list[Row]) -> Drawn:
        """The first lines of a cell's output; of an error also the last ones."""
        for row in shown:
            for part in row.parts:
                lines = coloured(part.text)
                if row.tone == "bad":
                    lines = self._folded(lines, ends=ERROR_ENDS)
                else:
                    count = self._lines.get(call_id, 0)
                    self._lines[call_id] = count + len(lines)
                    lines = lines[: max(0, FOLD_ROWS - count)]
                if lines:
                    if self._after_code:
                        yield Text()
                    yield from self._below(Folded(lines=lines))

    def _ended(self, event: AgentFinished, shown: list[Row]) -> Drawn:
        done = event.status == "completed"
        answers = [part for row in shown for part in row.parts if part.name == "answer"]
        for part in answers:
            yield from self._block(draw_part(part))
        if not done:
            error = f": {clean(event.error)}" if event.error else ""
            yield from self._note(f"✗ {event.status.replace('_', ' ')}{error}", "bold red", indent=0)
        for warning in event.warnings:
            yield from self._note(clean(warning), "yellow")
        files = [note for note in ending_notes(event) if note.startswith("files")]
        for note in files:
            yield from self._note(note, "dim", indent=0)
        self.forget_last()
        if event.tree_usage.turns:
            yield Text()
            yield Text(spent(event), "dim", overflow="fold")

    # Children

    def _child(self, view: AgentStory, event: Event) -> Drawn:
        match event:
            case AgentStarted():
                if event.tool_call_id:
                    self._parents.add(event.tool_call_id)
                parent = self._views.by_id.get(event.parent_id or "")
                if parent is not None and parent.parent_id is None:
                    yield from self._release(event.tool_call_id)
            case AgentFinished():
                yield from self._child_ended(view, event)
            case ApprovalAnswered(allowed=False) if request := view.asked(event.request_id):
                reason = f": {one_line(event.reason, 200)}" if event.reason else ""
                yield from self._line(view, f"was denied {head_of_call(request.call).text}{reason}", "red")
            case QuestionAnswered():
                yield from self._line(view, question_and_answer(event), "dim" if event.answered else "red")
            case KernelLost():
                yield from self._line(view, f"lost its kernel and all variables: {clean(event.reason)}", "red")
            case Notice():
                yield from self._line(view, clean(event.content), "yellow")
            case AgentMessage() if event.kind != "status" or event.success is None:  # its end has a line of its own
                other = self._views.by_id.get(event.recipient_id)
                to = self._views.name(other) if other else short_id(event.recipient_id)
                yield from self._line(view, f"{MESSAGES[event.kind]} {to}: {one_line(event.content, 200)}", "yellow")

    def _child_ended(self, view: AgentStory, event: AgentFinished) -> Drawn:
        done = event.status == "completed"
        mark = Text("✓ " if done else "✗ ", "green" if done else "bold red")
        first = next((line for line in clean(event.output).split("\n") if line.strip()), "")
        words = one_line(first, 120) if done else f"{event.status.replace('_', ' ')}: {one_line(event.error, 200)}"
        name = Text(self._views.name(view), f"bold {colour(view)}")
        line = Text.assemble(" " * (INDENT * max(view.depth, 1)), mark, name, "  ", words.removesuffix(": "))
        line.append(f"  ({spent(event)})", "dim")
        yield from self._line_of(line)

    def _line(self, view: AgentStory, words: str, style: str) -> Drawn:
        indent = " " * (INDENT * max(view.depth, 1))
        yield from self._line_of(
            Text.assemble(indent, (self._views.name(view), f"bold {colour(view)}"), "  ", (words, style))
        )

    def _line_of(self, line: Text) -> Drawn:
        line.overflow = "fold"
        self.forget_last()
        yield line

    # The parts of all this

    def _release(self, *call: str | None) -> Drawn:
        """Draws the heads that were held back of this call, as its output is drawn next. Args: call: how its key begins."""
        for key in [key for key in self._held if key[: len(call)] == call]:
            yield from self._head(head_of_tool(self._held.pop(key)))

    def _release_all(self) -> Drawn:
        for key in [*self._held]:
            yield from self._head(head_of_tool(self._held.pop(key)))

    def _head(self, head: Head) -> Drawn:
        alone = self._after_head and not head.code
        yield from self._block(*head_lines(head, self._folded), apart=not alone)
        self._after_head = not head.code
        self._after_code = bool(head.code)

    def _folded(self, lines: Iterable[Text], ends: int = 0) -> list[Text]:
        whole = list(lines)
        more = len(whole) - FOLD_ROWS
        if more <= 0:
            return whole
        return [*whole[: FOLD_ROWS - ends], Text(f"… {more:,} more ({self._whole})", "dim"), *whole[len(whole) - ends :]]

    def _block(self, *drawn: RenderableType, apart: bool = True) -> Drawn:
        if self._stands and apart:
            yield Text()
        self.forget_last()
        yield from drawn

    def _below(self, *drawn: RenderableType) -> Drawn:
        self.forget_last()
        for item in drawn:
            yield Padding(item, (0, 0, 0, INDENT), expand=False)

    def _note(self, text: str, style: str, *, indent: int = INDENT) -> Drawn:
        self.forget_last()
        yield Padding(Text(text, style, overflow="fold"), (0, 0, 0, indent), expand=False)


def head_lines(head: Head, fold: Callable[[Iterable[Text]], list[Text]] | None = None, mark: str = "● ") -> Drawn:
    """The head line of an action, and its code below it."""
    line = Text.assemble((mark, "cyan"), (head.kind, "bold"), *([f"  {head.words}"] if head.words else []), overflow="fold")
    yield line
    if head.code:
        code = highlighted(head.code)
        yield Padding(Text("\n").join(fold(code) if fold else code), (0, 0, 0, INDENT), expand=False)


def highlighted(code: str) -> list[Text]:
    """Lines of Python in the terminal's own colours."""
    from rich.syntax import Syntax  # noqa: PLC0415  # slow to import

    text = Syntax("", "python", theme=CODE_THEME, background_color="default").highlight(code)
    text.rstrip()
    lines = [*text.split("\n", allow_blank=True)]
    for line in lines:
        line.overflow = "fold"
    return lines


def link(path: str) -> Text:
    """A file's path, relative to the present folder if it is below it; a click opens it if the terminal can."""
    shown = one_line(path, 300)
    file = Path(path)
    if shown != path or not file.is_absolute():
        return Text(shown, "dim")
    here = Path.cwd()
    shown = str(file.relative_to(here)) if file.is_relative_to(here) else shown
    return Text(shown, Style(dim=True, link=file.as_uri()), overflow="fold")


def spent(event: AgentFinished) -> str:
    """The usage of a run, its children's share counted once."""
    usage = event.tree_usage
    tokens = f"{usage.tokens_text} tokens" + (f" ({usage.cache_text})" if usage.cache_text else "")
    parts = [f"{event.seconds:.1f} s", counted(usage.turns, "turn"), tokens, usage.cost_text]
    return " · ".join(part for part in parts if part)


def _quoted(lines: Sequence[str]) -> Iterator[str]:
    for index, line in enumerate(lines):
        yield f"{'> ' if index == 0 else '  '}{line}"


def _styled(line: Text, style: str) -> Text:
    line.stylize_before(style)
    line.overflow = "fold"
    return line
