"""`GatewayKernelProvider`: kernels of Jupyter gateways; of several, from the one that has the fewest of ours."""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from freeact_sub.config.schema import KernelConfig, git_environment
from freeact_sub.errors import ConfigError
from freeact_sub.kernels.gateway.channels import GatewayChannels
from freeact_sub.kernels.gateway.kernel import GatewayKernel
from freeact_sub.kernels.gateway.launcher import GatewayLauncher
from freeact_sub.kernels.gateway.server import GatewayServer, live
from freeact_sub.kernels.kernel import AuditSettings, HostRequestHandler, KernelPlace, KernelSpec
from freeact_sub.modes import Mode
from freeact_sub.system.chance import chance

ELSEWHERE: Final = (
    "Its working directory is a folder of its own, empty at first and gone with the kernel: no file of the user is there, "
    "and nobody finds files that you write. A child gets files as values (`inputs` of agent.task) and gives them back as "
    "its answer; what the user is to have stands in your own answer. `agent.shell` runs on the user's machine."
)


logger = logging.getLogger(__name__)


class GatewayKernelProvider:
    """Starts kernels at the servers that the settings name. See `KernelProvider`."""

    def __init__(self, settings: KernelConfig, *, on_notice: Callable[[str], None] | None = None) -> None:
        """Args: on_notice: called once with what kernels there lack. None: it is logged.

        Raises:
            ConfigError: The settings name no server, or certificates that cannot be read.
        """
        self._settings = settings.gateway
        if not self._settings.url:
            raise ConfigError("kernel.provider = 'gateway' needs kernel.gateway.url, such as http://127.0.0.1:8888")
        self._on_notice = on_notice or logger.warning
        self._has_noticed = False
        self._servers = [GatewayServer(url, self._settings) for url in self._settings.url]

    def place(self, mode: Mode, settings: KernelConfig, workspace: Path) -> KernelPlace:
        """See `KernelProvider.place`. No wall of ours is there, and nothing of this machine's environment."""
        if settings.sandbox == "required":
            raise ConfigError(
                "kernel.sandbox = 'required' needs a wall, which a gateway's kernels do not have: set 'auto' or 'off'"
            )
        if mode in ("plan", "auto") and not self._settings.trusted:
            raise ConfigError(
                f"mode {mode} needs a wall around the kernel, which a gateway's kernels do not have: choose mode ask or "
                "full, or set kernel.gateway.trusted = true if the gateway's machines confine the code themselves"
            )
        shared = self._settings.workspace == "shared"
        if not self._has_noticed:
            self._has_noticed = True
            files = "" if shared else f", and the files of {workspace} are not there"
            self._on_notice(
                f"kernels run at {', '.join(self._settings.url)}: no wall of ours is around them, they cannot be branched"
                f"{files}"
            )
        environment = {**git_environment(), **settings.env}
        files = f"Its working directory is {workspace}." if shared else ELSEWHERE
        return KernelPlace(wall=None, environment=environment, description=f"It is on another machine. {files}")

    def hook(self, settings: AuditSettings) -> AuditSettings | None:
        """See `KernelProvider.hook`."""
        return settings if self._settings.workspace == "shared" else AuditSettings(no_network=settings.no_network)

    async def start(self, spec: KernelSpec, handler: HostRequestHandler) -> GatewayKernel:
        """See `KernelProvider.start`."""
        settings = self._settings
        channels = partial(GatewayChannels, lease_seconds=settings.lease_seconds, on_notice=self._on_notice)
        launcher = GatewayLauncher(spec, self._by_load, settings.kernel, channels)
        kernel = GatewayKernel(
            spec,
            launcher,
            handler,
            settings=settings,
        )
        return await kernel.open()

    async def aclose(self) -> None:
        """See `KernelProvider.aclose`."""
        for server in self._servers:
            await server.aclose()

    def _by_load(self) -> list[GatewayServer]:
        """The servers in the order in which they are asked: those that could not be reached lately come last."""
        now = asyncio.get_running_loop().time()
        shuffled = chance.sample(self._servers, len(self._servers))
        return sorted(shuffled, key=lambda server: (server.asked_last_until > now, live[server.url]))
