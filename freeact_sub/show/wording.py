"""The wording of the front ends: rich output as text, answers to questions, notes on cells and endings."""

import base64
import binascii
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from freeact_sub import events as ev
from freeact_sub.agent_names import NAME_CHARS, short_id
from freeact_sub.calls import HARMLESS, FanOut
from freeact_sub.cells import CELL_TOOL, CellError, MimeBundle
from freeact_sub.events.ending import FileReceipt, Receipts
from freeact_sub.events.progress import PlanState, PlanStatus
from freeact_sub.show.forms import form_lines, own_prompt
from freeact_sub.text import clean, counted, files_text, label_of, one_line, visible, whole_line

if TYPE_CHECKING:  # slow to import
    from freeact_sub.sessions import StoredSession

PICTURES: Final = ("image/png", "image/jpeg", "image/gif", "image/webp", "image/svg+xml")
TOOL_OUTPUT_LINES: Final = 12
LAST_LINES: Final = 5
"""Number of last lines among them."""
PICTURES_SHOWN: Final = 20
MAX_CHARS: Final = 100_000
TITLE_CHARS: Final = 60
MESSAGES: Final = {"request": "asks", "response": "answers", "status": "tells", "cancel": "cancels"}
"""An agent's action on a message, in words between its name and the other's."""
_TOOLS: Final = {
    CELL_TOOL: ("runs code", "code"),
    "task": ("starts a child", "child"),
    "delegate": ("hands out subtasks", "subtasks"),
    "subagents": ("looks after its children", "children"),
    "reset_kernel": ("starts a new kernel", "new kernel"),
    "ask": ("asks a model", "question to a model"),
    "ask_parent": ("asks its parent", "question to its parent"),
    "ask_user": ("asks you", "question to you"),
    "remember": ("notes a fact", "note"),
}
"""Words for a call of each of our tools, and in place of the tool's name."""
PLAN_MARKS: Final[dict[PlanStatus, str]] = {"pending": "○", "in_progress": "●", "completed": "✓", "failed": "✗"}
_JPEG_SIZES: Final = {*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC}
"""The JPEG segments that hold the picture's size."""


def tool_words(tool_name: str, *, does: bool = False) -> str:
    """Return the words that people read in place of a tool's name.

    Args:
        tool_name: The name, such as `execute_ipython_cell`; one that is not ours stays as it is.
        does: Use words that say what the agent does, and follow its name.
    """
    name = one_line(tool_name)
    verb, noun = _TOOLS.get(tool_name, (f"calls {name}", name))
    return verb if does else noun


def rule_words(patterns: Iterable[str]) -> str:
    """Return the scope of an "always" for people: a kind of call in words, or the pattern."""
    return whole_line(", ".join(map(_pattern_words, patterns)))


def cheaper_models(request: ev.ApprovalRequest) -> tuple[str, ...]:
    """Return the models that an approval may choose, in the order of their numbers."""
    return tuple(request.call.cheaper) if isinstance(request.call, FanOut) else ()


def _pattern_words(pattern: str) -> str:
    known = {
        HARMLESS: "cells that change nothing",
        "spawn": "children",
        "spawn:default": "children",
        "spawn:resumed": "resumed children",
        "tool:remember": "notes",
    }
    model = pattern.removeprefix("spawn:model ")
    return known.get(pattern) or (pattern if model == pattern else f"children with the model {model}")


def display_text(data: MimeBundle) -> str:
    """Return a rich output as text: one line about a picture, else the plain form that the kernel sent with it."""
    for media_type in PICTURES:
        if media_type in data:
            return _picture(media_type, data[media_type])
    for media_type in ("text/plain", "text/markdown", "text/latex"):
        if isinstance(data.get(media_type), str):
            return bounded(data[media_type])
    return f"({', '.join(map(str, data)) or 'empty output'}: not shown in a terminal)"


def error_text(error: CellError) -> str:
    """Return an exception as IPython formats it."""
    return bounded("\n".join(error.traceback) or f"{error.ename}: {error.evalue}")


def bounded(text: str) -> str:
    """Return the beginning of a text of any size; drawing it must not take seconds."""
    left = len(text) - MAX_CHARS
    return text if left <= 0 else f"{text[:MAX_CHARS]}\n… {left:,} more characters"


def who_asks(request: ev.ApprovalRequest | ev.QuestionRequest) -> str:
    """Return the agents from the root to the one that asks, in one line."""
    return " → ".join(names_of_asker(request))


def names_of_asker(request: ev.ApprovalRequest | ev.QuestionRequest) -> list[str]:
    """Return the names of these agents."""
    return [label_of(name, NAME_CHARS) for name in request.path] or [short_id(request.agent_id)]


