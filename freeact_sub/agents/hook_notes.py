"""`HookNotes`: what hooks have said in a run."""

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
    _actions: dict[str, dict[tuple[str, str], Call]] = field(default_factory=dict)
    """What the code of an agent or node has done since its last cell, by kind and summary."""
    ends: str = ""
    """Why a hook ends the run, once the present cell has ended. Empty: none does."""

    def add(self, tool_call_id: str | None, text: str) -> None:
        """Keep a text for the model until its call has a result."""
        self._texts.setdefault(tool_call_id, []).append(text)

    def take(self, tool_call_id: str | None) -> list[str]:
        """The texts for the result of a call."""
        return self._texts.pop(tool_call_id, [])

    def note_action(self, agent_id: str, call: Call) -> None:
        """Keep what code has done until its cell has ended; what is done twice is told once."""
        actions = self._actions.setdefault(agent_id, {})
        if len(actions) < MAX_ACTIONS:
            actions[call.kind, call.summary] = call

    def take_actions(self, agent_id: str) -> list[Call]:
        """What the code of an agent has done since its last cell."""
        return [*self._actions.pop(agent_id, {}).values()]
