"""`ForkKernelProvider`: kernels in milliseconds, forked by a warm fork server; a few are kept ready ahead of demand.

`ForkLauncher`: a kernel that a fork server forks; `BranchLauncher`: one that another such kernel forks of itself.

A spare is a whole kernel, started and prepared, of one `SpareKey` (all that a kernel is started with, except its agent);
handing it out costs nothing. As many are kept as were in use at once in the last minute (`Demand`), and never less than the
setting says. They are made while no start is under way, nor about to be, and the kernels that were started last have had the
processors for a while: kernels with a waiting caller come first. None is made while memory is short, and only the keys asked
for last have any: agents of many workspaces may share a provider, and the workspace is part of the key. Where forking is not
possible or not safe, kernels are started as plain subprocesses, and one log line says so; a fork server that did not come up
is tried again after a while.
"""

import asyncio
import contextlib
import logging
import math
import time
from collections import deque
from collections.abc import Callable, Collection, Coroutine, Hashable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from freeact_sub.config.project_texts import SkillModule
from freeact_sub.errors import KernelBranchError, KernelStartError, UnusablePythonError
from freeact_sub.kernels.files import OwnFiles, lay_over
from freeact_sub.kernels.forkserver.branches import PORTS, Branches, choose_connection
from freeact_sub.kernels.forkserver.process import ForkKey, ForkServer, ForkUnsafeError
from freeact_sub.kernels.jupyter import NOT_READY
from freeact_sub.kernels.kernel import AuditSettings, HostRequestHandler, KernelSpec
from freeact_sub.kernels.launch import private_environment
from freeact_sub.kernels.local import LOG_FILE, LocalKernel, LocalKernelProvider, LocalLauncher
from freeact_sub.kernels.wall import of_trials, sandbox
from freeact_sub.kernels.wall.repositories import Repositories
from freeact_sub.kernels.wall.sandbox import Gaps, SandboxPolicy
from freeact_sub.kernels.wire.channels import KernelChannels, ZmqContext
from freeact_sub.modes import Mode
from freeact_sub.system.closing import end_task
from freeact_sub.system.private_folders import SOCKET_PATH_CHARS, VARIABLE, KernelFolder

KILL_TIMEOUT_SECONDS: Final = 3.0
LANDLOCK_DOMAINS: Final = 16
"""The number of domains, one within another, that Linux allows; each walled branch adds one to its origin's."""
FREE_MEMORY_FOR_SPARES: Final = 0.1
"""Share of the machine's memory that must be free before a spare is started."""
MOST_SPARES: Final = 20
"""Maximum number of spares of one key, unless the setting asks for more; about 14 MB each."""
PAUSE_SECONDS: Final = 0.01
"""Seconds without a request, for each kernel of the last minute's largest burst, before a spare is made: their agents are at
work, and ask for more."""
PATIENCE_SECONDS: Final = 1.0
"""Seconds after which one pause is enough; otherwise constant requests for kernels would leave no time to make spares."""
KEYS_WITH_SPARES: Final = 2
"""Number of keys that have spares; the key with the oldest request loses its spares."""
AGAIN_SECONDS: Final = 60.0
"""Seconds until a fork server that did not come up is tried again: a start may take as long before it fails."""
DATA_STACK: Final = ("numpy", "pandas", "matplotlib.pyplot")
"""Modules that the preload profile `data` imports if they are installed."""

logger = logging.getLogger(__name__)


