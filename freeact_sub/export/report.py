"""`Report`: the stories of a session's agents; when each was at work, and the critical path.

The critical path is the agent that the end waited for at each moment.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from freeact_sub.config.budget import Usage
from freeact_sub.events import AgentFinished, AgentStarted, Event
from freeact_sub.show.agent_story import AgentStory, Stories, WorkSpan
from freeact_sub.show.steps import CallStep, StoryItem, StoryLimits
from freeact_sub.text import one_line


@dataclass(kw_only=True)
class Report:
    """A session."""

    title: str
    agents: list[AgentStory]
    """The agents, root first, each child after its parent and older siblings."""
    files_written: list[str]
    files_removed: list[str]

    @property
    def began(self) -> float:
        """Seconds since the epoch; 0 if there are no events."""
        return min((run.began for agent in self.agents for run in agent.runs), default=0.0)

    @property
    def usage(self) -> Usage:
        """The spending of all agents."""
        return sum((usage_of(agent) for agent in self.agents), Usage())

    def started_by(self, parent: AgentStory, tool_call_id: str | None) -> list[AgentStory]:
        """The children that a call of an agent has started."""
        children = (agent for agent in self.agents if agent.parent_id == parent.agent_id)
        return [child for child in children if tool_call_id is not None and child.tool_call_id == tool_call_id]


def report_of(events: Iterable[Event], *, title: str = "") -> Report:
    """The report. Args: events: of one session, in order. title: default: the first prompt."""
    stories = Stories(StoryLimits())
    for event in events:
        stories.observe(event)
    agents = [*stories.in_order()]
    for agent in agents:
        agent.cut_off()
    ends = [item for agent in agents for item in agent.items if isinstance(item, AgentFinished)]
    prompts = [item.prompt for agent in agents for item in agent.items if isinstance(item, AgentStarted)]
    return Report(
        title=title or one_line(prompts[0] if prompts else "An empty session", 120),
        agents=agents,
        files_written=sorted({file for end in ends for file in end.files_written}),
        files_removed=sorted({file for end in ends for file in end.files_removed}),
    )


def told_of(agent: AgentStory) -> Iterator[StoryItem]:
    """What an agent did, with the approvals of a call before it."""
    for item in agent.items:
        yield from item.approvals if isinstance(item, CallStep) else ()
        yield item


def usage_of(agent: AgentStory) -> Usage:
    """An agent's own spending, over all its runs."""
    return sum((item.usage for item in agent.items if isinstance(item, AgentFinished)), Usage())


def seconds_of(agent: AgentStory) -> float:
    """Seconds of work, over all its runs."""
    return sum(run.ended - run.began for run in agent.runs)


def status_of(agent: AgentStory) -> str:
    """How the agent's last run ended, for people."""
    return agent.status.replace("_", " ")


@dataclass(frozen=True, kw_only=True)
class Span:
    """A time in which an agent was working."""

    agent: AgentStory
    began: float
    """Seconds of work since the session's first event."""
    ended: float


@dataclass(frozen=True, kw_only=True)
class Timeline:
    """Seconds in which any agent was working; the night between two prompts is left out."""

    seconds: float
    """The spans in which each agent was working."""
    spans: list[Span]
    critical: list[Span]
    """From begin to end; only what an agent did while no child of it was waited for."""


def timeline_of(report: Report) -> Timeline:
    """The time line."""
    every = [(agent, work) for agent in report.agents for work in agent.runs]
    busy = _union((work.began, work.ended) for _, work in every)

    def seconds_until(time: float) -> float:
        return sum(max(0.0, min(time, ended) - began) for began, ended in busy)

    def placed(span: Span) -> Span:
        return Span(agent=span.agent, began=seconds_until(span.began), ended=seconds_until(span.ended))

    spans = [Span(agent=agent, began=work.began, ended=work.ended) for agent, work in every]
    critical = [span for agent, work in every if agent.parent_id is None for span in _path(report, agent, work)]
    return Timeline(
        seconds=sum(ended - began for began, ended in busy),
        spans=[*map(placed, spans)],
        critical=[*map(placed, critical)],
    )


def _union(times: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """The spans in order, overlapping ones merged."""
    union: list[tuple[float, float]] = []
    for began, ended in sorted(times):
        if union and began <= union[-1][1]:
            union[-1] = (union[-1][0], max(union[-1][1], ended))
        else:
            union.append((began, ended))
    return union


def _path(report: Report, agent: AgentStory, work: WorkSpan) -> list[Span]:
    """Backwards from its end: the child that ended last was waited for, as far as anybody can tell, then the one before."""
    path: list[Span] = []
    children = [
        (child, run)
        for child in report.agents
        if child.parent_id == agent.agent_id
        for run in child.runs
        if work.began <= run.began and run.ended <= work.ended
    ]
    at = work.ended
    for child, run in sorted(children, key=lambda pair: pair[1].ended, reverse=True):
        if run.ended <= at:
            path.append(Span(agent=agent, began=run.ended, ended=at))
            path += reversed(_path(report, child, run))
            at = run.began
    path.append(Span(agent=agent, began=work.began, ended=at))
    return path[::-1]
