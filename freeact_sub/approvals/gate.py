"""`Gate`: every call of every agent of a tree goes through it; policy first, then a person.

A question is an `ApprovalRequest` on the root's stream. Only the call that asks waits for it. The answer comes on the event
(`event.approve()`), by whoever reads the stream, in any order. A gate serves one root agent and its descendants for as long
as the root lives; what a person allows for the session is remembered here and nowhere else.

Where nobody is to be asked the answer is ready before the question: both are told, so that the record says who decided.
"""

import secrets
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Final

from freeact_sub.approvals.patterns import parse_pattern
from freeact_sub.approvals.policy import Policy, Ruling, decide
from freeact_sub.approvals.project import ProjectRules
from freeact_sub.approvals.question import Question
from freeact_sub.approvals.rules import SESSION, Rule
from freeact_sub.calls import Call
from freeact_sub.channel import Emitter
from freeact_sub.errors import ApprovalDeniedError, ConfigError
from freeact_sub.events import ApprovalAnswered, ApprovalRequest, Decision, Notice
from freeact_sub.modes import Headless, Mode

NOBODY: Final = "nobody is there to answer"
NEEDS_PERSON: Final = Decision(allowed=False, reason=f"{NOBODY}, and this is for a person alone to allow")


@dataclass(frozen=True, kw_only=True)
class _Open:
    question: Question
    policy: Policy


class Gate:
    """Lets calls through, refuses them, or asks."""

    def __init__(self, *, headless: Headless | None = None, project: ProjectRules | None = None) -> None:
        """Args: headless: nobody is asked; None: somebody is. project: gets what is allowed in the project for ever."""
        self._headless = headless
        self._project = project
        self._session: tuple[Rule, ...] = ()
        self._open: dict[str, _Open] = {}

    async def check(
        self,
        call: Call,
        policy: Policy,
        emitter: Emitter,
        *,
        path: tuple[str, ...],
        tool_call_id: str | None = None,
        pause: AbstractContextManager[Any] | None = None,
    ) -> None:
        """Return if the call may run.

        Args:
            call: What is about to happen, with its real values.
            policy: That of the agent that asks.
            emitter: The pen of the agent that asks.
            path: The agents from the root to the one that asks, as people should see them.
            tool_call_id: The model's tool call that this belongs to.
            pause: Entered while a person is asked; stops the clock of a running cell.

        Raises:
            ApprovalDeniedError: The call must not run; carries the reason.
        """
        ruling = self.ruling(call, policy)
        if ruling.verdict == "allow":
            return
        if ruling.verdict == "deny":
            raise ApprovalDeniedError(ruling.reason)
        if emitter.channel.closed:
            raise ApprovalDeniedError(NOBODY)
        with pause or nullcontext():
            decision = await self._ask(call, policy, ruling, _Asker(emitter, path, tool_call_id))
        if not decision.allowed:
            raise ApprovalDeniedError(decision.reason)

    def ruling(self, call: Call, policy: Policy) -> Ruling:
        """What policy and session say about a call."""
        return decide(call, policy.with_session(self._session))

    async def _ask(self, call: Call, policy: Policy, ruling: Ruling, asker: "_Asker") -> Decision:
        request_id = f"approval-{secrets.token_hex(4)}"
        if_nobody = NEEDS_PERSON if ruling.needs_person else headless_answer(self._headless or "auto", policy.mode)

        def announce(decision: Decision) -> None:
            """Before the one who waits goes on, so that nothing it does is told of before its approval."""
            asker.tell(ApprovalAnswered(request_id=request_id, allowed=decision.allowed, reason=decision.reason))

        def answer(decision: Decision) -> bool:
            if decision.pattern is not None:
                parse_pattern(decision.pattern)
            return question.decide(decision)

        question = Question(call, announce)
        request = ApprovalRequest(
            request_id=request_id,
            call=call,
            path=asker.path,
            reason=ruling.reason,
            suggested=ruling.suggests,
            headless=self._headless is not None,
            if_nobody=if_nobody,
            _answer=answer,
        )
        self._open[request_id] = _Open(question=question, policy=policy)
        try:
            await asker.emitter.emit(request, tool_call_id=asker.tool_call_id)
            if asker.emitter.channel.closed:
                question.decide(Decision(allowed=False, reason=NOBODY))
            elif self._headless is not None:
                question.decide(if_nobody)
            decision = await question.answer
            if decision.allowed and decision.remember:
                self._remember(decision, ruling, asker)
            return decision
        finally:
            del self._open[request_id]
            question.decide(Decision(allowed=False, reason="withdrawn"))  # unless it was answered

    def abandon(self) -> None:
        """The reader is gone: all open questions are answered with no."""
        for item in tuple(self._open.values()):
            item.question.decide(Decision(allowed=False, reason=NOBODY))

    def _remember(self, decision: Decision, ruling: Ruling, asker: "_Asker") -> None:
        """Allow calls like this from now on, those that wait included."""
        patterns = ruling.suggests if decision.pattern is None else (decision.pattern,)
        rules = tuple(Rule(verdict="allow", pattern=parse_pattern(text), source=SESSION) for text in patterns)
        self._session = (*self._session, *(rule for rule in rules if rule not in self._session))
        if decision.remember == "project" and self._project is not None:
            try:
                self._project.allow(patterns)
            except ConfigError as error:
                asker.tell(Notice(content=f"the answer holds for this session only: {error}"))
        for item in tuple(self._open.values()):
            if self.ruling(item.question.call, item.policy).verdict == "allow":
                item.question.decide(Decision(allowed=True))


@dataclass(frozen=True)
class _Asker:
    """Who asks, and with which pen."""

    emitter: Emitter
    path: tuple[str, ...]
    tool_call_id: str | None

    def tell(self, event: ApprovalAnswered | Notice) -> None:
        self.emitter.put(event, tool_call_id=self.tool_call_id)


def headless_answer(headless: Headless, mode: Mode) -> Decision:
    """The answer to what would be asked where nobody answers."""
    if headless == "allow":
        return Decision(allowed=True, reason=f"{NOBODY}, and what would be asked is allowed")
    if headless == "auto" and mode in ("auto", "full"):
        return Decision(allowed=True, reason=f"{NOBODY}, which means yes in mode {mode}")
    if headless == "deny":
        return Decision(allowed=False, reason=f"{NOBODY}, and what would be asked is denied")
    reason = f"{NOBODY}, which means no in mode {mode} (--yes or --headless allow approves what would be asked)"
    return Decision(allowed=False, reason=reason)
