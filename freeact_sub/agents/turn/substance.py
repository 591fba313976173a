"""Decides whether a text that ends a run is an answer. By default any non-empty text is (`is_empty`).

`problem_with` is for small models only (`answer_check = "small"`). They often end a run with a tool call written as text,
the description of a tool, or code that nobody has run; these are not answers. They also announce the next step instead of
taking it, write a plan for somebody else, or repeat what they were sent. That is a guess from the wording
(`Problem.is_guess`); correct answers may sound the same, so it never causes more than a question.
"""

import json
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from typing import Any, Final

from pydantic_ai.messages import ModelMessage, ToolCallPart, ToolReturnPart, UserPromptPart

from freeact_sub.models.small.arguments import Schemas
from freeact_sub.models.small.block_mode import CELL_TOOL
from freeact_sub.models.small.fences import FencedBlock, Prose, read_spans
from freeact_sub.models.small.python_syntax import parse_python
from freeact_sub.models.small.written_calls import calls_in
from freeact_sub.tools.execute import NO_OUTPUT


@dataclass(frozen=True, kw_only=True)
class Problem:
    """The flaw of a text that may be no answer."""

    what: str
    """For people; continues "the model gave no answer: "."""
    advice: str
    """For the model."""
    is_guess: bool = False
    """The text only sounds like it."""


@dataclass(frozen=True, kw_only=True)
class Situation:
    """The conversation before a text."""

    prompt: str = ""
    """The user's latest text."""
    has_acted: bool = False
    """Whether a tool was called since then."""
    codes: frozenset[str] = frozenset()
    """The cells run since then, in the form of `_normalized`."""


