"""The block of an agent, made from its story: as HTML for notebooks, and as text for consoles.

A block is drawn in two parts. The *body* holds what is settled: steps that have happened, with their pictures. The *foot*
holds what moves: text that still streams, and the status line. So a cell that prints a line every millisecond redraws a
few lines and not the pictures above them, and a `<details>` that the user has opened in the body stays open meanwhile.

Classes instead of inline styles keep the parts small; each body brings the style sheet, since exported and reopened
notebooks may lose any one output. `mathjax_ignore`: sums of money in an answer are not formulas.

`change_table` is the table of what an agent has changed in its copy of the notebook's kernel.
"""

import json
import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Final

from freeact_sub import events as ev
from freeact_sub.agent_names import short_id
from freeact_sub.calls import CodeAction
from freeact_sub.cells import CellError, DisplayData, ExecuteResult, MimeBundle
from freeact_sub.kernels.copies import CopyChange
from freeact_sub.show import blocks as bl
from freeact_sub.show.agent_story import AgentStory
from freeact_sub.show.effect_lines import EffectLine, LineKind, changed_text, effect_lines
from freeact_sub.show.questions import asks_for
from freeact_sub.show.safe_html import (
    TEXT_CHARS,
    bundle_html,
    bundle_text,
    code_html,
    escaped,
    is_picture,
    markdown_html,
    text_html,
)
from freeact_sub.show.wording import (
    asked_text,
    call_progress_text,
    ending_notes,
    error_text,
    own_words,
    plan_lines,
    plan_title,
    strategy_text,
    tool_words,
    who_asks,
)
from freeact_sub.text import clean, counted, one_line, shortened, visible

WAITING: Final = "waiting for you"
MOST_ASKS: Final = 5
"""Consecutive questions to a model above which they are one line."""
LIMITS: Final = bl.StoryLimits(first=11, last=60, outputs=40, text_chars=TEXT_CHARS, display_chars=6_000_000)
"""The number of items that a block keeps: an agent may run for hours, and each step redraws its block."""
STREAMING_CHARS = 8_000
"""Characters at the end of a streaming text that are drawn."""

LIVE_LINES = 12
"""Lines at the end of a growing output that are drawn."""

INDENT_PX = 24
MAX_INDENTS = 8

STYLE = """<style>
.fsub{font-size:13px;line-height:1.5;overflow-wrap:anywhere}
.fsub{--fsub-line:rgba(128,128,128,.35);--fsub-soft:rgba(128,128,128,.09)}
.fsub.fsub-line{border-left:3px solid var(--fsub-line);padding-left:12px}
.fsub.fsub pre{font-size:12px;line-height:1.45;margin:4px 0;padding:6px 10px;border-radius:4px}
.fsub.fsub pre{white-space:pre-wrap;max-height:26em;overflow:auto}
.fsub.fsub pre.fsub-code{background:var(--fsub-soft);border-left:3px solid #5b8def}
.fsub.fsub pre.fsub-text{background:none;padding:2px 10px}
.fsub.fsub pre.fsub-plan{background:none;padding:2px 10px;font-family:inherit}
.fsub.fsub pre.fsub-stderr{background:rgba(220,160,0,.10)}
.fsub.fsub pre.fsub-error{background:rgba(214,40,40,.10);border-left:3px solid #d62828}
.fsub.fsub-question.fsub pre{max-height:22em}
.fsub .fsub-head{font-weight:600;margin:2px 0}
.fsub .fsub-id{font-family:monospace;font-weight:400;opacity:.65;margin-right:8px}
.fsub .fsub-title{font-weight:600;margin:4px 0 0}
.fsub .fsub-note{opacity:.75;margin:3px 0}
.fsub .fsub-yes{color:#2a8f4a}.fsub .fsub-no,.fsub .fsub-bad{color:#d03434}
.fsub .fsub-open{color:#b87500;font-weight:600}
.fsub .fsub-picture{max-width:100%;background:#fff;border-radius:4px;margin:4px 0;display:block}
.fsub .fsub-table{overflow-x:auto;margin:6px 0}
.fsub .fsub-markdown{margin:6px 0}.fsub .fsub-markdown p{margin:.4em 0}
.fsub table{border-collapse:collapse}.fsub th,.fsub td{border:1px solid var(--fsub-line);padding:3px 9px}
.fsub.fsub.fsub .fsub-markdown table{margin-left:0}.fsub.fsub.fsub .fsub-markdown :is(th,td){text-align:left}
.fsub.fsub.fsub .fsub-markdown .fsub-right{text-align:right}.fsub.fsub.fsub .fsub-markdown .fsub-center{text-align:center}
.fsub details,.fsub .fsub-asked{margin:3px 0}.fsub summary{cursor:pointer;opacity:.75}
.fsub .fsub-status{opacity:.8;font-size:12px;margin:2px 0 8px}
.fsub .fsub-dot{display:inline-block;width:9px;height:9px;border-radius:50%;margin-right:7px}
</style>"""
"""Translucent greys suit light and dark pages alike."""

