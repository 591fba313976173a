"""Is a final text an answer? `problem_with` says what is wrong with one that is none.

Small models often end a run by announcing the next step instead of taking it: in words, as code that nobody runs, or as a
plan for somebody else. The rules are narrow, so that no answer is taken for that: each sentence announces, or is a
courtesy before it; code is only asked about where `models.steps` reads it as a step, so with `code_actions = "tool"`; a plan
only where nothing has been done and the prompt did not ask how. A text that holds a result is an answer, however it begins.
"""

import json
import re
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any, Final

from freeact_sub.models.arguments import Schemas
from freeact_sub.models.blocks import CELL_TOOL
from freeact_sub.models.reading import Words, read
from freeact_sub.models.steps import STATEMENT_WORDS, Situation, asks_for_work, calls_are_meant, decide
from freeact_sub.models.written import Call
from freeact_sub.tools.execute import NO_OUTPUT


@dataclass(frozen=True, kw_only=True)
class Problem:
    """What is wrong with a text that is no answer."""

    what: str
    """For people: continues "the model gave no answer: "."""
    advice: str
    """For the model."""


EMPTY: Final = Problem(
    what="its reply was empty",
    advice="You gave no answer. Take the next step with a tool, or answer with what you have found.",
)
ANNOUNCED: Final = Problem(
    what="it announced a step and did not take it",
    advice="You announced a step and did not take it. Take it now with a tool; or, if you are done, answer with the result "
    "itself.",
)
DESCRIBED: Final = Problem(
    what="it wrote the description of a tool and called none",
    advice="You wrote the description of a tool, and called none. Call it, or answer with the result itself.",
)
UNKNOWN: Final = Problem(
    what="it wrote a call of a tool that there is not",
    advice="You wrote a call of a tool that there is not. Call one that there is, or answer with the result itself.",
)
SHOWN: Final = Problem(
    what="it wrote code as text and did not run it",
    advice="Nobody has run the code that you wrote as text. Run it yourself now: make a tool call with it. Or answer with "
    "the result itself.",
)
SHOWN_AGAIN: Final = Problem(
    what="it wrote code that had run already, and no result",
    advice="You wrote code that has run already. Answer in plain text, without code, with what it has shown.",
)
PLANNED: Final = Problem(
    what="it wrote what is to be done and did none of it",
    advice="You wrote what is to be done, and did none of it. Do it now by running code; then answer with the result.",
)
ECHOED: Final = Problem(
    what="it repeated what it had been sent",
    advice="You repeated what you were sent. Take the next step, or answer in words of your own with what you have found.",
)

PROBLEMS: Final = (EMPTY, ANNOUNCED, DESCRIBED, UNKNOWN, SHOWN, SHOWN_AGAIN, PLANNED, ECHOED)

ANNOUNCEMENT_CHARS: Final = 600
"""A longer text says more than what comes next."""
ECHO_WORDS: Final = 4
"""A shorter prompt may be its own answer ("Say yes")."""
ECHO_SHARE: Final = 0.9
"""So much of the prompt, or more, is an echo if nothing is added but these words."""
_NOTHING_ADDED = frozenset({"it", "the", "a", "an", "is", "that"})

_FENCE = re.compile(r"^\s*(?:`{3,}|~{3,})\w*\s*$", re.MULTILINE)
_FOREIGN = re.compile(r"\s*(?:<tool_response>|(?:your|the) block was (?:not )?run\. the result:)", re.IGNORECASE)
"""How results begin that the model is sent; in a reply, the model plays both sides."""
_PLAN_ITEM = re.compile(
    r"""(?ix) (?:\d+[.)]|[-*])\s+ (?:\*\*)? (?:(?:then|next|now|finally),?\s+)?
    (?:add|append|calculate|call|change|check|close|compute|convert|correct|count|create|define|display|divide|edit|execute
    |extract|filter|find|fix|get|go|import|initialize|iterate|load|locate|loop|make|modify|multiply|open|output|print|read
    |remove|replace|return|run|save|select|set|start|store|sum|update|use|verify|write)\b
    """
)
_BY_PROGRAM = re.compile(r"\b(?:files?|code|script|print|run|column|rows?|lines?|python|output|results?)\b", re.IGNORECASE)
"""A plan with such a word is one for a program, not for a holiday."""

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


