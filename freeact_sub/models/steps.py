"""Is a reply with a fenced Python block a step, to be run, or an explanation, to be read? Decided by rules. Pure.

Only replies without any tool call of the model's own come here. A call that is written as text counts as one, but not in an
explanation of calls: where words follow behind it, and the prompt asks for code (below) or the model makes calls by itself.

Where there is no written call, the rules are asked in this order; the first that applies decides, and its name is in the
decision.

| rule | applies when | the blocks are |
| --- | --- | --- |
| `transcript` | a block shows a session (`>>>`), or the reply broke off inside it | words |
| `sentence` | what stands in the blocks is a sentence | words |
| `code wanted` | the prompt asks how something is done, for an example or for code, or not to run anything | words |
| `repeated` | the same code has run or was denied since the prompt, and the reply says something besides | words |
| `block mode` | `code_actions = "block"` | run |
| `own calls` | the model makes tool calls by itself in this conversation, and the last result is not an error | words |
| `for people` | as before, but after an error: several blocks, words behind the block, or the reader is to run it | words |
| `mended` | the last result since the prompt is an error | run |
| `reported` | the last result since the prompt is no error, and more than a remark follows the last block | words |
| `next` | the last result since the prompt is no error | run |
| `in short` | the last block ends the reply, and few words stand before it | run |
| `explained` | the prompt asks for an explanation | words |
| `work wanted` | the prompt asks for something to be done or found out | run |
| `at length` | all else | words |

The prompt is the newest text of the user. What it asks for is read in English; in other languages the rules about form
decide. `code wanted` gives way where the prompt asks for the code to be run as well ("write a function and run it").

What is run of several blocks: the first, and those that follow with nothing between them that only a run could tell (a block
in no language or another one, a line that begins with "Output" or "Result"). They are one cell.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from freeact_sub.models.parsing import parse_python
from freeact_sub.models.reading import PYTHON, Block, Span, Words

Rule: TypeAlias = Literal[
    "no block",
    "transcript",
    "sentence",
    "code wanted",
    "repeated",
    "block mode",
    "own calls",
    "for people",
    "mended",
    "reported",
    "next",
    "in short",
    "explained",
    "work wanted",
    "at length",
]

REMARK_WORDS: Final = 30
"""So many words behind the last block are still a remark."""
STATEMENT_WORDS: Final = 6
"""So many words beside a block say something."""
SHORT_WORDS: Final = 40
"""So many words before a block are few."""


@dataclass(frozen=True, kw_only=True)
class Situation:
    """What a reply answers to."""

    prompt: str = ""
    """The newest text of the user."""
    makes_calls: bool = False
    """The model has made a tool call by itself in this conversation."""
    last_result: Literal["none", "ok", "error"] = "none"
    """Of the newest tool call since the prompt."""
    is_over: frozenset[str] = frozenset()
    """Cells that have run without error, or were denied, since the prompt; as `normal` writes them."""
    block_mode: bool = False
    """`code_actions = "block"`."""


@dataclass(frozen=True, kw_only=True)
class Decision:
    """What becomes of a reply's blocks."""

    rule: Rule
    run: tuple[int, ...] = ()
    """Places of the spans that are run, as one cell; empty: none is."""


def decide(spans: Sequence[Span], situation: Situation) -> Decision:
    """Say which blocks of a reply are run."""
    blocks = [index for index, span in enumerate(spans) if _is_python(span, situation)]
    if not blocks:
        return Decision(rule="no block")
    first = _first_cell(spans, blocks)
    rule, runs = _rule(spans, blocks, first, situation)
    return Decision(rule=rule, run=first if runs else ())


def calls_are_meant(spans: Sequence[Span], situation: Situation) -> bool:
    """The calls that a reply has as text are calls, and not shown to explain them."""
    shown = situation.makes_calls or _wants_code(situation.prompt)
    return not (shown and isinstance(spans[-1], Words) and spans[-1].raw.strip())


def normal(code: str) -> str:
    """Code without comments, empty lines and spaces at line ends: for comparing."""
    lines = (re.sub(r"(?:^|\s+)#[^'\"]*$", "", line).rstrip() for line in code.splitlines())
    return "\n".join(line for line in lines if line)