_COLOURS = {"completed": "#2a8f4a", "running": "#2f6fde", WAITING: "#e08e00", "queued": "#9aa0a6"}
_COLOUR_OF_ENDING = "#d03434"
_CLASSES: Final[dict[LineKind, str]] = {"added": "fsub-yes", "removed": "fsub-no", "warning": "fsub-bad"}
MAX_PICTURES: Final = 3
SHOWN: Final = 50
CHARS: Final = 100
TOLD_CHARS: Final = 300
NONE: Final = "—"
PERHAPS: Final = "too large to compare in time"
ALSO_HERE: Final = "you have changed it since"
CODE_CHARS: Final = 50_000
"""Characters above which code is not kept in the page; the magic inserts it."""
BUTTON_STYLE: Final = (
    "<style>.fsub .fsub-buttons{display:none;margin:6px 0}"
    ":is(.jp-NotebookPanel,.jp-LinkedOutputView) .fsub .fsub-buttons{display:block}"
    ".fsub .fsub-buttons button{margin-right:6px;padding:3px 10px;cursor:pointer;border-radius:4px;"
    "border:1px solid var(--fsub-line);background:var(--fsub-soft);color:inherit}</style>"
)


def steps_of(story: AgentStory) -> list[bl.StoryBlock]:
    """Return the steps that a block of the page shows, in order."""
    first = next((item for item in story.items if isinstance(item, bl.Prompt)), None)
    steps: list[bl.StoryBlock] = []
    for index, item in enumerate(story.items):
        if index == LIMITS.first and story.kept.left_out:
            steps.append(bl.StoryBlock(title=f"… {counted(story.kept.left_out, 'step')} left out …", passing=True))
        if item is not first:
            steps += _steps_of(story, item)
    return [*_folded(steps)]


def _folded(steps: Iterable[bl.StoryBlock]) -> Iterator[bl.StoryBlock]:
    """Yield the steps, with many answered questions to a model, such as those of a map, in one line."""
    for is_answer, group in groupby(steps, _is_answered_question):
        found = [*group]
        yield from (
            [bl.StoryBlock(title=f"{len(found):,} questions to a model, answered")]
            if is_answer and len(found) > MOST_ASKS
            else found
        )


def _is_answered_question(step: bl.StoryBlock) -> bool:
    return isinstance(step, bl.CallStep) and step.tool_name == "ask" and step.outcome == "success" and not step.approvals


def _steps_of(story: AgentStory, item: bl.StoryBlock) -> Iterator[bl.StoryBlock]:
    match item:
        case bl.Said():  # thoughts of a child are for readers of the stream
            yield from [] if item.is_thought and story.depth else [item]
        case bl.Prompt():
            yield bl.StoryBlock(title=f"resumed: {item.of.prompt}")
        case bl.End(of=end):
            yield from [bl.StoryBlock(title=end.error, tone="bad")] if end.error else []
            yield from (bl.StoryBlock(title=text) for text in (*end.doubts, *end.warnings))
            is_said = any(isinstance(other, bl.Said) and other.content == end.output for other in story.items)
            yield from [bl.Said(content=end.output)] if end.output.strip() and not is_said else []
        case bl.StrategySteps():
            pass  # the foot shows it
        case _:
            yield item


