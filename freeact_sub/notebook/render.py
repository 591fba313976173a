"""The block of an agent, made from its story: as HTML for notebooks, and as text for consoles.

A block is drawn in two parts. The *body* holds what is settled: steps that have happened, with their pictures. The *foot*
holds what moves: text that still streams, and the status line. So a cell that prints a line every millisecond redraws a
few lines and not the pictures above them, and a `<details>` that the user has opened in the body stays open meanwhile.

Classes instead of inline styles keep the parts small; each body brings the style sheet, since exported and reopened
notebooks may lose any one output. `mathjax_ignore`: sums of money in an answer are not formulas.
"""

import time
from collections.abc import Sequence
from typing import Final

from freeact_sub.agent_names import short_id
from freeact_sub.calls import CodeAction
from freeact_sub.cells import CellError, DisplayData, ExecuteResult
from freeact_sub.events import (
    ApprovalRequest,
    Effects,
    QuestionAnswered,
    QuestionRequest,
)
from freeact_sub.notebook.block_steps import WAITING, Said, Step, notes_of, result_of, shown_status, status_line, steps_of
from freeact_sub.show.agent_story import AgentStory
from freeact_sub.show.effect_lines import EffectLine, LineKind, effect_lines
from freeact_sub.show.questions import asks_for
from freeact_sub.show.safe_html import (
    bundle_html,
    bundle_text,
    code_html,
    escaped,
    is_picture,
    markdown_html,
    text_html,
)
from freeact_sub.show.steps import (
    Approval,
    CallItem,
    CallStep,
    GrowingText,
)
from freeact_sub.show.wording import asked_text, asked_title, error_text, given_answer, own_words, tool_words, who_asks
from freeact_sub.text import clean, counted, one_line, visible

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


def body_html(story: AgentStory) -> str:
    """The settled part of a block."""
    steps = steps_of(story)
    answer = ""
    if story.depth and story.finished:  # a finished child takes little room: its answer, and the rest at a click
        last = next((index for index in reversed(range(len(steps))) if _is_answer(steps[index])), None)
        answer = _step_html(steps.pop(last)) if last is not None else ""
    inner = "".join(map(_step_html, steps))
    if story.depth and story.finished and inner:
        notes = "".join(_step_html(step) for step in steps if isinstance(step, Said) and step.kind in ("note", "error"))
        inner = f"<details><summary>{_counted(steps)}</summary>{inner}</details>{notes}"
    head = f'<span class="fsub-id">{escaped(short_id(story.agent_id))}</span>{escaped(_label(story))}'
    prompt = _fold("prompt", text_html(story.prompt)) if story.depth else ""
    return _framed(story, f'{STYLE}<div class="fsub-head">{head}</div>{prompt}{inner}{answer}', line=True)


def prompt_html(prompt: str) -> str:
    """The prompt."""
    return f'{STYLE}<div class="fsub-head">Prompt</div>{text_html(prompt)}'


def foot_html(story: AgentStory, now: float) -> str:
    """The moving part of a block. `now`: seconds since the epoch."""
    moving = ""
    if story.finished is None:
        for call in story.calls_made:
            moving += "".join(_live_html(output) for output in call.outputs[call.settled :] if call.running)
        moving += _streaming_html(story)
    status = shown_status(story)
    colour = _COLOURS.get(status, _COLOUR_OF_ENDING)
    dot = f'<span class="fsub-dot" style="background:{colour}"></span>'
    return _framed(story, f'{moving}<div class="fsub-status">{dot}{escaped(_foot_line(story, now))}</div>')


def _streaming_html(story: AgentStory) -> str:
    if story.streaming is None:
        return ""
    text = story.streaming.end(STREAMING_CHARS)
    if story.streaming.kind == "answer":
        return markdown_html(text)
    return "" if story.depth else f'<div class="fsub-note">thinking … {escaped(one_line(text[-300:], 300))}</div>'


def body_text(story: AgentStory) -> str:
    """The settled part of a block, as text."""
    lines = [f"{short_id(story.agent_id)}  {_label(story)}"]
    for step in steps_of(story):
        lines += _step_lines(step)
    return _indented(story, lines)


def _label(story: AgentStory) -> str:
    return one_line(story.description or story.prompt)


def foot_text(story: AgentStory, now: float) -> str:
    """The status line, as text."""
    return _indented(story, [_foot_line(story, now)])