EMPTY: Final = Problem(
    what="its reply was empty",
    advice="You gave no answer. Take the next step, or answer with what you have found.",
)
DESCRIBED: Final = Problem(
    what="it wrote the description of a tool and called none",
    advice="You wrote the description of a tool, and called none. Call it, or answer with the result itself.",
)
WRITTEN: Final = Problem(
    what="it wrote a call of a tool as text and made none",
    advice="You wrote a call of a tool as text, and text is not run. Make the call in the way that you were told of, or "
    "answer with the result itself.",
)
UNKNOWN: Final = Problem(
    what="it wrote a call of a tool that there is not",
    advice="You wrote a call of a tool that there is not. Call one that there is, or answer with the result itself.",
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
ANNOUNCED: Final = Problem(
    what="it sounds like the announcement of a step",
    advice="You seem to have announced a step and not to have taken it. If so, take it now; if that was your answer, give "
    "it again.",
    is_guess=True,
)
PLANNED: Final = Problem(
    what="it sounds like a plan, and nothing was done",
    advice="You seem to have written what is to be done, and to have done none of it. If so, do it now by running code; "
    "if that was your answer, give it again.",
    is_guess=True,
)
ECHOED: Final = Problem(
    what="it sounds like a repetition of what the model was sent",
    advice="You seem to have repeated what you were sent. If so, take the next step, or answer in words of your own with "
    "what you have found; if that was your answer, give it again.",
    is_guess=True,
)

PROBLEMS: Final = (EMPTY, DESCRIBED, WRITTEN, UNKNOWN, SHOWN, SHOWN_AGAIN, ANNOUNCED, PLANNED, ECHOED)

FEW_WORDS: Final = 10
"""This many words beside code or the description of a tool are an answer."""
CALL_WORDS: Final = 30
"""This many words beside the call of an existing tool are an answer."""
ANNOUNCEMENT_CHARS: Final = 600
"""A longer text says more than what comes next."""
ECHO_WORDS: Final = 4
"""A shorter prompt may be its own answer ("Say yes")."""
ECHO_SHARE: Final = 0.9
"""A text that repeats this share of the prompt, and adds only the words below, is an echo."""
_NOTHING_ADDED = frozenset({"it", "the", "a", "an", "is", "that"})

_FENCE = re.compile(r"^[ \t]*(?:`{3,}|~{3,})\w*[ \t\r]*$", re.MULTILINE)
_INVISIBLE: Final = ("Cc", "Cf")
"""Categories of invisible characters, such as the zero-width space and the byte order mark."""
_TAGGED = re.compile(r"<(tool_call|tools|tool|function_call)>(.*?)(?:</\1>|\Z)", re.DOTALL)
_FOREIGN = re.compile(r"\s*(?:<tool_response>|(?:your|the) block was (?:not )?run\. the result:)", re.IGNORECASE)
"""The beginning of results for the model; a reply that starts with it plays both sides."""
_PLAN_ITEM = re.compile(
    r"""(?ix) (?:\d+[.)]|[-*])\s+ (?:\*\*)? (?:(?:then|next|now|finally),?\s+)?
    (?:add|append|calculate|call|change|check|close|compute|convert|correct|count|create|define|display|divide|edit|execute
    |extract|filter|find|fix|get|go|import|initialize|iterate|load|locate|loop|make|modify|multiply|open|output|print|read
    |remove|replace|return|run|save|select|set|start|store|sum|update|use|verify|write)\b
    """
)
_BY_PROGRAM = re.compile(r"\b(?:files?|code|script|print|run|column|rows?|lines?|python|output|results?)\b", re.IGNORECASE)
"""A plan with such a word is for a program, not for a holiday."""

_COURTESY = re.compile(
    r"(sure|certainly|of course|okay|ok|alright|great|got it|understood|no problem|absolutely)\b", re.IGNORECASE
)
_ANNOUNCES = re.compile(
    r"""
    (?:(?:now|next|first|then|so|okay|and)[,:]?\s+){0,3}
    (?:to\s[^,]{1,120},\s+)?                                          # to find that, …
    (?:i|we)(?:\s(?:will|need\s+to|should|am\s+(?:going|about)\s+to|are\s+going\s+to)|'ll|'m\s+(?:going|about)\s+to)\s+VERB
    |
    (?:(?:now|next|first|then|so|okay|and)[,:]?\s+){0,3}
    (?:to\s[^,]{1,120},\s+)?
    let(?:\sme|\sus|'s)\s+VERB
    """.replace(
        "VERB",
        r"(?:(?:now|first|then|start\s+by|begin\s+by|go\s+ahead\s+and)\s+){0,3}"
        r"(?!(?:know|be|not|note|summari[sz]e|explain|wait)\b)[a-z]+",
    ),
    re.IGNORECASE | re.VERBOSE,
)


def is_empty(text: str) -> bool:
    """Whether a text is empty; an empty fenced block counts as empty."""
    return all(char.isspace() or unicodedata.category(char) in _INVISIBLE for char in _FENCE.sub("", text))


def situation_of(messages: Sequence[ModelMessage]) -> Situation:
    """Reads the situation of the next reply from a history."""
    situation, codes = Situation(), dict[str, str]()
    for message in messages:
        for part in message.parts:
            if isinstance(part, UserPromptPart):
                situation = Situation(prompt=_text_of(part))
            elif isinstance(part, ToolCallPart):
                codes[part.tool_call_id] = _normalized(str(part.args_as_dict().get("code", "")))
            elif isinstance(part, ToolReturnPart):
                run = {codes.get(part.tool_call_id, "")} - {""}
                situation = replace(situation, has_acted=True, codes=situation.codes | run)
    return situation


def _text_of(part: UserPromptPart) -> str:
    if isinstance(part.content, str):
        return part.content
    return "\n".join(item for item in part.content if isinstance(item, str))


def problem_with(text: str, tools: Schemas, situation: Situation) -> Problem | None:
    """Finds why a text that ends a small model's run is not an answer. None: it is one.

    Args:
        text: The text.
        tools: The tools that the model may call.
        situation: The conversation before it.
    """
    if is_empty(text):
        return EMPTY
    if tools and (problem := _problem_of_calls(text, tools)):
        return problem
    if CELL_TOOL in tools and (problem := _problem_of_code(text, situation)):
        return problem
    return _sounds_like(text, situation, can_act=CELL_TOOL in tools)


def _problem_of_calls(text: str, tools: Schemas) -> Problem | None:
    """Detects a text that is little more than a tool call or the description of a tool."""
    for raw, body in _bodies(text):
        beside = len(text.replace(raw, " ").split())
        problem = _problem_of_body(body, tools) if beside < CALL_WORDS else None
        if problem is WRITTEN or (problem is not None and beside < FEW_WORDS):
            return problem
    return None


def _problem_of_body(body: str, tools: Schemas) -> Problem | None:
    function = _function_in(body)
    if function is not None and "arguments" not in function and function["name"] in tools and _describes(function):
        return DESCRIBED
    if calls_in(body, tools):
        return WRITTEN
    is_call = function is not None and isinstance(function.get("arguments"), dict | str)
    return UNKNOWN if is_call and function is not None and function["name"] not in tools else None


def _bodies(text: str) -> list[tuple[str, str]]:
    """Returns the parts that may be calls (tagged parts, blocks, the whole text), each with and without its marks."""
    tagged = [(match[0], match[2]) for match in _TAGGED.finditer(text)]
    blocks = [(span.raw, span.code) for span in read_spans(text) if isinstance(span, FencedBlock)]
    return [*tagged, *blocks, (text, text.strip())]


def _function_in(body: str) -> dict[str, Any] | None:
    """Returns the function that a pure JSON text describes or calls."""
    body = body.strip()
    try:
        value = json.loads(body) if body.startswith(("{", "[")) else None
    except (ValueError, RecursionError):
        return None
    while not (isinstance(value, dict) and isinstance(value.get("name"), str)):
        if isinstance(value, list) and value:
            value = value[0]
        elif isinstance(value, dict):
            value = next((value[key] for key in ("function", "tool_calls", "tools", "calls") if key in value), None)
        else:
            return None
    return value


def _describes(function: dict[str, Any]) -> bool:
    """Whether there is a schema (`{"type": "object", "properties": ...}`) instead of arguments, or only a name."""
    parameters = function.get("parameters")
    if isinstance(parameters, dict):
        return parameters.get("type") == "object" or "properties" in parameters
    return not function.keys() - {"name", "description", "type", "strict"}


def _problem_of_code(text: str, situation: Situation) -> Problem | None:
    """Detects a text that is code, run or not, with hardly a word besides."""
    spans = read_spans(text)
    codes = [span.code for span in spans if isinstance(span, FencedBlock) and (span.is_python or _is_unmarked_code(span))]
    said = "".join(span.raw for span in spans if isinstance(span, Prose)).replace(situation.prompt or " ", " ")
    if not codes or len(said.split()) >= FEW_WORDS:
        return None
    return SHOWN_AGAIN if _normalized("\n\n".join(codes)) in situation.codes else SHOWN


def _is_unmarked_code(block: FencedBlock) -> bool:
    """Whether a block without a language is code rather than output: it must do something."""
    does = re.search(r"[(=]|^import |^from ", block.code) is not None
    return not block.language and does and parse_python(block.code) is not None


def _normalized(code: str) -> str:
    """Returns code without comments, empty lines and trailing spaces, for comparison."""
    lines = (re.sub(r"(?:^|\s+)#[^'\"]*$", "", line).rstrip() for line in code.splitlines())
    return "\n".join(line for line in lines if line)


def _sounds_like(text: str, situation: Situation, *, can_act: bool) -> Problem | None:
    """Guesses from the wording whether a text is something other than an answer."""
    if only_announces(text):
        return ANNOUNCED
    words = _joined_words(text)
    if _FOREIGN.match(text) or words == _joined_words(NO_OUTPUT) or any(advice in words for advice in _ADVICES):
        return ECHOED
    if _is_echo(words.split(), _joined_words(situation.prompt).split()):
        return ECHOED
    return PLANNED if can_act and not situation.has_acted and only_plans(text) else None


def only_plans(text: str) -> bool:
    """Whether the text is a list of things for a program to do, and nothing else."""
    first, *rest = [line.strip() for line in text.strip().splitlines() if line.strip()]
    items = rest if first.endswith(":") else [first, *rest]
    if len(items) < 2 or not all(_PLAN_ITEM.match(item) for item in items):
        return False
    return _BY_PROGRAM.search(" ".join(items)) is not None


def _is_echo(words: list[str], prompt: list[str]) -> bool:
    if len(prompt) < ECHO_WORDS or not set(words) - set(prompt) <= _NOTHING_ADDED:
        return False
    return SequenceMatcher(None, words, prompt, autojunk=False).ratio() >= ECHO_SHARE


def _joined_words(text: str) -> str:
    """Returns the words only, for comparison."""
    return " ".join(re.findall(r"\w+", text.lower()))


_ADVICES: Final = tuple(_joined_words(problem.advice)[-60:] for problem in PROBLEMS)
"""The ends of all advice texts, to recognise an answer that repeats one."""


def only_announces(text: str) -> bool:
    """Whether the text says what comes next, and nothing else."""
    if len(text) > ANNOUNCEMENT_CHARS or "```" in text:
        return False
    text = text.replace("\N{RIGHT SINGLE QUOTATION MARK}", "'")
    # a sentence ends with a mark before a space or line break: `data.csv` and 3.5 are single words
    sentences = [part for part in re.split(r"(?<=[.!?:…])\s+|\n+", text.strip()) if part]
    courteous = [sentence for sentence in sentences if _COURTESY.match(sentence) and not _ANNOUNCES.search(sentence)]
    rest = [sentence for sentence in sentences if sentence not in courteous]
    return bool(rest) and all(_announces(sentence) for sentence in rest)


def _announces(sentence: str) -> bool:
    words = _COURTESY.sub("", sentence, count=1).lstrip(" ,.!:—-") if _COURTESY.match(sentence) else sentence
    return _ANNOUNCES.match(words) is not None and not re.search(r"[=≈]|\bis \d|\bare \d", sentence)