def shown_status(story: AgentStory) -> str:
    """Return the status in a person's words."""
    return WAITING if story.questions else story.status.replace("_", " ")


def status_line(story: AgentStory, now: float) -> str:
    """Return status, spending and duration."""
    if story.finished:
        return " · ".join([shown_status(story), *ending_notes(story.finished)])
    parts = [shown_status(story)]
    if story.pause:
        parts.append(story.pause)
    parts += [*map(strategy_text, story.strategies.values()), *map(call_progress_text, story.reached.values())]
    if story.usage.turns or story.usage.tokens:
        parts.append(str(story.usage))
    if story.tree_usage != story.usage:
        parts.append(f"with its children: {story.tree_usage}")
    return " · ".join([*parts, f"{story.seconds(now):.0f} s"])


def notes_of(call: bl.CallStep) -> list[str]:
    """Return the steps below the outputs of a call."""
    ended = call.status.replace("_", " ")
    return [*([f"the cell ended: {ended}"] if ended not in ("", "ok", "error") else []), *call.notes]


def result_of(call: bl.CallStep) -> str:
    """Return the result, unless the cell's output or the decision on an approval already shows it."""
    cell_ran = call.code is not None and call.status
    was_denied = call.outcome == "denied" and any(approval.decision for approval in call.approvals)
    return "" if cell_ran or was_denied else shortened(call.result, TEXT_CHARS)


def settled_part(story: AgentStory) -> MimeBundle:
    """Return the settled part of a block, as HTML and as text."""
    steps = steps_of(story)
    drawn = [[*_drawn(step)] for step in steps]
    pages = ["".join(html for html, _ in pieces) for pieces in drawn]
    answer = ""
    if story.depth and story.finished:  # a finished child takes little room: its answer, and the rest at a click
        words = (bl.StoryBlock, bl.QuestionAsked, bl.Answered)
        notes = "".join(page for step, page in zip(steps, pages, strict=True) if type(step) in words and not step.passing)
        last = next((index for index in reversed(range(len(steps))) if _is_answer(steps[index])), None)
        answer = pages.pop(last) if last is not None else ""
        inner = "".join(pages)
        pages = [f"<details><summary>{_counted(steps)}</summary>{inner}</details>{notes}"] if inner else []
    head = f'<span class="fsub-id">{escaped(short_id(story.agent_id))}</span>{escaped(_label(story))}'
    prompt = _fold("prompt", text_html(story.prompt)) if story.depth else ""
    html = f'{STYLE}<div class="fsub-head">{head}</div>{prompt}{"".join(pages)}{answer}'
    lines = [line for pieces in drawn for _, text in pieces for line in text.splitlines()]
    return {
        "text/html": _framed(story, html, line=True),
        "text/plain": _indented(story, [f"{short_id(story.agent_id)}  {_label(story)}", *lines]),
    }


def prompt_html(prompt: str) -> str:
    """Return the prompt as HTML."""
    return f'{STYLE}<div class="fsub-head">Prompt</div>{text_html(prompt)}'


def moving_part(story: AgentStory, now: float) -> MimeBundle:
    """Return the moving part of a block, as HTML and as text. `now`: seconds since the epoch."""
    moving = ""
    if story.finished is None:
        for call in story.calls_made:
            moving += "".join(_live_html(output) for output in call.outputs[call.settled :] if call.running)
        moving += _streaming_html(story)
    status = shown_status(story)
    colour = _COLOURS.get(status, _COLOUR_OF_ENDING)
    dot = f'<span class="fsub-dot" style="background:{colour}"></span>'
    line = _foot_line(story, now)
    html = _framed(story, f'{moving}<div class="fsub-status">{dot}{escaped(line)}</div>')
    return {"text/html": html, "text/plain": _indented(story, [line])}


def _streaming_html(story: AgentStory) -> str:
    if story.streaming is None:
        return ""
    text = story.streaming.end(STREAMING_CHARS)
    if story.streaming.kind == "answer":
        return markdown_html(text)
    return "" if story.depth else f'<div class="fsub-note">thinking … {escaped(one_line(text[-300:], 300))}</div>'


