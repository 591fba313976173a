"""What tests of agents share: short scripts, and readers that check what must hold of every stream."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from pydantic_ai.messages import ModelMessage, ToolCallPart, UserPromptPart

from freeact_sub.agents import Run, RunResult
from freeact_sub.events import (
    AgentFinished,
    AgentStarted,
    ApprovalRequest,
    CodeExecutionOutput,
    Decision,
    Event,
    ToolCallStarted,
    ToolOutput,
)
from freeact_sub.testing import CHILD_NOTE


def cell(code: str) -> ToolCallPart:
    """The model runs a cell."""
    return ToolCallPart("execute_ipython_cell", {"code": code})


def task(prompt: str, **arguments: Any) -> ToolCallPart:
    """The model starts a child."""
    return ToolCallPart("task", {"prompt": prompt, **arguments})


def hand_over(value: Any, *, wrapped: bool = True) -> ToolCallPart:
    """A child ends with a value; one that is no object comes wrapped in one."""
    return ToolCallPart("hand_over", {"value": value} if wrapped else value)


def allow(_: ApprovalRequest) -> Decision:
    """The rule that lets everything through."""
    return Decision(allowed=True)


async def read(
    run: Run, rule: Callable[[ApprovalRequest], Decision | None] = allow, on_event: Callable[[Event], Any] = lambda _: None
) -> tuple[list[Event], RunResult]:
    """Read a run to its end and hold the stream against what must be true of every stream."""
    events: list[Event] = []
    async for event in run:
        events.append(event)
        if isinstance(event, ApprovalRequest) and not event.headless and (decision := rule(event)) is not None:
            event.decide(decision)
        on_event(event)
    check_stream(events)
    return events, await run.result()


def check_stream(events: Sequence[Event]) -> None:
    """No gap in `seq`; each run of an agent starts once, ends once, by itself and last, and its descendants end before it.

    A resumed agent has several runs, one after the other. Of a run that has completed, each call that has started
    is reported.
    """
    assert [event.seq for event in events] == list(range(len(events)))
    agents = {event.agent_id for event in events}
    for agent_id in agents:
        own = [event for event in events if event.agent_id == agent_id]
        limits = [type(event) for event in own if isinstance(event, AgentStarted | AgentFinished)]
        assert limits == [AgentStarted, AgentFinished] * (len(limits) // 2)
        assert isinstance(own[0], AgentStarted)
        assert isinstance(own[-1], AgentFinished)
        below = [event.seq for event in events if event.parent_id == agent_id]
        assert not below or max(below) < own[-1].seq
        assert "did not end in time" not in own[-1].error  # it was cancelled, and not only told of so
        if own[-1].status == "completed":
            calls = [event for event in own if isinstance(event, ToolCallStarted | ToolOutput)]
            started, ended = (
                Counter((call.tool_call_id, call.tool_name) for call in calls if isinstance(call, kind))
                for kind in (ToolCallStarted, ToolOutput)
            )
            assert started <= ended


def finished(events: Sequence[Event]) -> dict[str, AgentFinished]:
    """The endings of the children, by their descriptions."""
    names = {event.agent_id: event.description for event in events if isinstance(event, AgentStarted)}
    return {names[event.agent_id]: event for event in events if isinstance(event, AgentFinished)}


def of_kind(events: Sequence[Event], kind: type) -> list[Any]:
    """The events of one kind."""
    return [event for event in events if isinstance(event, kind)]


def root_text(events: Sequence[Event]) -> str:
    """What the root's cells have put out."""
    return "\n".join(event.text for event in of_kind(events, CodeExecutionOutput) if event.depth == 0)


def as_read(messages: Sequence[ModelMessage]) -> list[str]:
    """The prompts of a conversation as its model reads them, with what the host tells it in front of them."""
    return [
        CHILD_NOTE.sub("", part.content)
        for message in messages
        for part in message.parts
        if isinstance(part, UserPromptPart) and isinstance(part.content, str)
    ]
