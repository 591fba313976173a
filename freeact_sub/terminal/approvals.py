"""`Questions`: the approval requests that wait for a person, in the order in which they came.

One is asked at a time; the others wait behind it, and everybody who did not ask goes on. What a person types answers the
question that was on the screen: one that is withdrawn takes the half-typed answer with it (the front ends see to that).
"""

import re
from dataclasses import dataclass, field

from freeact_sub.events import ApprovalAnswered, ApprovalRequest, Decision, Event
from freeact_sub.text import one_line

HINT = "y yes · n no · a always in this session · or type why not"

_ALWAYS = re.compile(r"(a|always|p|project)(?:\s+((?:code|spawn|shell|file|write|connect|mcp|tool)(?::.*)?))?", re.DOTALL)


def always_means(request: ApprovalRequest) -> str:
    """What "always" would allow, and how to say something else; empty where nothing can be allowed for longer."""
    if not request.suggested:
        return ""
    patterns = one_line(", ".join(request.suggested), 200)
    return f"a allows {patterns} · p the same in this project for ever · after either, a pattern of your own"


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
        """Answer the current question with what a person typed; False if that is empty."""
        request, word = self.current, text.strip()
        if request is None or not word:
            return False
        always = _ALWAYS.fullmatch(word) or _ALWAYS.fullmatch(word.lower())
        if always is not None and not _approve(request, always):
            return False
        self.waiting = self.waiting[1:]
        match word.lower() if always is None else "always":
            case "always":
                pass
            case "y" | "yes":
                request.approve()
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


def _approve(request: ApprovalRequest, always: re.Match[str]) -> bool:
    """Approve for longer; False if the pattern is none, and the question stays."""
    try:
        request.approve(remember="session" if always[1][0] == "a" else "project", pattern=always[2])
    except ValueError:
        return False
    return True
