"""When each agent was working, and the critical path: the agent that the end waited for at each moment."""

from collections.abc import Iterable
from dataclasses import dataclass

from freeact_sub.export.report import AgentReport, Report, ReportedRun


@dataclass(frozen=True, kw_only=True)
class Span:
    """A time in which an agent was working."""

    agent: AgentReport
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
    every = [(agent, work) for agent in report.agents for work in agent.work]
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


def _path(report: Report, agent: AgentReport, work: ReportedRun) -> list[Span]:
    """Backwards from its end: the child that ended last was waited for, as far as anybody can tell, then the one before."""
    path: list[Span] = []
    children = [
        (child, run)
        for child in report.agents
        if child.parent_id == agent.agent_id
        for run in child.work
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
