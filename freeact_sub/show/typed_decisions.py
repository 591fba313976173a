"""Typed decisions on approval requests, the same in the terminal and in a notebook.

Any text other than the known words is the reason of a denial. A single unknown word (`sur`, `ja`), or a text that begins
like a yes (`yes, run it`), may have been meant as a yes: it is confirmed before it becomes a denial.
"""

import re
from collections.abc import Sequence
from typing import Final

from freeact_sub.calls import KINDS
from freeact_sub.events import ApprovalRequest, Decision, Remember
from freeact_sub.show.wording import cheaper_models, rule_words
from freeact_sub.text import one_line, visible

_WORDS: Final = (
    (
        "y yes yep yeah yup ok okay okey k sure fine alright approve approved allow allowed accept agree agreed go run "
        "proceed continue absolutely definitely lgtm"
    ),
    "n no nope nah don't dont deny denied reject rejected refuse never stop",
    "please thanks thank you",
)
YES, NO, POLITE = (frozenset(words.split()) for words in _WORDS)
"""A yes or a no is one of its words, or several, with or without polite ones."""
_PHRASES: Final = re.compile(r"\b(?:go ahead|go on|go for it|do it|run it|all right|of course|looks good|sounds good)\b")
"""Stand for a yes like one of its words."""
_OTHER: Final = re.compile(r"[^\w\s.,!;'\u2019]")
"""In none of them: `ok?` is a question."""
_ALWAYS: Final = re.compile(rf"(?i:(a|always|p|project))(?:\s+((?:{'|'.join(KINDS)})(?::.*)?))?", re.DOTALL)
_REASON_CHARS: Final = 60
ALL_CODE: Final = "all code runs unasked then, without the wall that mode auto has"
ALL_CODE_SHORT: Final = "all code, unasked, no wall"
"""What an "always" to a cell means: it is no yes to this cell only."""


def always_words(request: ApprovalRequest, *, is_short: bool = False) -> str:
    """What an "always" means for the calls that follow, in one line; empty if nothing can be allowed for longer."""
    return f"a and p: {_always(request, is_short=is_short)}" if request.suggested else ""


def always_means(request: ApprovalRequest) -> str:
    """The same, and how to choose another pattern."""
    if not request.suggested:
        return ""
    return f"a: {_always(request)}; p: the same in this project; a PATTERN or p PATTERN: a pattern of your own"


def _always(request: ApprovalRequest, *, is_short: bool = False) -> str:
    if "code" in request.suggested:
        return ALL_CODE_SHORT if is_short else ALL_CODE
    return f"do not ask again about {rule_words(request.suggested)}"


def hint(request: ApprovalRequest) -> str:
    """What can be typed about a request."""
    chosen = cheaper_models(request)
    numbers = "1" if len(chosen) == 1 else f"1 to {len(chosen)}"
    models = f", {numbers} yes with another model" if chosen else ""
    return f"y yes, n no{', a yes for this session' if request.suggested else ''}{models}, or type why not"


def says_yes(text: str) -> bool:
    """Whether a text is a plain yes."""
    words = {*_words(_PHRASES.sub("yes", text.lower()))} - POLITE
    return bool(words) and words <= YES and not _OTHER.search(text)


def says_no(text: str) -> bool:
    """Whether a text is a plain no."""
    words = {*_words(text)} - POLITE
    return bool(words) and words <= NO and not _OTHER.search(text)


class TypedDecision:
    """Reads the lines that a person types about one approval request, until they are a decision."""

    def __init__(self, models: Sequence[str] = (), *, asks_always: bool = False) -> None:
        """Make one for a request.

        Args:
            models: Those that it offers: a name, or its number from 1 on, approves with that one.
            asks_always: Ask for confirmation of every text that is not a known word.
        """
        self._models = {**{name: name for name in models}, **{str(at): name for at, name in enumerate(models, start=1)}}
        self._doubted = ""
        self._asks_always = asks_always

    @property
    def asks_back(self) -> str:
        """The confirmation to ask before the last line counts; empty if none is needed."""
        return f"deny with the reason {one_line(visible(self._doubted), _REASON_CHARS)!r}? y/n" if self._doubted else ""

    def read(self, text: str) -> Decision | None:
        """Return the decision of a line. None: it decides nothing, see `asks_back`."""
        typed, doubted = text.strip(), self._doubted
        self._doubted = ""
        if doubted and says_yes(typed):
            return Decision(allowed=False, reason=doubted)
        if not typed or (doubted and says_no(typed)):
            return None
        if always := _ALWAYS.fullmatch(typed):
            remember: Remember = "session" if always[1][0] in "aA" else "project"
            return Decision(allowed=True, remember=remember, pattern=always[2])
        if says_yes(typed):
            return Decision(allowed=True)
        if (model := self._models.get(typed)) is not None:
            return Decision(allowed=True, model=model)
        if says_no(typed):
            return Decision(allowed=False, reason="" if _words(typed)[0] in ("n", "no") else typed)
        if self._asks_always or _is_doubtful(typed):
            self._doubted = typed
            return None
        return Decision(allowed=False, reason=typed)


def _is_doubtful(typed: str) -> bool:
    first, *others = _words(typed) or [""]
    return not others or first in YES | POLITE | {"always"}


def _words(text: str) -> list[str]:
    return re.findall(r"[^\W_]+(?:'[^\W_]+)?", text.lower().replace("\u2019", "'"))
