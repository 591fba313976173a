"""Decides whether a text that ends a run is an answer. By default any non-empty text is (`is_empty`).

`problem_with` is for small models only (`answer_check = "small"`). They often end a run with a tool call written as text, or
with code that nobody has run. Both are recognised by their form, as `models/small/` reads it; what a text says in words is
never looked at.
"""

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pydantic_ai.messages import ModelMessage, ToolCallPart, ToolReturnPart, UserPromptPart

from freeact_sub.models.small.arguments import Schemas
from freeact_sub.models.small.block_mode import CELL_TOOL
from freeact_sub.models.small.fences import FencedBlock, Prose, read_spans
from freeact_sub.models.small.python_syntax import parse_python
from freeact_sub.models.small.written_calls import calls_in


@dataclass(frozen=True, kw_only=True)
class Problem:
    """Why a text is no answer."""

    what: str
    """For people; continues "the model gave no answer: "."""
    advice: str
    """For the model."""


EMPTY: Final = Problem(
    what="its reply was empty",
    advice="You gave no answer. Take the next step, or answer with what you have found.",
)
WRITTEN: Final = Problem(
    what="it wrote a call of a tool as text and made none",
    advice="You wrote a call of a tool as text, and text is not run. Make the call in the way that you were told of, or "
    "answer with the result itself.",
)
SHOWN: Final = Problem(
    what="it wrote code as text and did not run it",
    advice="Nobody has run the code that you wrote as text. Run it now, by a tool call or, if you have no tools, in a "
    "block that is marked ```python. Or answer with the result itself, in words.",
)
SHOWN_AGAIN: Final = Problem(
    what="it wrote code that had run already, and no result",
    advice="You wrote code that has run already. Answer in plain text, without code, with what it has shown.",
)

FEW_WORDS: Final = 10
"""This many words beside code are an answer."""
CALL_WORDS: Final = 30
"""This many words beside the call of a tool are an answer."""

_FENCE = re.compile(r"^[ \t]*(?:`{3,}|~{3,})\w*[ \t\r]*$", re.MULTILINE)
_INVISIBLE: Final = ("Cc", "Cf")
"""Categories of invisible characters, such as the zero-width space and the byte order mark."""
_TAGGED = re.compile(r"<(tool_call|tools|tool|function_call)>(.*?)(?:</\1>|\Z)", re.DOTALL)


def is_empty(text: str) -> bool:
    """Whether a text is empty; an empty fenced block counts as empty."""
    return all(char.isspace() or unicodedata.category(char) in _INVISIBLE for char in _FENCE.sub("", text))


def problem_with(text: str, tools: Schemas, messages: Sequence[ModelMessage] = ()) -> Problem | None:
    """Finds why a text that ends a small model's run is not an answer. None: it is one.

    Args:
        text: The text.
        tools: The tools that the model may call.
        messages: The conversation before it.
    """
    if is_empty(text):
        return EMPTY
    if tools and _is_call(text, tools):
        return WRITTEN
    return _problem_of_code(text, messages) if CELL_TOOL in tools else None


def _is_call(text: str, tools: Schemas) -> bool:
    """Whether a text is little more than a call of a tool."""
    return any(calls_in(body, tools) and len(text.replace(raw, " ").split()) < CALL_WORDS for raw, body in _bodies(text))


def _bodies(text: str) -> list[tuple[str, str]]:
    """Returns the parts that may be calls (tagged parts, blocks, the whole text), each with and without its marks."""
    tagged = [(match[0], match[2]) for match in _TAGGED.finditer(text)]
    blocks = [(span.raw, span.code) for span in read_spans(text) if isinstance(span, FencedBlock)]
    return [*tagged, *blocks, (text, text.strip())]


def _problem_of_code(text: str, messages: Sequence[ModelMessage]) -> Problem | None:
    """Detects a text that is code, run or not, with hardly a word besides."""
    spans = read_spans(text)
    codes = [span.code for span in spans if isinstance(span, FencedBlock) and (span.is_python or _is_unmarked_code(span))]
    beside = "".join(span.raw for span in spans if isinstance(span, Prose))
    if not codes or len(beside.split()) >= FEW_WORDS:
        return None
    return SHOWN_AGAIN if _normalized("\n\n".join(codes)) in _codes_run(messages) else SHOWN


def _is_unmarked_code(block: FencedBlock) -> bool:
    """Whether a block without a language is code rather than output: it must do something."""
    does = re.search(r"[(=]|^import |^from ", block.code) is not None
    return not block.language and does and parse_python(block.code) is not None


def _codes_run(messages: Sequence[ModelMessage]) -> set[str]:
    """The cells that have run since the newest prompt, in the form of `_normalized`."""
    sent: dict[str, str] = {}
    run: set[str] = set()
    for part in (part for message in messages for part in message.parts):
        if isinstance(part, UserPromptPart):
            run = set()
        elif isinstance(part, ToolCallPart):
            sent[part.tool_call_id] = _normalized(str(part.args_as_dict().get("code", "")))
        elif isinstance(part, ToolReturnPart):
            run |= {sent.get(part.tool_call_id, "")} - {""}
    return run


def _normalized(code: str) -> str:
    """Returns code without comments, empty lines and trailing spaces, for comparison."""
    lines = (re.sub(r"(?:^|\s+)#[^'\"]*$", "", line).rstrip() for line in code.splitlines())
    return "\n".join(line for line in lines if line)
