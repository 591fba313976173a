"""`Adviser`: has a say on a call, beside the rules (`gate.py`). It narrows, and it answers what would be asked.

Advice before the call counts like a rule of the person: it denies, has a person asked, or answers a question that a rule
could answer. Advice on a question counts like the answer of the person where anybody may give it. A denial by a rule or a
mode stays, and a call that only a person may allow is asked about. A subclass with a method of the wrong kind, plain or
`async`, is refused where it is written.
"""

import inspect
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from freeact_sub.approvals.open_questions import TryOut
from freeact_sub.approvals.policy import Ruling
from freeact_sub.calls import Call
from freeact_sub.errors import ApprovalDeniedError, InvalidRequestError
from freeact_sub.events import Decision
from freeact_sub.text import one_line

VERDICTS: Final = ("deny", "ask", "allow", None)


@dataclass(frozen=True, kw_only=True)
class Advice:
    """The opinion of one adviser on one call."""

    verdict: Literal["deny", "ask", "allow"] | None = None
    """None: it has no opinion."""
    reason: str = ""
    """The reason, for the agent and for people."""
    ends: bool = False
    """With `deny`: the run must end too."""

    def __post_init__(self) -> None:
        if self.verdict not in VERDICTS:
            given = one_line(repr(self.verdict), 40)
            raise InvalidRequestError(f'Advice: verdict is "deny", "ask", "allow" or None, not {given}')


class Adviser:
    """Has a say on calls, beside the rules. Every method is optional: the base has no opinion."""

    source: str = ""
    """Its name for people, at the beginning of a reason. Empty: the name of its class."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        check_overrides(cls, Adviser)

    def hears(self, call: Call) -> bool:
        """Whether `before` may have an opinion on such a call. An allowed call that nobody hears is made at once."""
        del call
        return type(self).before is not Adviser.before

    async def before(self, call: Call) -> Advice | None:
        """Give an opinion before a person is asked, and on a call that the rules allow. None: it has none."""
        del call
        return None

    async def on_question(self, call: Call, suggested: Sequence[str]) -> Advice | None:
        """Answer in place of a person who is about to be asked. None: the person is asked.

        Args:
            call: The call.
            suggested: Patterns of rules that would allow it.
        """
        del call, suggested
        return None

    def try_out(self, call: Call) -> TryOut | None:
        """Return a trial that tells a person what a call would do, or why there is none. None: it tries no such calls."""
        del call
        return None


def advised(ruling: Ruling, adviser: Adviser, heard: Advice) -> tuple[Ruling, Decision | None]:
    """Return a ruling that allows or asks after the advice before the call, and the answer that the advice gives.

    Raises:
        ApprovalDeniedError: The adviser denies the call.
    """
    if heard.verdict is None:
        return ruling, None
    if heard.verdict == "deny":
        raise ApprovalDeniedError(_said(adviser, heard), ends_run=heard.ends)
    if heard.verdict == "ask" and ruling.verdict == "allow":
        rule = f"{_name(adviser)} asks: {heard.reason}"
        return replace(ruling, verdict="ask", rule=rule, source="", part="", lasting=False, suggests=()), None
    may_answer = ruling.verdict == "ask" and ruling.lasting and not ruling.needs_person
    return ruling, Decision(allowed=True, reason=_said(adviser, heard)) if heard.verdict == "allow" and may_answer else None


def decision_of(ruling: Ruling, adviser: Adviser, heard: Advice | None) -> Decision | None:
    """Return the answer of an adviser to a question. None: a person is asked.

    Raises:
        ApprovalDeniedError: It denies the call, and the run must end.
    """
    if heard is None or heard.verdict in (None, "ask") or (heard.verdict == "allow" and ruling.needs_person):
        return None
    if heard.ends:
        raise ApprovalDeniedError(_said(adviser, heard), ends_run=True)
    return Decision(allowed=heard.verdict == "allow", reason=_said(adviser, heard))


def _said(adviser: Adviser, heard: Advice) -> str:
    return f"{_name(adviser)} says: {heard.reason}"


def _name(adviser: Adviser) -> str:
    return adviser.source or type(adviser).__name__


def check_overrides(made: type, base: type) -> None:
    """Check a new subclass, so that a wrong `def` is an error where it is written and not a strange one where it is called.

    Raises:
        TypeError: A method is of the other kind; names it.
    """
    for name, method in vars(made).items():
        replaced = getattr(base, name, None)
        if name.startswith("_") or not inspect.isfunction(method) or not inspect.isfunction(replaced):
            continue
        if inspect.iscoroutinefunction(method) != inspect.iscoroutinefunction(replaced):
            kind = "async def" if inspect.iscoroutinefunction(replaced) else "plain def"
            raise TypeError(f"{made.__name__}.{name} must be a {kind}, as {base.__name__}.{name} is")
