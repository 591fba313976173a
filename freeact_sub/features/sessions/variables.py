"""`SessionVariables`: the variables of all agents of a session, saved into files, and put into new kernels.

Those of the root are saved after each cell, while it goes on. Those of a child are saved when it ends, for then it can be
resumed; before that, now and then after a cell, in case the program is killed. One snapshot of an agent is made at a time;
cells that end meanwhile are in the next one. Beside the snapshot stands the time of the last cell that is in it, so that a
model whose program was killed in between reads that what came later is missing.

A session has one snapshot of the root's variables, that of now. Before each prompt that can be undone the snapshot gets a
second name here (`keep_variables`): of what has not changed since the prompt before, nothing is stored twice.
"""

import asyncio
import logging
import os
import shutil
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from freeact_sub import events as ev
from freeact_sub.agents.feature import UsedKernel
from freeact_sub.agents.kernel import SAVE_SECONDS, TOO_LONG, Ask, KernelVariables
from freeact_sub.errors import KernelError
from freeact_sub.events import AgentStarted
from freeact_sub.sessions import PAST, VARIABLES, SessionReader, StoredRun, stats_below
from freeact_sub.system.closing import end_task
from freeact_sub.system.removal import remove
from freeact_sub.system.safe_files import link_or_copy
from freeact_sub.text import one_line

SAVED_UP_TO: Final = "saved-up-to"
"""The suffix of a snapshot's mark: the end of the last cell in it."""
MAX_STATES: Final = 50
MAX_BYTES: Final = 2 * 2**30
"""Size limit of all files that only these states still name."""
MARK_CHARS: Final = 32
"""The width of a number, so that each overwrites the previous one."""
KEEP_SECONDS: Final = 5.0
"""Seconds that a prompt waits for the variables before it to be saved."""
CHILD_SECONDS: Final = 10.0
"""Seconds between two snapshots of a child that is at work."""
CHILD_BYTES: Final = 256 * 2**20
"""Maximum bytes of one child's variables; beyond it the smallest variables are kept."""
CHILDREN_BYTES: Final = 2**30
"""Maximum bytes of all children's variables of a session; the children that ended first lose theirs."""

CHANGE_VARIABLES: Final = (ev.CodeExecutionOutput, ev.KernelLost, ev.ToolOutput)
"""Events after which variables may be others."""

logger = logging.getLogger(__name__)


def path_of_mark(folder: Path, agent_id: str) -> Path:
    """Return the mark of an agent's snapshot. Args: folder: with the variables of all agents."""
    return folder / f"{agent_id}.{SAVED_UP_TO}"


def keep_variables(folder: Path, agent_id: str, run: int) -> None:
    """Keep an agent's saved variables as they are now; without a second name for their files, nothing is kept.

    Args:
        folder: The folder of the session's variables.
        agent_id: The root.
        run: The number of its run that is about to begin.
    """
    past = folder.parent / PAST
    part = past / f"{run}.part"
    with suppress(OSError):  # no room, or the sweep has removed the folder: a fork says that they are not kept
        remove(str(part))
        part.mkdir(mode=0o700, parents=True)
        copy_snapshot(folder, part, agent_id)
        remove(str(past / str(run)))
        part.rename(past / str(run))
        _thin_out(past, folder)


def copy_snapshot(folder: Path, target: Path, agent_id: str) -> None:
    """Give an agent's snapshot, if there is one, second names in another folder. Raises: OSError."""
    source = folder / agent_id
    if not source.is_dir():
        return
    (target / agent_id).mkdir(mode=0o700, parents=True)
    for path in source.iterdir():
        link_or_copy(path, target / agent_id / path.name)
    with suppress(FileNotFoundError):  # it is overwritten in place
        shutil.copy2(path_of_mark(folder, agent_id), path_of_mark(target, agent_id))


def use_variables_before(folder: Path, agent_id: str, run: int) -> bool:
    """Restore the variables before a run of the root. Return whether they were kept; if not, there are none now.

    Args:
        folder: The session's folder.
        agent_id: The root.
        run: The number of its run.
    """
    variables, kept = folder / VARIABLES, folder / PAST / str(run)
    remove(str(variables / agent_id))
    path_of_mark(variables, agent_id).unlink(missing_ok=True)
    is_kept = kept.is_dir()
    if is_kept:
        copy_snapshot(kept, variables, agent_id)
    for path in _states(folder / PAST):
        if int(path.name) > run:
            remove(str(path))
    return is_kept


