"""Kernels of agents and nodes (`AgentKernel`), with their wall, their folders and the features that live with them.

`KernelPast` has the variables that a new kernel gets back, and the text about them for its model.

A kernel is new where its conversation is not: the conversation goes on in another program, or a kernel behind another wall
has taken its place. Before the next cell it gets the variables saved from the one before (`KernelVariables`).
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from freeact_sub.agents.call import asks_for, in_cell_of
from freeact_sub.agents.feature import Asker, Handler, UsedKernel
from freeact_sub.agents.life import TreeAgent
from freeact_sub.agents.requests import (
    ActionRequests,
    CodeCalls,
    HostRequests,
    InputRequests,
    OwnToolRequests,
    ShellRequests,
)
from freeact_sub.approvals import Policy, Rules, unasked_writes
from freeact_sub.calls import Call, FileWrite, SavedVariables
from freeact_sub.config.schema import PROTECTED
from freeact_sub.errors import ApprovalDeniedError, KernelBranchError, KernelError, KernelLostError, KernelSnapshotError
from freeact_sub.events import KernelLost, Notice
from freeact_sub.kernels import (
    AuditSettings,
    HostRequestHandler,
    Kernel,
    KernelSpec,
    branching,
    described_variables,
    own_files_of,
    take_value,
)
from freeact_sub.modes import Mode
from freeact_sub.spans import EarlierWork, is_in_span, span_or_later
from freeact_sub.system.closing import carry_out, end_task
from freeact_sub.system.private_folders import make_folder, remove_soon
from freeact_sub.text import counted, one_line
from freeact_sub.tools import KernelAccess

if TYPE_CHECKING:
    from freeact_sub.kernels.snapshot_reports import LeftOut, RestoreReport

SAVE_SECONDS: Final = 20.0
"""Seconds to save the variables of a kernel that is about to end."""
NAMED: Final = 30
"""Variables that a sentence names."""
NONE_SAVED: Final = "none are saved"
TOO_LONG: Final = "saving them takes longer than {seconds:.0f} s"
OF_NOW: Final = "What the last cells changed in the variables is not in them, because it could not be saved: {reason}."
KERNEL_IS_NEW: Final = "[Your kernel is new: the variables and imports of the conversation so far are gone.]"

News: TypeAlias = Callable[[], Awaitable[str]]
"""A function that brings back a kernel's variables, as far as it can, and returns text about it for the model."""
Ask: TypeAlias = Callable[[Call], Awaitable[Any]]
"""A function that asks rules, and if need be a person. Raises: ApprovalDeniedError: Denied."""
MAX_DEATHS: Final = 3
"""Deaths in one run after which no kernel is started for it any more."""
SWAP_SECONDS: Final = 5.0
UNREAD: Final = "code of an earlier cell has put out more after the last cell: {text}"
UNREAD_CHARS: Final = 500
OWN_FILES: Final = "Its working directory is a copy of the workspace{elsewhere}: nobody else sees what you write there."
WROTE: Final = FileWrite(path="")
"""A stand-in for all files that code writes."""
ELSEWHERE: Final = " at another path, {root} (use relative paths)"

logger = logging.getLogger(__name__)


