"""`Gate`: every call of every agent of a tree goes through it; policy first, then a person.

A question is an `ApprovalRequest` on the root's stream. Only the call that asks waits for it. The answer comes on the event
(`event.approve()`), by whoever reads the stream, in any order. A gate serves one root agent and its descendants for as long
as the root lives; what a person allowed "always" is remembered here and nowhere else.
"""

import secrets
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

from freeact_sub.approvals.policy import Rules, decide, pattern_of
from freeact_sub.approvals.question import Question
from freeact_sub.calls import Call
from freeact_sub.channel import Emitter
from freeact_sub.errors import ApprovalDeniedError
from freeact_sub.events import ApprovalAnswered, ApprovalRequest, Decision

NOBODY = "nobody is there to answer"


class Gate:
    """Lets calls through, refuses them, or asks."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self._open: dict[str, Question] = {}

    async def check(
        self,
        call: Call,
        emitter: Emitter,
        *,
        path: tuple[str, ...],
        tool_call_id: str | None = None,
        pause: AbstractContextManager[Any] | None = None,
    ) -> None:
        """Return if the call may run.

        Args:
            call: What is about to happen, with its real values.
            emitter: The pen of the agent that asks.
            path: The agents from the root to the one that asks, as people should see them.
            tool_call_id: The model's tool call that this belongs to.
            pause: Entered while a person is asked; stops the clock of a running cell.

        Raises:
            ApprovalDeniedError: The call must not run; carries the reason.
        """
        verdict = decide(call, self.rules)
        if verdict == "allow":
            return
        if verdict == "deny":
            raise ApprovalDeniedError("the configuration denies what would be asked (approval = deny)")
        with pause or nullcontext():
            decision = await self._ask(call, emitter, path, tool_call_id)
        if not decision.allowed:
            raise ApprovalDeniedError(decision.reason)

    async def _ask(self, call: Call, emitter: Emitter, path: tuple[str, ...], tool_call_id: str | None) -> Decision:
        if emitter.channel.closed:
            return Decision(allowed=False, reason=NOBODY)
        request_id = f"approval-{secrets.token_hex(4)}"

        def announce(decision: Decision) -> None:
            answered = ApprovalAnswered(request_id=request_id, allowed=decision.allowed, reason=decision.reason)
            emitter.put(answered, tool_call_id=tool_call_id)

        question = self._open[request_id] = Question(call, announce)
        try:
            request = ApprovalRequest(request_id=request_id, call=call, path=path, _answer=question.decide)
            await emitter.emit(request, tool_call_id=tool_call_id)
            if emitter.channel.closed:
                question.decide(Decision(allowed=False, reason=NOBODY))
            decision = await question.answer
        finally:
            question.decide(Decision(allowed=False, reason="withdrawn"))  # an answer that comes after this is too late
            del self._open[request_id]
        if decision.allowed and decision.remember:
            self._remember(call)
        return decision

    def abandon(self) -> None:
        """Nobody will answer any more: all open questions are answered with no."""
        for question in tuple(self._open.values()):
            question.decide(Decision(allowed=False, reason=NOBODY))

    def _remember(self, call: Call) -> None:
        """Allow this kind of call from now on, those that wait included."""
        self.rules = replace(self.rules, allowed=self.rules.allowed | {pattern_of(call)})
        for question in tuple(self._open.values()):
            if decide(question.call, self.rules) == "allow":
                question.decide(Decision(allowed=True))
