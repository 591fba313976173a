"""`SharedKernelProvider`: the default provider of kernels; agents of one process share it as far as possible.

Python, environment and preloaded modules make the key of a fork server, so agents share one server where these are the same,
whatever else their settings say. A fork server and the sockets of its kernels belong to the event loop in which they were
made: agents of another loop, and so of another thread, have a server of their own. The last agent that is closed ends it.
"""

import asyncio
import logging
import threading
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final, TypeAlias
from weakref import WeakKeyDictionary

from freeact_sub.config.entry_points import KERNEL_PROVIDERS
from freeact_sub.config.schema import KernelConfig
from freeact_sub.kernels.forkserver.fork_provider import ForkKernelProvider
from freeact_sub.kernels.kernel import AuditSettings, HostRequestHandler, Kernel, KernelPlace, KernelProvider, KernelSpec
from freeact_sub.kernels.local import LocalKernelProvider, local_place
from freeact_sub.kernels.wall.sandbox import Gaps
from freeact_sub.modes import Mode

logger = logging.getLogger(__name__)

_Key: TypeAlias = tuple[Hashable, ...]
"""The name of a provider, and its settings."""


@dataclass(kw_only=True, eq=False)
class _SharedProvider:
    key: _Key
    provider: LocalKernelProvider
    users: set["SharedKernelProvider"] = field(default_factory=set)


_shared: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, dict[_Key, _SharedProvider]]] = WeakKeyDictionary()
_lock: Final = threading.Lock()
"""The lock on `_shared`: loops of several threads use it."""


class SharedKernelProvider:
    """One agent's part in a provider that others use too; taken with the first kernel, given back when it is closed."""

    def __init__(self, key: _Key, make: Callable[[], LocalKernelProvider], on_notice: Callable[[str], None] | None) -> None:
        """Args: key: of the shared provider. make: the first of its users makes it. on_notice: see `make_provider`."""
        self._key = key
        self._make = make
        self._gaps = Gaps(on_notice or logger.warning)
        self._shared: _SharedProvider | None = None
        self.workspaces: set[Path] = set()
        """Workspaces in which it has started kernels."""

    def place(self, mode: Mode, settings: KernelConfig, workspace: Path) -> KernelPlace:
        """Describes this machine as the place of kernels."""
        return local_place(mode, settings, workspace)

    def hook(self, settings: AuditSettings) -> AuditSettings | None:
        """Returns the settings: all that the rules allow."""
        return settings

    async def start(self, spec: KernelSpec, handler: HostRequestHandler) -> Kernel:
        """Starts a kernel of the shared provider."""
        self.workspaces.add(spec.workspace)
        return await self._taken().provider.start(spec, handler, gaps=self._gaps)

    async def aclose(self) -> None:
        """Gives the shared provider back; its last user ends it. The next `start` takes it anew."""
        shared, self._shared = self._shared, None
        if shared is None:
            return
        with _lock:
            shared.users.discard(self)
            of_loop = _shared.get(asyncio.get_running_loop(), {})
            if not shared.users and of_loop.get(shared.key) is shared:
                del of_loop[shared.key]
        if not shared.users:
            await shared.provider.aclose()
        elif isinstance(shared.provider, ForkKernelProvider):
            others: set[Path] = set().union(*(user.workspaces for user in shared.users))
            await shared.provider.drop_spares(self.workspaces - others)
        self.workspaces.clear()

    def _taken(self) -> _SharedProvider:
        if self._shared is None:
            with _lock:
                of_loop = _shared.setdefault(asyncio.get_running_loop(), {})
                shared = of_loop.get(self._key)
                if shared is None:
                    shared = of_loop[self._key] = _SharedProvider(key=self._key, provider=self._make())
                shared.users.add(self)
            self._shared = shared
        return self._shared


def make_provider(settings: KernelConfig, *, on_notice: Callable[[str], None] | None = None) -> KernelProvider:
    """Makes the provider that the settings name.

    Args:
        settings: The provider's name and settings.
        on_notice: Called once with the gaps of the kernels' sandbox. Default: a log entry.

    Raises:
        ConfigError: Its package cannot be imported.
    """
    provider: KernelProvider = KERNEL_PROVIDERS.load(settings.provider)(settings, on_notice=on_notice)
    return provider


def make_fork(settings: KernelConfig, *, on_notice: Callable[[str], None] | None = None) -> KernelProvider:
    """Forks kernels from a warm process where that is safe."""
    make = partial(ForkKernelProvider, preload=settings.preload, spares=settings.spares)
    return SharedKernelProvider(("fork", settings.preload, settings.spares), make, on_notice)


def make_local(settings: KernelConfig, *, on_notice: Callable[[str], None] | None = None) -> KernelProvider:
    """Starts a plain subprocess for each kernel."""
    del settings
    return SharedKernelProvider(("local",), LocalKernelProvider, on_notice)