class KernelVariables:
    """The variables of one agent's kernel, saved in a folder."""

    def __init__(self, folder: Path, agent_id: str, kernel: UsedKernel, ask: Ask, notice: Callable[[str], None]) -> None:
        """Make the keeper; save nothing.

        Args:
            folder: A folder for these variables alone.
            agent_id: The agent.
            kernel: The agent's own kernel.
            ask: Asks on the agent's behalf.
            notice: Shows people a notice.
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
        """Whether any are saved."""
        return self.folder.is_dir()

    def changed(self) -> None:
        """Called when the variables change though no cell of the agent has ended."""

    async def save(self) -> str:
        """Save the variables of a kernel that is about to be replaced. Return why they are not saved; empty if they are."""
        try:
            async with asyncio.timeout(SAVE_SECONDS):
                await self.write()
        except TimeoutError:
            return TOO_LONG.format(seconds=SAVE_SECONDS)
        except (KernelError, OSError) as error:
            return one_line(str(error), 300)
        return ""

    async def write(self, max_bytes: int | None = None) -> None:
        """Save the variables. Args: max_bytes: None: only kernels' own bound. Raises: KernelError, OSError."""
        kernel = branching(await self.kernel.get(), KernelSnapshotError)
        await kernel.snapshot(self.folder, max_bytes=max_bytes, keep=self.left_out)

    async def restore(self, problem: str = "") -> str:
        """Bring the variables back into the new kernel. Returns text about them for the model.

        Args:
            problem: The reason why the previous kernel's variables were not saved. Empty: they were.
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
        """Return when the newest cell that is saved ended. 0: nobody knows."""
        return 0.0

    def _none(self, reason: str) -> str:
        """Tell people that no variables came back, and return text about it for the model."""
        self.notice(f"its saved variables did not come back: {reason}")
        return f"{KERNEL_IS_NEW[:-1]} They could not be brought back: {reason}]"

    async def _read(self) -> "RestoreReport":
        """Bring back the variables that this kernel may have, and, if a person agrees, the rest."""
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

    The kernel and the model get it at different times: a program's own cell needs the variables long before the model
    reads of them.
    """

    def __init__(self, agent: TreeAgent, kernel: UsedKernel) -> None:
        self._agent, self._kernel = agent, kernel
        self.due: News | None = None
        """The step that gives the kernel what it lacks. None: it has all, or is as old as the conversation."""
        self.untold = ""
        """News about the kernel that the model has not read yet."""
        self.saved: KernelVariables | None = None
        """The variables that a feature saves for longer than the agent lives."""
        self._carried: KernelVariables | None = None
        """The variables that are carried over without a feature, from a kernel's replacement until the new one has all."""

    def assign(self, holder: TreeAgent) -> None:
        """Note the new holder of the kernel."""
        self._agent = holder

    def tell(self, news: str) -> None:
        """Add news that the model reads with its next prompt."""
        self.untold = "\n".join(filter(None, [self.untold, news]))

    def begin_again(self) -> None:
        """Note that the conversation had another kernel, whose saved variables this one gets before the next cell."""
        self.due = self._restored

    async def _restored(self) -> str:
        return KERNEL_IS_NEW if self.saved is None else await self.saved.restore()

    def changed(self) -> None:
        """Note that the variables have changed though no cell of the agent has ended."""
        if self.saved is not None:
            self.saved.changed()

    async def save(self) -> None:
        """Save the variables for the kernel that is about to take this one's place."""
        if self.due is None:
            variables = self.saved or self._new_carried()
            problem = await variables.save()
            self.due = lambda: variables.restore(problem)

    async def bring_back(self) -> None:
        """Give the kernel the variables that are due. If this is cancelled, the next call does it."""
        if self.due is not None:
            news = await self.due()
            self.due = None
            self.tell(news)
        if self._carried is not None and not self._carried.left_out:
            self.forget()

    def forget(self) -> None:
        """Remove the variables that are carried over."""
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


