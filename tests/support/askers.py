"""`AskerFake`: an agent that asks a gate, without an agent."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

from freeact_sub.approvals import Policy
from freeact_sub.approvals.gate import Adviser
from freeact_sub.channel import Emitter


@dataclass(kw_only=True)
class AskerFake:
    """Asks; its clocks are those that the test gives it."""

    policy: Policy
    emitter: Emitter
    path: tuple[str, ...] = ()
    tool_call_id: str | None = None
    ended: str = "the call has ended"
    advisers: Sequence[Adviser] = ()
    pause: AbstractContextManager[Any] = field(default_factory=nullcontext)

    def paused(self) -> AbstractContextManager[Any]:
        return self.pause
