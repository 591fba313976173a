"""`ForkLauncher`: a kernel that a fork server forks; `BranchLauncher`: one that another such kernel forks of itself."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Final

from freeact_sub.errors import KernelBranchError, KernelStartError
from freeact_sub.kernels.files import OwnFiles, lay_over
from freeact_sub.kernels.forkserver.branches import PORTS, Branches, choose_connection
from freeact_sub.kernels.forkserver.process import ForkServer
from freeact_sub.kernels.kernel import KernelSpec
from freeact_sub.kernels.launch import private_environment
from freeact_sub.kernels.local import LOG_FILE, LocalLauncher
from freeact_sub.kernels.wall import of_trials, sandbox
from freeact_sub.kernels.wire.channels import KernelChannels, ZmqContext
from freeact_sub.system.private_folders import SOCKET_PATH_CHARS, VARIABLE, KernelFolder

KILL_TIMEOUT_SECONDS: Final = 3.0
LANDLOCK_DOMAINS: Final = 16
"""The number of domains, one within another, that Linux allows; each walled branch adds one to its origin's."""


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
        self._process: tuple[int, asyncio.Future[int]] | None = None
        """The process id, and a future with the exit code."""

    @property
    def pid(self) -> int | None:
        """Process id of the kernel, the leader of its process group."""
        return None if self._process is None else self._process[0]

    async def launch(self) -> KernelChannels:
        """Starts the kernel. Returns when its sockets are bound, so that no client has to connect twice."""
        environment = await self._prepare()
        request = {**self._request(), "cwd": str(self.spec.workspace), "environment": environment}
        kernel = await self.server.start(request)
        self._process = kernel.pid, kernel.ended
        return self._started(self._process[1])

    async def interrupt(self) -> None:
        """Interrupts the kernel."""
        if self._process is not None and not self._process[1].done():
            # not through the server: a signal that arrives late would interrupt the next cell
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process[0], signal.SIGINT)

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
