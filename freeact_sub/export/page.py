"""A session as one page of HTML that needs nothing else: no script, no file beside it, no network.

All text goes through `show/safe_html.py`. The page says itself that browsers run no script in it and load nothing.
"""

import importlib.resources
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final

from freeact_sub.calls import CodeAction, McpCall, SpawnCall, ToolCall
from freeact_sub.cells import CellError
from freeact_sub.export.document import Report, Span, Timeline, seconds_of, status_of, timeline_of, told_of, usage_of
from freeact_sub.show import blocks as bl
from freeact_sub.show.agent_story import AgentStory
from freeact_sub.show.safe_html import bundle_html, code_html, escaped, markdown_html, text_html
from freeact_sub.show.tree_picture import DrawnNode, tree_svg
from freeact_sub.show.wording import error_text, plan_lines, plan_title, receipt_lines
from freeact_sub.text import arguments_text, counted, one_line, visible

POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
COLUMNS: Final = ("agent", "ended", "model", "mode", "seconds", "turns", "tokens", "cost")
CLASSES: Final[dict[bl.Tone, str]] = {"quiet": "quiet", "failure": "bad"}
"""Classes of blocks without a drawing of their own."""
MAX_DEPTH: Final = 200
"""Levels of a search's tree that are drawn as such; code in a kernel names its nodes."""
HEAD: Final = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
{style}</style>
</head>
<body>
"""


def page(report: Report) -> str:
    """Return the page."""
    style = importlib.resources.files("freeact_sub.export").joinpath("page.css").read_text(encoding="utf-8")
    timeline = timeline_of(report)
    root = report.agents[0] if report.agents else None
    pieces = [
        HEAD.format(policy=escaped(POLICY), title=escaped(report.title), style=style),
        f"<h1>{escaped(report.title)}</h1>",
        f'<p class="quiet">{_summary(report, timeline)}</p>',
        *(_agents(report) if root is not None else []),
        *(_timeline(report, timeline) if timeline.seconds > 0 else []),
        *_files(report),
        *(piece for agent in report.agents for piece in _agent(report, agent)),
        "</body>\n</html>\n",
    ]
    return "\n".join(pieces)


def _summary(report: Report, timeline: Timeline) -> str:
    day = datetime.fromtimestamp(report.began, UTC).strftime("%Y-%m-%d %H:%M UTC") if report.began else ""
    number = len(report.agents)
    facts = [day, counted(number, "agent"), f"{timeline.seconds:.1f} s", str(report.usage)]
    return escaped(" · ".join(filter(None, facts)))


def _agents(report: Report) -> Iterable[str]:
    yield '<h2 id="agents">Agents</h2>\n<table class="agents">'
    yield "<tr>" + "".join(f"<th>{name}</th>" for name in COLUMNS) + "</tr>"
    for agent in report.agents:
        usage = usage_of(agent)
        name = f'{"&ensp;" * 2 * agent.depth}<a href="#{_anchor(agent)}">{escaped(agent.long_name)}</a>'
        kind = f" · {escaped(agent.agent_type)}" if agent.agent_type else ""
        cache = f" ({usage.cache_text})" if usage.cache_text else ""
        numbers = [f"{seconds_of(agent):.1f}", f"{usage.turns}", f"{usage.tokens_text}{cache}", usage.cost_text]
        cells = [
            f"{name}{kind}",
            _status(status_of(agent)),
            escaped(agent.model),
            escaped(agent.mode),
            *map(escaped, numbers),
        ]
        row = zip(COLUMNS, cells, strict=True)  # narrow pages show the column's name in each cell
        yield "<tr>" + "".join(f'<td data-column="{column}">{cell}</td>' for column, cell in row) + "</tr>"
    yield "</table>"


def _timeline(report: Report, timeline: Timeline) -> Iterable[str]:
    yield '<h2 id="time">Time</h2>'
    yield (
        f'<p class="quiet">{timeline.seconds:.1f} s of work from left to right. Narrow, in the second colour: '
        "the critical path, that is on whom the end waited.</p>"
    )

    def bar(kind: str, span: Span) -> str:
        left, width = span.began / timeline.seconds, (span.ended - span.began) / timeline.seconds
        title = f"{span.agent.long_name}: {span.began:.1f} s to {span.ended:.1f} s"
        return f'<div class="{kind}" style="left:{left:.3%};width:{width:.3%}" title="{escaped(title)}"></div>'

    for agent in report.agents:
        bars = [bar("bar", span) for span in timeline.spans if span.agent is agent]
        bars += [bar("critical", span) for span in timeline.critical if span.agent is agent]
        link = f'<a href="#{_anchor(agent)}">{escaped(agent.long_name)}</a>'
        lane = f'<span>{"&ensp;" * agent.depth}{link}</span><div class="track">{"".join(bars)}</div>'
        yield f'<div class="lane">{lane}</div>'
    alone: dict[str, float] = {}
    for span in timeline.critical:
        alone[span.agent.long_name] = alone.get(span.agent.long_name, 0.0) + span.ended - span.began
    parts = ", ".join(f"{one_line(name, 60)} {seconds:.1f} s" for name, seconds in alone.items())
    yield f'<p class="quiet">On the critical path: {escaped(parts)}.</p>'


def _files(report: Report) -> Iterable[str]:
    if report.files_written or report.files_removed:
        yield '<h2 id="files">Files</h2>\n<ul class="files">'
        for what, files in (("written", report.files_written), ("removed", report.files_removed)):
            yield from (f"<li><code>{escaped(visible(file))}</code> <span class=quiet>{what}</span></li>" for file in files)
        yield "</ul>"


def _agent(report: Report, agent: AgentStory) -> Iterable[str]:
    yield f'<section>\n<h2 id="{_anchor(agent)}">{escaped(agent.long_name)}</h2>'
    parent = next((other for other in report.agents if other.agent_id == agent.parent_id), None)
    if parent is not None:
        yield f'<p class="quiet">started by <a href="#{_anchor(parent)}">{escaped(parent.long_name)}</a></p>'
    answer = ""
    for item in told_of(agent):
        if shown := _item(item, answer) + _children(report, agent, item):
            yield f"<article>{shown}</article>"
        answer = item.content if isinstance(item, bl.Said) and not item.is_thought else answer
    yield "</section>"


def _children(report: Report, agent: AgentStory, item: bl.StoryBlock) -> str:
    if not isinstance(item, bl.CallStep):
        return ""
    links = [
        f'<a href="#{_anchor(child)}">{escaped(child.long_name)}</a>'
        for child in report.started_by(agent, item.tool_call_id)
    ]
    return f'<p class="quiet">started {", ".join(links)}</p>' if links else ""


def _item(item: bl.StoryBlock, answer: str = "") -> str:
    """Yield one block. Args: answer: the agent's last text, which its end need not repeat."""
    match item:
        case bl.Prompt():
            return f'<h3>Prompt</h3><div class="prompt">{escaped(visible(item.of.prompt))}</div>'
        case bl.Said():
            said = markdown_html(item.content)
            return f"<details><summary>Thoughts</summary>{said}</details>" if item.is_thought else said
        case bl.CallStep():
            return _use(item) if item.code is None else _cell(item)
        case bl.Approval():
            return _approval(item)
        case bl.StrategySteps():
            return _strategy(item)
        case bl.Plan():
            return _plan(item)
        case bl.End():
            return _end(item, answer)
    folds = (part for part in item.parts if part.form == "markdown")
    more = [f"<details><summary>{part.name.capitalize()}</summary>{markdown_html(part.text)}</details>" for part in folds]
    return f'<p class="{CLASSES.get(item.tone, "warn")}">{escaped(item.written)}</p>{"".join(more)}'