def remove_oldest(folder: Path, max_bytes: int, spared: Collection[str]) -> None:
    """Remove the oldest snapshots of children, until all of them together take no more than this.

    Args:
        folder: The folder of a session's variables.
        max_bytes: Bytes that they may take.
        spared: The root, and children at work.
    """
    found = []
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False) and entry.name not in spared:
                with suppress(FileNotFoundError):  # another child's end removes it
                    size = sum(file.st_size for file in stats_below(entry.path))
                    found.append((entry.stat(follow_symlinks=False).st_mtime, size, entry.path))
    total = sum(size for _, size, _ in found)
    for _, size, path in sorted(found):
        if total <= max_bytes:
            break
        remove(path)
        total -= size


def _thin_out(past: Path, folder: Path) -> None:
    states = _states(past)
    for path in states[:-MAX_STATES]:
        remove(str(path))
    seen = {each.st_ino for each in stats_below(str(folder))}
    used = 0
    for path in reversed(states[-MAX_STATES:]):
        new = {each.st_ino: each.st_size for each in stats_below(str(path)) if each.st_ino not in seen}
        seen.update(new)
        used += sum(new.values())
        if used > MAX_BYTES:
            remove(str(path))


def _states(past: Path) -> list[Path]:
    if not past.is_dir():
        return []
    return sorted((path for path in past.iterdir() if path.name.isdecimal()), key=lambda path: int(path.name))


def prompts_of(reader: SessionReader, agent_id: str) -> list[StoredRun]:
    """Return the prompts of the root that its model has read, in order: the first one is prompt 1.

    Undone prompts, commands of a person (`!`), summaries and programs do not count.
    """
    runs = reader.runs(agent_id)
    started = [event for event in reader.events(agent_id) if isinstance(event, AgentStarted)]
    if len(started) == len(runs):
        return [run for run, event in zip(runs, started, strict=True) if event.model and not run.undone]
    return _that_moved(runs, reader.chain(agent_id))  # a crash has taken an event


def _that_moved(runs: Sequence[StoredRun], chain: Sequence[int]) -> list[StoredRun]:
    present = [run for run in runs if not run.undone]
    after = [*(run.head for run in present[1:]), chain[-1] if chain else None]
    return [run for run, head in zip(present, after, strict=True) if run.files is not None or run.head != head]


class SessionVariables:
    """Saved variables of all agents of a session."""

    def __init__(self, folder: Path, last_cell: Callable[[str], Awaitable[float]], notice: Callable[[str], None]) -> None:
        """Save nothing yet.

        Args:
            folder: The folder of the session's variables.
            last_cell: Returns when the last cell of an agent ended, by its id; 0: it had none.
            notice: Tells people something.
        """
        self._folder = folder
        self._last_cell = last_cell
        self._notice = notice
        self._at_work: dict[str, FollowedVariables] = {}
        self._root_id = ""

    def of_root(self, agent_id: str, kernel: UsedKernel, ask: Ask) -> "FollowedVariables":
        """Follow the root, until `FollowedVariables.aclose`. Args: kernel: its own. ask: asks on its behalf."""
        self._root_id = agent_id
        variables = FollowedVariables(self._folder, agent_id, kernel, ask, self._notice, last_cell=self._last_cell)
        self._at_work[agent_id] = variables
        return variables

    def of_child(self, agent_id: str, kernel: UsedKernel, ask: Ask, notice: Callable[[str], None]) -> "FollowedVariables":
        """Follow a child, until `FollowedVariables.aclose`. Args: as for `of_root`. notice: tells people of the child."""

        async def on_end() -> None:
            if self._at_work.get(agent_id) is variables:
                del self._at_work[agent_id]
            spared = {self._root_id, *self._at_work, agent_id}
            await asyncio.to_thread(remove_oldest, self._folder, CHILDREN_BYTES, spared)

        variables = FollowedVariables(
            self._folder, agent_id, kernel, ask, notice, last_cell=self._last_cell, of_child=True, on_end=on_end
        )
        self._at_work[agent_id] = variables
        return variables

    async def settled(self) -> None:
        """Wait, for a bounded time, until the root's variables are saved as they are now."""
        if self._root_id in self._at_work:
            await self._at_work[self._root_id].settled()

    async def keep(self, run: int) -> None:
        """Keep the root's variables of before a run, unless saving takes long. Args: run: its number."""
        if (root := self._at_work.get(self._root_id)) is not None and await root.settled(KEEP_SECONDS):
            await asyncio.to_thread(keep_variables, self._folder, self._root_id, run)

    def observe(self, event: ev.AgentEvent) -> None:
        """Hear one of `CHANGE_VARIABLES`."""
        variables = self._at_work.get(event.agent_id)
        if variables is not None:
            variables.observe(event)