class ForkLauncher(LocalLauncher):
    """A launcher of kernels as forks of a fork server, which already contains the guest."""

    has_guest = True
    generation = 1
    """The generation: 1 for a kernel that is no branch, else one more than its origin's."""

    def __init__(
        self, spec: KernelSpec, context: ZmqContext, server: ForkServer, *, folder: KernelFolder | None = None
    ) -> None:
        """Args: server: forks the kernel. folder: the kernel's own; None: a new one."""
        super().__init__(spec, context, folder or KernelFolder(server.new_folder()))
        self.server = server
        self.greets = bool(server.ready.get("prebuilt"))  # else it has ipykernel's own app

    async def launch(self) -> KernelChannels:
        """Starts the kernel. Returns when its sockets are bound, so that no client has to connect twice."""
        environment = await self._prepare()
        request = {**self._request(), "cwd": str(self.spec.workspace), "environment": environment}
        kernel = await self.server.start(request)
        self._process = kernel.pid, kernel.ended
        return self._started(self._process[1])

    async def kill(self) -> None:
        """Ends the kernel and everything it has started."""
        if self._process is not None and not self._process[1].done():
            self.server.end(self._process[0])
            await asyncio.wait({self._process[1]}, timeout=KILL_TIMEOUT_SECONDS)

    def branch(self, spec: KernelSpec, branches: Branches) -> "BranchLauncher":
        """Returns a launcher for a branch of the live kernel. Raises: KernelBranchError: no folder can be made."""
        try:
            folder = self.folder.new_branch()
        except OSError as error:
            raise KernelBranchError(f"cannot make a private folder for a branch: {error}") from error
        return BranchLauncher(spec, self, branches, folder)

    def _request(self) -> dict[str, Any]:
        """Returns the fields that every request for a kernel has."""
        return {
            "connection": choose_connection(self._manager),
            "connection_file": self._manager.connection_file,
            "attach": self.spec.sandbox is None,
            "log": str(self.folder.path / LOG_FILE),
            "servers": self.spec.mcp_servers,
            "skills": [asdict(module) for module in self.spec.skills],
            "audit": self.spec.hook_settings(self.scratch, *(() if self.own_files is None else (self.own_files.root,))),
            "wall": self.wall,
        }


class BranchLauncher(ForkLauncher):
    """A launcher of a kernel as a fork of another one.

    All that the fork needs is sent to it. Nothing is written here: code in the origin can replace files in our folder.
    """

    def __init__(self, spec: KernelSpec, origin: ForkLauncher, branches: Branches, folder: KernelFolder) -> None:
        """Args: origin: of the kernel that forks itself. branches: of that kernel. folder: the branch's own."""
        super().__init__(spec, origin.context, origin.server, folder=folder)
        self.greets = False  # its sockets may not be bound yet, so its channels are connected in any order
        self._origin = origin
        self.generation = origin.generation + 1
        self._branches = branches
        self._own_files: OwnFiles | None = None
        self._before: of_trials.OriginKernel | None = None
        """The origin of a trial."""

    @property
    def own_files(self) -> OwnFiles | None:
        """The branch's copy of the workspace, if any."""
        return self._own_files

    async def launch(self) -> KernelChannels:
        """Makes the origin fork the kernel."""
        if len(f"{self._manager.ip}-{len(PORTS)}") > SOCKET_PATH_CHARS:
            raise KernelBranchError("branches are nested too deeply: the paths of the kernel's sockets would be too long")
        if "landlock" in (self._origin.wall or {"pieces": ()})["pieces"] and self.generation > LANDLOCK_DOMAINS:
            raise KernelBranchError(f"branches are nested too deeply: Landlock allows {LANDLOCK_DOMAINS} nested walls")
        if self._origin.pid is None:
            raise KernelBranchError("a kernel that was not started cannot be branched")
        private: Mapping[str, str] = {}
        if self.spec.sandbox is not None or self.spec.audit is not None:
            private = private_environment(self.spec, self.scratch)
        self.kept, before = self._origin.kept, self._origin.own_files
        policy = self.spec.sandbox
        may_write = policy is None or not policy.walled or self.spec.workspace in policy.writable
        if before is not None or (self.spec.own_files and may_write):
            self._own_files = await lay_over(
                self.spec.workspace,
                self.folder,
                self._origin.pid,
                before,
                covers=sandbox.may_cover(self._origin.wall),
                lay=self.server.lay,
                kept=self.kept.kept,
                sealed=self.spec.trial is not None,
            )
        if self._origin.wall is not None:
            gone = str(self.spec.workspace) if self.own_files is not None and not self._covers else ""
            self.wall = sandbox.wire_of_branch(self._origin.wall, self.folder.path, without=gone)
        trial = self.spec.trial
        if trial is not None:
            self.wall = of_trials.wire_of_trial(self.wall, self._covers, self.spec.workspace)
            self._before = await asyncio.to_thread(of_trials.OriginKernel.look, self._origin.pid, self.folder.path)
        request = {
            **self._request(),
            "environment": {VARIABLE: str(self.folder.path), **private},
            "folders": list(private.values()),
            "moved": self._moved(),
            "joins": str(self.folder.path) if self._covers else None,
            "trial": None if trial is None else {**asdict(trial), "sources": of_trials.sources()},
        }
        self._process = await self._branches.make(self.server, self._origin.pid, request)
        return self._started(self._process[1])

    async def settle(self) -> None:
        """Removes the key and the sockets, and checks a trial. Raises: KernelStartError: it is not behind its wall."""
        await super().settle()
        if self._before is not None and self._process is not None and self.spec.trial is not None:
            bound = self.spec.trial.memory_bytes
            if reason := await asyncio.to_thread(of_trials.unproven, self._process[0], self._before, bound):
                raise KernelStartError(f"the copy for the trial is not behind its wall: {reason}")

    @property
    def _covers(self) -> bool:
        """Whether the copy is at the workspace's own path, in namespaces of the branch's own."""
        return self.own_files is not None and self.own_files.covers

    def _moved(self) -> list[str] | None:
        """Returns the workspace's path in the origin and in the branch. None: the same files."""
        if self.own_files is None:
            return None
        before = self._origin.own_files
        return [str(self.spec.workspace if before is None else before.root), str(self.own_files.root)]


