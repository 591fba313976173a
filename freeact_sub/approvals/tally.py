"""`Tally`: counts the decisions of one run."""

from dataclasses import dataclass
from typing import Final

from freeact_sub.calls import Call, ToolCall
from freeact_sub.events import Decision

UNATTENDED: Final = (
    "every action was denied because nobody was there to ask: --mode auto runs them in the sandbox, --yes approves all "
    '(in Python: mode="auto", headless="allow")'
)


@dataclass
class Tally:
    """Counts decisions on actions, to tell a run that could do nothing because nobody answered.

    Tools that touch only the agent and its children do not count as actions.
    """

    allowed: int = 0
    denied: int = 0
    """Denied by a person or a rule."""
    unanswered: int = 0
    """Denied because nobody could be asked."""

    def allow(self, call: Call) -> None:
        """Counts a call that runs without a question."""
        self.allowed += not (isinstance(call, ToolCall) and call.harmless)

    def decide(self, decision: Decision) -> None:
        """Counts an answered question."""
        if decision.allowed:
            self.allowed += 1
        elif decision.nobody:
            self.unanswered += 1
        else:
            self.denied += 1

    @property
    def unattended(self) -> bool:
        """Whether there were actions and all were denied because nobody could be asked."""
        return bool(self.unanswered) and not self.allowed and not self.denied

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings for the result of the run."""
        return (UNATTENDED,) if self.unattended else ()