def _foot_line(story: AgentStory, now: float) -> str:
    """The status; while it changes, with the time of day, since a page that was reloaded stands still."""
    at = "" if story.finished else f" · as of {time.strftime('%H:%M:%S', time.localtime(now))}"
    return status_line(story, now) + at


def question_html(request: ApprovalRequest | QuestionRequest, below: str = "") -> str:
    """A question in full. Args: below: HTML that follows it."""
    detail = own_words(request) if isinstance(request, QuestionRequest) else _detail(request)
    is_code = isinstance(request, ApprovalRequest) and isinstance(request.call, CodeAction)
    shown = code_html(detail) if is_code else f'<pre class="fsub-code">{escaped(detail)}</pre>' * bool(detail)
    who = f'<span class="fsub-id">{escaped(who_asks(request))}</span>'
    head = f'<span class="fsub-open">?</span> {who}{escaped(asks_for(request))}'
    return f'{STYLE}<div class="fsub fsub-question tex2jax_ignore mathjax_ignore"><div>{head}</div>{shown}{below}</div>'


def effects_html(effects: Effects) -> str:
    """What is shown below the code. Empty: trials are off."""
    if effects.off:
        return ""
    lines = "\n".join(map(_effect_html, effect_lines(effects)))
    pictures = [*map(bundle_html, filter(is_picture, effects.displays))][:MAX_PICTURES]
    return f'<pre class="fsub-text">{lines}</pre>{"".join(pictures)}'


def _effect_html(line: EffectLine) -> str:
    text = escaped(line.text)
    return f'<span class="{_CLASSES[line.kind]}">{text}</span>' if line.kind in _CLASSES else text


def _detail(request: ApprovalRequest | QuestionRequest) -> str:
    return request.call.text if isinstance(request, ApprovalRequest) else asked_text(request)


def question_text(request: ApprovalRequest | QuestionRequest) -> str:
    """A question in full, as text."""
    return _headed(request, _detail(request))


def own_question_text(request: QuestionRequest) -> str:
    """A question without its fields, as text."""
    return _headed(request, own_words(request))


def _headed(request: ApprovalRequest | QuestionRequest, detail: str) -> str:
    lines = [f"{who_asks(request)}: {asks_for(request)}", *(f"    {line}" for line in detail.split("\n") if detail)]
    return "\n".join(lines)


def _framed(story: AgentStory, inner: str, *, line: bool = False) -> str:
    """Indents a child under its parent, with a line at the side of its body."""
    indent = INDENT_PX * min(story.depth, MAX_INDENTS)
    line = line and story.depth > 0
    style = f' style="margin-left:{indent - 15 * line}px"' if indent else ""
    return f'<div class="fsub tex2jax_ignore mathjax_ignore{" fsub-line" * line}"{style}>{inner}</div>'


def _fold(summary: str, inner: str) -> str:
    return f"<details><summary>{escaped(summary)}</summary>{inner}</details>"


def _is_answer(step: Step) -> bool:
    return isinstance(step, Said) and step.kind == "answer"


def _counted(steps: Sequence[Step]) -> str:
    calls = [step for step in steps if isinstance(step, CallStep)]
    pictures = sum(_is_display_of_picture(output) for call in calls for output in call.shown)
    parts = [counted(len(calls), "call")]
    if pictures:
        parts.append(counted(pictures, "picture"))
    return ", ".join(parts)


def _is_display_of_picture(output: object) -> bool:
    return isinstance(output, DisplayData | ExecuteResult) and is_picture(output.data)


def _step_html(step: Step) -> str:
    match step:
        case CallStep():
            return _call_html(step)
        case Approval():
            return _output_html(step)
        case Said(kind="thoughts"):
            return _fold("thoughts", text_html(step.text))
        case Said(kind="answer"):
            return markdown_html(step.text)
        case Said(kind="plan"):
            return text_html(step.text, "plan")
        case Said():
            return f'<div class="fsub-note{" fsub-bad" * (step.kind == "error")}">{escaped(visible(step.text))}</div>'


