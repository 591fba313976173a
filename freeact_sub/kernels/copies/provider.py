"""`CopyProvider`: gives a root agent a copy of the notebook's kernel, and its children kernels of another provider."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from zmq.sugar.context import Context

from freeact_sub.config.schema import KernelConfig
from freeact_sub.errors import KernelStartError
from freeact_sub.kernels.copies.kernel import NotebookCopy
from freeact_sub.kernels.copies.launcher import kernel_app
from freeact_sub.kernels.copies.safety import unsafe
from freeact_sub.kernels.kernel import AuditSettings, HostRequestHandler, Kernel, KernelPlace, KernelProvider, KernelSpec
from freeact_sub.kernels.local import RECONNECT_MILLISECONDS
from freeact_sub.kernels.wall.gaps import Gaps
from freeact_sub.modes import Mode


class CopyProvider:
    """See `KernelProvider`."""

    def __init__(self, empty: KernelProvider, *, on_notice: Callable[[str], None], forget: Callable[[], None]) -> None:
        """Nothing is started yet.

        Args:
            empty: Starts the kernels of children, and the root's where no copy can be made. It is closed with this one.
            on_notice: Called with what a person must know: why there is no copy, and what the wall cannot hold.
            forget: Called in each copy: takes out what runs agents here.
        """
        self._empty = empty
        self._on_notice = on_notice
        self._forget = forget
        self._gaps = Gaps(on_notice)
        self._context: Any = Context()
        self._context.reconnect_ivl = RECONNECT_MILLISECONDS
        self.root_id: str | None = None
        """The agent that gets copies."""
        self.copy: NotebookCopy | None = None
        """The root's kernel. None: it is an empty one, or not started yet."""

    def refusal(self) -> str:
        """Why no copy can be made now. Empty: one can be."""
        return unsafe(kernel_app())

    async def give_up(self, reason: str) -> None:
        """Ends the copy, if there is one: its agent gets an empty kernel. Args: reason: why there can be no other copy."""
        copy, self.copy = self.copy, None
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
        if spec.owner_id != self.root_id or self.refusal():
            return await self._empty.start(spec, handler)
        await self._gaps.check(spec)
        copy = NotebookCopy(spec, handler, self._context, kernel_app(), self._forget)
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
