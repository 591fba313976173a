"""`SessionVariables`: the variables of all agents of a session, saved into files, and put into new kernels.

Those of the root are saved after each cell, while it goes on. Those of a child are saved when it ends, for then it can be
resumed; before that, now and then after a cell, in case the program is killed. One snapshot of an agent is made at a time;
cells that end meanwhile are in the next one. Beside the snapshot stands the time of the last cell that is in it, so that a
model whose program was killed in between reads that what came later is missing.
"""

import asyncio
import logging
import os
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from freeact_sub import events as ev
from freeact_sub.agents.ports import UsedKernel
from freeact_sub.agents.sessions.past import keep_variables, path_of_mark, remove_oldest
from freeact_sub.calls import Call, SavedVariables
from freeact_sub.errors import ApprovalDeniedError, KernelError, KernelSnapshotError
from freeact_sub.kernels import branching
from freeact_sub.system.closing import end_task
from freeact_sub.system.private_folders import remove_soon
from freeact_sub.text import counted, one_line

if TYPE_CHECKING:
    from freeact_sub.kernels.snapshot_reports import LeftOut, RestoreReport

MARK_CHARS: Final = 32
"""The width of a number, so that each overwrites the previous one."""
KEEP_SECONDS: Final = 5.0
"""Seconds that a prompt waits for the variables before it to be saved."""
END_SECONDS: Final = 20.0
"""Seconds to wait for the last snapshot when the agent ends."""
CHILD_SECONDS: Final = 10.0
"""Between two snapshots of a child that is at work."""
CHILD_BYTES: Final = 256 * 2**20
"""Bytes of one child's variables; beyond it the smallest variables are kept."""
CHILDREN_BYTES: Final = 2**30
"""Bytes of all children's variables of a session; the children that ended first lose theirs."""
NAMED: Final = 30
"""Variables that a sentence names."""

CHANGE_VARIABLES: Final = (ev.CodeExecutionOutput, ev.KernelLost, ev.ToolOutput)
"""Events after which variables may be others."""

Ask: TypeAlias = Callable[[Call], Awaitable[Any]]
"""Asks rules, and if need be a person. Raises: ApprovalDeniedError: It is denied."""

NONE_SAVED: Final = "none are saved"
TOO_LONG: Final = "saving them takes longer than {seconds:.0f} s"
OF_NOW: Final = "What the last cells changed in the variables is not in them, because it could not be saved: {reason}."

logger = logging.getLogger(__name__)
KERNEL_IS_NEW: Final = "[Your kernel is new: the variables and imports of the conversation so far are gone.]"

News: TypeAlias = Callable[[], Awaitable[str]]
"""Brings back what can be had of a kernel's variables, and returns what the model reads of it."""


class SessionVariables:
    """See above."""

    def __init__(self, folder: Path, last_cell: Callable[[str], Awaitable[float]], notice: Callable[[str], None]) -> None:
        """Save nothing yet.

        Args:
            folder: The folder of the session's variables.
            last_cell: When the last cell of an agent ended, by its id; 0: it had none.
            notice: Tells people something.
        """
        self._folder = folder
        self._last_cell = last_cell
        self._notice = notice
        self._at_work: dict[str, Variables] = {}
        self._root_id = ""

    def of_root(self, agent_id: str, kernel: UsedKernel, ask: Ask) -> "Variables":
        """Follow the root, until `Variables.aclose`. Args: kernel: its own. ask: on its behalf."""
        self._root_id = agent_id
        variables = Variables(self._folder, agent_id, kernel, ask, last_cell=self._last_cell, notice=self._notice)
        self._at_work[agent_id] = variables
        return variables

    def of_child(self, agent_id: str, kernel: UsedKernel, ask: Ask, notice: Callable[[str], None]) -> "Variables":
        """Follow a child, until `Variables.aclose`. Args: see `of_root`. notice: tells people something of the child."""

        async def on_end() -> None:
            if self._at_work.get(agent_id) is variables:
                del self._at_work[agent_id]
            spared = {self._root_id, *self._at_work, agent_id}
            await asyncio.to_thread(remove_oldest, self._folder, CHILDREN_BYTES, spared)

        variables = Variables(
            self._folder, agent_id, kernel, ask, last_cell=self._last_cell, notice=notice, of_child=True, on_end=on_end
        )
        self._at_work[agent_id] = variables
        return variables

    async def settled(self) -> None:
        """Wait, for a bounded time, until the root's variables are saved as they are now."""
        if self._root_id in self._at_work:
            await self._at_work[self._root_id].settled()

    async def keep(self, run: int) -> None:
        """Keep the root's variables as they are before a run of it, unless saving takes long. Args: run: its number."""
        if (root := self._at_work.get(self._root_id)) is not None and await root.settled(KEEP_SECONDS):
            await asyncio.to_thread(keep_variables, self._folder, self._root_id, run)

    def changed(self, agent_id: str) -> None:
        """Save an agent's variables soon."""
        if agent_id in self._at_work:
            self._at_work[agent_id].want(time.time())

    def observe(self, event: ev.AgentEvent) -> None:
        """Hear one of `CHANGE_VARIABLES`."""
        variables = self._at_work.get(event.agent_id)
        if variables is not None:
            variables.observe(event)


