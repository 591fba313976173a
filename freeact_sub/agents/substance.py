"""Is a final text an answer? `problem_with` says what is wrong with one that is none.

Small models often end a run by announcing the next step instead of taking it. The rule is narrow, so that no answer is taken
for an announcement: each sentence announces, or is a courtesy before it; a text that holds code, a list or a result is an
answer, however it begins.
"""

import json
import re
from collections.abc import Collection
from typing import Final

EMPTY: Final = "You gave no answer. Take the next step with a tool, or answer with what you have found."
ANNOUNCED: Final = (
    "You announced a step and did not take it. Take it now with a tool; or, if you are done, answer with the result itself."
)
DESCRIBED: Final = "You wrote the description of a tool, and called none. Call it, or answer with the result itself."
ANNOUNCEMENT_CHARS: Final = 600
"""A longer text says more than what comes next."""

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


def problem_with(text: str, tools: Collection[str] = ()) -> str | None:
    """What to tell a model that ends a run with this text; None: it is an answer.

    Args:
        text: The text.
        tools: Names of the tools that it may call.
    """
    if not text.strip():
        return EMPTY
    if only_describes(text, tools):
        return DESCRIBED
    return ANNOUNCED if only_announces(text) else None


def only_describes(text: str, tools: Collection[str]) -> bool:
    """Whether the text is nothing but JSON about a tool, fenced or not."""
    inner = re.sub(r"^```\w*\n|\n?```$", "", text.strip())
    try:
        value = json.loads(inner) if inner.startswith(("{", "[")) else None
    except ValueError:
        return False
    first = value[0] if isinstance(value, list) and value else value
    function = first.get("function", first) if isinstance(first, dict) else None
    name = function.get("name") if isinstance(function, dict) else None
    return isinstance(name, str) and name in tools


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
