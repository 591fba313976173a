"""`Replay`: runs the cells of a session again in a new kernel, instead of reading its variables from files.

The cells run in their order, each under the rules, the mode and the wall of now, and asked about like any other. Their
children and `ask`s are answered by the journal where it knows the answer.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from freeact_sub.agents.children.nodes import CALLS
from freeact_sub.agents.runs.user_cells import run_code
from freeact_sub.errors import ApprovalDeniedError
from freeact_sub.events import CodeExecutionOutput, KernelLost, ToolOutput
from freeact_sub.sessions import SessionReader, StoredCell, cells_of
from freeact_sub.text import one_line

if TYPE_CHECKING:
    from freeact_sub.agents.runs.loop import AgentLoop

PREFIX: Final = "replay-"
"""The prefix of the ids of calls that run a cell again."""
NAMED: Final = 10
"""Failures that a sentence names."""
REASON_CHARS: Final = 120


def cells_to_run(reader: SessionReader, agent_id: str) -> list[StoredCell]:
    """Return the cells that made an agent's kernel what it was: those since its last reset, without what was undone.

    The cells of its nodes ran in other kernels.
    """
    undone = [(run.began, run.ended) for run in reader.runs(agent_id) if run.undone]
    events = list(reader.events(agent_id))
    for place in reversed(range(len(events))):
        event = events[place]
        reset = isinstance(event, ToolOutput) and event.tool_name == "reset_kernel" and event.outcome == "success"
        if reset or isinstance(event, KernelLost):
            events = events[place + 1 :]
            break
    ran = {event.tool_call_id for event in events if isinstance(event, CodeExecutionOutput)}
    return [
        cell
        for cell in cells_of(iter(events))
        if cell.tool_call_id in ran
        and not (cell.tool_call_id or "").startswith((PREFIX, CALLS))
        and not any(began <= cell.began and (ended is None or cell.began <= ended) for began, ended in undone)
    ]


class Replay:
    """The cells of one agent, run once."""

    def __init__(self, cells: Sequence[StoredCell], loop: "AgentLoop", notice: Callable[[str], None]) -> None:
        """Args: cells: in their order. notice: tells people something."""
        self._left = list(enumerate(cells, 1))
        self._number = len(cells)
        self._loop = loop
        self._notice = notice
        self._failed: list[str] = []

    async def run(self) -> str:
        """Run the remaining cells; one that fails does not stop the rest. Return what the model reads about them.

        Raises:
            LimitReachedError: The budget does not allow another cell.
            KernelLostError: The kernel has died too often.
        """
        while self._left:
            number, cell = self._left.pop(0)  # one that is cancelled is not run a second time
            problem = "cut off with its run"
            try:
                problem = await self._again(cell)
            finally:
                if problem:
                    self._failed.append(f"cell {number} ({one_line(cell.code, 60)}): {one_line(problem, REASON_CHARS)}")
        failed = "; ".join(self._failed[:NAMED]) + ("; …" if self._failed[NAMED:] else "")
        done = f"{self._number - len(self._failed)} of {self._number} cells of the session were run again"
        self._notice(f"{done}\n{len(self._failed)} failed: {failed}" if failed else done)
        text = f"[Your kernel is new, and {done} in it: their variables and imports are there."
        return f"{text}\nThese failed: {failed}]" if failed else f"{text}]"

    async def _again(self, cell: StoredCell) -> str:
        try:
            ended = await run_code(self._loop, cell.code, PREFIX)
        except ApprovalDeniedError as error:
            return f"not run: {error}"
        return "" if ended.status == "ok" else (ended.text.strip().splitlines() or [ended.status])[-1]
