"""A session as a Markdown document, and the `Report` of which all formats are made.

A `Report` has the stories of a session's agents, their times of work, and the critical path: the agent that the end waited
for at each moment.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from freeact_sub import events as ev
from freeact_sub.cells import CellError
from freeact_sub.config.budget import Usage
from freeact_sub.show import blocks as bl
from freeact_sub.show.agent_story import AgentStory, Stories, WorkSpan
from freeact_sub.show.wording import display_text, error_text, plan_title, receipt_lines
from freeact_sub.text import arguments_text, clean, fenced, one_line, visible


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
        """Return the children that a call of an agent has started."""
        children = (agent for agent in self.agents if agent.parent_id == parent.agent_id)
        return [child for child in children if tool_call_id is not None and child.tool_call_id == tool_call_id]


def report_of(events: Iterable[ev.AgentEvent], *, title: str = "") -> Report:
    """Return the report. Args: events: of one session. title: default: the first prompt."""
    stories = Stories(bl.StoryLimits())
    for event in events:
        stories.observe(event)
    agents = [*stories.in_order()]
    for agent in agents:
        agent.cut_off()
    ends = [item.of for agent in agents for item in agent.items if isinstance(item, bl.End)]
    prompts = [item.of.prompt for agent in agents for item in agent.items if isinstance(item, bl.Prompt)]
    return Report(
        title=title or one_line(prompts[0] if prompts else "An empty session", 120),
        agents=agents,
        files_written=sorted({file for end in ends for file in end.files_written}),
        files_removed=sorted({file for end in ends for file in end.files_removed}),
    )


def told_of(agent: AgentStory) -> Iterator[bl.StoryBlock]:
    """Yield an agent's work: approvals before their call, and no questions, as their answers have them."""
    for item in agent.items:
        yield from item.approvals if isinstance(item, bl.CallStep) else ()
        if not isinstance(item, bl.QuestionAsked):
            yield item


def usage_of(agent: AgentStory) -> Usage:
    """Return an agent's own spending, over all its runs."""
    return sum((item.of.usage for item in agent.items if isinstance(item, bl.End)), Usage())


def seconds_of(agent: AgentStory) -> float:
    """Return the seconds of work, over all its runs."""
    return sum(run.ended - run.began for run in agent.runs)


def status_of(agent: AgentStory) -> str:
    """Return the end of the agent's last run, for people."""
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
    """The critical path, from begin to end; an agent counts only while no child of it was waited for."""


def timeline_of(report: Report) -> Timeline:
    """Return the time line."""
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
    union: list[tuple[float, float]] = []
    for began, ended in sorted(times):
        if union and began <= union[-1][1]:
            union[-1] = (union[-1][0], max(union[-1][1], ended))
        else:
            union.append((began, ended))
    return union


def _path(report: Report, agent: AgentStory, work: WorkSpan) -> list[Span]:
    """Return the critical path, from its end: the last child to end was probably waited for, then the one before."""
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


def document(report: Report) -> str:
    """Return the document."""
    pieces = [f"# {one_line(report.title)}", str(report.usage)]
    for agent in report.agents:
        level = "#" * min(2 + agent.depth, 6)
        pieces.append(f"{level} {one_line(agent.long_name)}")
        pieces.append(
            " · ".join(filter(None, [agent.agent_type, agent.model, status_of(agent), f"{seconds_of(agent):.1f} s"]))
        )
        pieces += _items(agent)
    for what, files in (("written", report.files_written), ("removed", report.files_removed)):
        if files:
            pieces.append(f"Files {what}:\n\n" + "\n".join(f"- {visible(file)}" for file in files))
    return "\n\n".join(pieces) + "\n"


def below(text: str, level: int) -> str:
    """Return an agent's Markdown with its headings below a heading of this level."""
    lines, fence = clean(text).split("\n"), ""
    for place, line in enumerate(lines):
        mark = re.match(r" {0,3}(`{3,}|~{3,})", line)
        if fence:
            fence = "" if mark and mark[1].startswith(fence) and not line.strip().strip(fence[0]) else fence
        elif mark:
            fence = mark[1]
        elif heading := re.match(r" {0,3}(#{1,6})(?=\s|$)", line):
            lines[place] = "#" * min(6, level + len(heading[1])) + line[heading.end() :]
    return "\n".join(lines)


def block(text: str, language: str = "") -> str:
    """Return a text of an agent as a block of Markdown."""
    return fenced(clean(text).rstrip(), language)


def _items(agent: AgentStory) -> Iterator[str]:
    answer = ""
    for item in told_of(agent):
        yield from _item(item, answer, 2 + agent.depth)
        answer = item.content if isinstance(item, bl.Said) and not item.is_thought else answer


def _item(item: bl.StoryBlock, answer: str, level: int) -> Iterator[str]:
    match item:
        case bl.Prompt():
            yield "Prompt:"
            yield block(item.of.prompt)
        case bl.Said(is_thought=False):
            yield below(item.content, level)
        case bl.CallStep():
            yield from _call(item)
        case bl.Plan():
            yield plan_list(item)
        case bl.End(of=end):
            lines = [f"Ended: {end.status}, {end.usage}", visible(end.error), *map(visible, (*end.doubts, *end.warnings))]
            lines += map(visible, receipt_lines(end))
            yield "\n".join(filter(None, lines))
            if end.output and end.output != answer:
                yield below(end.output, level)
        case _:
            yield from filter(None, [item.written])


def plan_list(item: bl.Plan) -> str:
    """Return a plan as a list of Markdown; `[x]` marks what is done."""
    steps = item.plan.steps
    boxes = [f"- [{'x' if step.status == 'completed' else ' '}] {in_markdown(step.step)}" for step in steps]
    return "\n".join([f"Plan ({in_markdown(plan_title(item.plan))}):", "", *boxes])


def in_markdown(text: str) -> str:
    """Return text of agents as one line of Markdown in which nothing is markup."""
    line = visible(text).replace("\n", " ")
    return "".join(f"\\{character}" if character in "\\`*_[]<>#|" else character for character in line)


def _call(item: bl.CallStep) -> Iterator[str]:
    if item.code is None:
        yield f"Call of {item.named} ({item.outcome or 'did not end'}):"
        yield block("\n".join(filter(None, [arguments_text(item.args), item.result])))
        return
    label = f": {one_line(item.label)}" if item.label else ""
    yield f"Cell{label} ({item.status or item.outcome or 'did not end'}):"
    yield block(item.code, "python")
    text = "" if item.shown else item.result
    for output in item.outputs:  # the questions of the cell's code stand between its outputs
        if isinstance(output, bl.Shown):
            text += _output(output)
        elif not isinstance(output, bl.QuestionAsked):
            yield from [block(text, "text")] if text else []
            yield output.written
            text = ""
    yield from [block(text, "text")] if text else []


def _output(output: bl.Shown) -> str:
    if isinstance(output, bl.GrowingText):
        return str(output)
    text = error_text(output) if isinstance(output, CellError) else display_text(output.data)
    return f"{text}\n"