def decided(event: ev.ApprovalDecided, request: ev.ApprovalRequest | None) -> str:
    """Return the decision on a call, in words after the name of the agent that asked."""
    what = f": {one_line(request.call.summary)}" if request is not None else ""
    if event.allowed and event.code is not None:
        return "was approved, with other code"  # which stands below
    if event.allowed:
        return f"was approved{'' if event.model is None else f' with {one_line(event.model)}'}{what}"
    reason = f" ({one_line(event.reason, 300)})" if event.reason else ""
    return f"was denied{reason}{what}"


def asked_title(event: ev.QuestionRequest) -> str:
    """Return the head of a question, in words after the name of the agent that asks."""
    if event.server:
        return f"asks you for the MCP server {one_line(event.server)}"
    return "asks for a secret" if event.secret else "asks you"


def asked_text(event: ev.QuestionRequest | ev.QuestionAnswered) -> str:
    """Return a question in full, with its fields; code may ask without a word."""
    if isinstance(event, ev.QuestionAnswered):
        return _words_of(event.prompt)
    lines = [own_words(event), *form_lines(event)]
    return bounded("\n".join(line for line in lines if line))


def own_words(event: ev.QuestionRequest) -> str:
    """Return a question without its fields, with the page that an MCP server wants a person to open."""
    prompt = own_prompt(event)
    words = [_words_of(prompt)] if prompt or not event.fields else []
    if event.url:
        words += [f"The MCP server {one_line(event.server)} asks you to open this page. Nothing opens it for you:"]
        words += [visible(event.url), "Say yes when you have opened it, or no to refuse."]
    return "\n".join(words)


def _words_of(prompt: str) -> str:
    return bounded(clean(prompt)).strip() or "(the code reads from the keyboard)"


def given_answer(event: ev.QuestionAnswered) -> str:
    """Return the end of a question, in words after the name of the agent that asked."""
    if event.answered:
        return f"gets the answer: {one_line(event.text, 300)}" if event.text else "gets an answer"
    return "gets no answer" + (f" ({one_line(event.reason, 300)})" if event.reason else "")


def question_and_answer(event: ev.QuestionAnswered) -> str:
    """Return a closed question, in one line."""
    answer = given_answer(event).removeprefix("gets the answer: ")
    if event.values is not None and len(event.values) > 1 and event.prompt == "\n".join(event.values):
        return answer  # which has the questions
    return f"{one_line(asked_text(event), 200)} → {answer}"


def ending_notes(event: ev.AgentFinished) -> list[str]:
    """Return one line for each fact about an ended run besides its status, answer, error and warnings."""
    total = f"with its children: {event.tree_usage}" if event.tree_usage != event.usage else ""
    notes = [f"{event.usage}, {event.seconds:.1f} s", total, files_text(event.files_written, event.files_removed)]
    notes += [one_line(note, 300) for note in event.notes]
    return [note for note in notes if note]


def receipt_lines(event: ev.AgentFinished) -> list[str]:
    """Return a run's work as the host saw it: notes, commands, calls, children, files."""
    lines, made = [*event.notes], event.receipts or Receipts()
    notes = {(True, False): " (outside the sandbox)", (False, True): " (by a library)"}
    lines += [f"command: {ran.command}{notes.get((ran.outside, ran.by_library), '')}" for ran in made.commands]
    lines += [f"call: {call.name}{' (failed)' if call.status == 'failed' else ''}" for call in made.calls]
    lines += [f"child: {short_id(child.agent_id)} ({child.status.replace('_', ' ')})" for child in made.children]
    for what, files in (("read", made.files_read), ("written", made.files_written)):
        lines += [f"{what}: {file.path}{_digest(file)}" for file in files]
    lines += [f"no receipt: {file.name}" for file in made.named if file.receipt == "none"]
    return [one_line(line, 300) for line in [*lines, *([f"{made.left_out:,} more receipts"] if made.left_out else [])]]


def _digest(file: FileReceipt) -> str:
    return f" ({file.size:,} bytes, sha256 {file.sha256[:12]})" if file.sha256 else ""


def spent(event: ev.AgentFinished) -> str:
    """Return the usage of a run, its children's share counted once."""
    usage = event.tree_usage
    tokens = f"{usage.tokens_text} tokens" + (f" ({usage.cache_text})" if usage.cache_text else "")
    parts = [f"{event.seconds:.1f} s", counted(usage.turns, "turn"), tokens, usage.cost_text]
    return " · ".join(part for part in parts if part)


def strategy_text(step: ev.StrategyProgress) -> str:
    """Return the progress of a strategy, in one line."""
    number = counted(step.step, "step") if step.of is None else f"{step.step:,} of {step.of:,}"
    parts = [f"{one_line(step.strategy, 60)}: {number}", *([f"{step.failed:,} failed"] if step.failed else ())]
    if step.node is not None:
        parts.append(f"{one_line(step.node.node_id, 60)} {step.node.score:.2f} {one_line(step.node.action, 80)}".strip())
    if step.best:
        parts.append(f"best {one_line(step.best, 60)}")
    return " · ".join(parts)