@dataclass(frozen=True, kw_only=True)
class _SpareKey:
    python: str
    mode: Mode
    workspace: Path
    environment: tuple[tuple[str, str], ...]
    mcp_servers: tuple[str, ...]
    skills: tuple[SkillModule, ...]
    sandbox: SandboxPolicy | None
    audit: AuditSettings | None

    @classmethod
    def of(cls, spec: KernelSpec) -> "_SpareKey":
        return cls(
            python=spec.python,
            mode=spec.mode,
            workspace=spec.workspace,
            environment=tuple(sorted(spec.environment.items())),
            mcp_servers=spec.mcp_servers,
            skills=spec.skills,
            sandbox=spec.sandbox,
            audit=spec.audit,
        )


class ForkKernelProvider(LocalKernelProvider):
    """A provider that forks kernels, and falls back to plain subprocesses."""

    def __init__(
        self, *, preload: tuple[str, ...] = (), spares: int = 1, on_notice: Callable[[str], None] | None = None
    ) -> None:
        """Args: preload: modules that every kernel finds imported. spares: kept ready at least; 0: none ever."""
        super().__init__(on_notice=on_notice)
        self._preload = DATA_STACK if preload == ("data",) else preload
        self._spares_wanted = spares
        self.servers: dict[ForkKey, asyncio.Task[ForkServer | None]] = {}
        self.spares: dict[_SpareKey, deque[LocalKernel]] = {}
        """Spares by key, ordered by the last request."""
        self._again: dict[ForkKey, float] = {}
        """The time on the event loop's clock at which a server that did not come up is tried again."""
        self._starts = 0
        """Starts under way with a waiting caller."""
        self._idle = asyncio.Event()
        self._latest = 0.0
        """The time on the event loop's clock at which a kernel was last handed out."""
        self._refilling: set[_SpareKey] = set()
        self.demand = Demand()
        self._looks: dict[_SpareKey, asyncio.TimerHandle] = {}
        """Timers that end surplus spares when the demand of a key has passed."""
        self._background: set[asyncio.Task[None]] = set()
        self._closed = False

    async def start(self, spec: KernelSpec, handler: HostRequestHandler, *, gaps: Gaps | None = None) -> LocalKernel:
        """Starts a kernel; see `LocalKernelProvider.start`."""
        key = _SpareKey.of(spec)
        burst = self.demand.asked(key)
        try:
            kernel = await self._start(key, spec, handler, gaps or self._gaps)
        except BaseException:
            burst.end()
            if key not in self.spares and not burst.kernels:  # it never had any, and so is never dropped
                self.demand.forget(key)
            raise
        if kernel.launcher.exited is not None:
            kernel.launcher.exited.add_done_callback(lambda _: burst.end())
        return kernel

    async def _start(self, key: _SpareKey, spec: KernelSpec, handler: HostRequestHandler, gaps: Gaps) -> LocalKernel:
        kept = await gaps.check(spec)
        self._keep_spares_for(key)
        kernel = self._take_spare(key, kept)
        self._starts += 1
        self._idle.clear()
        try:
            if kernel is None:
                return await self._start_waited_for(spec, handler)
            kernel.hand_out(handler)
            return kernel
        finally:
            self._starts -= 1
            self._latest = self._now()
            if self._starts == 0:
                self._idle.set()
            self._refill_soon(key, spec)

    async def aclose(self) -> None:
        """Ends the spares and the fork servers."""
        self._closed = True
        for look in self._looks.values():
            look.cancel()
        for task in tuple(self._background):
            await end_task(task)
        spares = [kernel for kernels in self.spares.values() for kernel in kernels]
        self.spares.clear()
        await asyncio.gather(*(kernel.aclose() for kernel in spares))
        servers, self.servers = self.servers, {}
        for starting in servers.values():
            if not starting.done():
                await end_task(starting)
            if server := _server_of(starting):
                await server.aclose()
        await super().aclose()

    async def drop_spares(self, workspaces: Collection[Path]) -> None:
        """Ends the spares for these workspaces, which no agent uses any more."""
        keys = [key for key in self.spares if key.workspace in workspaces]
        spares = [kernel for key in keys for kernel in self._drop(key)]
        await asyncio.gather(*(kernel.aclose() for kernel in spares))

    async def refilled(self) -> None:
        """Waits until no spare is being made."""
        while self._background:
            await asyncio.wait(self._background)

    async def _start_waited_for(self, spec: KernelSpec, handler: HostRequestHandler) -> LocalKernel:
        try:
            async with asyncio.timeout(spec.start_timeout_seconds):
                server = await self._server(spec)
        except TimeoutError as error:
            raise KernelStartError(NOT_READY.format(seconds=spec.start_timeout_seconds)) from error
        if server is None:
            return await self._start_subprocess(spec, handler)
        return await self._fork(spec, handler, server)

    async def _fork(self, spec: KernelSpec, handler: HostRequestHandler, server: ForkServer) -> LocalKernel:
        return await LocalKernel(spec, ForkLauncher(spec, self._context, server), handler).open()

    async def _server(self, spec: KernelSpec) -> ForkServer | None:
        """Returns the fork server for a kernel, started if need be; None where kernels cannot be forked."""
        key = ForkKey(
            python=spec.python,
            preload=self._preload,
            environment=tuple(sorted(spec.environment.items())),
            skills=spec.skills if any(name.startswith("skills.") for name in self._preload) else (),
        )
        starting = self.servers.get(key)
        if starting is None or not _is_usable(starting) or self._again.get(key, math.inf) <= self._now():
            ended = _server_of(starting) if starting is not None else None
            starting = self.servers[key] = asyncio.create_task(self._start_server(key, ended), name="start fork server")
        return await asyncio.shield(starting)

    async def _start_server(self, key: ForkKey, instead_of: ForkServer | None) -> ForkServer | None:
        self._again.pop(key, None)
        if instead_of is not None:
            await instead_of.aclose()
        try:
            server = ForkServer(key)
        except OSError as error:
            raise KernelStartError(f"cannot make a private folder for a kernel: {error}") from error
        try:
            await server.open()
        except UnusablePythonError:  # in no way
            await server.aclose()
            raise
        except KernelStartError as error:
            logger.warning("kernels are started as plain subprocesses, which is slower: %s", error)
            await server.aclose()
            if not isinstance(error, ForkUnsafeError):
                self._again[key] = self._now() + AGAIN_SECONDS
            return None
        except BaseException:
            await server.aclose()
            raise
        return server

    def _keep_spares_for(self, key: _SpareKey) -> None:
        self.spares[key] = self.spares.pop(key, deque())  # now the newest
        for old in list(self.spares)[:-KEYS_WITH_SPARES]:
            for kernel in self._drop(old):
                self._forget(kernel)

    def _drop(self, key: _SpareKey) -> deque[LocalKernel]:
        """Drops the spares of a key, and returns them."""
        self.demand.forget(key)
        if look := self._looks.pop(key, None):
            look.cancel()
        return self.spares.pop(key)

    def _take_spare(self, key: _SpareKey, kept: Repositories) -> LocalKernel | None:
        """Returns a spare that still fits: its wall does not know of a repository that was made since."""
        spares = self.spares[key]
        while spares:
            kernel = spares.popleft()
            if kernel.lost_reason is None and kernel.launcher.kept == kept:
                return kernel
            self._forget(kernel)
        return None

    def _forget(self, kernel: LocalKernel) -> None:
        """Ends a spare that died or is of no use any more, and removes its files."""
        self._in_background(kernel.aclose())

    def _refill_soon(self, key: _SpareKey, spec: KernelSpec) -> None:
        if not self._closed and key in self.spares and self._spares_wanted:
            if look := self._looks.pop(key, None):
                look.cancel()
            loop = asyncio.get_running_loop()
            self._looks[key] = loop.call_later(SECONDS + 1, self.end_surplus, key)
        if not self._closed and key not in self._refilling and self._wants_spare(key):
            self._refilling.add(key)
            self._in_background(self._refill(key, spec))

    def _wants_spare(self, key: _SpareKey) -> bool:
        return key in self.spares and len(self.spares[key]) < self._wanted(key)

    def _wanted(self, key: _SpareKey) -> int:
        at_least = self._spares_wanted
        return max(at_least, min(self.demand.at_once(key), MOST_SPARES)) if at_least else 0

    def end_surplus(self, key: _SpareKey) -> None:
        """Ends the spares that a key should no longer have."""
        spares = self.spares.get(key, deque())
        while len(spares) > self._wanted(key):
            self._forget(spares.pop())

    def _in_background(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work, name="spare kernels")
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def _refill(self, key: _SpareKey, spec: KernelSpec) -> None:
        try:
            await self._fill(key, spec)
        finally:
            self._refilling.discard(key)
            self.demand.met(key)

    async def _fill(self, key: _SpareKey, spec: KernelSpec) -> None:
        patient_until = self._now() + PATIENCE_SECONDS
        while self._wants_spare(key):
            await self._quiet(key, patient_until)
            if free_memory() < FREE_MEMORY_FOR_SPARES:
                return
            try:
                server = await self._server(spec)
                if server is None:
                    return
                kernel = await self._fork(spec, _nobody, server)
            except KernelStartError as error:
                logger.warning("no spare kernel: %s", error)
                return
            if not self._wants_spare(key):  # any more
                self._forget(kernel)
                return
            self.spares[key].append(kernel)

    async def _quiet(self, key: _SpareKey, patient_until: float) -> None:
        """Waits until no start is under way, and no kernel has been handed out for a while."""
        while True:
            pauses = max(1, self._wanted(key)) if self._now() < patient_until else 1
            left = min(self._latest + PAUSE_SECONDS * pauses, max(patient_until, self._latest + PAUSE_SECONDS)) - self._now()
            if self._starts:
                await self._idle.wait()
            elif left > 0:
                await asyncio.sleep(left)
            else:
                return

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()


