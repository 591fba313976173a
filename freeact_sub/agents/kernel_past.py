"""`KernelPast`: the variables that a new kernel gets back, and what its model reads about them.

A kernel is new where its conversation is not: the conversation goes on in another program, or a kernel behind another wall
has taken its place. Before the next cell it gets what is saved of the one before. `KernelVariables` are what is saved.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from freeact_sub.agents.call import asks_for
from freeact_sub.agents.feature import UsedKernel
from freeact_sub.agents.life import TreeAgent
from freeact_sub.calls import Call, SavedVariables
from freeact_sub.errors import ApprovalDeniedError, KernelError, KernelSnapshotError
from freeact_sub.events import Notice
from freeact_sub.kernels import branching
from freeact_sub.system.private_folders import make_folder, remove_soon
from freeact_sub.text import counted, one_line

if TYPE_CHECKING:
    from freeact_sub.kernels.snapshot_reports import LeftOut, RestoreReport

SAVE_SECONDS: Final = 20.0
"""Seconds to wait until the variables are saved, when their kernel is about to end."""
NAMED: Final = 30
"""Variables that a sentence names."""
NONE_SAVED: Final = "none are saved"
TOO_LONG: Final = "saving them takes longer than {seconds:.0f} s"
OF_NOW: Final = "What the last cells changed in the variables is not in them, because it could not be saved: {reason}."
KERNEL_IS_NEW: Final = "[Your kernel is new: the variables and imports of the conversation so far are gone.]"

News: TypeAlias = Callable[[], Awaitable[str]]
"""Brings back what can be had of a kernel's variables, and returns what the model reads of it."""
Ask: TypeAlias = Callable[[Call], Awaitable[Any]]
"""Asks rules, and if need be a person. Raises: ApprovalDeniedError: It is denied."""

logger = logging.getLogger(__name__)


class KernelVariables:
    """The variables of one agent's kernel, saved in a folder."""

    def __init__(self, folder: Path, agent_id: str, kernel: UsedKernel, ask: Ask, notice: Callable[[str], None]) -> None:
        """Save nothing yet.

        Args:
            folder: For these variables alone.
            agent_id: The agent.
            kernel: Its own.
            ask: On its behalf.
            notice: Tells people something.
        """
        self.folder = folder
        self.agent_id = agent_id
        self.kernel = kernel
        self.notice = notice
        self.left_out: frozenset[str] = frozenset()
        """Saved variables that this kernel was not given, and that stay saved."""
        self._ask = ask

    @property
    def are_saved(self) -> bool:
        """Whether any are."""
        return self.folder.is_dir()

    def changed(self) -> None:
        """Called when the variables are others, though no cell of the agent has ended."""

    async def save(self) -> str:
        """Save the variables as they are now, because the kernel is about to be replaced. Return why they are not saved."""
        try:
            async with asyncio.timeout(SAVE_SECONDS):
                await self.write()
        except TimeoutError:
            return TOO_LONG.format(seconds=SAVE_SECONDS)
        except (KernelError, OSError) as error:
            return one_line(str(error), 300)
        return ""

    async def write(self, max_bytes: int | None = None) -> None:
        """Save the variables. Args: max_bytes: None: no bound but that of kernels. Raises: KernelError, OSError."""
        kernel = branching(await self.kernel.get(), KernelSnapshotError)
        await kernel.snapshot(self.folder, max_bytes=max_bytes, keep=self.left_out)

    async def restore(self, problem: str = "") -> str:
        """Bring the variables back into the new kernel. Returns what the model reads about them.

        Args:
            problem: Why the variables of the kernel before were not saved at its end. Empty: they were.
        """
        last_cell = await self.last_cell()
        if not self.are_saved:
            return self._none(problem or NONE_SAVED) if problem or last_cell else KERNEL_IS_NEW
        try:
            report = await self._read()
        except KernelError as error:
            logger.info("variables of %s are not restored: %s", self.agent_id, error)
            return self._none(one_line(str(error), 300))
        later = OF_NOW.format(reason=problem) if problem else _later(self.saved_up_to(), last_cell)
        self.left_out = frozenset(variable.name for each in report.left_out for variable in each.variables)
        if report.restored or report.lost or not report.left_out:
            self.notice(
                f"{counted(len(report.restored), 'variable')} came back{_lost(report)}{f'. {later}' if later else ''}"
            )
        for each in report.left_out:
            self.notice(f"{_left_out(each)} To have them, continue in {each.continue_in}")
        text = "\n".join(filter(None, [_restored_text(report), later]))
        return f"[Your kernel is new. {text}]"

    async def last_cell(self) -> float:
        """Return when the last cell of the agent ended. 0: it had none, or nobody knows."""
        return 0.0

    def saved_up_to(self) -> float:
        """Return when the last cell ended that is saved. 0: nobody knows."""
        return 0.0

    def _none(self, reason: str) -> str:
        """Tell people that no variables came back, and return what the model reads about it."""
        self.notice(f"its saved variables did not come back: {reason}")
        return f"{KERNEL_IS_NEW[:-1]} They could not be brought back: {reason}]"

    async def _read(self) -> "RestoreReport":
        """Bring back what this kernel may have, and, if a person agrees, the rest."""
        kernel = branching(await self.kernel.get(), KernelSnapshotError)
        report = await kernel.restore(self.folder)
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
        return await kernel.restore(self.folder, allow_more=True)


