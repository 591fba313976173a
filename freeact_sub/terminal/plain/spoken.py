"""`SpokenStory`: what agents do, as sentences with their names; each begins a line and is whole when it is printed."""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

from freeact_sub.cells import CELL_TOOL
from freeact_sub.events import (
    AgentFinished,
    AgentMessage,
    AgentStarted,
    ApprovalDecided,
    ApprovalRequest,
    CodeExecutionOutput,
    Event,
    KernelLost,
    Notice,
    QuestionAnswered,
    QuestionRequest,
    Response,
    ToolCallStarted,
    ToolOutput,
)
from freeact_sub.show.agent_story import AgentStory, Stories
from freeact_sub.show.heads import head_of_tool
from freeact_sub.show.rows import Row, rows
from freeact_sub.show.wording import MESSAGES, cell_notes, is_news, picture_notes, question_and_answer, spent, tool_words
from freeact_sub.text import clean, counted, one_line, visible

FOLD_LINES: Final = 12
"""Lines of code, of a prompt, or of a tool's result."""
OUTPUT_LINES: Final = 40
"""Lines of one cell's output."""
SLOW_SECONDS: Final = 2.0
Lines = Iterator[str]


class SpokenStory:
    """Tells the events of a run, one after the other: the root in full, of the others what people are told of them."""

    def __init__(self, views: Stories, *, everyone: bool = False) -> None:
        """Args: views: observes each event before it is told here. everyone: tell all agents, and leave out nothing."""
        self._views = views
        self._everyone = everyone
        self._printed: Counter[tuple[str, str | None]] = Counter()
        """Lines of output of each cell, by agent and `tool_call_id`."""
        self._outputs = ("", "")
        """The agent, and the cell, whose output was told last, until something else is told."""
        self._code: str | None = None
        """The call whose code was told last, in full, until something else is told."""

    def name(self, view: AgentStory) -> str:
        """`agent` for the root; of a child its label, its type or its short id, whichever says more and fits it alone."""
        if view.parent_id is None:
            return "agent"
        for words in (view.label, view.agent_type):
            same = [other for other in self._views.by_id.values() if words in (other.label, other.agent_type)]
            if words and len(same) == 1:
                return one_line(words)
        return self._views.name(view)

    def tell(self, event: Event, found: Iterable[Row] | None = None) -> str:
        """The lines that the event adds. Args: found: its rows; None: they are worked out here."""
        view = self._views.of(event)
        shown = list(rows(view, event) if found is None else found)
        tells = self._everyone or view.parent_id is None
        lines = [*(self._told(view, event, shown) if tells else self._beside(view, event))]
        if lines:
            self._code = event.tool_call_id if isinstance(event, ToolCallStarted) and not self._folds(event) else None
        return "".join(f"{line}".rstrip() + "\n" for line in lines)

    def has_just_told(self, request: ApprovalRequest) -> bool:
        """Whether all that the request asks about stands right above."""
        view = self._views.of(request)
        return self._code is not None and self._code == request.tool_call_id and view.has_shown(request)

    # Agents that are told in full

    def _told(self, view: AgentStory, event: Event, shown: list[Row]) -> Lines:
        name = self.name(view)
        match event:
            case ToolCallStarted():
                yield from self._call(name, event)
            case CodeExecutionOutput():
                yield from self._output(view, event, [row for row in shown if row.goes_on])
                yield from self._cell_end(name, event)
            case ToolOutput(tool_name="task", outcome="success"):
                return  # the child tells its end
            case ToolOutput() if shown:
                how = "" if event.outcome == "success" else f" ({event.outcome})"
                yield from self._said(f"{name}: result of {tool_words(event.tool_name)}{how}", shown[0].parts[0].text)
            case _ if shown and shown[0].goes_on:
                yield from self._output(view, event, shown)
            case AgentStarted() if view.parent_id is None:
                yield from self._said(f"{name} starts", event.prompt)
            case ApprovalDecided(code=str(code)):
                yield from self._said(f"{name} runs your code", visible(code))
            case AgentStarted() | AgentFinished() | AgentMessage() | ApprovalDecided() | QuestionAnswered():
                yield from self._beside(view, event)
            case _ if not isinstance(event, ApprovalRequest | QuestionRequest):  # those are printed where they are asked
                yield from self._others(name, event, shown)

    def _others(self, name: str, event: Event, shown: list[Row]) -> Lines:
        for row in shown:
            text = "\n".join(part.text for part in row.parts)
            if isinstance(event, Response):
                yield f"{name} says: {text}"
            elif not row.passing:
                yield from self._said(f"{name}: {row.title}", text)

    def _call(self, name: str, event: ToolCallStarted) -> Lines:
        head = head_of_tool(event)
        if event.tool_name == CELL_TOOL:  # it may not run: a person may be asked first
            words, lines = f"{name} writes code", head.code.split("\n") if head.code else []
            if self._folds(event):
                yield from self._said(", ".join(filter(None, [words, head.words, counted(len(lines), "line")])), "")
            elif lines:
                yield from self._said(", ".join(filter(None, [words, head.words])), head.code)
            else:
                yield from self._said(words, head.words)
        elif event.tool_name != "task":  # a child tells that it starts
            self._ends_output()
            does = tool_words(event.tool_name, does=True)
            yield f"{name} {does}: {head.words}" if head.words else f"{name} {does}"

    def _folds(self, event: ToolCallStarted) -> bool:
        return not self._everyone and head_of_tool(event).code.count("\n") >= FOLD_LINES

    def _output(self, view: AgentStory, event: Event, shown: list[Row]) -> Lines:
        cell = (view.agent_id, getattr(event, "tool_call_id", None))
        lines = [line for row in shown for part in row.parts for line in clean(part.text).split("\n")]
        room = len(lines) if self._everyone else max(0, OUTPUT_LINES - self._printed[cell])
        self._printed[cell] += len(lines)
        if lines[:room] and self._outputs != (cell[0], f"{cell[1]}"):
            self._outputs = cell[0], f"{cell[1]}"
            yield f"output of {self.name(view)}:"
        yield from (f"  {line}" for line in lines[:room])

    def _cell_end(self, name: str, event: CodeExecutionOutput) -> Lines:
        left = self._printed.pop((event.agent_id, event.tool_call_id), 0) - OUTPUT_LINES
        self._ends_output()
        if left > 0 and not self._everyone:
            yield f"{counted(left, 'more line')} of output are not printed here (/show {name} prints them)"
        yield from (f"{name}: {note}" for note in [*picture_notes(event), *cell_notes(event)])
        if event.status != "ok" or event.seconds >= SLOW_SECONDS:
            yield f"the code of {name} ended ({event.status.replace('_', ' ')}) after {event.seconds:.1f} s"

    # What is told of every agent

    def _beside(self, view: AgentStory, event: Event) -> Lines:
        name = self.name(view)
        match event:
            case AgentStarted():
                waits = ", and waits for a free place" if event.queued else ""
                yield from self._said(f"{name}, a child of {self._who(event.parent_id or '')}, starts{waits}", event.prompt)
            case AgentFinished(status="completed"):
                answer = "" if event.output == view.answer and view.parent_id is None else clean(event.output)
                yield from self._said(f"{name} is done, {_spent(event)}", answer)
                yield from (f"{name}: {clean(doubt)}" for doubt in event.doubts)
                yield from (f"{name}: warning: {clean(warning)}" for warning in event.warnings)
            case AgentFinished():
                how = event.status.replace("_", " ")
                yield from self._said(f"{name} ended ({how}), {_spent(event)}", clean(event.error or event.output))
            case ApprovalDecided(allowed=False) if request := view.asked(event.request_id):
                reason = f", because: {one_line(event.reason, 300)}" if event.reason else ""
                yield f"{name} may not {one_line(request.call.summary)}{reason}"
            case QuestionAnswered():
                yield f"{name} asked: {question_and_answer(event)}"
            case KernelLost():
                yield f"{name} has lost its kernel and all variables: {clean(event.reason)}"
            case Notice():
                yield f"{name}: {clean(event.content)}"
            case AgentMessage() if is_news(event):
                yield from self._said(f"{name} {MESSAGES[event.kind]} {self._who(event.recipient_id)}", clean(event.content))
            case _:
                return
        self._ends_output()

    def _who(self, agent_id: str) -> str:
        view = self._views.by_id.get(agent_id)
        return "an agent" if view is None else self.name(view)

    def _said(self, head: str, text: str) -> Lines:
        """A sentence, and the text that belongs to it: in the same line if it has one line, else below, indented."""
        self._ends_output()
        lines = clean(text).strip("\n").split("\n") if text.strip() else []
        if len(lines) < 2:
            yield f"{head}: {lines[0]}" if lines else head
            return
        yield f"{head}:"
        most = len(lines) if self._everyone else FOLD_LINES
        yield from (f"  {line}" for line in lines[:most])
        if len(lines) > most:
            yield f"  and {counted(len(lines) - most, 'more line')}"

    def _ends_output(self) -> None:
        self._outputs = ("", "")


def _spent(event: AgentFinished) -> str:
    return spent(event).replace(" · ", ", ")
