"""Activities of agents, derived from their events, for everything that shows working agents.

An `Activity` holds only open things (calls, questions, the model request), so it stays small however long a run takes.
"""

from dataclasses import dataclass, field
from typing import Literal, Self

from freeact_sub import events as ev
from freeact_sub.calls import CodeAction, ToolCall
from freeact_sub.config.budget import Usage
from freeact_sub.text import label_of, one_line, prompt_title

LABEL_CHARS = 40
MAX_STRATEGIES = 20
"""Running strategies of an agent whose latest step is kept, at most."""


MAX_PLANS = 5
"""Plans of an agent that are kept, at most."""


@dataclass(kw_only=True)
class Activity:
    """The activity of one agent in its present run, or after its last."""

    agent_id: str
    parent_id: str | None = None
    depth: int = 0
    label: str = ""
    """The parent's label, or the first line of the prompt."""
    status: str = "running"
    """The status `queued` or `running`, then the outcome."""
    started: float = 0.0
    """The start of the run, in seconds since the epoch."""
    asking: set[str] = field(default_factory=set)
    """Open questions of the agent and of its descendants."""
    asking_since: float = 0.0
    """The time of the first of them."""
    asked_seconds: float = 0.0
    """Seconds of the run in which a question was open, without the questions that are open now."""
    usage: Usage = field(default_factory=Usage)
    tree_usage: Usage = field(default_factory=Usage)
    calls: list[ev.ToolCallStarted] = field(default_factory=list)
    """Open calls, oldest first: a cell, and the calls of its code."""
    reached: dict[str | None, ev.ToolProgress] = field(default_factory=dict)
    """Progress of open calls of MCP servers, by `call_id`, or `tool_call_id` for the model's."""
    questions: dict[str, ev.ApprovalRequest | ev.QuestionRequest] = field(default_factory=dict)
    """Questions that wait for a person, by id, oldest first."""
    progress: ev.ModelProgress | None = None
    """The progress of the model request. None: the request is quick or was answered."""
    strategies: dict[str, ev.StrategyProgress] = field(default_factory=dict)
    """The latest step of each strategy at work, by `strategy_id`."""
    plans: dict[str, ev.PlanUpdated] = field(default_factory=dict)
    """The plans of the present or last run, by `plan_id`: the agent's own, and those of `delegate`."""
    writes: Literal["", "writing", "thinking"] = ""
    """The kind of text that the model is writing."""

    @classmethod
    def of(cls, event: ev.AgentEvent) -> Self:
        """Create the agent from its first event; `observe` must be called with that event too."""
        return cls(agent_id=one_line(event.agent_id), parent_id=event.parent_id, depth=event.depth, started=event.time)

    @property
    def is_running(self) -> bool:
        """Whether the run has not ended."""
        return self.status in ("queued", "running")

    @property
    def pause(self) -> str:
        """The note on the wait of the model request. Empty: it does not wait."""
        return "" if self.progress is None else self.progress.pause

    def seconds(self, now: float) -> float:
        """Return the seconds of the run so far, without the time in which a question was open."""
        until = self.asking_since if self.asking else now
        return max(0.0, until - self.started - self.asked_seconds)

    def asks(self, request_id: str, at: float) -> None:
        """Note a new question of the agent or a descendant: from now on a person is awaited."""
        if not self.asking:
            self.asking_since = at
        self.asking.add(request_id)

    def is_answered(self, request_id: str, at: float) -> None:
        """Note the end of a question."""
        if request_id in self.asking:
            self.asking.remove(request_id)
            self.asked_seconds += 0 if self.asking else max(0.0, at - self.asking_since)

    @property
    def how_far(self) -> str:
        """The progress of the newest open call, in words that follow it; empty where its server does not tell."""
        reached = self.reached.get(_id_of(self.calls[-1])) if self.calls else None
        return "" if reached is None else f": {one_line(reached.words)}"

    @property
    def text(self) -> str:
        """The activity in one line; empty once the agent has ended."""
        return one_line(self._text()) if self.is_running else ""

    def observe(self, event: ev.AgentEvent) -> None:
        """Update the agent with one of its events."""
        if self.status == "queued":
            self.status, self.started = "running", event.time or self.started
        match event:
            case ev.CodeExecutionOutputChunk():
                pass  # of all events the one that comes most often
            case ev.ResponseChunk() | ev.ThoughtsChunk():
                self.writes = "writing" if isinstance(event, ev.ResponseChunk) else "thinking"
                self.reached.clear()
                self.calls.clear()  # a model writes again when all its calls have ended, also those without an event
            case ev.Response() | ev.Thoughts():
                self.writes = ""
            case ev.ToolCallStarted():
                self.calls.append(event)
            case ev.ToolProgress() if any(_id_of(call) == _id_of(event) for call in self.calls):
                self.reached[_id_of(event)] = event
            case ev.ToolOutput():
                self.reached.pop(_id_of(event), None)
                self._end_call(event)
            case ev.ApprovalRequest() | ev.QuestionRequest() if not event.headless:
                self.questions[event.request_id] = event
            case ev.ApprovalDecided() | ev.QuestionAnswered():
                self.questions.pop(event.request_id, None)
            case _:
                self._observe_run(event)

    def _observe_run(self, event: ev.AgentEvent) -> None:
        match event:
            case ev.ModelProgress():
                self.progress = event
            case ev.StrategyProgress():
                self.strategies[event.strategy_id] = event  # in its place among the others
                surplus = [*self.strategies][:-MAX_STRATEGIES]  # code in a cell names them
                for name in [event.strategy_id] if event.done else surplus:
                    del self.strategies[name]
            case ev.PlanUpdated():
                self.plans[event.plan_id] = event
                for name in [*self.plans][:-MAX_PLANS]:
                    del self.plans[name]
            case ev.UsageUpdated():
                self.progress, self.usage, self.tree_usage = None, event.usage, event.tree_usage
            case ev.AgentStarted():
                told = event.description or (prompt_title(event.prompt) if event.parent_id else "")
                self.label = label_of(told, LABEL_CHARS)
                self.status, self.started = "queued" if event.queued else "running", event.time
                self.usage = self.tree_usage = Usage()
                self.plans.clear()
                self.asking.clear()
                self.asked_seconds = 0.0
            case ev.AgentFinished():
                self.status, self.usage, self.tree_usage = event.status, event.usage, event.tree_usage
                self.progress, self.writes = None, ""
                self.reached.clear()
                self.calls.clear()
                self.questions.clear()
                self.strategies.clear()

    def _text(self) -> str:
        if self.questions:
            asked = next(iter(self.questions.values()))
            if isinstance(asked, ev.QuestionRequest):
                return f"waiting for an answer: {asked.prompt}"
            return f"waiting for approval: {asked.call.summary}"
        if self.calls:
            others = len(self.calls) - 1
            return _words(self.calls[-1]) + self.how_far + (f" (and {others} more)" if others else "")
        if self.pause:
            return self.pause
        return self.writes or "waiting for the model"

    def _end_call(self, output: ev.ToolOutput) -> None:
        ended = output.tool_call_id, output.call_id, output.tool_name
        for call in self.calls:
            if (call.tool_call_id, call.call_id, call.tool_name) == ended:
                self.calls.remove(call)
                break
        if all(call.tool_call_id != output.tool_call_id for call in self.calls):  # a cell that was cut short tells no end
            over = [name for name, step in self.strategies.items() if step.tool_call_id == output.tool_call_id is not None]
            for name in over:
                del self.strategies[name]