def problem_with(text: str, tools: Schemas | None = None, situation: Situation | None = None) -> Problem | None:
    """What is wrong with a text that ends a run; None: it is an answer.

    Args:
        text: The text.
        tools: The tools that the model may call.
        situation: What the text answers to; None: it is not known, and the text is judged by itself.
    """
    tools = tools or {}
    if not _FENCE.sub("", text).strip():
        return EMPTY
    if tools and (problem := _problem_of_json(text, tools)):
        return problem
    if only_announces(text):
        return ANNOUNCED
    words = _plain(text)
    if _FOREIGN.match(text) or words == _plain(NO_OUTPUT) or any(advice in words for advice in _ADVICES):
        return ECHOED
    return _problem_in(situation, text, tools) if situation is not None else None


def _problem_in(situation: Situation, text: str, tools: Schemas) -> Problem | None:
    """What only the conversation shows."""
    prompt = _plain(situation.prompt)
    if _is_echo(_plain(text).split(), prompt.split()):
        return ECHOED
    if CELL_TOOL not in tools:
        return None
    spans = read(text, tools)
    if any(isinstance(span, Call) for span in spans):
        return SHOWN if calls_are_meant(spans, situation) else None
    decision = decide(spans, situation)
    if decision.run:
        return SHOWN
    if decision.rule == "repeated":
        said = _plain("".join(span.raw for span in spans if isinstance(span, Words))).replace(prompt, "")
        return SHOWN_AGAIN if len(said.split()) < STATEMENT_WORDS else None
    if situation.last_result == "none" and asks_for_work(situation.prompt) and only_plans(text):
        return PLANNED
    return None


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


def _plain(text: str) -> str:
    """Words only: for comparing."""
    return " ".join(re.findall(r"\w+", text.lower()))


_ADVICES: Final = tuple(_plain(problem.advice)[-60:] for problem in PROBLEMS)
"""The end of an advice that was given tells that it is repeated."""


def _problem_of_json(text: str, tools: Schemas) -> Problem | None:
    function = _only_function(text)
    if function is None:
        return None
    is_known = function["name"] in tools
    if "arguments" not in function:
        return DESCRIBED if is_known else None
    return UNKNOWN if isinstance(function["arguments"], dict) and not is_known else None


def _only_function(text: str) -> dict[str, Any] | None:
    """The function that a text of nothing but JSON describes or calls, fenced or not."""
    inner = re.sub(r"^```\w*\n|\n?```$", "", text.strip())
    try:
        value = json.loads(inner) if inner.startswith(("{", "[")) else None
    except (ValueError, RecursionError):
        return None
    first = value[0] if isinstance(value, list) and value else value
    function = first.get("function", first) if isinstance(first, dict) else None
    return function if isinstance(function, dict) and isinstance(function.get("name"), str) else None


def only_announces(text: str) -> bool:
    """Whether the text says what comes next, and nothing else."""
    if len(text) > ANNOUNCEMENT_CHARS or "```" in text:
        return False
    text = text.replace("\N{RIGHT SINGLE QUOTATION MARK}", "'")
    # a sentence ends with its mark and a space or a line: `data.csv` and 3.5 are one word
    sentences = [part for part in re.split(r"(?<=[.!?:…])\s+|\n+", text.strip()) if part]
    courteous = [sentence for sentence in sentences if _COURTESY.match(sentence) and not _ANNOUNCES.search(sentence)]
    rest = [sentence for sentence in sentences if sentence not in courteous]
    return bool(rest) and all(_announces(sentence) for sentence in rest)


def _announces(sentence: str) -> bool:
    words = _COURTESY.sub("", sentence, count=1).lstrip(" ,.!:—-") if _COURTESY.match(sentence) else sentence
    return _ANNOUNCES.match(words) is not None and not re.search(r"[=≈]|\bis \d|\bare \d", sentence)
