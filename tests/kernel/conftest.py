"""What tests with real kernels share; a module with other needs has a fixture of its own under the same name."""

from contextlib import ExitStack

import pytest
import pytest_asyncio
from support.gateways import SETTINGS, serve
from support.kernels import PROVIDERS, open_kernel
from support.processes import may_start_processes
from support.warm_kernels import forking_kernels, warm_kernels

from freeact_sub import Agent, Config
from freeact_sub.config.schema import KernelConfig
from freeact_sub.kernels.forkserver.fork_provider import ForkKernelProvider
from freeact_sub.kernels.provider import make_provider
from freeact_sub.testing import ScriptedModel


@pytest.fixture(scope="session")
def forking():
    with forking_kernels() as python:
        yield python


@pytest.fixture(autouse=True, scope="module")
def fork_servers(request):
    """Start warm; a module about how they start has a fixture of this name that leaves them cold."""
    with warm_kernels(request.getfixturevalue("forking") if may_start_processes(request) else None):
        yield


@pytest_asyncio.fixture(params=["fork", "local"], scope="module", loop_scope="module")
async def shared_provider(request, tmp_path_factory):
    """One for all tests of a module, with its fork server; they run in one loop (`pytest.mark.asyncio(loop_scope="module")`)."""
    provider = PROVIDERS[request.param]()
    async with open_kernel(provider, tmp_path_factory.mktemp("first")):
        pass
    yield provider
    await provider.aclose()


@pytest.fixture
async def provider():
    provider = ForkKernelProvider(spares=0)
    yield provider
    await provider.aclose()


@pytest.fixture
async def kernel(provider, tmp_path):
    async with open_kernel(provider, tmp_path) as kernel:
        yield kernel


@pytest.fixture(autouse=True)
def patience_with_gateways(monkeypatch):
    """On a loaded machine one that works may be silent for long."""
    monkeypatch.setattr("freeact_sub.kernels.gateway.server.HANG_SECONDS", 60.0)
    monkeypatch.setattr("freeact_sub.kernels.gateway.channels.SILENT_SECONDS", 60.0)
    monkeypatch.setattr("freeact_sub.kernels.gateway.channels.LOST_SECONDS", 60.0)


@pytest.fixture(autouse=True)
def patience_with_trials(monkeypatch):
    """On a loaded machine one takes long to start, and to compare."""
    for name in ("START_SECONDS", "OWN_CELL_SECONDS", "LOOK_SECONDS"):
        monkeypatch.setattr(f"freeact_sub.features.effects.{name}", 60.0)


@pytest.fixture
def make(tmp_path):
    def make_agent(script, taps=(), **config):
        return Agent(Config(**{"workspace": tmp_path, **config}), model=ScriptedModel(script), taps=taps)

    return make_agent


@pytest.fixture
async def start():
    """Makes providers that are closed with the test."""
    providers = []

    def make(settings: KernelConfig, **options):
        providers.append(make_provider(settings, **options))
        return providers[-1]

    yield make
    for provider in providers:
        await provider.aclose()


@pytest.fixture(scope="session")
def gateways(tmp_path_factory):
    """Two Jupyter Kernel Gateways."""
    with ExitStack() as stack:
        yield [stack.enter_context(serve("gateway", tmp_path_factory.mktemp("gateway"), *SETTINGS)) for _ in range(2)]


@pytest.fixture(scope="session")
def jupyter_server(tmp_path_factory):
    """A plain Jupyter server."""
    with serve("server", tmp_path_factory.mktemp("server"), *SETTINGS) as server:
        yield server