def blocks_may_run(situation: Situation) -> bool:
    """False where a reply's Python blocks are words whatever else the reply says."""
    if _wants_code(situation.prompt):
        return False
    return situation.block_mode or not situation.makes_calls or situation.last_result == "error"


def asks_for_work(prompt: str) -> bool:
    """Whether a prompt asks for something to be done or found out, and not for how, why, or a plan."""
    if len(prompt) > PLAN_PROMPT_CHARS or _wants_code(prompt):
        return False
    return _WORK.search(prompt) is not None and not (_EXPLANATION.search(prompt) or _PLAN.search(prompt))


def _is_python(span: Span, situation: Situation) -> bool:
    if not isinstance(span, Block):
        return False
    if span.language in PYTHON:
        return True
    # a block without a language may as well be output: only where blocks are asked for, and if it does something
    return situation.block_mode and re.search(r"[(=]|^import |^from ", span.code) is not None and _parses(span.code)


def _parses(code: str) -> bool:
    return parse_python(code) is not None


def _first_cell(spans: Sequence[Span], blocks: Sequence[int]) -> tuple[int, ...]:
    cell = [blocks[0]]
    for index in blocks[1:]:
        between = spans[cell[-1] + 1 : index]
        if any(isinstance(span, Block) or _tells_output(span.raw) for span in between):
            break
        cell.append(index)
    return tuple(cell)


def _tells_output(text: str) -> bool:
    pattern = (
        r"(?im)^\W*(?:the\s+)?(?:expected\s+|sample\s+)?(?:out\[|outputs?\b|results?\b|observations?\b)|^[ \t]*(?:```|~~~)"
    )
    return re.search(pattern, text) is not None


def _rule(spans: Sequence[Span], blocks: Sequence[int], cell: Sequence[int], situation: Situation) -> tuple[Rule, bool]:
    codes = [span.code for index in cell if isinstance(span := spans[index], Block)]
    before = " ".join(span.raw for span in spans[: blocks[0]] if isinstance(span, Words))
    after = "".join(span.raw for span in spans[blocks[-1] + 1 :])
    unfinished = [span for index in cell if isinstance(span := spans[index], Block) and not span.closed]
    if any(re.search(r"^\s*>>>", code, re.MULTILINE) for code in codes) or any(
        not _parses(span.code) for span in unfinished
    ):
        return "transcript", False
    if all(_SENTENCE.fullmatch(code.strip()) and not _parses(code) for code in codes):
        return "sentence", False
    if _wants_code(situation.prompt):
        return "code wanted", False
    if normal("\n".join(codes)) in situation.is_over and len((before + after).split()) >= STATEMENT_WORDS:
        return "repeated", False
    if situation.block_mode:
        return "block mode", True
    if situation.makes_calls:
        return _after_own_calls(before, after, len(blocks), situation)
    return _by_results_and_form(before, after, situation)


def _after_own_calls(before: str, after: str, blocks: int, situation: Situation) -> tuple[Rule, bool]:
    if situation.last_result != "error":
        return "own calls", False
    if blocks > 1 or after.strip() or _FOR_PEOPLE.search(before):
        return "for people", False
    return "mended", True


def _by_results_and_form(before: str, after: str, situation: Situation) -> tuple[Rule, bool]:
    if situation.last_result == "error":
        return "mended", True
    if situation.last_result == "ok":
        return ("reported", False) if len(after.split()) > REMARK_WORDS else ("next", True)
    if not after.strip() and len(before.split()) <= SHORT_WORDS:
        return "in short", True
    if _EXPLANATION.search(situation.prompt):
        return "explained", False
    return ("work wanted", True) if _WORK.search(situation.prompt) else ("at length", False)


def _wants_code(prompt: str) -> bool:
    return bool(_HOW.search(prompt) or (_CODE.search(prompt) and not _RUN_AS_WELL.search(prompt)))


