"""`WrittenFiles`: lists the files that the run has written, a line for each, as soon as a cell of the root has ended."""

import asyncio
from typing import Final

from rich.text import Text

from freeact_sub.errors import FreeactError
from freeact_sub.events import AgentStarted, Event, ToolOutput
from freeact_sub.terminal.conversation.present import Present
from freeact_sub.text import one_line

LIMIT_SECONDS: Final = 2.0
"""The seconds that a look through the workspace may take; after a longer one the list stops for the rest of the run."""
MAX_SHOWN: Final = 8
MINUS: Final = "\N{MINUS SIGN}"
Counts = tuple[int, int] | None
"""The numbers of lines added and removed since the prompt. None: unknown."""


class WrittenFiles:
    """Remembers which changes of one run were listed."""

    def __init__(self, present: Present) -> None:
        """Args: present: the state of the conversation."""
        self._present = present
        self._told: dict[str, Counts] = {}
        self._knows_lines = True

    async def after(self, event: Event) -> Text | None:
        """Returns the list to print after an event. None: nothing new was written."""
        if event.parent_id is not None:
            return None
        if isinstance(event, AgentStarted):
            self._told, self._knows_lines = {}, True
        run = self._present.run
        if not isinstance(event, ToolOutput) or run is None or not run.files_written:
            return None
        found = await self._found(run.files_written)
        new = {path: counts for path, counts in found.items() if self._told.get(path, ()) != counts}
        self._told |= new
        return drawn(new) if new else None

    async def _found(self, written: tuple[str, ...]) -> dict[str, Counts]:
        agent = self._present.agent
        if agent is not None and self._knows_lines:
            try:
                async with asyncio.timeout(LIMIT_SECONDS):
                    return dict(await agent.line_changes())
            except (FreeactError, TimeoutError):
                self._knows_lines = False
        return dict.fromkeys(written)


def drawn(changes: dict[str, Counts]) -> Text:
    """A line for each file: `± report.md +12 -3`, with a minus sign."""
    lines = []
    for path, counts in [*changes.items()][:MAX_SHOWN]:
        line = Text.assemble(("  ± ", "dim"), one_line(path, 200), overflow="fold")
        if counts is not None:
            line.append(f" +{counts[0]:,}", "green").append(f" {MINUS}{counts[1]:,}", "red")
        lines.append(line)
    if len(changes) > MAX_SHOWN:
        lines.append(Text(f"  ± and {len(changes) - MAX_SHOWN:,} more", "dim"))
    return Text("\n").join(lines)