def _end(block: bl.End, answer: str) -> str:
    item = block.of
    pieces = [f"<h3>Ended: {_status(item.status)}</h3>"]
    if item.output and item.output != answer:
        pieces.append(f'<div class="answer">{markdown_html(item.output)}</div>')
    pieces += [f'<p class="bad">{escaped(visible(item.error))}</p>'] if item.error else []
    pieces += [f'<p class="warn">{escaped(visible(warning))}</p>' for warning in (*item.doubts, *item.warnings)]
    total = f"; with its children: {item.tree_usage}" if item.tree_usage != item.usage else ""
    pieces.append(f'<p class="quiet">{escaped(f"{item.seconds:.1f} s; {item.usage}{total}")}</p>')
    if lines := receipt_lines(item):
        rest = "".join(f"<li>{escaped(line)}</li>" for line in lines[1:])
        below = f'<ul class="files">{rest}</ul>' if rest else ""
        pieces.append(f'<details><summary class="quiet">{escaped(lines[0])}</summary>{below}</details>')
    return "".join(pieces)


def _cell(item: bl.CallStep) -> str:
    status = item.status or item.outcome
    words = f"{status.replace('_', ' ')}, {item.seconds:.1f} s" if status else "did not end"
    pieces = [code_html(item.code or ""), *map(_output, item.outputs)]
    if not item.shown and item.result:
        pieces.append(text_html(item.result))
    kind = "quiet" if status in ("ok", "success") else "bad"
    return f"<h3>{escaped(item.named or 'Cell')} <span class={kind}>{escaped(words)}</span></h3>{''.join(pieces)}"


