"""What hooks may say of a call, beside the rules (`gate.py`): they narrow, and they answer what would be asked.

A hook before the call counts like a rule of the person: it denies, has a person asked, or answers a question that a rule
could answer. A hook on a question counts like the answer of the person where anybody may give it. What rules or a mode deny
stays denied, and what only a person may allow is asked.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, Protocol

from freeact_sub.approvals.policy import Ruling
from freeact_sub.calls import Call
from freeact_sub.errors import ApprovalDeniedError
from freeact_sub.events import Decision


class Advice(Protocol):
    """What hooks say together."""

    @property
    def verdict(self) -> Literal["deny", "ask", "allow"] | None:
        """None: nothing."""

    @property
    def reason(self) -> str:
        """Why."""

    @property
    def ends(self) -> bool:
        """The run must end."""


class Adviser(Protocol):
    """Has a say on a call, beside the rules. The methods return None if it has none on this one."""

    def hears(self, call: Call) -> bool:
        """Whether it has a say before such a call; otherwise an allowed action of code need not ask the host."""

    async def before(self, call: Call) -> Advice | None:
        """Hear those that run before a call."""

    async def on_question(self, call: Call, suggested: Sequence[str]) -> Advice | None:
        """Hear those that run before a question. Args: suggested: see `ApprovalRequest`."""


def advised(ruling: Ruling, heard: Advice | None) -> tuple[Ruling, Decision | None]:
    """A ruling that allows or asks, after the hooks before the call; and the answer to what it asks, if they give it.

    Raises:
        ApprovalDeniedError: They deny the call.
    """
    if heard is None or heard.verdict is None:
        return ruling, None
    if heard.verdict == "deny":
        raise ApprovalDeniedError(_said(heard), ends_run=heard.ends)
    if heard.verdict == "ask" and ruling.verdict == "allow":
        rule = f"a hook asks: {heard.reason}"
        return replace(ruling, verdict="ask", rule=rule, source="hooks", part="", lasting=False, suggests=()), None
    may_answer = ruling.verdict == "ask" and ruling.lasting and not ruling.needs_person
    return ruling, Decision(allowed=True, reason=_said(heard)) if heard.verdict == "allow" and may_answer else None


def decision_of(ruling: Ruling, heard: Advice | None) -> Decision | None:
    """The answer of the hooks on a question. None: a person is asked.

    Raises:
        ApprovalDeniedError: They deny the call, and the run must end.
    """
    if heard is None or heard.verdict in (None, "ask") or (heard.verdict == "allow" and ruling.needs_person):
        return None
    if heard.ends:
        raise ApprovalDeniedError(_said(heard), ends_run=True)
    return Decision(allowed=heard.verdict == "allow", reason=_said(heard))


def _said(heard: Advice) -> str:
    return f"a hook says: {heard.reason}"
