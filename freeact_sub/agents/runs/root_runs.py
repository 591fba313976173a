"""`RootRuns` lets the runs of a root follow each other: one that begins while another is ending waits for that end."""

from typing import TYPE_CHECKING

from freeact_sub.errors import AgentBusyError, FreeactError

if TYPE_CHECKING:
    from freeact_sub.agents.runs.run import Run


class RootRuns:
    """The runs of a root agent, of which one at a time is live."""

    def __init__(self) -> None:
        self.live: Run | None = None
        """The run that has started and not ended."""
        self.is_open = False
        """Whether the agent is open."""

    def check(self) -> "Run | None":
        """Check that a run may start now. Returns the run whose end it has to await.

        Raises:
            AgentBusyError: A run is live and not about to end.
        """
        if self.live is not None and not self.live.is_ending:
            raise AgentBusyError("the agent is busy: wait for its run to end, cancel it, or close its stream")
        return self.live

    def take(self, run: "Run") -> "Run | None":
        """Make a run the live one. Returns and raises: see `check`; FreeactError: The agent is closed."""
        if not self.is_open:
            raise FreeactError("the agent was closed before this run began: open it, and make a new run")
        before = self.check()
        self.live = run
        return before

    def forget(self, run: "Run") -> None:
        """Note that a run has ended."""
        if self.live is run:
            self.live = None

    async def settle(self) -> None:
        """Wait until a run that is ending has ended."""
        while self.live is not None and self.live.is_ending:
            await self.live.ended()
