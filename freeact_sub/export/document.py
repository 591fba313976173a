"""A session as a Markdown document."""

import re
from collections.abc import Iterator

from freeact_sub.agent_names import short_id
from freeact_sub.cells import CellError
from freeact_sub.events import (
    AgentEvent,
    AgentFinished,
    AgentMessage,
    AgentStarted,
    Compacted,
    KernelLost,
    Notice,
    QuestionAnswered,
    Response,
)
from freeact_sub.export.report import Report, seconds_of, status_of, told_of
from freeact_sub.show.agent_story import AgentStory
from freeact_sub.show.rows import words_of
from freeact_sub.show.steps import Approval, CallStep, GrowingText, PlanItem, Shown, StoryItem, StrategySteps
from freeact_sub.show.wording import MESSAGES, display_text, error_text, plan_title, question_and_answer, receipt_lines
from freeact_sub.text import arguments_text, clean, counted, fenced, one_line, visible


def document(report: Report) -> str:
    """The document."""
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
    """Markdown of an agent with its headings below a heading of this level."""
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
    """A text of an agent as a block of Markdown."""
    return fenced(clean(text).rstrip(), language)


def _items(agent: AgentStory) -> Iterator[str]:
    answer = ""
    for item in told_of(agent):
        yield from _item(item, answer, 2 + agent.depth)
        answer = item.content if isinstance(item, Response) else answer


def _item(item: StoryItem, answer: str, level: int) -> Iterator[str]:
    match item:
        case AgentStarted():
            yield "Prompt:"
            yield block(item.prompt)
        case Response():
            yield below(item.content, level)
        case CallStep():
            yield from _call(item)
        case PlanItem():
            yield plan_list(item)
        case AgentFinished():
            end = [f"Ended: {item.status}, {item.usage}", visible(item.error), *map(visible, (*item.doubts, *item.warnings))]
            end += map(visible, receipt_lines(item))
            yield "\n".join(filter(None, end))
            if item.output and item.output != answer:
                yield below(item.output, level)
        case _:
            yield from filter(None, [note(item)])


def plan_list(item: PlanItem) -> str:
    """A plan as a list of Markdown; `[x]` marks what is done."""
    steps = item.plan.steps
    boxes = [f"- [{'x' if step.status == 'completed' else ' '}] {in_markdown(step.step)}" for step in steps]
    return "\n".join([f"Plan ({in_markdown(plan_title(item.plan))}):", "", *boxes])


def in_markdown(text: str) -> str:
    """Text of agents as one line of Markdown in which nothing is markup."""
    line = visible(text).replace("\n", " ")
    return "".join(f"\\{character}" if character in "\\`*_[]<>#|" else character for character in line)


def note(item: StoryItem) -> str:
    """An item in one sentence; empty if it needs more."""
    match item:
        case Approval():
            return f"The agent {visible(item.request.call.question)}. Answer: {_decided(item)}"
        case QuestionAnswered():
            return f"The agent asked: {question_and_answer(item)}"
        case Notice():
            return f"Notice: {visible(item.content)}"
        case KernelLost():
            return f"The kernel was lost: {visible(item.reason)}"
        case AgentMessage():
            return f"{MESSAGES[item.kind]} {short_id(item.recipient_id)}: {visible(item.content)}"
        case StrategySteps():
            best = item.nodes.get(item.best)
            found = (
                f"; the best of {counted(len(item.nodes), 'node')}: {best.score:.2f} {one_line(best.action)}" if best else ""
            )
            return f"Strategy {one_line(item.name)}: {counted(item.steps, 'step')}{found}"
        case Compacted():
            return f"The conversation was shortened, from {item.tokens_before:,} to {item.tokens_after:,} tokens."
        case AgentEvent():
            return f"The agent {visible(words)}." if (words := words_of(item)) else ""
        case _:
            return ""


def _decided(approval: Approval) -> str:
    decision = approval.decision
    if decision is None:
        return "never answered"
    return ("yes" if decision.allowed else "no") + (f" ({visible(decision.reason)})" if decision.reason else "")


def _call(item: CallStep) -> Iterator[str]:
    if item.code is None:
        yield f"Call of {item.title} ({item.outcome or 'did not end'}):"
        yield block("\n".join(filter(None, [arguments_text(item.args), item.result])))
        return
    label = f": {one_line(item.label)}" if item.label else ""
    yield f"Cell{label} ({item.status or item.outcome or 'did not end'}):"
    yield block(item.code, "python")
    text = "" if item.shown else item.result
    for output in item.outputs:  # the questions of the cell's code stand between its outputs
        if isinstance(output, Shown):
            text += _output(output)
        elif said := note(output):
            yield from [block(text, "text")] if text else []
            yield said
            text = ""
    yield from [block(text, "text")] if text else []


def _output(output: Shown) -> str:
    if isinstance(output, GrowingText):
        return str(output)
    text = error_text(output) if isinstance(output, CellError) else display_text(output.data)
    return f"{text}\n"
