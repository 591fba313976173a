"""What tests with real kernels share; a module with other needs has a fixture of its own under the same name."""

import pytest
from support.kernels import open_kernel

from freeact_sub import Agent, Config
from freeact_sub.kernels import ForkKernelProvider
from freeact_sub.testing import ScriptedModel


@pytest.fixture
async def provider():
    provider = ForkKernelProvider(spares=0)
    yield provider
    await provider.aclose()


@pytest.fixture
async def kernel(provider, tmp_path):
    async with open_kernel(provider, tmp_path) as kernel:
        yield kernel


@pytest.fixture
def make(tmp_path):
    def make_agent(script, **config):
        return Agent(Config(workspace=tmp_path, **config), model=ScriptedModel(script))

    return make_agent
