"""`Questions`: the approval requests that wait for a person, in the order in which they came.

One is asked at a time; the others wait behind it, in a list from which another can be chosen (`/2`), and everybody who did
not ask goes on. What a person types answers the
question that was on the screen: one that is withdrawn takes the half-typed answer with it (the front ends see to that).
"""

import re
from dataclasses import dataclass, field
from typing import Final

from freeact_sub.answers import read_answer
from freeact_sub.events import ApprovalAnswered, ApprovalRequest, Decision, Event
from freeact_sub.text import one_line

MAX_OTHERS: Final = 4
"""Lines about the questions that wait."""


@dataclass
class Questions:
    """The queue of open questions."""

    waiting: list[ApprovalRequest] = field(default_factory=list)

    @property
    def current(self) -> ApprovalRequest | None:
        """The question to be answered next, or None."""
        return self.waiting[0] if self.waiting else None

    @property
    def current_id(self) -> str | None:
        """The id of the current question, or None."""
        return self.waiting[0].request_id if self.waiting else None

    def observe(self, event: Event) -> None:
        """Take in a question, or take away one that is closed: answered from elsewhere, or withdrawn."""
        if isinstance(event, ApprovalRequest) and not event.headless:
            self.waiting.append(event)
        elif isinstance(event, ApprovalAnswered):
            self.waiting = [request for request in self.waiting if request.request_id != event.request_id]

    def answer(self, text: str) -> bool:
        """Answer the current question with what a person typed; False if nothing can be done with that."""
        if other := re.fullmatch(r"/(\d{1,9})", text.strip()):
            return self.choose(int(other[1]))
        request, decision = self.current, read_answer(text)
        if request is None or decision is None:
            return False
        try:
            request.decide(decision)
        except ValueError:
            return False
        self.waiting = [other for other in self.waiting if other is not request]
        return True

    def choose(self, number: int) -> bool:
        """Put another question first, counted from 1; False if there is none."""
        if not 0 < number <= len(self.waiting):
            return False
        self.waiting.insert(0, self.waiting.pop(number - 1))
        return True

    def others(self) -> list[str]:
        """The questions that wait behind the current one, a line for each, and what to type to get to it."""
        lines = [
            f"/{number} {one_line((request.path or (request.agent_id,))[-1], 60)}: {one_line(request.call.summary)}"
            for number, request in enumerate(self.waiting[1 : 1 + MAX_OTHERS], start=2)
        ]
        left = len(self.waiting) - 1 - len(lines)
        return [*lines, *([f"… and {left} more"] if left > 0 else [])]

    def decide_all(self, decision: Decision) -> None:
        """Answer all that is open in the same way."""
        waiting, self.waiting = self.waiting, []
        for request in waiting:
            request.decide(decision)