class Variables:
    """Saves the variables of one agent while it is open."""

    def __init__(
        self,
        folder: Path,
        agent_id: str,
        kernel: UsedKernel,
        ask: Ask,
        *,
        last_cell: Callable[[str], Awaitable[float]] | None,
        notice: Callable[[str], None],
        of_child: bool = False,
        on_end: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """Follow nothing yet.

        Args:
            folder: The folder of the session's variables.
            agent_id: The agent.
            kernel: Its own.
            ask: On its behalf.
            last_cell: See `SessionVariables`. None: no session has its cells.
            notice: Tells people something.
            of_child: The model reads what was not saved only if the child is resumed.
            on_end: Called last.
        """
        self.is_paused = False
        """Saves nothing: the stored variables must stay until they are restored."""
        self._last_cell = last_cell
        self._home = folder
        self._of_child = of_child
        self._on_end = on_end
        self._ending = asyncio.Event()
        self._folder = folder / agent_id
        self._mark = path_of_mark(folder, agent_id)
        self._agent_id = agent_id
        self._ask = ask
        self._left_out: frozenset[str] = frozenset()
        """Variables of the snapshot that this kernel was not given, and that stay in it."""
        self._kernel = kernel
        self._notice = notice
        self._wanted: float | None = None
        """The end of the last unsaved cell."""
        self._saving: asyncio.Task[None] | None = None
        self._problem = ""
        """Why the last attempt to save has failed. Empty: it has not."""
        self._is_last = False
        """The kernel is about to be replaced: `restore` tells what was not saved."""

    @property
    def has_more(self) -> bool:
        """Whether it keeps variables that the kernel was not given: a kernel in another mode may be given them."""
        return bool(self._left_out)

    @property
    def are_saved(self) -> bool:
        """Whether there is a snapshot."""
        return self._folder.is_dir()

    def observe(self, event: ev.AgentEvent) -> None:
        """The end of a cell or of a kernel of the agent triggers a snapshot."""
        if isinstance(event, ev.ToolOutput) and event.tool_name != "reset_kernel":
            return
        if not isinstance(event, ev.CodeExecutionOutput):
            self._left_out = frozenset()
        self.want(event.time)

    def want(self, cell_ended: float) -> None:
        """Saves the variables soon, unless saving is paused. Args: cell_ended: the end of the last cell to include."""
        if not self.is_paused:
            self._wanted = cell_ended
            if self._saving is None:
                self._saving = asyncio.create_task(self._save(), name="saves variables")

    async def aclose(self) -> None:
        """Wait for the last snapshot, within a bound. Of a child, whose kernel ends, one is made."""
        self._ending.set()
        if self._of_child and self._kernel.is_used:
            self.want(time.time())
        saving = self._saving
        await self.settled()
        if saving is not None:
            await end_task(saving)
        if self._on_end is not None:
            await self._on_end()

    async def forget(self) -> None:
        """Remove what is saved, with its folder."""
        if self._saving is not None:
            await end_task(self._saving)
        remove_soon(self._home)

    async def settled(self, seconds: float = END_SECONDS) -> bool:
        """Wait until nothing is being saved, within a bound. Return whether it is so."""
        if self._saving is not None:
            await asyncio.wait({self._saving}, timeout=seconds)
        return self._saving is None

    async def save_now(self) -> str:
        """Save the variables as they are now, because the kernel is about to be replaced. Return why they are not saved.

        From now on nothing is saved until they are restored.
        """
        self._is_last = True
        try:
            self.want(time.time())
            await self.settled()
        finally:
            self._is_last = False
        saving, self.is_paused = self._saving, True
        if saving is not None:
            await end_task(saving)
            self._problem = TOO_LONG.format(seconds=END_SECONDS)
        return self._problem

    async def restore(self, problem: str = "") -> str:
        """Bring the variables back into the new kernel. Returns what the model reads about them.

        Args:
            problem: Why the variables of the kernel before were not saved at its end. Empty: they were.
        """
        self.is_paused = True  # a cancel may leave the kernel without them
        news = await self._restored(problem)
        self.is_paused, self._problem = False, ""
        return news

    async def _restored(self, problem: str) -> str:
        last_cell = 0.0 if self._last_cell is None else await self._last_cell(self._agent_id)
        if not self._folder.is_dir():
            return self._none(problem or NONE_SAVED) if problem or last_cell else KERNEL_IS_NEW
        try:
            report = await self._read()
        except KernelError as error:
            logger.info("variables of %s are not restored: %s", self._agent_id, error)
            return self._none(one_line(str(error), 300))
        later = OF_NOW.format(reason=problem) if problem else _later(self._saved_up_to(), last_cell)
        self._left_out = frozenset(variable.name for each in report.left_out for variable in each.variables)
        if report.restored or report.lost or not report.left_out:
            self._notice(
                f"{counted(len(report.restored), 'variable')} came back{_lost(report)}{f'. {later}' if later else ''}"
            )
        for each in report.left_out:
            self._notice(f"{_left_out(each)} To have them, continue in {each.continue_in}")
        text = "\n".join(filter(None, [_restored_text(report), later]))
        return f"[Your kernel is new. {text}]"

    def _none(self, reason: str) -> str:
        """Tell people that no variables came back, and return what the model reads about it."""
        self._notice(f"its saved variables did not come back: {reason}")
        return f"{KERNEL_IS_NEW[:-1]} They could not be brought back: {reason}]"

    def _saved_up_to(self) -> float:
        with suppress(OSError, ValueError):
            return float(self._mark.read_text(encoding="ascii"))
        return 0.0

    async def _read(self) -> "RestoreReport":
        """Bring back what this kernel may have, and, if a person agrees, the rest."""
        kernel = branching(await self._kernel.get(), KernelSnapshotError)
        report = await kernel.restore(self._folder)
        if not report.left_out:
            return report
        call = SavedVariables(
            variables="\n".join(variable.line for each in report.left_out for variable in each.variables),
            saved_in=" and ".join(dict.fromkeys(each.saved_in for each in report.left_out)),
            more=" and ".join(dict.fromkeys(each.more for each in report.left_out)),
        )
        try:
            await self._ask(call)
        except ApprovalDeniedError:
            return report
        return await kernel.restore(self._folder, allow_more=True)

    async def _save(self) -> None:
        """Save until nothing new is left."""
        try:
            while self._wanted is not None:
                if self._of_child:
                    with suppress(TimeoutError):
                        async with asyncio.timeout(CHILD_SECONDS):
                            await self._ending.wait()
                wanted, self._wanted = self._wanted, None
                kernel = branching(await self._kernel.get(), KernelSnapshotError)
                most = CHILD_BYTES if self._of_child else None
                await kernel.snapshot(self._folder, max_bytes=most, keep=self._left_out)
                self._set_mark(wanted)
                self._problem = ""
        except (KernelError, OSError) as error:
            before, self._problem = self._problem, one_line(str(error), 300)  # the next cell triggers another attempt
            if self._of_child:  # read only if the child is resumed, which most never are
                logger.info("the variables of %s are not saved: %s", self._agent_id, error)
            elif not before and not self._is_last:
                self._notice(f"the session does not have the variables of now: {self._problem}")
        finally:
            self._saving = None

    def _set_mark(self, cell_ended: float) -> None:
        """Write the mark in place: ext4 waits for the disk when a file is replaced or truncated."""
        descriptor = os.open(self._mark, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.pwrite(descriptor, f"{cell_ended!r:<{MARK_CHARS}}".encode("ascii"), 0)
        finally:
            os.close(descriptor)


def _restored_text(report: "RestoreReport") -> str:
    lines = "\n".join(f"- {one_line(variable.line, 200)}" for variable in report.restored[:NAMED])
    more = len(report.restored) - NAMED
    back = f"These variables came back:\n{lines}" if lines else "No variables came back."
    more_text = f"\n- and {more} more" if more > 0 else ""
    lost = "\n".join(
        f"- {one_line(item.name, 80)} ({one_line(item.type, 80)}{'' if item.cell is None else f', of cell {item.cell}'}): "
        f"{one_line(item.reason, 200)}"
        for item in report.lost[:NAMED]
    )
    others = "".join(f"\n{_left_out(each)} Make them again where you need them." for each in report.left_out)
    made = f"\nThese did not, and are to be made again where you need them:\n{lost}" if lost else ""
    return f"{back}{more_text}{made}{others}"


def _left_out(variables: "LeftOut") -> str:
    """Return the sentence on variables that a kernel with more rights was not given."""
    names = [one_line(variable.name, 80) for variable in variables.variables]
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    were = "was" if len(names) == 1 else "were"
    return (
        f"{counted(len(names), 'variable')} {were} saved in {variables.saved_in} and not brought back, because this kernel "
        f"may do more ({one_line(variables.more, 200)}): {', '.join(names[:NAMED])}{more}."
    )


def _lost(report: "RestoreReport") -> str:
    names = ", ".join(one_line(item.name, 40) for item in report.lost[:NAMED])
    return f", {len(report.lost)} did not: {names}" if names else ""


def _later(saved_up_to: float, last_cell: float) -> str:
    """Return the sentence on cells whose changes are not in the snapshot."""
    if last_cell <= saved_up_to:
        return ""
    return "The run or the program ended before the last cell was saved: what it changed in the variables is not in them."


async def kernel_is_new() -> str:
    """Tell a model whose kernel has nothing of the conversation so far."""
    return KERNEL_IS_NEW
