"""`Questions`: the approval requests and questions that wait for a person, in the order in which they came.

One is asked at a time; the others wait behind it, in a list from which another can be chosen (`/2`), and agents without a
question continue. Their numbers are their places in the order of arrival, whichever is looked at first. What a person types
answers the question on the screen: if it is withdrawn, the front ends discard the half-typed answer.

Any typed text other than the known words is the reason of a denial. A single unknown word (`sur`, `ja`), or a text that
begins like a yes (`yes, run it`), may have been meant as a yes: it is confirmed before it becomes a denial.
"""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from freeact_sub import events as ev
from freeact_sub.calls import HARMLESS, KINDS
from freeact_sub.events.answers import ASKED
from freeact_sub.show.forms import Filling
from freeact_sub.show.wording import asked_text, asked_title, cheaper_models, names_of_asker, rule_words
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
"""Words of a yes and of a no, which may have polite words beside them."""
_PHRASES: Final = re.compile(r"\b(?:go ahead|go on|go for it|do it|run it|all right|of course|looks good|sounds good)\b")
"""Phrases that mean yes."""
_OTHER: Final = re.compile(r"[^\w\s.,!;'\u2019]")
"""Characters that no yes and no no has: `ok?` is a question."""
_ALWAYS: Final = re.compile(rf"(?i:(a|always|p|project))(?:\s+((?:{'|'.join(KINDS)})(?::.*)?))?", re.DOTALL)
_REASON_CHARS: Final = 60
YES_NO: Final = "y yes · n no"
"""The keys of a question with yes or no."""
ALL_CODE: Final = "all code runs unasked then, without the wall that mode auto has"
ALL_CODE_SHORT: Final = "all code, unasked, no wall"
"""The meaning of an "always" to a cell, which is more than a yes to it."""


def always_words(request: ev.ApprovalRequest, *, is_short: bool = False) -> str:
    """Return the meaning of an "always" for later calls, in one line; empty if nothing can be allowed for longer."""
    return f"a and p: {_always(request, is_short=is_short)}" if request.suggested else ""


def always_allows(request: ev.ApprovalRequest) -> tuple[str, ...]:
    """Return the patterns of an "always": at a cell whose trial changed nothing only those of such cells."""
    effects = request.effects if "code" in request.suggested else None
    return (HARMLESS,) if effects is not None and effects.harmless else request.suggested


def always_means(request: ev.ApprovalRequest) -> str:
    """Return the meaning of an "always", and how to choose another pattern."""
    if not request.suggested:
        return ""
    return f"a: {_always(request)}; p: the same in this project; a PATTERN or p PATTERN: a pattern of your own"


def _always(request: ev.ApprovalRequest, *, is_short: bool = False) -> str:
    patterns = always_allows(request)
    if "code" in patterns:
        return ALL_CODE_SHORT if is_short else ALL_CODE
    return f"do not ask again about {rule_words(patterns)}"


def hint(request: ev.ApprovalRequest) -> str:
    """Return the possible input about a request."""
    chosen = cheaper_models(request)
    numbers = "1" if len(chosen) == 1 else f"1 to {len(chosen)}"
    models = f", {numbers} yes with another model" if chosen else ""
    return f"y yes, n no{', a yes for this session' if request.suggested else ''}{models}, or type why not"


def says_yes(text: str) -> bool:
    """Return whether a text is a plain yes."""
    words = {*_words(_PHRASES.sub("yes", text.lower()))} - POLITE
    return bool(words) and words <= YES and not _OTHER.search(text)


def says_no(text: str) -> bool:
    """Return whether a text is a plain no."""
    words = {*_words(text)} - POLITE
    return bool(words) and words <= NO and not _OTHER.search(text)