def _server_of(starting: asyncio.Task[ForkServer | None]) -> ForkServer | None:
    """Returns the server. None: it is not there yet, has failed, or kernels cannot be forked."""
    there = starting.done() and not starting.cancelled() and starting.exception() is None
    return starting.result() if there else None


def _is_usable(starting: asyncio.Task[ForkServer | None]) -> bool:
    """Returns whether kernels need no new server: one is there or starts, or forking is not safe here."""
    if not starting.done():
        return True
    if starting.cancelled() or starting.exception() is not None:
        return False
    server = starting.result()
    return server is None or server.alive


async def _nobody(method: str, params: Mapping[str, Any], clock: Any) -> Any:
    """Refuses a request: a spare kernel has no agent yet, and no code of anybody that could ask."""
    del params, clock
    raise KernelStartError(f"a spare kernel asked for {method}")


def free_memory() -> float:
    """Returns the share of the machine's memory that is available; 1.0 if the system does not report it."""
    sizes: dict[str, int] = {}
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            name, _, value = line.partition(":")
            sizes[name] = int(value.split()[0])
    return sizes["MemAvailable"] / sizes["MemTotal"] if "MemAvailable" in sizes else 1.0


SECONDS: Final = 60.0
"""Seconds after which a request no longer counts."""


@dataclass
class Burst:
    """Requests that came before spares could be made again."""

    kernels: int = 0
    """The number of kernels that are waited for or in use."""

    def end(self) -> None:
        """Counts one kernel less: it has ended, or could not be started."""
        self.kernels -= 1


class Demand:
    """The numbers of kernels in use, by their key."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._bursts: dict[Hashable, Burst] = {}
        self._most: dict[Hashable, deque[tuple[float, int]]] = {}
        """Times, each with the number of kernels of the burst then; later numbers are smaller."""

    def asked(self, key: Hashable) -> Burst:
        """Counts a request for a kernel, and returns its burst."""
        burst = self._bursts.setdefault(key, Burst())
        burst.kernels += 1
        most = self._most.setdefault(key, deque())
        while most and most[-1][1] <= burst.kernels:
            most.pop()
        most.append((self._now(), burst.kernels))
        return burst

    def met(self, key: Hashable) -> None:
        """Ends a burst of requests: all are served, and the wanted spares are ready."""
        self._bursts.pop(key, None)

    def at_once(self, key: Hashable) -> int:
        """Returns the largest number of kernels of one burst in the last minute."""
        most = self._most.get(key, deque())
        while most and most[0][0] < self._now() - SECONDS:
            most.popleft()
        return most[0][1] if most else 0

    def forget(self, key: Hashable) -> None:
        """Drops the counts of a key."""
        self._bursts.pop(key, None)
        self._most.pop(key, None)