def _label(story: AgentStory) -> str:
    return one_line(story.description or story.prompt)


def _foot_line(story: AgentStory, now: float) -> str:
    """Return the status; while it changes, with the time of day, since a page that was reloaded stands still."""
    at = "" if story.finished else f" · as of {time.strftime('%H:%M:%S', time.localtime(now))}"
    return status_line(story, now) + at


def question_html(request: ev.ApprovalRequest | ev.QuestionRequest, below: str = "") -> str:
    """Return a question in full. Args: below: HTML that follows it."""
    detail = own_words(request) if isinstance(request, ev.QuestionRequest) else _detail(request)
    is_code = isinstance(request, ev.ApprovalRequest) and isinstance(request.call, CodeAction)
    shown = code_html(detail) if is_code else f'<pre class="fsub-code">{escaped(detail)}</pre>' * bool(detail)
    who = f'<span class="fsub-id">{escaped(who_asks(request))}</span>'
    head = f'<span class="fsub-open">?</span> {who}{escaped(asks_for(request))}'
    return f'{STYLE}<div class="fsub fsub-question tex2jax_ignore mathjax_ignore"><div>{head}</div>{shown}{below}</div>'


def effects_html(effects: ev.Effects) -> str:
    """Return the effects below the code. Empty: trials are off."""
    if effects.off:
        return ""
    lines = "\n".join(map(_effect_html, effect_lines(effects)))
    pictures = [*map(bundle_html, filter(is_picture, effects.displays))][:MAX_PICTURES]
    return f'<pre class="fsub-text">{lines}</pre>{"".join(pictures)}'


def _effect_html(line: EffectLine) -> str:
    text = escaped(line.text)
    return f'<span class="{_CLASSES[line.kind]}">{text}</span>' if line.kind in _CLASSES else text


def _detail(request: ev.ApprovalRequest | ev.QuestionRequest) -> str:
    return request.call.text if isinstance(request, ev.ApprovalRequest) else asked_text(request)


def question_text(request: ev.ApprovalRequest | ev.QuestionRequest) -> str:
    """Return a question in full, as text."""
    return _headed(request, _detail(request))


def own_question_text(request: ev.QuestionRequest) -> str:
    """Return a question without its fields, as text."""
    return _headed(request, own_words(request))


def _headed(request: ev.ApprovalRequest | ev.QuestionRequest, detail: str) -> str:
    lines = [f"{who_asks(request)}: {asks_for(request)}", *(f"    {line}" for line in detail.split("\n") if detail)]
    return "\n".join(lines)


def _framed(story: AgentStory, inner: str, *, line: bool = False) -> str:
    """Indent a child under its parent, with a line at the side of its body."""
    indent = INDENT_PX * min(story.depth, MAX_INDENTS)
    line = line and story.depth > 0
    style = f' style="margin-left:{indent - 15 * line}px"' if indent else ""
    return f'<div class="fsub tex2jax_ignore mathjax_ignore{" fsub-line" * line}"{style}>{inner}</div>'


def _fold(summary: str, inner: str) -> str:
    return f"<details><summary>{escaped(summary)}</summary>{inner}</details>"


def _is_answer(step: bl.StoryBlock) -> bool:
    return isinstance(step, bl.Said) and not step.is_thought


def _counted(steps: Sequence[bl.StoryBlock]) -> str:
    calls = [step for step in steps if isinstance(step, bl.CallStep)]
    pictures = sum(_is_display_of_picture(output) for call in calls for output in call.shown)
    parts = [counted(len(calls), "call")]
    if pictures:
        parts.append(counted(pictures, "picture"))
    return ", ".join(parts)


def _is_display_of_picture(output: object) -> bool:
    return isinstance(output, DisplayData | ExecuteResult) and is_picture(output.data)