class KernelPast:
    """The past of one agent's kernel.

    The kernel and the model are given it at different times: a program's own cell needs the variables long before the model
    reads of them.
    """

    def __init__(self, agent: TreeAgent, kernel: UsedKernel) -> None:
        self._agent, self._kernel = agent, kernel
        self.due: News | None = None
        """Gives the kernel what it has not been given yet. None: it has all, or is as old as the conversation."""
        self.untold = ""
        """What the model has not read yet of what the kernel was given."""
        self.saved: KernelVariables | None = None
        """Variables that a feature saves, to keep them for longer than the agent lives. None: none does."""
        self._carried: KernelVariables | None = None
        """Those that are carried over without it, from the moment their kernel is replaced until a new one has all."""

    def assign(self, holder: TreeAgent) -> None:
        """Note who has the kernel now."""
        self._agent = holder

    def tell(self, news: str) -> None:
        """Have the model read this too, with its next prompt."""
        self.untold = "\n".join(filter(None, [self.untold, news]))

    def begin_again(self) -> None:
        """Note that the conversation has had another kernel: before the next cell this one gets what is saved of it."""
        self.due = self._restored

    async def _restored(self) -> str:
        return KERNEL_IS_NEW if self.saved is None else await self.saved.restore()

    def changed(self) -> None:
        """Note that the variables are others now, though no cell of the agent has ended."""
        if self.saved is not None:
            self.saved.changed()

    async def save(self) -> None:
        """Save the variables for the kernel that is about to take this one's place."""
        if self.due is None:
            variables = self.saved or self._new_carried()
            problem = await variables.save()
            self.due = lambda: variables.restore(problem)

    async def bring_back(self) -> None:
        """Give the kernel what is due. A call that is cancelled has not done so: the next one does."""
        if self.due is not None:
            news = await self.due()
            self.due = None
            self.tell(news)
        if self._carried is not None and not self._carried.left_out:
            self.forget()

    def forget(self) -> None:
        """Remove what is carried over."""
        if self._carried is not None:
            remove_soon(self._carried.folder.parent)
            self._carried = None

    def _new_carried(self) -> KernelVariables:
        if self._carried is None:
            agent = self._agent
            folder = make_folder() / agent.agent_id
            self._carried = KernelVariables(folder, agent.agent_id, self._kernel, asks_for(agent), self._notice)
        return self._carried

    def _notice(self, text: str) -> None:
        self._agent.emitter.put(Notice(content=text))


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
