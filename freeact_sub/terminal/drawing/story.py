"""`Story`: draws a run for people into the terminal's scrollback, event by event.

The told agents' part: prompts, words, each action as one head line with its code and output. The root is told, folded; with
`--verbose` all agents are, whole, each below its name; a pager tells one agent. Of the other agents only the ends are
drawn: while they work they stand in a region of their own (`area.py`). Only blanks stand in front of text that
people copy.

An action of the root is held back until it has output: while there is a question about it, or no output yet, it is drawn
among the changing rows (`pending`), so that it is on the screen once.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from rich.console import Group, RenderableType
from rich.text import Text

from freeact_sub import events as ev
from freeact_sub.agent_names import short_id
from freeact_sub.calls import CodeAction
from freeact_sub.show.agent_story import AgentStory, Stories
from freeact_sub.show.heads import Head, head_of_call, head_of_tool
from freeact_sub.show.rows import Row, rows
from freeact_sub.show.steps import PLAN_TOOL
from freeact_sub.show.wording import MESSAGES, is_news, question_and_answer, receipt_lines, spent
from freeact_sub.terminal.drawing.parts import (
    INDENT,
    LAST_ROWS,
    MIN_WIDTH,
    CellOutput,
    Folded,
    Indented,
    colour,
    coloured,
    draw_part,
    head_lines,
    in_rows,
    indent_of,
    left_out,
    link,
    parts_of,
    plan_text,
    quoted,
    styled,
)
from freeact_sub.text import clean, files_text, one_line

Drawn = Iterator[RenderableType]

ELSEWHERE: Final = (ev.AgentMessage, ev.ApprovalRequest, ev.PlanUpdated, ev.QuestionRequest)
"""Events that have places of their own; all others are drawn by their rows."""


class Story:
    """Draws the events of a run, one after the other."""

    def __init__(
        self,
        views: Stories,
        *,
        verbose: bool = False,
        of: str | None = None,
        folds: bool = False,
        whole: str = "ctrl-o",
        columns: Callable[[], int] = lambda: 0,
    ) -> None:
        """Makes it; nothing is drawn yet.

        Args:
            views: Observes each event before it is drawn here.
            verbose: Tell all agents, unfolded.
            of: The id of the only told agent. None: the root, or all.
            folds: Fold also what the only agent does.
            whole: The key or option that shows what is folded.
            columns: The width of the window, by whose rows long lines are folded; 0: lines count, whatever their length.
        """
        self._views = views
        self._verbose = verbose
        self._main = of
        self._folds = folds or not (verbose or of)
        self._whole = whole
        self._columns = columns
        self._speaker: str | None = None
        """The id of the agent that was drawn last. Empty: unknown. None: nothing was drawn."""
        self._prompts: dict[str, str] = {}
        """The prompt of each told agent, by id."""
        self._stands = False
        self._after_head = False
        """Whether the last block is a head without code: the next head needs no space above it."""
        self._after_code = False
        """Whether the last block is code: its output is set apart."""
        self._held: dict[tuple[str | None, ...], ev.ToolCallStarted] = {}
        """The heads of calls without output yet, by agent, `tool_call_id`, tool and `call_id`."""
        self._outputs: dict[tuple[str, str | None], CellOutput] = {}
        """The output of each cell at work, where it is folded, by agent and `tool_call_id`."""
        self.has_folded = False
        """Whether any drawing was folded."""
        self._parents: set[str] = set()
        """The calls that have started children."""
        self._changed: dict[str, str] = {}
        """By question: the code that a person wants to run instead, where it was drawn before the decision."""

    def draw(self, event: ev.Event, found: Iterable[Row] | None = None) -> RenderableType | None:
        """Return the drawing that the event adds; None if it adds nothing.

        Args:
            event: The event.
            found: Its rows; None: they are worked out here.
        """
        view = self._views.of(event)
        shown = list(rows(view, event) if found is None else found)
        drawn = list(self._child_starts(event)) if isinstance(event, ev.AgentStarted) and event.parent_id else []
        if isinstance(event, ev.AgentStarted) and self._is_main(view):
            self._speaker = view.agent_id  # the prompt is a person's, or a parent's
        if self._is_told(view):
            drawn += self._placed(view, self._told(view, event, shown))
        if not self._is_main(view):
            drawn += self._beside(view, event)
        return Group(*drawn) if drawn else None

    @property
    def output(self) -> list[Text]:
        """The present last lines of running cells' output that are not drawn yet."""
        mine = [output for (agent_id, _), output in self._outputs.items() if self._is_main(self._views.by_id[agent_id])]
        return [line for output in mine for line in output.shown(self._whole)]

    @property
    def pending(self) -> Sequence[ev.ToolCallStarted]:
        """The actions without output yet of the root, or of the only agent that is told."""
        return tuple(event for event in self._held.values() if self._is_main(event))

    def whole_cell(self, request: ev.ApprovalRequest, code: str | None) -> RenderableType | None:
        """Draws the cell that a told agent asks about, unfolded; it is not drawn again.

        Args:
            request: The question.
            code: The code that a person wants to run instead. None: the agent's own.

        Returns:
            None if the question is about something else, or about what was drawn whole already.
        """
        view = self._views.of(request)
        keys = [key for key in self._held if key[:2] == (view.agent_id, request.tool_call_id)]
        if not self._is_told(view) or (code is None and not (keys and view.has_shown(request))):
            return None
        heads = [head_of_tool(self._held.pop(key)) for key in keys]
        if code is not None:
            heads, self._changed[request.request_id] = [head_of_call(CodeAction(code=code))], code
        return Group(*self._placed(view, (line for head in heads for line in self._head(head, is_whole=True))))

    def forget_last(self) -> None:
        """Notes that something other than an event was drawn."""
        self._stands, self._after_head, self._after_code = True, False, False

    # Which agent

    def _is_main(self, whose: AgentStory | ev.Event) -> bool:
        return whose.parent_id is None if self._main is None else whose.agent_id == self._main

    def _is_told(self, view: AgentStory) -> bool:
        return self._verbose or self._is_main(view)

    def _placed(self, view: AgentStory, drawn: Drawn) -> Drawn:
        """Draw an agent's rows, indented by its depth, below its name if another agent was drawn before."""
        before = self._stands, self._after_head, self._after_code
        changes = self._verbose and self._speaker not in (view.agent_id, None)
        if changes:
            self._stands = self._after_head = self._after_code = False  # it stands right below its name
        body = list(drawn)
        if not body:
            self._stands, self._after_head, self._after_code = before
            return
        if changes:
            yield from [Text()] if before[0] else []
            yield Indented(body=Text(self._views.name(view), f"bold {colour(view)}"), columns=indent_of(view))
        self._speaker = view.agent_id
        if self._is_main(view):
            yield from body
        else:
            yield Indented(body=Group(*body), columns=indent_of(view))

    # Agents that are told

    def _told(self, view: AgentStory, event: ev.Event, shown: list[Row]) -> Drawn:
        plans = self._plans(view, event) if isinstance(event, ev.PlanUpdated | ev.AgentFinished) else ()
        drawn = [*plans, *self._told_of(view, event, shown)]
        if drawn and self._main is None and not isinstance(event, ev.CodeExecutionOutputChunk):
            for output in self._outputs.values():
                yield from self._lines(output.settled())
        yield from drawn

    def _told_of(self, view: AgentStory, event: ev.Event, shown: list[Row]) -> Drawn:
        match event:
            case ev.ToolCallStarted():
                if not self._is_main(view):  # nothing else shows its code while it runs
                    yield from self._head(head_of_tool(event))
                elif event.args.get("code") != self._prompts.get(view.agent_id):  # else a person has typed it
                    self._held[view.agent_id, event.tool_call_id, event.tool_name, event.call_id] = event
            case ev.CodeExecutionOutputChunk():
                yield from self._release(view, event.tool_call_id)
                yield from self._output(view, event.tool_call_id, shown)
            case ev.CodeExecutionOutput():
                yield from self._release(view, event.tool_call_id)
                yield from self._output(view, event.tool_call_id, [row for row in shown if row.goes_on])
                yield from self._cell_end(view, event)
            case ev.ToolOutput():
                yield from self._release(view, event.tool_call_id, event.tool_name, event.call_id)
                yield from self._result(view, event, shown)
            case ev.ApprovalDecided():
                yield from self._decided(view, event)
            case ev.QuestionAnswered():
                yield from self._release(view, event.tool_call_id)
                yield from self._note(question_and_answer(event), "dim" if event.answered else "red")
            case ev.AgentFinished():
                yield from self._release(view)
                yield from self._ended(view, event, shown)
            case _:
                yield from self._said(view, event, shown)

    def _said(self, view: AgentStory, event: ev.Event, shown: list[Row]) -> Drawn:
        match event:
            case ev.AgentStarted():
                if view.parent_id is None:
                    self._outputs.clear()
                    self._parents.clear()
                self._prompts[view.agent_id] = event.prompt
                lines = clean(event.prompt).strip("\n").split("\n")
                yield from self._block(*self._folded(Text(line, "bold", overflow="fold") for line in quoted(lines)))
            case ev.Thoughts() | ev.Response():
                for row in shown:
                    folded = self._folded(coloured(row.parts[0].text)) if isinstance(event, ev.Thoughts) else ()
                    thoughts: list[RenderableType] = [styled(line, "dim italic") for line in folded]
                    yield from self._block(*(thoughts or [draw_part(row.parts[0])]))
            case ev.KernelLost():
                yield from self._note(f"the kernel was lost, with all its variables: {clean(event.reason)}", "bold red")
            case ev.Notice():
                yield from self._note(clean(event.content), "yellow")
            case ev.AgentMessage() if is_news(event):
                yield from self._note(message_text(self._views, event), "yellow")
            case _ if not (isinstance(event, ELSEWHERE) or (self._folds and isinstance(event, ev.Compacted | ev.Cancelled))):
                for row in (row for row in shown if not row.passing):
                    yield from self._note(": ".join(filter(None, [row.title, row.detail])), "dim")
                    yield from self._below(*(draw_part(part) for part in row.parts))

    def _plans(self, view: AgentStory, event: ev.PlanUpdated | ev.AgentFinished) -> Drawn:
        """Plans, each once: when it is over, or else its run. Until then it stands among the changing rows."""
        is_over = isinstance(event, ev.PlanUpdated)
        self._held.pop((view.agent_id, event.tool_call_id, PLAN_TOOL, ""), None)
        for plan in [event] if isinstance(event, ev.PlanUpdated) else view.plans.values():
            yield from self._block(*plan_text(plan)) if plan.is_over == is_over else ()

    def _decided(self, view: AgentStory, event: ev.ApprovalDecided) -> Drawn:
        request = view.asked(event.request_id)
        if event.code is not None:
            for key in [key for key in self._held if key[:2] == (view.agent_id, event.tool_call_id)]:
                del self._held[key]
            if self._changed.pop(event.request_id, None) != event.code:
                yield from self._head(head_of_call(CodeAction(code=event.code)))
            yield from self._note("you changed the code; the agent is told", "dim")
            return
        yield from self._release(view, event.tool_call_id)
        if request is not None and not view.has_shown(request):
            yield from self._head(head_of_call(request.call))
        if not event.allowed:
            reason = f": {one_line(event.reason, 300)}" if event.reason else ""
            yield from self._note(f"denied{reason}", "red")

    def _result(self, view: AgentStory, event: ev.ToolOutput, shown: list[Row]) -> Drawn:
        """The return of a tool; a child's answer stands where it ended."""
        if event.tool_name == "task" and event.tool_call_id in self._parents:
            return
        for row in shown:
            text = clean(view.without_answer(event)).rstrip()
            tone = "red" if row.tone == "bad" else "dim"
            yield from self._below(*(styled(line, tone) for line in self._folded(coloured(text), LAST_ROWS)))

    def _cell_end(self, view: AgentStory, event: ev.CodeExecutionOutput) -> Drawn:
        output = self._outputs.get((view.agent_id, event.tool_call_id))
        is_folded = output is not None and output.left_out > 0
        yield from self._output_end(view, event.tool_call_id, event.output_file)
        yield from self._below(*cell_end_lines(event, with_file=not is_folded))

    def _output(self, view: AgentStory, call_id: str | None, shown: list[Row]) -> Drawn:
        """Draw the first lines of a cell's output; for an error the last ones, which name it."""
        for row in shown:
            for part in row.parts:
                lines = coloured(part.text)
                if row.tone == "bad":
                    yield from self._output_end(view, call_id)
                    lines = self._folded(lines, LAST_ROWS)
                elif self._folds:
                    output = self._outputs.setdefault((view.agent_id, call_id), CellOutput())
                    lines = output.add(lines, self._room(view))
                    self.has_folded |= output.left_out > 0
                yield from self._lines(lines)

    def _output_end(self, view: AgentStory, call_id: str | None, file: str | None = None) -> Drawn:
        """The last lines of a cell's output. Args: file: where all of it is."""
        output = self._outputs.pop((view.agent_id, call_id), CellOutput())
        if output.left_out:
            self.has_folded = True
            where = Text.assemble((f"{self._whole}, or ", "dim"), link(file)) if file else self._whole
            yield from self._below(left_out(output.left_out, where, of_rows=output.of_rows))
        yield from self._lines([*output.held])

    def _lines(self, lines: Sequence[Text]) -> Drawn:
        """Lines of a cell's output."""
        if lines:
            if self._after_code:
                yield Text()
            yield from self._below(Folded(lines=lines))

    def _ended(self, view: AgentStory, event: ev.AgentFinished, shown: list[Row]) -> Drawn:
        for agent_id, call_id in [*self._outputs]:  # of a cell that was cut off
            yield from self._output_end(view, call_id) if agent_id == view.agent_id else ()
        for part in [part for row in shown for part in row.parts if part.name == "answer"]:
            yield from self._block(draw_part(part))
        error = f": {clean(event.error)}" if event.error else ""
        if event.status != "completed":
            yield from self._note(f"✗ {event.status.replace('_', ' ')}{error}", "bold red", indent=0)
        for doubt in event.doubts:  # a person who only asked sees it, and is not alarmed
            yield from self._note(clean(doubt), "dim" if view.parent_id is None else "yellow")
        for warning in event.warnings:
            yield from self._note(clean(warning), "yellow")
        if files := files_text(event.files_written, event.files_removed):
            yield from self._note(files, "dim", indent=0)
        for line in receipt_lines(event) if view.parent_id is not None else ():
            yield from self._note(line, "dim", indent=0)
        if self._is_main(view):
            self.forget_last()
            if event.tree_usage.turns:
                yield Text()
                yield Text(spent(event), "dim", overflow="fold")

    # Other agents

    def _child_starts(self, event: ev.AgentStarted) -> Drawn:
        """The head of the call that starts a child, where its parent is told."""
        if event.tool_call_id:
            self._parents.add(event.tool_call_id)
        parent = self._views.by_id.get(event.parent_id or "")
        if parent is not None and self._is_told(parent):
            yield from self._placed(parent, self._release(parent, event.tool_call_id))

    def _beside(self, view: AgentStory, event: ev.Event) -> Drawn:
        """Draw a line about an agent that is not told, or about its end."""
        if isinstance(event, ev.AgentFinished):
            yield from self._child_ended(view, event)
        elif not self._is_told(view) and (said := news_of(self._views, view, event)) is not None:
            yield from self._line(view, *said)

    def _child_ended(self, view: AgentStory, event: ev.AgentFinished) -> Drawn:
        name = Text(self._views.name(view), f"bold {colour(view)}")
        yield from self._line_of(child_end_line(name, event, indent=indent_of(view)))
        for doubt in event.doubts:
            yield from self._line(view, clean(doubt), "yellow")

    def _line(self, view: AgentStory, words: str, style: str) -> Drawn:
        name = (self._views.name(view), f"bold {colour(view)}")
        yield from self._line_of(Text.assemble(" " * indent_of(view), name, "  ", (words, style)))

    def _line_of(self, line: Text) -> Drawn:
        line.overflow = "fold"
        self._speaker = ""
        self.forget_last()
        yield line

    # The parts of all this

    def _release(self, view: AgentStory, *call: str | None) -> Drawn:
        """Draws the heads of an agent's calls that were held back. Args: call: how the rest of their keys begins."""
        beginning = (view.agent_id, *call)
        for key in [key for key in self._held if key[: len(beginning)] == beginning]:
            yield from self._head(head_of_tool(self._held.pop(key)))

    def _head(self, head: Head, *, is_whole: bool = False) -> Drawn:
        alone = self._after_head and not head.code
        yield from self._block(*head_lines(head, None if is_whole else self._folded), apart=not alone)
        self._after_head = not head.code
        self._after_code = bool(head.code)

    def _folded(self, lines: Iterable[Text], last: int = 0) -> list[Text]:
        whole = list(lines)
        if not self._folds:
            return whole
        in_all = in_rows(whole, self._room())
        first, more, end = parts_of(in_all, last)
        if not more:
            return whole
        self.has_folded = True
        return [*first, left_out(more, self._whole, of_rows=len(in_all) > len(whole)), *end]

    def _room(self, view: AgentStory | None = None) -> int:
        """The columns of what stands below a head; 0: lines are not cut into rows."""
        indents = INDENT + (indent_of(view) if view is not None and not self._is_main(view) else 0)
        return max(self._columns() - indents, MIN_WIDTH) if self._columns() else 0

    def _block(self, *drawn: RenderableType, apart: bool = True) -> Drawn:
        if self._stands and apart:
            yield Text()
        self.forget_last()
        yield from drawn

    def _below(self, *drawn: RenderableType) -> Drawn:
        self.forget_last()
        for item in drawn:
            yield Indented(body=item, columns=INDENT)

    def _note(self, text: str, style: str, *, indent: int = INDENT) -> Drawn:
        self.forget_last()
        yield Indented(body=Text(text, style, overflow="fold"), columns=indent)


