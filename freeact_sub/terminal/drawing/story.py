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

from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.text import Text

from freeact_sub import events as ev
from freeact_sub.calls import CodeAction
from freeact_sub.show import blocks as bl
from freeact_sub.show.agent_story import AgentStory, Stories
from freeact_sub.show.heads import Head, head_of_call, head_of_tool
from freeact_sub.show.teller import blocks
from freeact_sub.show.wording import receipt_lines, spent
from freeact_sub.terminal.drawing.parts import (
    INDENT,
    LAST_ROWS,
    MIN_WIDTH,
    STYLES,
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
    styled,
)
from freeact_sub.text import clean, files_text, one_line

Drawn = Iterator[RenderableType]
SLOW_SECONDS: Final = 2.0
"""Seconds of a cell beyond which its end shows them."""


class Story:
    """The drawn events of a run, one after the other."""

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
        """Make a story without events.

        Args:
            views: Observes each event before it is drawn here.
            verbose: Tell all agents, unfolded.
            of: The id of the only told agent. None: the root, or all.
            folds: Fold also what the only agent does.
            whole: The key or option that shows folded lines.
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
        self._held: dict[tuple[str | None, ...], bl.CallStep] = {}
        """The heads of calls without output yet, by agent, `tool_call_id`, tool and `call_id`."""
        self._outputs: dict[tuple[str, str | None], CellOutput] = {}
        """The folded output of each cell at work, by agent and `tool_call_id`."""
        self.has_folded = False
        """Whether any drawing was folded."""
        self._parents: set[str] = set()
        """The calls that have started children."""
        self._answered: set[tuple[str | None, ...]] = set()
        """Calls of `ask_user` that one line has told, with their answer: they have no head, and no result."""
        self._changed: dict[str, str] = {}
        """The code to run instead, by question, where it was drawn before the decision."""

    def draw(self, event: ev.AgentEvent, found: Sequence[bl.StoryBlock] | None = None) -> RenderableType | None:
        """Return the drawing that the event adds; None if it adds nothing.

        Args:
            event: The event.
            found: Its blocks; None: they are made here.
        """
        view = self._views.of(event)
        found = blocks(view, event) if found is None else found
        drawn: list[RenderableType] = []
        for prompt in [block for block in found if isinstance(block, bl.Prompt)]:
            drawn += self._child_starts(prompt) if view.parent_id else ()
            if self._is_main(view):
                self._speaker = view.agent_id  # the prompt is a person's, or a parent's
        if self._is_told(view):
            drawn += self._placed(view, self._told(view, event.tool_call_id, found))
        if not self._is_main(view):
            drawn += [line for block in found for line in self._beside(view, block)]
        return Group(*drawn) if drawn else None

    @property
    def output(self) -> list[Text]:
        """The present last lines of running cells' output that are not drawn yet."""
        mine = [output for (agent_id, _), output in self._outputs.items() if self._is_main(self._views.by_id[agent_id])]
        return [line for output in mine for line in output.shown(self._whole)]

    @property
    def pending(self) -> Sequence[bl.CallStep]:
        """The actions without output yet of the root, or of the only agent that is told."""
        return tuple(call for key, call in self._held.items() if self._is_main(self._views.by_id[str(key[0])]))

    def whole_cell(self, request: ev.ApprovalRequest, code: str | None) -> RenderableType | None:
        """Draw the cell that a told agent asks about, unfolded; it is not drawn again.

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
        """Note that something other than an event was drawn."""
        self._stands, self._after_head, self._after_code = True, False, False

    # Which agent

    def _is_main(self, whose: AgentStory) -> bool:
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

    def _told(self, view: AgentStory, call_id: str | None, found: Sequence[bl.StoryBlock]) -> Drawn:
        drawn = [
            *self._plans(view, call_id, found),
            *(line for block in found for line in self._told_of(view, call_id, block)),
        ]
        if drawn and self._main is None and not all(isinstance(block, bl.Output) for block in found):
            for output in self._outputs.values():
                yield from self._lines(output.settled())
        yield from drawn

    def _told_of(self, view: AgentStory, call_id: str | None, block: bl.StoryBlock) -> Drawn:
        match block:
            case bl.CallStep():
                if not self._is_main(view):  # nothing else shows its code while it runs
                    yield from self._head(head_of_tool(block))
                elif block.args.get("code") != self._prompts.get(view.agent_id):  # else a person has typed it
                    self._held[view.agent_id, call_id, block.tool_name, block.call_id] = block
            case bl.Output():
                yield from self._output(view, block)
            case bl.CellEnd():
                yield from self._cell_end(view, block)
            case bl.CallEnd():
                yield from self._result(view, block)
            case bl.Decided():
                yield from self._decided(view, block)
            case bl.End():
                yield from self._ended(view, block)
            case _ if block.title and not (block.passing or isinstance(block, bl.Approval | bl.QuestionAsked | bl.Plan)):
                yield from self._said(view, call_id, block)

    def _said(self, view: AgentStory, call_id: str | None, block: bl.StoryBlock) -> Drawn:
        match block:
            case bl.Prompt():
                if view.parent_id is None:
                    self._outputs.clear()
                    self._parents.clear()
                    self._answered.clear()
                self._prompts[view.agent_id] = block.of.prompt
                lines = clean(block.of.prompt).strip("\n").split("\n")
                first, *others = self._folded(Text(line, "bold", overflow="fold") for line in lines)
                mark = Indented(body=first, columns=INDENT, mark=("> ", "bold"))
                yield from self._block(mark, *(Indented(body=line, columns=INDENT) for line in others))
            case bl.Said(is_thought=True):
                yield from self._block(*(styled(line, "dim italic") for line in self._folded(coloured(block.parts[0].text))))
            case bl.Said():
                yield from self._block(draw_part(block.parts[0]))
            case _ if block.line:
                if isinstance(block, bl.Answered):
                    asks = (view.agent_id, call_id, "ask_user", "")
                    if block.of.answered and self._held.pop(asks, None) is not None:
                        self._answered.add(asks)
                    yield from self._release(view, call_id)
                yield from self._note(block.line, STYLES[block.tone])
            case _ if not (block.is_repeated or (self._folds and block.is_detail)):
                yield from self._note(block.head, "dim")
                for part in block.parts:
                    is_named = self._folds and part.folds
                    self.has_folded |= is_named
                    named = Text.assemble((f"the {part.name} (", "dim"), self._whole, (")", "dim"))
                    yield from self._below(named if is_named else draw_part(part))

    def _plans(self, view: AgentStory, call_id: str | None, found: Sequence[bl.StoryBlock]) -> Drawn:
        """Draw plans, each once: when it is over, or else its run. Until then it stands among the changing rows."""
        for block in found:
            if isinstance(block, bl.Plan):
                self._held.pop((view.agent_id, call_id, bl.PLAN_TOOL, ""), None)
            plans = [block.plan] if isinstance(block, bl.Plan) else view.plans.values() if isinstance(block, bl.End) else ()
            for plan in plans:
                yield from self._block(*plan_text(plan)) if plan.is_over == isinstance(block, bl.Plan) else ()

    def _decided(self, view: AgentStory, block: bl.Decided) -> Drawn:
        event = block.of
        if event.code is not None:
            for key in [key for key in self._held if key[:2] == (view.agent_id, event.tool_call_id)]:
                del self._held[key]
            if self._changed.pop(event.request_id, None) != event.code:
                yield from self._head(head_of_call(CodeAction(code=event.code)))
            yield from self._note("you changed the code; the agent is told", "dim")
            return
        is_cell = block.request is not None and isinstance(block.request.call, CodeAction)
        if not (is_cell and event.allowed and block.is_shown):  # else it is drawn with its output, when it may have failed
            yield from self._release(view, event.tool_call_id)
        if block.request is not None and not block.is_shown:
            yield from self._head(head_of_call(block.request.call))
        if not event.allowed:
            reason = f": {one_line(event.reason, 300)}" if event.reason else ""
            yield from self._note(f"denied{reason}", "red")

    def _result(self, view: AgentStory, block: bl.CallEnd) -> Drawn:
        """Draw the return of a tool; a child's answer stands where it ended."""
        event, failed = block.of, block.tone == "bad"
        yield from self._release(view, event.tool_call_id, event.tool_name, event.call_id, failed=failed)
        if (view.agent_id, event.tool_call_id, event.tool_name, event.call_id) in self._answered:
            return
        if block.title and not (block.of.tool_name == "task" and block.of.tool_call_id in self._parents):
            tone = STYLES[block.tone or "quiet"]
            lines = self._folded(coloured(clean(block.content).rstrip()), LAST_ROWS)
            yield from self._below(*(styled(line, tone) for line in lines))

    def _cell_end(self, view: AgentStory, block: bl.CellEnd) -> Drawn:
        """Draw the end of a cell's output, and the facts about the cell."""
        event = block.of
        yield from self._release(view, event.tool_call_id, failed=event.status != "ok")
        output = self._outputs.get((view.agent_id, event.tool_call_id))
        is_folded = output is not None and output.left_out > 0
        yield from self._output_end(view, event.tool_call_id, event.output_file)
        if event.left_out_chars:
            yield from self._note(f"{event.left_out_chars:,} characters of output are not shown here", "yellow")
        if event.output_file and not is_folded:
            yield from self._below(Text("full output: ", "dim") + link(event.output_file))
        yield from self._below(*(Text("picture: ", "dim") + link(picture) for picture in event.picture_files))
        if event.status != "ok":
            words = f"{event.status.replace('_', ' ')} after {event.seconds:.1f} s"
            yield from self._below(Indented(body=Text(words, "red", overflow="fold"), columns=INDENT, mark=("✗ ", "red")))
        elif event.seconds >= SLOW_SECONDS:
            yield from self._note(f"{event.seconds:.1f} s", "dim")

    def _output(self, view: AgentStory, block: bl.Output) -> Drawn:
        """Draw the first lines of a cell's output; for an error the last ones, which name it."""
        yield from self._release(view, block.tool_call_id, failed=block.tone == "bad")
        for part in block.parts:
            lines = coloured(part.text)
            if block.tone == "bad":
                yield from self._output_end(view, block.tool_call_id)
                lines = self._folded(lines, LAST_ROWS)
            elif self._folds:
                output = self._outputs.setdefault((view.agent_id, block.tool_call_id), CellOutput())
                lines = output.add(lines, self._room(view))
                self.has_folded |= output.left_out > 0
            yield from self._lines(lines)

    def _output_end(self, view: AgentStory, call_id: str | None, file: str | None = None) -> Drawn:
        """Draw the last lines of a cell's output. Args: file: holds all of it."""
        output = self._outputs.pop((view.agent_id, call_id), CellOutput())
        if output.left_out:
            self.has_folded = True
            where = Text.assemble((f"{self._whole}, or ", "dim"), link(file)) if file else self._whole
            yield from self._below(left_out(output.left_out, where, of_rows=output.of_rows))
        yield from self._lines([*output.held])

    def _lines(self, lines: Sequence[Text]) -> Drawn:
        if lines:
            if self._after_code:
                yield Text()
            yield from self._below(Folded(lines=lines))

    def _ended(self, view: AgentStory, block: bl.End) -> Drawn:
        event = block.of
        yield from self._release(view)
        for agent_id, call_id in [*self._outputs]:  # of a cell that was cut off
            yield from self._output_end(view, call_id) if agent_id == view.agent_id else ()
        for part in [part for part in block.parts if part.name == "answer"]:
            yield from self._block(draw_part(part))
        error = f": {clean(event.error)}" if event.error else ""
        if event.status != "completed":
            self.forget_last()
            words = Text(f"{event.status.replace('_', ' ')}{error}", "bold red", overflow="fold")
            yield Indented(body=words, columns=INDENT, mark=("✗ ", "bold red"))
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

    def _child_starts(self, prompt: bl.Prompt) -> Drawn:
        """Draw the head of the call that starts a child, where its parent is told."""
        event = prompt.of
        if event.tool_call_id:
            self._parents.add(event.tool_call_id)
        parent = self._views.by_id.get(event.parent_id or "")
        if parent is not None and self._is_told(parent):
            yield from self._placed(parent, self._release(parent, event.tool_call_id))

    def _beside(self, view: AgentStory, block: bl.StoryBlock) -> Drawn:
        """Draw a line about an agent that is not told, or about its end."""
        if isinstance(block, bl.End):
            event, done = block.of, block.of.status == "completed"
            first = next((line for line in clean(event.output).split("\n") if line.strip()), "")
            words = one_line(first, 120) if done else f"{event.status.replace('_', ' ')}: {one_line(event.error, 200)}"
            mark = ("✓ ", "green") if done else ("✗ ", "bold red")
            yield from self._line(view, words.removesuffix(": "), (f"  ({spent(event)})", "dim"), mark=mark)
            for doubt in event.doubts:
                yield from self._line(view, (clean(doubt), "yellow"))
        elif block.line and not self._is_told(view):
            yield from self._line(view, (block.short or block.line, STYLES[block.tone]))

    def _line(self, view: AgentStory, *words: str | tuple[str, str], mark: tuple[str, str] = ("", "")) -> Drawn:
        self._speaker = ""
        self.forget_last()
        said = Text.assemble((self._views.name(view), f"bold {colour(view)}"), "  ", *words, overflow="fold")
        yield Indented(body=said, columns=indent_of(view) + cell_len(mark[0]), mark=mark)

    # The parts of all this

    def _release(self, view: AgentStory, *call: str | None, failed: bool = False) -> Drawn:
        """Draw held heads. Args: call: the beginning of the rest of their keys. failed: they failed without output."""
        beginning = (view.agent_id, *call)
        for key in [key for key in self._held if key[: len(beginning)] == beginning]:
            yield from self._head(head_of_tool(self._held.pop(key)), failed=failed)

    def _head(self, head: Head, *, is_whole: bool = False, failed: bool = False) -> Drawn:
        alone = self._after_head and not head.code
        fold = None if is_whole else self._folded
        yield from self._block(*head_lines(head, fold, failed=failed), apart=not alone)
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
        """Return the columns below a head; 0: lines are not cut into rows."""
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
