"""`StoryItems`: what an agent has done, as items in order, within self.limits."""

from collections import defaultdict
from collections.abc import Iterator, Mapping

from freeact_sub.cells import ClearOutput, DisplayData, ExecuteResult, StreamText
from freeact_sub.events import (
    AgentEvent,
    AgentFinished,
    AgentStarted,
    ApprovalDecided,
    ApprovalRequest,
    CodeExecutionOutput,
    CodeExecutionOutputChunk,
    PlanUpdated,
    QuestionAnswered,
    QuestionRequest,
    Response,
    StrategyProgress,
    Thoughts,
    ToolCallStarted,
    ToolOutput,
)
from freeact_sub.show.steps import (
    PLAN_TOOL,
    Approval,
    CallStep,
    GrowingText,
    PlanItem,
    StoryItem,
    StoryLimits,
    StrategySteps,
    drop_displays,
    shows,
)
from freeact_sub.show.wording import cell_notes


class StoryItems:
    """Handles the events of an agent; everything in it is bounded by its limits."""

    def __init__(self, limits: StoryLimits | None = None) -> None:
        """Args: limits: how much is kept. None: nothing."""
        self.items: list[StoryItem] = []
        self.left_out = 0
        """Number of items that were dropped; they stood after the first `limits.first`."""
        self.version = 0
        """Counts the changes of all that does not move: of the items without the texts that grow."""
        self.limits = limits or StoryLimits()
        self.keeps = limits is not None
        """Whether to hand it events."""
        self._calls: dict[str | None, list[CallStep]] = defaultdict(list)
        """The calls among the items, by `tool_call_id`: a cell, and the calls of its code."""
        self._strategies: dict[str, StrategySteps] = {}
        self._plans: dict[str, PlanItem] = {}
        """The plans of the present run, by `plan_id`."""

    @property
    def calls_made(self) -> Iterator[CallStep]:
        """The calls among the items."""
        return (item for item in self.items if isinstance(item, CallStep))

    def take(self, event: AgentEvent, approvals: Mapping[str, Approval], streaming: GrowingText | None) -> None:
        """Handles an event. Args: approvals: those of the run, by the request's id. streaming: the text that streams."""
        if isinstance(event, AgentFinished) and streaming is not None and str(streaming).strip():
            self.items.append((Response if streaming.kind == "answer" else Thoughts)(content=str(streaming)))
        if isinstance(event, AgentStarted):
            self._plans.clear()
        if isinstance(event, ApprovalRequest):
            self._ask(approvals[event.request_id])
        elif not self._tell(event):
            return
        self.version += 1
        self._drop()

    def remark(self, text: str) -> None:
        """Adds an item of the front end's own."""
        self.items.append(text)
        self.version += 1

    def end_calls(self) -> None:
        """Ends all calls."""
        for call in self.calls_made:
            call.end(self.limits)

    def _tell(self, event: AgentEvent) -> bool:
        """Handles an event. Returns whether what is settled changes."""
        match event:
            case ToolCallStarted():
                self._add_call(CallStep.of(event))
            case CodeExecutionOutputChunk():
                return self._add_output(event)
            case CodeExecutionOutput():
                self._end_cell(event)
            case ToolOutput():
                self._settle_call(event)
            case AgentFinished():
                self.end_calls()
                self.items.append(event)
            case _:
                return self._tell_more(event)
        return True

    def _tell_more(self, event: AgentEvent) -> bool:
        match event:
            case QuestionRequest() | QuestionAnswered():
                self._add_inside(event, event.tool_call_id)
            case StrategyProgress():
                self._add_strategy(event)
            case PlanUpdated():
                self._add_plan(event)
            case Thoughts() | Response() if not event.content.strip():
                return False
            case ApprovalDecided():
                pass  # its approval has it
            case _ if event.momentary:
                return False
            case _:
                self.items.append(event)
        return True

    def _add_call(self, call: CallStep) -> CallStep:
        cell = self._running_cell(call.tool_call_id)
        if cell is not None:
            cell.reaches_out = True
        self._calls[call.tool_call_id].append(call)
        self.items.append(call)
        return call

    def _running_cell(self, tool_call_id: str | None) -> CallStep | None:
        calls = () if tool_call_id is None else self._calls[tool_call_id]
        return next((call for call in calls if call.code is not None and call.running), None)

    def _cell(self, tool_call_id: str | None) -> CallStep:
        """The cell that an event is from."""
        calls = self._calls[tool_call_id]
        cells = [call for call in calls if call.code is not None] or calls[:1]
        running = self._running_cell(tool_call_id) or (cells[-1] if cells else None)
        return running or self._add_call(CallStep(tool_call_id=tool_call_id))

    def _add_output(self, event: CodeExecutionOutputChunk) -> bool:
        """Adds output of a running cell, or replaces what an earlier cell displayed."""
        output = event.output
        if isinstance(output, DisplayData) and output.update:
            changed = max([call.update(output) for call in self.calls_made], default=False)
        elif isinstance(output, ClearOutput):
            self._cell(event.tool_call_id).clear()
            changed = True
        else:
            changed = self._cell(event.tool_call_id).add(output, self.limits)
        if not isinstance(output, StreamText):
            self._drop_displays()
        return changed

    def _end_cell(self, event: CodeExecutionOutput) -> None:
        """Ends a cell; adds output that came without a chunk."""
        call = self._cell(event.tool_call_id)
        shown = [output.data for output in call.outputs if isinstance(output, DisplayData | ExecuteResult)]
        if not call.shown and not event.displays and event.text:
            call.add(StreamText(name="stdout", text=event.text), self.limits)
        for data in event.displays:
            if data not in shown:
                call.add(DisplayData(data=data), self.limits)
        call.status, call.seconds, call.notes = event.status, event.seconds, cell_notes(event)
        call.end(self.limits)
        self._drop_displays()

    def _settle_call(self, event: ToolOutput) -> None:
        if event.tool_name == PLAN_TOOL and event.outcome == "success":
            return  # its plan says it
        calls = [call for call in self._calls[event.tool_call_id] if call.call_id == event.call_id and not call.outcome]
        found = next((call for call in calls if call.name == event.tool_name), None) or next(iter(calls), None)
        call = found or self._add_call(CallStep(tool_call_id=event.tool_call_id, call_id=event.call_id))
        call.name = call.name or event.tool_name
        call.result, call.outcome = event.content, event.outcome
        call.end(self.limits)

    def _ask(self, approval: Approval) -> None:
        """Puts an approval beside the call that it is about, else where it was asked."""
        event = approval.request
        calls = self._calls[event.tool_call_id] if event.tool_call_id is not None else []
        about = [call for call in calls if shows(call.name, call.args, event.call)]
        cell = self._running_cell(event.tool_call_id)
        if about and (cell is None or cell in about):
            (cell or about[-1]).approvals.append(approval)
        else:
            self._add_inside(approval, event.tool_call_id)

    def _add_inside(self, item: Approval | QuestionRequest | QuestionAnswered, tool_call_id: str | None) -> None:
        """Adds a question between the outputs of the cell that is running, else as an item."""
        cell = self._running_cell(tool_call_id)
        if cell is not None:
            cell.reaches_out = cell.reaches_out or isinstance(item, Approval)
            cell.add(item, self.limits)
        else:
            self.items.append(item)

    def _add_strategy(self, event: StrategyProgress) -> None:
        if event.strategy_id not in self._strategies:
            found = self._strategies[event.strategy_id] = StrategySteps(name=event.strategy)
            self.items.append(found)
        self._strategies[event.strategy_id].add(event)

    def _add_plan(self, event: PlanUpdated) -> None:
        """Puts a plan where it was first made; the call that tells it is not told besides."""
        told = [call for call in self._calls[event.tool_call_id] if call.name == PLAN_TOOL]
        for call in told:
            self._calls[event.tool_call_id].remove(call)
            self.items.remove(call)
        if event.plan_id not in self._plans:
            found = self._plans[event.plan_id] = PlanItem(plan=event)
            self.items.append(found)
        self._plans[event.plan_id].plan = event

    def _drop(self) -> None:
        surplus = len(self.items) - self.limits.first - self.limits.last
        if surplus <= 0:
            return
        for item in self.items[self.limits.first : self.limits.first + surplus]:
            if isinstance(item, CallStep):
                self._calls[item.tool_call_id].remove(item)
            elif isinstance(item, PlanItem):
                self._plans = {name: known for name, known in self._plans.items() if known is not item}
            elif isinstance(item, StrategySteps):
                self._strategies = {name: known for name, known in self._strategies.items() if known is not item}
        del self.items[self.limits.first : self.limits.first + surplus]
        self.left_out += surplus

    def _drop_displays(self) -> None:
        if self.limits.display_chars < StoryLimits().display_chars:
            drop_displays(reversed([*self.calls_made]), self.limits.display_chars)