def _drawn(step: bl.StoryBlock) -> Iterator[tuple[str, str]]:
    match step:
        case bl.CallStep():
            yield from _call(step)
        case bl.Said():
            text = shortened(step.content, bl.ANSWER_CHARS)
            yield (_fold("thoughts", text_html(text)), "") if step.is_thought else (markdown_html(text), clean(text))
        case bl.Plan():
            yield text_html(_plan(step), "plan"), visible(_plan(step))
        case bl.Approval():
            asked = one_line(step.request.call.summary, 300)
            yield f'<div class="fsub-asked">{_decision_html(step)} · {escaped(asked)}</div>', f"{_decided(step)} · {asked}"
        case _:
            yield _note(step.text, is_bad=step.tone == "bad" and not isinstance(step, bl.Answered))


def _note(text: str, *, is_bad: bool = False) -> tuple[str, str]:
    return f'<div class="fsub-note{" fsub-bad" * is_bad}">{escaped(visible(text))}</div>', visible(text)


def _plan(block: bl.Plan) -> str:
    return "\n".join([f"Plan: {plan_title(block.plan)}", *plan_lines(block.plan)])


def _call(call: bl.CallStep) -> Iterator[tuple[str, str]]:
    head = [*map(_decision_html, call.approvals)], [*map(_decided, call.approvals)]
    if call.code is None:
        title = _title(call)
        head = [f'<span class="fsub-note">{escaped(title)}</span>', *head[0]], [title, *head[1]]
    else:
        if call.label:
            yield f'<div class="fsub-title">{escaped(call.named)}</div>', call.named
        lines = [f"> {line}" for line in visible(call.code).splitlines()]
        yield "" if _is_asked(call) else code_html(call.code), "\n".join(lines)
    if head[0]:
        yield f'<div class="fsub-asked">{" · ".join(head[0])}</div>', "\n".join(head[1])
    if call.left_out:
        yield _note(f"… {counted(call.left_out, 'earlier output')} left out …")[0], ""
    for output in call.outputs[: call.settled]:
        yield from _output(output)
    yield from map(_note, notes_of(call))
    if result := result_of(call):
        failed = call.outcome in ("failed", "denied")
        html = _note(result, is_bad=True)[0] if failed else _fold("result", text_html(result))
        yield html, clean(result)


def _is_asked(call: bl.CallStep) -> bool:
    """Return whether the approval of a call's code is open: it shows the code."""
    asked = (approval.request.call for approval in call.approvals if approval.decision is None)
    return any(isinstance(action, CodeAction) and action.code == call.code for action in asked)


def _title(call: bl.CallStep) -> str:
    if call.tool_name == "task":
        return one_line(f"starts a child agent: {call.args.get('description') or call.args.get('prompt', '')}")
    args = ", ".join(f"{name}={value!r}" for name, value in call.args.items() if name != "label" or not call.label)
    label = f"{call.label}: " if call.label else ""
    return one_line(f"{label}{tool_words(call.tool_name) or 'tool'}({args})", 300)


def _decided(approval: bl.Approval) -> str:
    decision = approval.decision
    if decision is None:
        return WAITING
    reason = f": {decision.reason}" if decision.reason else ""
    return visible(f"{'approved' if decision.allowed else 'denied'}{reason}")


def _decision_html(approval: bl.Approval) -> str:
    kind = "open" if approval.decision is None else "yes" if approval.decision.allowed else "no"
    return f'<span class="fsub-{kind}">{escaped(_decided(approval))}</span>'


def _output(output: bl.CallItem) -> Iterator[tuple[str, str]]:
    match output:
        case bl.GrowingText():
            yield text_html(str(output), output.kind), clean(str(output))
        case CellError():
            yield text_html(error_text(output), "error"), clean(error_text(output))
        case bl.StoryBlock():
            yield from _drawn(output)
        case _:
            yield bundle_html(output.data), bundle_text(output.data)


def _live_html(output: bl.CallItem) -> str:
    """Return the newest lines, since a reader cannot scroll a box that is redrawn all the time."""
    if not isinstance(output, bl.GrowingText):
        return "".join(html for html, _ in _output(output))
    lines = clean(str(output)).rstrip("\n").split("\n")
    more = [f"… {counted(len(lines) - LIVE_LINES, 'line')} above …"] if len(lines) > LIVE_LINES else []
    return text_html("\n".join(more + lines[-LIVE_LINES:]), output.kind)


def _indented(story: AgentStory, lines: Sequence[str]) -> str:
    return "\n".join("    " * story.depth + line for line in lines)