class FollowedVariables(KernelVariables):
    """The saver of one agent's variables while it is open."""

    def __init__(
        self,
        folder: Path,
        agent_id: str,
        kernel: UsedKernel,
        ask: Ask,
        notice: Callable[[str], None],
        *,
        last_cell: Callable[[str], Awaitable[float]],
        of_child: bool = False,
        on_end: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """Follow nothing yet.

        Args:
            folder: The folder of the session's variables.
            agent_id: The agent.
            kernel: Its own.
            ask: Asks on its behalf.
            notice: Tells people something.
            last_cell: As for `SessionVariables`.
            of_child: The model reads of unsaved variables only if the child is resumed.
            on_end: Called last.
        """
        super().__init__(folder / agent_id, agent_id, kernel, ask, notice)
        self.is_paused = False
        """Whether saving is paused: the stored variables must stay until they are restored."""
        self._last_cell = last_cell
        self._of_child = of_child
        self._on_end = on_end
        self._ending = asyncio.Event()
        self._mark = path_of_mark(folder, agent_id)
        self._wanted: float | None = None
        """The end of the last unsaved cell."""
        self._saving: asyncio.Task[None] | None = None
        self._problem = ""
        """The reason why the last attempt to save has failed. Empty: it has not."""
        self._is_last = False
        """Whether the kernel is about to be replaced: `restore` tells what was not saved."""

    def observe(self, event: ev.AgentEvent) -> None:
        """Save after the end of a cell or of a kernel of the agent."""
        if isinstance(event, ev.ToolOutput) and event.tool_name != "reset_kernel":
            return
        if not isinstance(event, ev.CodeExecutionOutput):
            self.left_out = frozenset()
        self.want(event.time)

    def want(self, cell_ended: float) -> None:
        """Save the variables soon, unless saving is paused. Args: cell_ended: the end of the last cell to include."""
        if not self.is_paused:
            self._wanted = cell_ended
            if self._saving is None:
                self._saving = asyncio.create_task(self._save(), name="saves variables")

    def changed(self) -> None:
        """Save the variables soon."""
        self.want(time.time())

    async def aclose(self) -> None:
        """Wait for the last snapshot, within a bound. For a child, whose kernel ends, one is made."""
        self._ending.set()
        if self._of_child and self.kernel.is_used:
            self.want(time.time())
        saving = self._saving
        await self.settled()
        if saving is not None:
            await end_task(saving)
        if self._on_end is not None:
            await self._on_end()

    async def settled(self, seconds: float = SAVE_SECONDS) -> bool:
        """Wait until nothing is being saved, within a bound. Return whether that was reached."""
        if self._saving is not None:
            await asyncio.wait({self._saving}, timeout=seconds)
        return self._saving is None

    async def save(self) -> str:
        """Save the variables as they are now; from now on nothing is saved until they are restored."""
        self._is_last = True
        try:
            self.want(time.time())
            await self.settled()
        finally:
            self._is_last = False
        saving, self.is_paused = self._saving, True
        if saving is not None:
            await end_task(saving)
            self._problem = TOO_LONG.format(seconds=SAVE_SECONDS)
        return self._problem

    async def restore(self, problem: str = "") -> str:
        """Bring the variables back into the new kernel, and save them from then on."""
        self.is_paused = True  # a cancel may leave the kernel without them
        news = await super().restore(problem)
        self.is_paused, self._problem = False, ""
        return news

    async def last_cell(self) -> float:
        """Return the time at which the last cell of the agent ended, as the session has it."""
        return await self._last_cell(self.agent_id)

    def saved_up_to(self) -> float:
        """Return the time of the mark."""
        with suppress(OSError, ValueError):
            return float(self._mark.read_text(encoding="ascii"))
        return 0.0

    async def _save(self) -> None:
        try:
            while self._wanted is not None:
                if self._of_child:
                    with suppress(TimeoutError):
                        async with asyncio.timeout(CHILD_SECONDS):
                            await self._ending.wait()
                wanted, self._wanted = self._wanted, None
                await self.write(CHILD_BYTES if self._of_child else None)
                self._set_mark(wanted)
                self._problem = ""
        except (KernelError, OSError) as error:
            before, self._problem = self._problem, one_line(str(error), 300)  # the next cell triggers another attempt
            if self._of_child:  # read only if the child is resumed, which most never are
                logger.info("the variables of %s are not saved: %s", self.agent_id, error)
            elif not before and not self._is_last:
                self.notice(f"the session does not have the variables of now: {self._problem}")
        finally:
            self._saving = None

    def _set_mark(self, cell_ended: float) -> None:
        """Write the mark in place: ext4 waits for the disk when a file is replaced or truncated."""
        descriptor = os.open(self._mark, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.pwrite(descriptor, f"{cell_ended!r:<{MARK_CHARS}}".encode("ascii"), 0)
        finally:
            os.close(descriptor)