SLOW_SECONDS: Final = 2.0
"""The end of a cell shows its seconds if there are more."""


def cell_end_lines(event: ev.CodeExecutionOutput, *, with_file: bool) -> Iterator[Text]:
    """Return the facts about a cell besides its output. Args: with_file: name the file with the whole output."""
    if event.left_out_chars:
        yield Text(f"{event.left_out_chars:,} characters of output are not shown here", "yellow")
    if event.output_file and with_file:
        yield Text("full output: ", "dim") + link(event.output_file)
    for picture in event.picture_files:
        yield Text("picture: ", "dim") + link(picture)
    if event.status != "ok":
        yield Text(f"{event.status.replace('_', ' ')} after {event.seconds:.1f} s", "red")
    elif event.seconds >= SLOW_SECONDS:
        yield Text(f"{event.seconds:.1f} s", "dim")


def child_end_line(name: Text, event: ev.AgentFinished, *, indent: int) -> Text:
    """Return the line for a child's end. Args: name: its name in its colour. indent: columns in front of it."""
    done = event.status == "completed"
    mark = Text("✓ " if done else "✗ ", "green" if done else "bold red")
    first = next((line for line in clean(event.output).split("\n") if line.strip()), "")
    words = one_line(first, 120) if done else f"{event.status.replace('_', ' ')}: {one_line(event.error, 200)}"
    return Text.assemble(" " * indent, mark, name, "  ", words.removesuffix(": "), (f"  ({spent(event)})", "dim"))


def message_text(views: Stories, event: ev.AgentMessage) -> str:
    """A message between agents, in words that follow the sender's name."""
    other = views.by_id.get(event.recipient_id)
    name = views.name(other) if other else short_id(event.recipient_id)
    return f"{MESSAGES[event.kind]} {name}: {clean(event.content)}"


def news_of(views: Stories, view: AgentStory, event: ev.Event) -> tuple[str, str] | None:
    """What people are told of an agent at work, in one line with its style."""
    match event:
        case ev.ApprovalDecided(allowed=False) if request := view.asked(event.request_id):
            reason = f": {one_line(event.reason, 200)}" if event.reason else ""
            return f"was denied {head_of_call(request.call).text}{reason}", "red"
        case ev.QuestionAnswered():
            return question_and_answer(event), "dim" if event.answered else "red"
        case ev.KernelLost():
            return f"lost its kernel and all variables: {clean(event.reason)}", "red"
        case ev.Notice():
            return clean(event.content), "yellow"
        case ev.AgentMessage() if is_news(event):
            return one_line(message_text(views, event), 300), "yellow"
    return None