def change_table(changes: Sequence[CopyChange], name: str, code: str) -> MimeBundle:
    """Return the changes, and the ways to take them over.

    Args:
        changes: The changes, more than imports.
        name: The value for `--name`. Empty: none.
        code: The code of the cells that made the changes.
    """
    buttons = _buttons(changes, name, code)
    imports = one_line(visible(", ".join(change.name for change in changes if change.imported)), CHARS)
    changes = [change for change in changes if not change.imported]
    rows = [_row(change) for change in changes[:SHOWN]]
    others = [f"and {len(changes) - SHOWN} more"] if len(changes) > SHOWN else []
    more = "; ".join([*others, f"new imports: {imports}"] if imports else others)
    head = (
        f"{counted(len(changes), 'variable')} changed in the agent's copy; your notebook still has what is under “before”."
    )
    first = next((change.name for change in changes if change.what != "perhaps"), changes[0].name)
    how = (
        f"%agent_adopt {first}{name} takes it over, %agent_adopt{name} all of them, %agent_discard{name} none; "
        f"%agent_code{name} shows the code."
    )
    html = "".join(f"<tr>{''.join(f'<td>{escaped(cell)}</td>' for cell in row)}</tr>" for row in rows)
    table = f"<table><tr><th>variable</th><th>before</th><th>after</th></tr>{html}</table>"
    text = "\n".join(f"  {row[0]}: {row[1]} -> {row[2]}" for row in rows)
    return {
        "text/html": f'{STYLE}<div class="fsub fsub-changes"><div class="fsub-note">{escaped(head)}</div>{table}'
        f'<div class="fsub-note">{escaped(more)}</div>{buttons}'
        f'<div class="fsub-note"><code>{escaped(how)}</code></div></div>',
        "text/plain": "\n".join(filter(None, (head, text, more, how))),
    }


def _row(change: CopyChange) -> tuple[str, ...]:
    after = change.after if change.what != "perhaps" else f"{change.after} ({PERHAPS})"
    told = changed_text(change)
    before = f"{change.before or NONE} ({ALSO_HERE})" if change.also_here else change.before
    name, before, after = (one_line(visible(text), CHARS) or NONE for text in (change.name, before, after))
    return name, before, f"{after}: {one_line(visible(told), TOLD_CHARS)}" if told else after


def _buttons(changes: Sequence[CopyChange], name: str, code: str) -> str:
    """Return the buttons under a table: each makes a cell below, with a magic or the code; you or it runs that cell.

    They are plain HTML that names commands of JupyterLab and Jupyter Notebook, which make and run cells of the notebook
    itself. So what a button does stays in the notebook, and is done again by "run all". Elsewhere they are not shown: the
    magics do the same.
    """
    names = ", ".join(change.name for change in changes if not change.imported and change.name.isidentifier())
    buttons = [
        _button("Adopt all", f"%agent_adopt{name}", "runs %agent_adopt in a new cell", runs=True),
        _button("Adopt…", f"%agent_adopt{name} {names}", "a new cell in which you choose the names"),
        _button("Insert the code", code, "a new cell with the code instead of the values; it is not run")
        if code and len(code) <= CODE_CHARS
        else _button("Insert the code", f"%agent_code{name}", "runs %agent_code in a new cell", runs=True),
        _button("Discard", f"%agent_discard{name}", "runs %agent_discard in a new cell: the copy ends", runs=True),
    ]
    return f'{BUTTON_STYLE}<div class="fsub-buttons">{"".join(buttons)}</div>'


def _button(label: str, text: str, title: str, *, runs: bool = False) -> str:
    """Return a button that makes a cell below the active one, which is the one that was clicked in."""
    commands = ["notebook:insert-cell-below", "notebook:replace-selection", *(["notebook:run-cell"] if runs else [])]
    given = json.dumps({"commands": commands, "args": {"text": text}})  # all of them get these, and one takes the text
    return (
        f'<button type="button" title="{escaped(title)}" data-commandlinker-command="apputils:run-all-enabled" '
        f'data-commandlinker-args="{escaped(given)}">{escaped(label)}</button>'
    )