class AgentKernel:
    """The kernel of an agent or a node, and what lives with it: answers to its code, and the parts of features.

    It starts in the background, is watched, replaced when it dies, and closed with its agent or node.
    """

    def __init__(self, agent: TreeAgent, branch_of: KernelAccess | None = None, *, own_files: bool = False) -> None:
        """Make the holder; start nothing.

        Args:
            agent: The agent, which holds it from now on.
            branch_of: The kernel to start as a copy of. None: it starts empty.
            own_files: Whether the copy works in a copy of the workspace.
        """
        self._agent = agent
        self._branch_of = branch_of
        self.is_branch = branch_of is not None
        """Whether the kernel starts as a copy of another one."""
        self.past = KernelPast(agent, self)
        self._bringing_back = asyncio.Lock()
        self.requests = HostRequests(agent)
        """The answers to requests of its code."""
        self._own_files = own_files
        self.description, self._plain_spec = place_of(self._agent, own_files=self._own_files)
        self._judged: Policy | None = None
        self._hook: AuditSettings | None = None
        """The actions that the policy lets a kernel's hook pass."""
        self._starting: asyncio.Task[Kernel] | None = None
        self._watching: set[asyncio.Task[None]] = set()
        self._closed = False
        self._lost_reason = ""
        self._untold = ""
        """The reason why the last kernel was lost, if no result of a cell has said so."""
        self._unsent: KernelLost | None = None
        """The loss of a kernel when there was no run to report it in."""
        self.deaths = 0
        """Deaths in the present run."""
        self._unread = self._told = ""
        """Unread output of dead kernels; and the part of it that the last run reported."""
        self.mode = agent.policy.mode
        """The mode whose wall the present kernel has. `bring_back` replaces a kernel with another mode's wall."""
        self._is_of_node = False
        """Whether the kernel belongs to a node, and so is not replaced."""
        self.is_used = False
        """Whether the kernel has been handed out, so that code may have run in it."""
        self.has_own_files = False
        """Whether the kernel works in a copy of the workspace."""
        self._traced_later: list[EarlierWork] = []
        """Spans of a kernel's start that began before there was a run to lie in."""
        self.parts = agent.shared.features.kernel_parts(agent, self)
        """Parts of features."""
        self._serve(agent)
        agent.kernel = self

    def use_mode(self) -> None:
        """Bring the root into the mode that was chosen last, before a run begins.

        The kernel is replaced before the next cell, behind the wall of that mode, and keeps its variables.
        """
        agent, mode = self._agent, self._agent.shared.gate.mode
        if mode is not None and mode != agent.policy.mode:
            agent.policy = agent.shared.policy = replace(agent.policy, mode=mode)
            self.description, self._plain_spec = place_of(agent, own_files=self._own_files)
            self._judged = None

    def _serve(self, agent: TreeAgent) -> None:
        self.calls = CodeCalls(agent)
        self.requests.serve(agent, partial(self._handlers, agent))

    def _handlers(self, agent: TreeAgent) -> dict[str, Handler]:
        return {
            **agent.shared.features.requests(agent),
            **{name: handler for part in self.parts for name, handler in part.requests(self.calls).items()},
            **OwnToolRequests(self.calls, self.get).handlers,
            **ActionRequests(self.calls).handlers,
            **InputRequests(agent).handlers,
            **ShellRequests(self.calls, agent.output_folder).handlers,
        }

    @property
    def _to_be_replaced(self) -> bool:
        """Whether a kernel behind another wall takes its place, with its variables, before the next cell."""
        return self._starting is not None and self.mode != self._agent.policy.mode

    @property
    def is_due(self) -> bool:
        """Whether `bring_back` has something to do before the next cell."""
        return self.past.due is not None or self._to_be_replaced

    async def bring_back(self) -> None:
        """Put the kernel behind the wall of the agent's mode, and give it the variables that are due.

        A cancel loses nothing: the old kernel's variables are saved before it ends, and wait for the next call.
        """
        if in_cell_of(self._agent.agent_id):
            return  # the kernel runs a cell, so it has them, or this cell makes them again
        async with self._bringing_back:
            while self._to_be_replaced:
                if self.is_used:
                    await self.past.save()
                await self._replaced()
            await self.past.bring_back()

    @property
    def _spec(self) -> KernelSpec:
        return replace(self._plain_spec, audit=self._audit(self._agent.shared.rule_files.rules))

    def _audit(self, rules: Rules) -> AuditSettings | None:
        policy = self._agent.policy.with_rules(rules).with_scratch(())  # a kernel knows its own folders
        if policy != self._judged:
            wall, workspace = self._plain_spec.sandbox, policy.workspace
            folders, asked = unasked_writes(policy, (workspace / name for name in PROTECTED))
            folders = (*folders, *also_writable(self._agent))
            if any(adviser.hears(WROTE) for adviser in Asker(agent=self._agent, by="code").advisers):
                folders = ()  # they hear of all writes
            network = wall is None or wall.network
            no_network = "" if network else f"denied: the sandbox has no network (mode {policy.mode})"
            settings = AuditSettings(writable=folders, asked=asked, no_network=no_network)
            self._judged, self._hook = policy, self._agent.shared.provider.hook(settings)
        return self._hook

    def start_soon(self) -> None:
        """Begin to start the kernel, unless it has begun."""
        if not self._closed and (self._starting is None or (self._starting.done() and self._failed(self._starting))):
            self.mode = self._agent.policy.mode
            self._starting = asyncio.create_task(self._start(), name=f"start kernel of {self._agent.agent_id}")

    async def get(self) -> Kernel:
        """Return the live kernel; start one if needed."""
        self.is_used = True
        while not self._closed:
            if self.deaths >= MAX_DEATHS:
                raise KernelLostError(f"the kernel of this run is lost and is not restarted: {self._lost_reason}")
            self.start_soon()
            starting = self._starting
            if starting is not None:
                await asyncio.wait({starting})
            if starting is not None and starting is self._starting:
                while self._traced_later and is_in_span():
                    self._traced_later.pop().record()
                return starting.result()
            # reset or dead by now: another one replaces it
        raise KernelLostError(self._lost_reason if self._is_of_node and self._lost_reason else "the agent is closed")

    async def take(self, variable: str, output: Any, *, trust: bool = False) -> Any:
        """Return the value of a variable, as `Agent.get` does."""
        seconds = self._agent.shared.config.kernel.cell_timeout_seconds
        return await take_value(variable, await self.get(), output=output, trust=trust, seconds=seconds)

    async def variables(self) -> dict[str, str]:
        """Return a line on each variable, as `Agent.variables` does."""
        return await described_variables(await self.get(), self._agent.shared.config.kernel.cell_timeout_seconds)

    async def live(self) -> Kernel:
        """Return the live kernel; start no other if it has died.

        Raises:
            KernelStartError: The kernel failed to start.
            KernelLostError: The kernel has ended.
        """
        kernel = await self.get()
        if kernel.lost_reason is not None:
            raise KernelLostError(kernel.lost_reason)
        return kernel

    def assign(self, holder: TreeAgent) -> None:
        """Make an agent or a node the holder of the kernel, and of the place for a live one.

        Nowhere else does a kernel change hands. Nothing waits, so no kernel is ever seen with two holders or none; a
        caller that needs a live kernel awaits `live` first. A node's kernel is not replaced when it dies.
        """
        before, self._agent, self._is_of_node = self._agent, holder, holder.owner is not None
        before.kernel, holder.kernel = None, self
        holder.shared.kernel_places.pass_on(before, holder)
        self.past.assign(holder)
        self.is_branch, self.deaths = False, 0
        if (starting := self._starting) is not None and starting.done() and not self._failed(starting):
            holder.use_kernel(folders_of(holder, starting.result()))
        for part in self.parts:
            part.assign(holder)
        self._serve(holder)

    async def become(self, origin: KernelAccess) -> None:
        """Replace the kernel with a copy of another one.

        Raises:
            KernelBranchError: The other one cannot be branched; this kernel stays.
        """
        new = await branching(await origin.get()).branch(self._spec, self.requests.reply)

        async def swap() -> None:
            await self._drop()
            if self._closed:
                await new.aclose()
            else:
                self._starting = asyncio.create_task(self._use(new), name=f"start kernel of {self._agent.agent_id}")

        await carry_out(swap())
        await self.get()

    async def copy(
        self, handler: HostRequestHandler | None = None, change: Callable[[KernelSpec], KernelSpec] | None = None
    ) -> Kernel:
        """Branch the live kernel; the caller closes it or passes it to `exchange`.

        Args:
            handler: Answers the requests of its code. None: the agent's handler.
            change: Changes how the copy is started; does not count as a use of the kernel.

        Raises:
            KernelError: The kernel failed to start, or cannot be branched.
        """
        if change is None:
            return await branching(await self.get()).branch(self._spec, handler or self.requests.reply)
        self.start_soon()
        if (starting := self._starting) is None:
            raise KernelBranchError("its agent is closed")
        await asyncio.wait({starting})
        return await branching(starting.result()).branch(change(self._spec), handler or self.requests.reply)

    async def exchange(self, new: Kernel | None, mode: Mode | None = None) -> Kernel | None:
        """Switch to another kernel.

        Args:
            new: A kernel that `copy` made. None: a new one.
            mode: The mode of its wall, by default the agent's; another mode's wall is replaced before the next cell.

        Returns:
            The previous kernel, for the caller to close, unless it had died.
        """
        old: Kernel | None = None

        async def swap() -> None:
            nonlocal old
            starting, self._starting = self._starting, None
            if starting is not None:
                await asyncio.wait({starting})
            for watching in tuple(self._watching):
                await end_task(watching)
            if starting is not None and not self._failed(starting):
                old = starting.result()
            self.is_used = new is not None
            if new is not None:
                self.mode = mode or self._agent.policy.mode
                self._starting = asyncio.create_task(self._use(new), name=f"start kernel of {self._agent.agent_id}")
            else:
                self.start_soon()

        await carry_out(swap(), timeout_seconds=self._plain_spec.start_timeout_seconds + SWAP_SECONDS)
        return old

    def news(self) -> list[str]:
        """Return warnings about output after the last cell, for the end of a run."""
        starting = self._starting
        live = starting.result() if starting is not None and starting.done() and not self._failed(starting) else None
        unread = self._unread + (live.unread if live is not None else "")
        self._unread, told, self._told = "", self._told, unread
        return [UNREAD.format(text=one_line(unread, UNREAD_CHARS))] if unread.strip() and unread != told else []

    async def reset(self) -> None:
        """Replace the kernel with a new, empty one."""
        self.past.forget()
        await self._replaced()

    async def _replaced(self) -> None:
        await carry_out(self._drop())
        self._untold = ""
        await self.get()

    @property
    def has_ended(self) -> bool:
        """Whether the kernel has ended for good."""
        return self._closed

    async def end(self) -> None:
        """End the kernel for good, whatever its state."""
        self._closed = True
        await carry_out(self._drop())
        self.past.forget()

    async def aclose(self) -> None:
        """End the kernel, and close what features keep in it; a failure of one does not prevent the others."""
        self._agent.kernel = None
        results = await asyncio.gather(self.end(), *(part.aclose() for part in self.parts), return_exceptions=True)
        for error in results:
            if isinstance(error, BaseException):
                logger.error("closing an agent's kernel failed", exc_info=error)

    async def _start(self) -> Kernel:
        origin, self._branch_of = self._branch_of, None  # its replacement starts empty
        agent_id, is_branch = self._agent.agent_id, origin is not None
        with span_or_later("kernel start", self._traced_later, agent_id=agent_id, branch=is_branch):
            if origin is not None:
                kernel: Kernel = await branching(await origin.get()).branch(self._spec, self.requests.reply)
            else:
                kernel = await self._agent.shared.provider.start(self._spec, self.requests.reply)
        return await self._use(kernel)

    async def _use(self, kernel: Kernel) -> Kernel:
        if (own := own_files_of(kernel)) is not None:
            elsewhere = "" if own.covers else ELSEWHERE.format(root=own.root)
            self.description, self.has_own_files = OWN_FILES.format(elsewhere=elsewhere), True
        self._agent.use_kernel(folders_of(self._agent, kernel))
        watching = asyncio.create_task(self._watch(kernel), name=f"watch kernel of {self._agent.agent_id}")
        self._watching.add(watching)
        watching.add_done_callback(self._watching.discard)
        return kernel

    async def _watch(self, kernel: Kernel) -> None:
        with self._agent.shared.rule_files.followed(partial(self._follow, kernel)):
            reason = self._lost_reason = await kernel.wait_lost()
        if self._is_of_node:
            self._closed = True
            await carry_out(kernel.aclose())
            return
        self.deaths = self.deaths + 1 if kernel.may_be_replaced else MAX_DEATHS
        self._untold, self._unsent = reason, KernelLost(reason=f"{reason}; all variables and imports are lost")
        self.tell_loss()
        self._starting = None
        self._unread += kernel.unread
        if self.deaths < MAX_DEATHS:
            self.start_soon()
        await carry_out(kernel.aclose())

    def tell_loss(self) -> None:
        """Report the loss of a kernel, once: at once, or in the next run."""
        emitter = self._agent.emitter
        if self._unsent is not None and not emitter.channel.closed:
            lost, self._unsent = self._unsent, None
            emitter.put(lost)

    def take_loss(self) -> str:
        """Return why the previous kernel was lost, for the one result that says so. Empty: nothing to say."""
        self.tell_loss()
        reason, self._untold = self._untold, ""
        return reason

    def _follow(self, kernel: Kernel, rules: Rules) -> None:
        """Update the rules in the kernel's hook when they are saved: code that writes unasked makes no request."""
        if audit := self._audit(rules):
            kernel.ask_about(audit.asked)

    async def _drop(self) -> None:
        """End the kernel; cancel a pending start first, so that nobody begins to watch it."""
        starting, self._starting = self._starting, None
        if starting is not None:
            starting.cancel()
            await asyncio.wait({starting})
        for watching in tuple(self._watching):
            await end_task(watching)
        if starting is not None and not self._failed(starting):
            await starting.result().aclose()
            self._unread += starting.result().unread

    def _failed(self, starting: asyncio.Task[Kernel]) -> bool:
        return starting.cancelled() or starting.exception() is not None


