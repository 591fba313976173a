"""`CopyProvider`: gives a root agent a copy of a notebook's kernel, and its children kernels of another provider."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from zmq.sugar.context import Context

from freeact_sub.config.schema import KernelConfig
from freeact_sub.errors import KernelStartError
from freeact_sub.kernels.copies.kernel import NotebookCopy
from freeact_sub.kernels.copies.launcher import Origin
from freeact_sub.kernels.kernel import AuditSettings, HostRequestHandler, Kernel, KernelPlace, KernelProvider, KernelSpec
from freeact_sub.kernels.local import RECONNECT_MILLISECONDS
from freeact_sub.kernels.wall.gaps import Gaps
from freeact_sub.modes import Mode

NETWORK: Final = (
    "the network that kernel.network gives to code in mode `{mode}` includes programs of this machine: the copy does not "
    "know the key of your kernel, but it can read the outputs of a kernel whose transport is TCP"
)


class CopyProvider:
    """See `KernelProvider`."""

    def __init__(self, empty: KernelProvider, *, on_notice: Callable[[str], None], origin: Origin) -> None:
        """Nothing is started yet.

        Args:
            empty: Starts the kernels of children, and the root's where no copy can be made. It is closed with this one.
            on_notice: Called with what a person must know: why there is no copy, and what the wall cannot hold.
            origin: The kernel that is copied.
        """
        self._empty = empty
        self._on_notice = on_notice
        self._origin = origin
        self._gaps = Gaps(on_notice)
        self._context: Any = Context()
        self._context.reconnect_ivl = RECONNECT_MILLISECONDS
        self.root_id: str | None = None
        """The agent that gets copies."""
        self.copy: NotebookCopy | None = None
        """The root's kernel. None: it is an empty one, or not started yet."""
        self._told_of_network = False
        self._refused = ""
        """Why no copy can be made now. Empty: one can be."""

    async def refuse(self, reason: str) -> None:
        """From now on there is a reason against a copy, or none. The agent of a copy that there is gets an empty kernel."""
        self._refused = reason
        copy, self.copy = (self.copy, None) if reason else (None, self.copy)
        if copy is not None:
            copy.give_up(f"no other copy of this kernel can be made: {reason}")
            await copy.aclose()

    def place(self, mode: Mode, settings: KernelConfig, workspace: Path) -> KernelPlace:
        """See `KernelProvider.place`."""
        return self._empty.place(mode, settings, workspace)

    def hook(self, settings: AuditSettings) -> AuditSettings | None:
        """See `KernelProvider.hook`."""
        return self._empty.hook(settings)

    async def start(self, spec: KernelSpec, handler: HostRequestHandler) -> Kernel:
        """See `KernelProvider.start`."""
        if spec.owner_id != self.root_id or self._refused:
            return await self._empty.start(spec, handler)
        await self._gaps.check(spec)
        if spec.sandbox is not None and spec.sandbox.walled and spec.sandbox.network and not self._told_of_network:
            self._told_of_network = True
            self._on_notice(NETWORK.format(mode=spec.sandbox.mode))
        copy = NotebookCopy(spec, handler, self._context, self._origin)
        try:
            await copy.renew()
        except KernelStartError as error:
            await copy.aclose()
            self._on_notice(f"the agent works in an empty kernel: a copy of this one could not be made: {error}")
            return await self._empty.start(spec, handler)
        except BaseException:
            await copy.aclose()
            raise
        self.copy = copy
        return copy

    async def aclose(self) -> None:
        """See `KernelProvider.aclose`."""
        self._context.destroy(linger=0)
        await self._empty.aclose()
