"""What unit tests of agents share.

With `--bare`, agents have no features; with `--without NAME` they lack one (`tests/support/features.py`). Tests that do not
need them hold all the same.
"""

import os

import pytest
from support.features import all_but

from freeact_sub import Agent, Config
from freeact_sub.testing import FakeKernelProvider, ScriptedModel


@pytest.fixture
def without(request):
    """The feature that agents lack; empty: none."""
    return getattr(request, "param", request.config.getoption("--without"))


@pytest.fixture(autouse=True)
def present_features(request, monkeypatch, without):
    """Those of agents that name none."""
    if request.config.getoption("--bare"):
        monkeypatch.setattr("freeact_sub.agent.default_features", lambda _hooks=(): ())
    elif without:
        monkeypatch.setattr("freeact_sub.agent.default_features", all_but(without))


@pytest.fixture(autouse=True)
def no_certificates(monkeypatch):
    """Clients trust nobody, as they meet none but this machine: to read a system's certificates takes a client 50 ms."""
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    monkeypatch.setenv("SSL_CERT_DIR", os.environ["HOME"])  # an empty folder


@pytest.fixture
def make(tmp_path):
    """Makes an agent with a scripted model and fake kernels.

    `agent.provider.kernels` are the kernels it has started, `agent.scripted.requests` is the number of model requests.
    """

    def make_agent(script, *, config=None, chunk_chars=12, kernel_provider=None, **kwargs):
        settings = Config(workspace=tmp_path, **(config or {}))
        provider = kernel_provider or FakeKernelProvider()
        model = ScriptedModel(script, chunk_chars=chunk_chars)
        agent = Agent(settings, model=model, kernel_provider=provider, **kwargs)
        agent.provider, agent.scripted = provider, model
        return agent

    return make_agent