def call_progress_text(event: ev.ToolProgress) -> str:
    """Return the progress of an MCP server's call, in one line."""
    return f"{one_line(event.tool_name, 60)}: {one_line(event.words)}"


def plan_title(plan: PlanState) -> str:
    """Return a plan's progress and its explanation, in one line."""
    return "  ".join(filter(None, [f"{plan.done} of {len(plan.steps)} done", one_line(plan.explanation)]))


def plan_lines(plan: PlanState) -> list[str]:
    """Return a line for each step of a plan, with the mark of its state."""
    return [f"{PLAN_MARKS[step.status]} {one_line(step.step)}" for step in plan.steps]


def picture_notes(event: ev.CodeExecutionOutput) -> list[str]:
    """Return the paths of the pictures that a cell has shown."""
    notes = [f"picture: {one_line(file, 300)}" for file in event.picture_files[:PICTURES_SHOWN]]
    more = len(event.picture_files) - len(notes)
    return [*notes, *([f"{counted(more, 'more picture')} beside it"] if more > 0 else [])]


def cell_notes(event: ev.CodeExecutionOutput) -> list[str]:
    """Return notes on a cell's output beyond what was shown."""
    notes = []
    if event.left_out_chars:
        notes.append(f"{event.left_out_chars:,} characters of output are not shown here")
    if event.output_file:
        notes.append(f"all of the output: {one_line(event.output_file, 300)}")
    return notes


def folded(text: str) -> str:
    """Return a tool's result, cleaned; only its first and last lines if it is long."""
    lines = clean(text).rstrip().splitlines()
    left = len(lines) - TOOL_OUTPUT_LINES
    if left <= 0:
        return "\n".join(lines)
    first, last = lines[: TOOL_OUTPUT_LINES - LAST_LINES], lines[-LAST_LINES:]
    return "\n".join([*first, f"… {counted(left, 'more line')}", *last])


def _picture(media_type: str, data: Any) -> str:
    if media_type == "image/svg+xml":
        return f"[picture: {media_type}, {len(str(data).encode(errors='replace')):,} bytes]"
    try:
        content = base64.b64decode(data)
    except (binascii.Error, ValueError, TypeError):
        return f"[picture: {media_type}, data that cannot be read]"
    size = _size(content)
    return f"[picture: {media_type}, {len(content):,} bytes" + (f", {size[0]} x {size[1]} pixels]" if size else "]")


def _size(content: bytes) -> tuple[int, int] | None:
    """Return width and height in pixels; None: the picture does not tell."""
    if content.startswith(b"\x89PNG") and len(content) >= 24:
        return int.from_bytes(content[16:20]), int.from_bytes(content[20:24])
    if content.startswith(b"GIF") and len(content) >= 10:
        return int.from_bytes(content[6:8], "little"), int.from_bytes(content[8:10], "little")
    if content.startswith(b"\xff\xd8"):
        return _jpeg_size(content)
    return None


def _jpeg_size(content: bytes) -> tuple[int, int] | None:
    at = 2
    while at + 9 <= len(content) and content[at] == 0xFF:
        if content[at + 1] in _JPEG_SIZES:
            return int.from_bytes(content[at + 7 : at + 9]), int.from_bytes(content[at + 5 : at + 7])
        at += 2 + max(2, int.from_bytes(content[at + 2 : at + 4]))
    return None


def ago(then: float, now: float) -> str:
    """Return the age of a moment: `2 h ago`."""
    minutes = int(max(0.0, now - then) // 60)
    for unit, length in (("week", 7 * 24 * 60), ("day", 24 * 60)):
        if minutes >= length:
            return f"{counted(minutes // length, unit)} ago"
    return f"{minutes // 60} h ago" if minutes >= 60 else f"{minutes} min ago" if minutes else "just now"


def session_title(session: "StoredSession") -> str:
    """Return the title of a session: the first line of its first prompt, shortened."""
    first = next((line for line in clean(session.title).splitlines() if line.strip()), "")
    return one_line(first, TITLE_CHARS)


def session_facts(session: "StoredSession", now: float) -> str:
    """Return age and size: `2 h ago · 4 agents · 80,118 tokens`."""
    agents = counted(session.agents, "agent") if session.agents > 1 else ""
    facts = [ago(session.updated, now), agents, f"{session.usage.tokens_text} tokens", session.usage.cost_text]
    return " · ".join(filter(None, [*facts, "archived" if session.archived else ""]))


def session_line(session: "StoredSession", *, folder: bool, state: str = "") -> str:
    """Return a session in one line. Args: folder: name its folder. state: what its program does now; empty: it has none."""
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(session.updated))
    agents = counted(session.agents, "agent")
    cost = session.usage.cost_text or f"{session.usage.tokens_text} tokens"
    notes = [state or session.status or "open", *(["archived"] if session.archived else []), agents, cost]
    where = f"  {session.workspace}" if folder else ""
    return f"{session.session_id}  {when}  {one_line(session.title, TITLE_CHARS)}  ({', '.join(notes)}){where}"