class Activities:
    """The activities of the agents of a tree. `observe` is a tap of the channel; agents that have ended are dropped."""

    def __init__(self) -> None:
        self._by_id: dict[str, Activity] = {}

    def observe(self, event: ev.AgentEvent) -> None:
        """Update the event's agent."""
        if isinstance(event, ev.AgentStarted):
            self._by_id[event.agent_id] = Activity.of(event)
        if isinstance(event, ev.AgentFinished):
            self._by_id.pop(event.agent_id, None)
        elif event.agent_id in self._by_id:
            self._by_id[event.agent_id].observe(event)

    def of(self, agent_id: str) -> str:
        """Return an agent's activity in one line; empty if it is not known to be working."""
        activity = self._by_id.get(agent_id)
        return "" if activity is None else activity.text


def _id_of(event: ev.ToolCallStarted | ev.ToolProgress | ev.ToolOutput) -> str | None:
    """Return the id that distinguishes the call from other open calls."""
    return event.call_id or event.tool_call_id


def _words(call: ev.ToolCallStarted) -> str:
    code = call.args.get("code")
    if isinstance(code, str):
        return f"run code: {CodeAction(code=code, description=call.label).title}"
    if call.label:
        return f"{call.tool_name}: {call.label}"
    return ToolCall(tool_name=call.tool_name, args=call.args).summary