class TypedDecision:
    """Reader of the lines that a person types about one approval request, until they are a decision."""

    def __init__(self, models: Sequence[str] = (), *, asks_always: bool = False) -> None:
        """Make one for a request.

        Args:
            models: The offered models: a name, or its number from 1 on, approves with that one.
            asks_always: Ask for confirmation of every text that is not a known word.
        """
        self._models = {**{name: name for name in models}, **{str(at): name for at, name in enumerate(models, start=1)}}
        self._doubted = ""
        self._asks_always = asks_always

    @property
    def asks_back(self) -> str:
        """The confirmation to ask before the last line counts; empty if none is needed."""
        reason = one_line(visible(self._doubted), _REASON_CHARS)
        return f"deny with the reason {reason!r}? {YES_NO}" if self._doubted else ""

    def read(self, text: str) -> ev.Decision | None:
        """Return the decision of a line. None: it decides nothing, see `asks_back`."""
        typed, doubted = text.strip(), self._doubted
        self._doubted = ""
        if doubted and says_yes(typed):
            return ev.Decision(allowed=False, reason=doubted)
        if not typed or (doubted and says_no(typed)):
            return None
        if always := _ALWAYS.fullmatch(typed):
            remember: ev.Remember = "session" if always[1][0] in "aA" else "project"
            return ev.Decision(allowed=True, remember=remember, pattern=always[2])
        if says_yes(typed):
            return ev.Decision(allowed=True)
        if (model := self._models.get(typed)) is not None:
            return ev.Decision(allowed=True, model=model)
        if says_no(typed):
            return ev.Decision(allowed=False, reason="" if _words(typed)[0] in ("n", "no") else typed)
        if self._asks_always or _is_doubtful(typed):
            self._doubted = typed
            return None
        return ev.Decision(allowed=False, reason=typed)


def _is_doubtful(typed: str) -> bool:
    first, *others = _words(typed) or [""]
    return not others or first in YES | POLITE | {"always"}


def _words(text: str) -> list[str]:
    return re.findall(r"[^\W_]+(?:'[^\W_]+)?", text.lower().replace("\u2019", "'"))


MAX_OTHERS: Final = 4
"""Maximum number of lines about waiting questions."""