def place_of(agent: TreeAgent, *, own_files: bool) -> tuple[str, KernelSpec]:
    """Return sentences for the model on where its kernel runs, and the spec of a new kernel.

    Args:
        agent: The agent; its mode decides on the wall.
        own_files: Whether it works in a copy of the workspace.

    Raises:
        ConfigError: This agent can have no kernel.
    """
    settings = agent.shared.config.kernel
    place = agent.shared.provider.place(agent.policy.mode, settings, agent.shared.config.workspace)
    spec = KernelSpec(
        owner_id=agent.agent_id,
        python=settings.python,
        workspace=agent.shared.config.workspace,
        environment=place.environment,
        start_timeout_seconds=settings.start_timeout_seconds,
        mode=agent.policy.mode,
        sandbox=place.wall,
        own_files=own_files,
    )
    return place.description, agent.shared.features.kernel(agent, spec)


def folders_of(agent: TreeAgent, kernel: Kernel) -> tuple[Path, ...]:
    """Return the agent's own folders besides the workspace."""
    own = own_files_of(kernel)
    return (*also_writable(agent), *filter(None, (kernel.scratch, None if own is None else own.root)))


def also_writable(agent: TreeAgent) -> tuple[Path, ...]:
    """Return folders besides the workspace that the agent's wall lets it write to."""
    return agent.shared.config.kernel.writable if agent.policy.mode == "auto" else ()
