"""`HookNotes`: what hooks have said in a run that its model has not read, and what they are to hear of."""

from dataclasses import dataclass, field
from typing import Final

from freeact_sub.calls import Call

MAX_ACTIONS: Final = 1000
"""What one cell does that hooks hear of."""


@dataclass(kw_only=True, eq=False)
class HookNotes:
    """Of one run."""

    _texts: dict[str | None, list[str]] = field(default_factory=dict)
    """For the model, by its call."""
    _actions: dict[tuple[str, str], Call] = field(default_factory=dict)
    """What code has done since the last cell, by kind and summary."""

    def add(self, tool_call_id: str | None, text: str) -> None:
        """Keep a text for the model until its call has a result."""
        self._texts.setdefault(tool_call_id, []).append(text)

    def take(self, tool_call_id: str | None) -> list[str]:
        """The texts for the result of a call."""
        return self._texts.pop(tool_call_id, [])

    def note_action(self, call: Call) -> None:
        """Keep what code has done until its cell has ended; what is done twice is told once."""
        if len(self._actions) < MAX_ACTIONS:
            self._actions[call.kind, call.summary] = call

    def take_actions(self) -> list[Call]:
        """What code has done since the last cell."""
        actions = [*self._actions.values()]
        self._actions.clear()
        return actions
