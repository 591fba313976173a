"""`Questions`: the approval requests that wait for a person, in the order in which they came.

One is asked at a time; the others wait behind it, and everybody who did not ask goes on. What a person types answers the
question that was on the screen: one that is withdrawn takes the half-typed answer with it (the front ends see to that).
"""

from dataclasses import dataclass, field

from freeact_sub.events import ApprovalAnswered, ApprovalRequest, Decision, Event

HINT = "y yes · n no · a always in this session · or type why not"


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
        if isinstance(event, ApprovalRequest):
            self.waiting.append(event)
        elif isinstance(event, ApprovalAnswered):
            self.waiting = [request for request in self.waiting if request.request_id != event.request_id]

    def answer(self, text: str) -> bool:
        """Answer the current question with what a person typed; False if that is empty."""
        request, word = self.current, text.strip()
        if request is None or not word:
            return False
        self.waiting = self.waiting[1:]
        match word.lower():
            case "y" | "yes":
                request.approve()
            case "a" | "always":
                request.approve(remember=True)
            case "n" | "no":
                request.deny()
            case _:
                request.deny(word)
        return True

    def decide_all(self, decision: Decision) -> None:
        """Answer all that is open in the same way."""
        waiting, self.waiting = self.waiting, []
        for request in waiting:
            request.decide(decision)