def _output(output: bl.CallItem) -> str:
    if isinstance(output, bl.StoryBlock):
        return "" if isinstance(output, bl.QuestionAsked) else _item(output)
    if isinstance(output, bl.GrowingText):
        return text_html(str(output), "text" if output.kind == "text" else "error")
    if isinstance(output, CellError):
        return text_html(error_text(output), "error")
    return bundle_html(output.data)


def _use(item: bl.CallStep) -> str:
    outcome = f' <span class="bad">{escaped(item.outcome or "did not end")}</span>' if item.outcome != "success" else ""
    args = text_html(arguments_text(item.args)) if item.args else ""
    result = text_html(item.result) if item.result else ""
    return f"<h3>Call of {escaped(item.named)}{outcome}</h3>{args}{result}"


def _approval(item: bl.Approval) -> str:
    call = item.request.call
    if item.decision is None:
        answer = '<span class="warn">never answered</span>'
    else:
        word = '<span class="good">yes</span>' if item.decision.allowed else '<span class="bad">no</span>'
        why = f": {escaped(visible(item.decision.reason))}" if item.decision.reason else ""
        answer = f"{word}{why} <span class=quiet>after {item.decision.time - item.request.time:.1f} s</span>"
    match call:
        case CodeAction() | SpawnCall():
            what = ""  # the call below shows it
        case McpCall() | ToolCall():
            what = text_html(arguments_text(call.args))
        case _:
            what = text_html(call.text)
    return f'<div class="question">The agent {escaped(visible(call.question))}{what}<div>Answer: {answer}</div></div>'


def _plan(item: bl.Plan) -> str:
    steps = "".join(f"<li>{escaped(line)}</li>" for line in plan_lines(item.plan))
    return f'<h3>Plan <span class=quiet>{escaped(plan_title(item.plan))}</span></h3><ul class="plan">{steps}</ul>'


def _strategy(item: bl.StrategySteps) -> str:
    end = "" if item.done else ", did not end"
    head = f"<h3>Strategy {escaped(one_line(item.name))} <span class=quiet>{counted(item.steps, 'step')}{end}</span></h3>"
    return f'{head}<div class="scroll">{tree_svg(_tree(item), inline=True)}</div>' if item.nodes else head


def _tree(item: bl.StrategySteps) -> DrawnNode:
    """Return the tree of a search. Nodes whose parent has no report, as in a cut-off session, are below the root."""
    drawn = {
        name: DrawnNode(
            action=node.action,
            reason=node.reason,
            score=node.score,
            terminal=node.terminal,
            failed=node.state == "failed",
            is_best=f"{item.best}.".startswith(f"{name}."),
        )
        for name, node in item.nodes.items()
    }
    root = DrawnNode()
    for name in sorted(drawn, key=lambda name: [(len(part), part) for part in name.split(".")]):
        parent = item.nodes[name].parent
        is_below = parent in drawn and name.startswith(f"{parent}.") and name.count(".") < MAX_DEPTH
        (drawn[parent] if is_below else root).children.append(drawn[name])
    return root


def _status(status: str) -> str:
    kind = "good" if status == "completed" else "bad"
    return f'<span class="{kind}">{escaped(status.replace("_", " "))}</span>'


def _anchor(agent: AgentStory) -> str:
    return escaped(agent.agent_id)