_HOW: Final = re.compile(
    r"""(?ix)
    \b(?:do\s+not|don't|without)\s+(?:run|execut|call)
    | \bhow\s+(?:do|does|did|can|could|would|should|might|to)\b | \bhow\s+is\b.*\bdone\b
    | \bwhat(?:\s+is|'s)\s+the\s+(?:best\s+way|syntax|idiom)
    | \b(?:difference|differences)\s+between\b
    """
)
"""A prompt that asks how something is done, or not to do it."""

_CODE: Final = re.compile(
    r"""(?ix)
    \bshow\s+(?:me\s+)?(?:an?\s+example|the\s+code|the\s+syntax|some\s+code)\b
    | \b(?:give|send|tell)\s+me\s+(?:an?\s+)?(?:example|code|snippet|one-liner|template|idea)
    | \b(?:example|snippet|one-liner|tutorial|pseudocode|boilerplate)\b
    | \b(?:write|implement|give|provide|draft|sketch)\b[^.;]*?
      \b(?:function|class|script|program|code|method|decorator|regex)\b
    | \b(?:translate|port|transpile|rewrite)\b[^.;]*\b(?:in|into|to|as)\s+(?:\w+\s+)?python\b
    | \b(?:refactor|simplify|optimi[sz]e|shorten|annotate)\s+(?:this|these|my|the\s+following)\b
    """
)
"""A prompt that asks for code."""

_RUN_AS_WELL: Final = re.compile(
    r"""(?ix)
    (?:\b(?:and|then)|[.;!,])\s+(?:then\s+)?(?:please\s+)?
    (?:run|execute|test|try|call|use|apply|compute|calculate|print|check|save|store
    |(?:tell|show|give)\s+me\s+(?:the\s+)?(?:results?|outputs?|answer|value|what))\b
    """
)
"""... and to have it run as well."""

_EXPLANATION: Final = re.compile(
    r"""(?ix)
    \b(?:explain|describe|teach|review|compare|suggest|recommend|outline|discuss)\b
    | \bwhy\b | \bwhen\s+(?:should|would|do)\b | \bwhat\s+(?:does|do|happens|would)\b
    | \bwhat(?:\s+is|'s|\s+are)\s+(?:the\s+(?:meaning|purpose|idea|point|pros|advantages)|an?\s)
    | \bwhat\s+(?:is|are)\s+\w+\s*\?\s*$
    """
)
"""A prompt that asks for an explanation."""

_PLAN: Final = re.compile(
    r"(?i)\b(?:steps?|plans?|instructions?|guide|recipe|procedure|checklist|to-?do|ideas?|propos\w+|approach)\b"
    r"|\b(?:can|must|do)\s+(?:i|we)\b|\b(?:should|would|could|needs?|needed|required|missing|changes)\b[^.;!?]*\?"
)
"""A prompt that asks what is to be done."""
PLAN_PROMPT_CHARS: Final = 500
"""A longer prompt may bring along all that a plan is made of."""

_WORK: Final = re.compile(
    r"""(?ix)
    \b(?:compute|calculate|count|sum|add|multiply|divide|find|list|read|load|open|write|create|make|save|store|delete|remove
    |rename|move|copy|download|fetch|sort|filter|plot|draw|reverse|convert|parse|extract|replace|merge|split|generate|simulate
    |solve|evaluate|estimate|measure|run|execute|test|check|determine|analy[sz]e|summari[sz]e|look|search|fix|install|print|get
    |clean|group|join|rank|update|change|use|tell|give|show|build|train|verify)\b
    | \bhow\s+(?:many|much|long|often|old|big|large|far|high|fast)\b
    | \b(?:which|what|who|when|where)\b
    | ^\s*(?:and|now|then|also)\b
    """
)
"""A prompt that asks for something to be done or found out."""

_SENTENCE: Final = re.compile(r"[A-Z][a-z']*(?:\s+[\w\"'`().,:/-]+){3,}[.!]")

_FOR_PEOPLE: Final = re.compile(
    r"(?i)\byou (?:can|could|may|might|should|need to|have to|must|will)\b|\byourself\b"
    r"|\byour (?:own )?(?:machine|computer|terminal|side)\b"
    r"|\b(?:please )?(?:run|try|use) (?:this|the following|it)\b|\bhere(?:'s| is) (?:how|what)\b"
)
"""Words before a block that hand it to the reader."""
