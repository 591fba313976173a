"""When each agent was at work, and the critical path: on whom the end waited at each moment."""

from dataclasses import dataclass

from freeact_sub.export.report import AgentReport, Report, Work


@dataclass(frozen=True, kw_only=True)
class Span:
    """A time in which an agent was at work."""

    agent: AgentReport
    began: float
    """Seconds since the session's first event."""
    ended: float


@dataclass(frozen=True, kw_only=True)
class Timeline:
    """All of them."""

    seconds: float
    """From the first event to the last."""
    spans: list[Span]
    critical: list[Span]
    """From begin to end; only what an agent did while no child of it was waited for."""


def timeline_of(report: Report) -> Timeline:
    """The time line."""
    begin = report.began
    every = [(agent, work) for agent in report.agents for work in agent.work]
    spans = [Span(agent=agent, began=work.began - begin, ended=work.ended - begin) for agent, work in every]
    critical = [span for agent, work in every if agent.parent_id is None for span in _path(report, agent, work)]
    return Timeline(
        seconds=max((span.ended for span in spans), default=0.0),
        spans=spans,
        critical=[Span(agent=span.agent, began=span.began - begin, ended=span.ended - begin) for span in critical],
    )


def _path(report: Report, agent: AgentReport, work: Work) -> list[Span]:
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
