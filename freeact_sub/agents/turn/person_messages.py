"""`PersonMessages`: what a person sends to a working agent; its hooks judge it before the model reads it."""

from dataclasses import dataclass, field
from typing import Any

from pydantic_ai import RunContext
from pydantic_ai.exceptions import UserError

from freeact_sub.agents.hooks import heard_message
from freeact_sub.agents.tree import TreeAgent
from freeact_sub.text import whole_text


@dataclass(kw_only=True, eq=False)
class PersonMessages:
    """Of one run."""

    agent: TreeAgent
    ends: bool = False
    """The run is about to end: no more is taken."""
    _waiting: list[str] = field(default_factory=list)

    def put(self, ctx: RunContext[Any], text: str) -> bool:
        """Take a message. Returns False if nobody will read it."""
        if self.ends:
            return False
        try:
            queued = ctx.enqueue(whole_text(text))
        except UserError:  # the run has made its last request
            return False
        if queued is not None:
            ctx.dequeue(queued)  # the queue is open, and the model reads nothing before the hooks
            self._waiting.append(text)
        return True

    async def judge(self, ctx: RunContext[Any], *, at_end: bool) -> None:
        """Run the hooks on what has come, and hand on what the model may read.

        Args:
            ctx: Of the present step.
            at_end: The run ends unless there is something to read.

        Raises:
            ApprovalDeniedError: A hook ends the run.
        """
        goes_on = False
        while self._waiting:
            if (text := await heard_message(self.agent, self._waiting.pop(0))) is not None:
                ctx.enqueue(whole_text(text))
                goes_on = True
        self.ends = at_end and not goes_on