def _call_html(call: CallStep) -> str:
    head = [] if call.code is not None else [f'<span class="fsub-note">{escaped(_title(call))}</span>']
    head += map(_decision_html, call.approvals)
    title = f'<div class="fsub-title">{escaped(call.title)}</div>' if call.label else ""
    parts = [] if call.code is None else [title, *([] if _is_asked(call) else [code_html(call.code)])]
    if head:
        parts.append(f'<div class="fsub-asked">{" · ".join(head)}</div>')
    if call.left_out:
        parts.append(f'<div class="fsub-note">… {counted(call.left_out, "earlier output")} left out …</div>')
    parts += [_output_html(output) for output in call.outputs[: call.settled]]
    parts += [f'<div class="fsub-note">{escaped(visible(note))}</div>' for note in notes_of(call)]
    if result := result_of(call):
        failed = call.outcome in ("failed", "denied")
        parts.append(
            f'<div class="fsub-note fsub-bad">{escaped(visible(result))}</div>'
            if failed
            else _fold("result", text_html(result))
        )
    return "".join(parts)


def _is_asked(call: CallStep) -> bool:
    """Whether the question whether to run its code is open: it shows the code."""
    asked = (approval.request.call for approval in call.approvals if approval.decision is None)
    return any(isinstance(action, CodeAction) and action.code == call.code for action in asked)


def _title(call: CallStep) -> str:
    if call.name == "task":
        return one_line(f"starts a child agent: {call.args.get('description') or call.args.get('prompt', '')}")
    args = ", ".join(f"{name}={value!r}" for name, value in call.args.items() if name != "label" or not call.label)
    label = f"{call.label}: " if call.label else ""
    return one_line(f"{label}{tool_words(call.name) or 'tool'}({args})", 300)


def _decided(approval: Approval) -> str:
    """The decision in words; `WAITING` while there is none."""
    decision = approval.decision
    if decision is None:
        return WAITING
    reason = f": {decision.reason}" if decision.reason else ""
    return visible(f"{'approved' if decision.allowed else 'denied'}{reason}")


def _decision_html(approval: Approval) -> str:
    kind = "open" if approval.decision is None else "yes" if approval.decision.allowed else "no"
    return f'<span class="fsub-{kind}">{escaped(_decided(approval))}</span>'


def _asked(question: QuestionRequest | QuestionAnswered) -> str:
    if isinstance(question, QuestionAnswered):
        return visible(given_answer(question))
    return visible(f"{asked_title(question)}: {asked_text(question)}")


def _output_html(output: CallItem) -> str:
    match output:
        case GrowingText():
            return text_html(str(output), output.kind)
        case CellError():
            return text_html(error_text(output), "error")
        case Approval():
            asked = escaped(one_line(output.request.call.summary, 300))
            return f'<div class="fsub-asked">{_decision_html(output)} · {asked}</div>'
        case QuestionRequest() | QuestionAnswered():
            return f'<div class="fsub-note">{escaped(_asked(output))}</div>'
        case _:
            return bundle_html(output.data)


def _live_html(output: CallItem) -> str:
    """The newest lines, since a reader cannot scroll a box that is redrawn all the time."""
    if not isinstance(output, GrowingText):
        return _output_html(output)
    lines = clean(str(output)).rstrip("\n").split("\n")
    more = [f"… {counted(len(lines) - LIVE_LINES, 'line')} above …"] if len(lines) > LIVE_LINES else []
    return text_html("\n".join(more + lines[-LIVE_LINES:]), output.kind)


def _step_lines(step: Step) -> list[str]:
    match step:
        case CallStep():
            return _call_lines(step)
        case Approval():
            return _output_lines(step)
        case Said(kind="thoughts"):
            return []
        case Said(kind="answer"):
            return clean(step.text).splitlines()
        case Said():
            return [visible(step.text)]


def _call_lines(call: CallStep) -> list[str]:
    code = call.code
    lines = [f"> {line}" for line in visible(code).splitlines()] if code is not None else [_title(call)]
    lines[:0] = [call.title] if code is not None and call.label else []
    lines += map(_decided, call.approvals)
    for output in call.outputs[: call.settled]:
        lines += _output_lines(output)
    return [*lines, *map(visible, notes_of(call)), *clean(result_of(call)).splitlines()]


def _output_lines(output: CallItem) -> list[str]:
    match output:
        case GrowingText():
            return clean(str(output)).splitlines()
        case CellError():
            return clean(error_text(output)).splitlines()
        case Approval():
            return [f"{_decided(output)} · {one_line(output.request.call.summary)}"]
        case QuestionRequest() | QuestionAnswered():
            return [_asked(output)]
        case _:
            return bundle_text(output.data).splitlines()


def _indented(story: AgentStory, lines: Sequence[str]) -> str:
    return "\n".join("    " * story.depth + line for line in lines)
