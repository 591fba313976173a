"""`AgentKernel`: an agent's kernel, and where it runs: behind which wall, and with which folders besides the workspace."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from freeact_sub.agents.call import in_cell_of
from freeact_sub.agents.feature import Asker
from freeact_sub.agents.kernel_past import KernelPast
from freeact_sub.agents.life import TreeAgent
from freeact_sub.agents.requests import HostRequests
from freeact_sub.approvals import Policy, Rules, unasked_writes
from freeact_sub.calls import FileWrite
from freeact_sub.config.schema import PROTECTED
from freeact_sub.errors import KernelBranchError, KernelLostError
from freeact_sub.events import KernelLost
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
from freeact_sub.text import one_line
from freeact_sub.tools import KernelAccess

MAX_DEATHS: Final = 3
"""After this many kernel deaths the run ends."""

SWAP_SECONDS: Final = 5.0
UNREAD: Final = "code of an earlier cell has put out more after the last cell: {text}"
UNREAD_CHARS: Final = 500
OWN_FILES: Final = "Its working directory is a copy of the workspace{elsewhere}: nobody else sees what you write there."
WROTE: Final = FileWrite(path="")
"""Stands for all files that code writes."""
ELSEWHERE: Final = " at another path, {root} (use relative paths)"


class AgentKernel:
    """The agent's kernel: starts in the background, is watched, and is replaced when it dies."""

    def __init__(
        self,
        agent: TreeAgent,
        host: HostRequests,
        branch_of: KernelAccess | None,
        *,
        own_files: bool,
    ) -> None:
        self._agent = agent
        self._branch_of = branch_of
        self.is_branch = branch_of is not None
        """It starts as a copy of another kernel."""
        self.past = KernelPast(agent, self)
        self._bringing_back = asyncio.Lock()
        self._host = host
        self._own_files = own_files
        self.description, self._plain_spec = place_of(self._agent, own_files=self._own_files)
        self._judged: Policy | None = None
        self._hook: AuditSettings | None = None
        """What that policy lets a kernel's hook pass."""
        self._starting: asyncio.Task[Kernel] | None = None
        self._watching: set[asyncio.Task[None]] = set()
        self._closed = False
        self._lost_reason = ""
        self._untold = ""
        """Why its last kernel was lost, if no result of a cell has said so."""
        self._unsent: KernelLost | None = None
        """A kernel was lost when there was no run to say it in."""
        self.deaths = 0
        """In the present run."""
        self._unread = self._told = ""
        """What kernels that have ended had put out, and nobody has read; what the last run has told of it."""
        self.mode = agent.policy.mode
        """The mode whose wall the present kernel has. It follows the agent's before the next cell (`bring_back`)."""
        self._kept = False
        """It belongs to a node, so it is not replaced."""
        self.is_used = False
        """It has been handed out, so code may have run in it."""
        self.has_own_files = False
        """It works in a copy of the workspace."""
        self._traced_later: list[EarlierWork] = []
        """The start of a kernel that began before there was a run to lie in."""

    def use_mode(self) -> None:
        """Follow the agent into another mode: the kernel is replaced, behind the mode's wall, and keeps its variables."""
        self.description, self._plain_spec = place_of(self._agent, own_files=self._own_files)
        self._judged = None

    @property
    def _to_be_replaced(self) -> bool:
        """Whether a kernel behind another wall takes its place, with its variables, before the next cell."""
        return self._starting is not None and self.mode != self._agent.policy.mode

    @property
    def is_due(self) -> bool:
        """Whether `bring_back` has something to do before the next cell."""
        return self.past.due is not None or self._to_be_replaced

    async def bring_back(self) -> None:
        """Put the kernel behind the wall of the agent's mode, and give it the variables that it is to have.

        Nothing is lost by a cancel: what the old kernel had is saved before it ends, and waits for the next call.
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
        """The actions that the agent's code takes without asking."""
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
        """Returns the live kernel; starts one if needed."""
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
        raise KernelLostError(self._lost_reason if self._kept and self._lost_reason else "the agent is closed")

    async def take(self, variable: str, output: Any, *, trust: bool = False) -> Any:
        """Return the value of a variable: see `Agent.get`."""
        seconds = self._agent.shared.config.kernel.cell_timeout_seconds
        return await take_value(variable, await self.get(), output=output, trust=trust, seconds=seconds)

    async def variables(self) -> dict[str, str]:
        """Return a line on each variable: see `Agent.variables`."""
        return await described_variables(await self.get(), self._agent.shared.config.kernel.cell_timeout_seconds)

    async def live(self) -> Kernel:
        """Return the live kernel; another one is not started where it has died.

        Raises:
            KernelStartError: It failed to start.
            KernelLostError: It has ended.
        """
        kernel = await self.get()
        if kernel.lost_reason is not None:
            raise KernelLostError(kernel.lost_reason)
        return kernel

    def assign(self, holder: TreeAgent) -> None:
        """See `AgentResources.assign`. A node's kernel is not replaced when it dies."""
        self._agent, self._kept = holder, holder.owner is not None
        self.past.assign(holder)
        self.is_branch, self.deaths = False, 0
        if (starting := self._starting) is not None and starting.done() and not self._failed(starting):
            holder.use_kernel(folders_of(holder, starting.result()))

    async def become(self, origin: KernelAccess) -> None:
        """Replace the kernel with a copy of another one.

        Raises:
            KernelBranchError: The other one cannot be branched; this kernel stays.
        """
        new = await branching(await origin.get()).branch(self._spec, self._host.reply)

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
            handler: Answers the requests of its code. None: as this agent's are.
            change: Changes how the copy is started; it does not count as a use of the kernel. None: as this kernel is.

        Raises:
            KernelError: The kernel failed to start, or cannot be branched.
        """
        if change is None:
            return await branching(await self.get()).branch(self._spec, handler or self._host.reply)
        self.start_soon()
        if (starting := self._starting) is None:
            raise KernelBranchError("its agent is closed")
        await asyncio.wait({starting})
        return await branching(starting.result()).branch(change(self._spec), handler or self._host.reply)

    async def exchange(self, new: Kernel | None, mode: Mode | None = None) -> Kernel | None:
        """Switch to another kernel.

        Args:
            new: One that `copy` made. None: a new one.
            mode: The mode whose wall it has. If the agent's is another one by now, it is replaced before the next cell.
                None: it has the agent's.

        Returns:
            The previous kernel, for the caller to close. None: it had died.
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
        """Warnings about what code has put out after the last cell, for the end of a run."""
        starting = self._starting
        live = starting.result() if starting is not None and starting.done() and not self._failed(starting) else None
        unread = self._unread + (live.unread if live is not None else "")
        self._unread, told, self._told = "", self._told, unread
        return [UNREAD.format(text=one_line(unread, UNREAD_CHARS))] if unread.strip() and unread != told else []

    async def reset(self) -> None:
        """Replaces the kernel with a new one, which has nothing."""
        self.past.forget()
        await self._replaced()

    async def _replaced(self) -> None:
        await carry_out(self._drop())
        self._untold = ""
        await self.get()

    async def aclose(self) -> None:
        """Close the kernel for good, whatever its state."""
        self._closed = True
        await carry_out(self._drop())
        self.past.forget()

    async def _start(self) -> Kernel:
        origin, self._branch_of = self._branch_of, None  # its replacement starts empty
        agent_id, is_branch = self._agent.agent_id, origin is not None
        with span_or_later("kernel start", self._traced_later, agent_id=agent_id, branch=is_branch):
            if origin is not None:
                kernel: Kernel = await branching(await origin.get()).branch(self._spec, self._host.reply)
            else:
                kernel = await self._agent.shared.provider.start(self._spec, self._host.reply)
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
        """Report the kernel's death at once and start a new one."""
        with self._agent.shared.rule_files.followed(partial(self._follow, kernel)):
            reason = self._lost_reason = await kernel.wait_lost()
        if self._kept:
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
        """Return why the kernel before this one was lost, for the one result that says so. Empty: none is to be said."""
        self.tell_loss()
        reason, self._untold = self._untold, ""
        return reason

    def _follow(self, kernel: Kernel, rules: Rules) -> None:
        """Have the kernel's hook know the rules as they are saved: code that writes unasked makes no request."""
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
    """Return the sentences that tell the model where its kernel runs, and the spec that a kernel is started with.

    Args:
        agent: The agent; its mode decides on the wall.
        own_files: It works in a copy of the workspace.

    Raises:
        ConfigError: Such an agent can have no kernels.
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
    """The agent's own folders besides the workspace."""
    own = own_files_of(kernel)
    return (*also_writable(agent), *filter(None, (kernel.scratch, None if own is None else own.root)))


def also_writable(agent: TreeAgent) -> tuple[Path, ...]:
    """Folders besides the workspace to which the agent's wall grants write access."""
    return agent.shared.config.kernel.writable if agent.policy.mode == "auto" else ()