@dataclass
class Questions:
    """The queue of open questions."""

    waiting: list[ev.ApprovalRequest | ev.QuestionRequest] = field(default_factory=list)
    asks_always: bool = False
    """Whether every text that would be the reason of a denial is confirmed first."""
    by_keys: bool = False
    """Whether a person sees a mark that keys move: an empty line takes it, Space marks several, and more than one value is
    looked at once more before it is sent."""
    take_yes: Callable[[ev.ApprovalRequest, ev.Decision], bool] | None = None
    """Function that takes a decision to allow a call, before it counts. False: it counts at once."""
    take_code: Callable[[ev.ApprovalRequest], bool] | None = None
    """Function that takes a cell whose code a person has changed, until its yes. False: changed code runs at once."""
    on_card: frozenset[str] = frozenset()
    """The ids of the waiting questions whose whole calls stand in the list of the present card."""
    listed: set[str] = field(default_factory=set)
    """The ids of the questions whose whole calls were printed one after the other, to be answered by one key."""
    _came: list[str] = field(default_factory=list)
    """The ids of the open questions, in the order of their arrival."""
    _codes: dict[str, str] = field(default_factory=dict)
    """Code to run instead of a question's, by the question's id."""
    _shown_again: Counter[str] = field(default_factory=Counter)
    _typed: TypedDecision = field(default_factory=TypedDecision)
    _replied_to: str | None = None
    """The question that `_reply` belongs to."""
    _fillings: dict[str, Filling] = field(default_factory=dict)
    """Typed parts of answers with fields, by the question's id; kept while another question is looked at."""

    @property
    def current(self) -> ev.ApprovalRequest | ev.QuestionRequest | None:
        """The question to be answered next."""
        return self.waiting[0] if self.waiting else None

    @property
    def current_id(self) -> str | None:
        """The id of the current question."""
        return self.waiting[0].request_id if self.waiting else None

    @property
    def shown_id(self) -> str | None:
        """An id of the shown content; changes as well when the current question shows something else."""
        again = self._shown_again[self.current_id] if self.current_id is not None else 0
        return f"{self.current_id} shown again: {again}" if again else self.current_id

    @property
    def place(self) -> tuple[str | None, int, int]:
        """The place in the questions: changes with the question, with its field, and after a line that was no answer."""
        filling = self.filling
        return (self.current_id, filling.at, filling.refusals) if filling is not None else (self.current_id, 0, 0)

    @property
    def filling(self) -> Filling | None:
        """The typed part of the answer to the current question. None: its answer is one text, or a decision."""
        request = self.current
        if not isinstance(request, ev.QuestionRequest) or not request.fields:
            return None
        return self._fillings.setdefault(request.request_id, Filling(request, by_keys=self.by_keys))

    @property
    def asks_back(self) -> str:
        """The confirmation to ask before the last line counts; empty if nothing is doubtful."""
        return self._typed.asks_back if self._replied_to == self.current_id else ""

    def observe(self, event: ev.Event) -> None:
        """Add a question that a person has to answer; remove one that was answered elsewhere or withdrawn."""
        if isinstance(event, ev.ApprovalRequest | ev.QuestionRequest) and not event.headless:
            self.waiting.append(event)
            self._came.append(event.request_id)
            event.shown()
        elif isinstance(event, ev.ApprovalDecided | ev.QuestionAnswered):
            self.withdraw(event.request_id)

    def withdraw(self, request_id: str) -> None:
        """Remove a question; do nothing if it is not open."""
        self.waiting = [request for request in self.waiting if request.request_id != request_id]
        self._came = [other for other in self._came if other != request_id]
        self.listed.discard(request_id)
        self._fillings.pop(request_id, None)
        self._codes.pop(request_id, None)

    def decide(self, request: ev.ApprovalRequest, decision: ev.Decision) -> None:
        """Decide an approval request, with the code that a person has changed.

        Raises:
            ValueError: See `Decidable.decide`.
        """
        if decision.allowed and decision.code is None:
            decision = replace(decision, code=self.changed_code(request))
        if decision.remember is not None and decision.pattern is None and always_allows(request) == (HARMLESS,):
            decision = replace(decision, pattern=HARMLESS)
        if decision.allowed and self.take_yes is not None and self.take_yes(request, decision):
            return
        request.decide(decision)
        self.withdraw(request.request_id)

    def changed_code(self, request: ev.ApprovalRequest) -> str | None:
        """Return the code to run instead of a cell's. None: its own."""
        return self._codes.get(request.request_id)

    def run_instead(self, request: ev.ApprovalRequest, code: str) -> bool:
        """Run other code instead of a cell's, or ask about it first; return False if the question is closed."""
        if self.take_code is not None and request in self.waiting:
            self._codes[request.request_id] = code
            if self.take_code(request):
                return True
        is_open = request.approve(code=code)
        self.withdraw(request.request_id)
        return is_open

    def shows_again(self, request: ev.ApprovalRequest) -> None:
        """Note that a question now shows something else: quickly typed text does not answer it."""
        self._shown_again[request.request_id] += 1

    def answer(self, text: str) -> bool:
        """Answer the current question with a person's text; return False if the text decides nothing."""
        if other := re.fullmatch(r"/(\d{1,9})", text.strip()):
            return self.choose(int(other[1]))
        request = self.current
        if request is None:
            return False
        if isinstance(request, ev.QuestionRequest):
            return self._answer_question(request, text)
        if self._replied_to != request.request_id:
            models = cheaper_models(request)
            self._typed, self._replied_to = TypedDecision(models, asks_always=self.asks_always), request.request_id
        was_doubtful = bool(self._typed.asks_back)
        decision = self._typed.read(text)
        if decision is None:
            return was_doubtful or bool(self._typed.asks_back)
        try:
            self.decide(request, decision)
        except ValueError:
            return False
        return True

    def _answer_question(self, request: ev.QuestionRequest, text: str) -> bool:
        filling = self.filling
        if filling is None:
            request.answer(text)
        else:
            if not filling.take(text):
                return False
            if not filling.is_done:
                return True
            try:
                request.answer(filling.values)
            except ValueError as error:
                filling.reopen(error)
                return False
        self.withdraw(request.request_id)
        return True

    def forget_closed(self) -> None:
        """Remove the closed questions, also those whose end no event has told."""
        for request in [request for request in self.waiting if request.request_id not in ASKED]:
            self.withdraw(request.request_id)

    def number_of(self, request: ev.ApprovalRequest | ev.QuestionRequest) -> int:
        """Return the place of an open question in the order of their arrival, from 1 on."""
        return 1 + [*self._came, *(other.request_id for other in self.waiting)].index(request.request_id)

    def choose(self, number: int) -> bool:
        """Put another question first, by its number; return False if there is none."""
        found = next((request for request in self.waiting if self.number_of(request) == number), None)
        if found is None:
            return False
        self.waiting.remove(found)
        self.waiting.insert(0, found)
        self._replied_to = None
        return True

    def next(self) -> None:
        """Put the current question last."""
        self.waiting.append(self.waiting.pop(0)) if self.waiting else None
        self._replied_to = None

    @property
    def behind(self) -> list[ev.ApprovalRequest | ev.QuestionRequest]:
        """The questions behind the current one that a list names."""
        return self.waiting[1 : 1 + MAX_OTHERS]

    @property
    def approvals(self) -> list[ev.ApprovalRequest]:
        """The open approval requests, the current question first."""
        return [request for request in self.waiting if isinstance(request, ev.ApprovalRequest)]

    @property
    def answered_by_one_key(self) -> list[ev.ApprovalRequest]:
        """The approval requests that one key allows: the current one, and others whose whole calls are on the screen.

        Empty: there are no such others.
        """
        seen = {self.current_id, *self.on_card, *self.listed}
        found = [request for request in self.approvals if request.request_id in seen]
        return found if len(found) > 1 else []

    def others(self) -> list[str]:
        """Return a line for each waiting question, and the input that leads to it."""
        lines = [
            f"/{self.number_of(request)} {names_of_asker(request)[-1]}: {one_line(summary_of(request))}"
            for request in self.behind
        ]
        left = len(self.waiting) - 1 - len(lines)
        return [*lines, *([f"… and {left} more"] if left > 0 else [])]

    def refuse_all(self, reason: str) -> None:
        """Close all open questions, because nobody can be asked."""
        for request in [*self.waiting]:
            self.withdraw(request.request_id)
            refuse(request, reason, nobody=True)


def refuse(request: ev.ApprovalRequest | ev.QuestionRequest, reason: str, *, nobody: bool = False) -> None:
    """Close a question without a yes. Args: nobody: no person has decided that."""
    if isinstance(request, ev.ApprovalRequest):
        request.decide(ev.Decision(allowed=False, reason=reason, nobody=nobody))
    else:
        request.decline(reason)


def leave_unasked(request: ev.ApprovalRequest | ev.QuestionRequest) -> None:
    """Close a question as in an unattended run."""
    if isinstance(request, ev.ApprovalRequest):
        request.decide(request.if_nobody)
    else:
        request.skip()


def summary_of(request: ev.ApprovalRequest | ev.QuestionRequest) -> str:
    """Return a question in one line."""
    return request.call.summary if isinstance(request, ev.ApprovalRequest) else asked_text(request)


def asks_for(request: ev.ApprovalRequest | ev.QuestionRequest) -> str:
    """Return the head of a question, which follows the name of the agent that asks."""
    return request.call.question if isinstance(request, ev.ApprovalRequest) else asked_title(request)
