"""Kernel providers of other packages: found by their entry point, asked for their wall and hook."""

import sys
from pathlib import Path

import pytest
from pydantic_ai.messages import ToolCallPart
from support.providers import ELSEWHERE, installed
from support.tables import each
from support.waiting import eventually

from freeact_sub import Agent, Config
from freeact_sub.approvals import policy
from freeact_sub.config.entry_points import KERNEL_PROVIDERS, SESSION_STORES
from freeact_sub.config.schema import KernelConfig
from freeact_sub.errors import ConfigError
from freeact_sub.kernels import AuditSettings, KernelPlace
from freeact_sub.kernels.jupyter import JupyterKernel
from freeact_sub.kernels.provider import make_provider
from freeact_sub.kernels.wall.sandbox import SandboxPolicy
from freeact_sub.kernels.wire.client import KernelClient
from freeact_sub.testing import FakeKernelProvider, ScriptedApprover, ScriptedModel

CELL = ToolCallPart("execute_ipython_cell", {"code": "6 * 7"})


async def test_a_provider_of_another_package_is_found_by_name_and_runs_the_cells(tmp_path):
    with installed(tmp_path / "site", ELSEWHERE, "fork = other_kernels:nothing"):
        config = Config(workspace=tmp_path, mode="full", kernel=KernelConfig(provider="elsewhere"))
        async with Agent(config, model=ScriptedModel([CELL, "It is 42."])) as agent:
            result = await ScriptedApprover().drive(agent.run("What is 6 times 7?"))
        made = sys.modules["other_kernels"].made
    assert (result.status, result.output) == ("completed", "It is 42.")
    assert [(settings, callable(on_notice)) for settings, on_notice in made] == [(config.kernel, True)]


def test_an_unknown_provider_is_told_with_the_near_ones(tmp_path):
    with installed(tmp_path / "site", ELSEWHERE):
        with pytest.raises(
            ConfigError, match=r"`kernel.provider`: .*did you mean `fork`\? Installed: elsewhere, fork, gateway, local"
        ):
            Config(kernel={"provider": "frok"})
        with pytest.raises(ConfigError, match="did you mean `elsewhere`"):
            KernelConfig(provider="elswhere")
        with pytest.raises(ConfigError, match="Installed: elsewhere, fork, gateway, local"):
            KernelConfig(provider="")


@pytest.mark.parametrize("target", ["no_such_module:make", "other_kernels:no_such_function"])
def test_a_provider_that_cannot_be_imported_is_told_by_its_name(tmp_path, target):
    with (
        installed(tmp_path / "site", f"broken = {target}"),
        pytest.raises(ConfigError, match=f"kernel provider `broken` cannot be loaded from `{target}`"),
    ):
        make_provider(KernelConfig(provider="broken"))


@each(("group", "names"), [(KERNEL_PROVIDERS, {"fork", "local", "gateway"}), (SESSION_STORES, {"sqlite"})])
def test_our_own_are_there_like_any_other(group, names, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [str(tmp_path)])  # where nothing is installed
    assert group.installed().keys() == names
    assert all(callable(group.load(name)) for name in names)


class Remote(FakeKernelProvider):
    """Kernels of another machine."""

    async def start(self, spec, handler):
        assert spec.sandbox is None or spec.sandbox == WALL
        assert (spec.audit, spec.environment) == (HOOK, {"THERE": "1"})
        return await super().start(spec, handler)

    def place(self, mode, settings, workspace):
        if mode == "auto":
            raise ConfigError("kernels there have no wall: kernel.provider = 'fork' has one")
        return KernelPlace(wall=WALL, environment={"THERE": "1"}, description="It is far away.")

    def hook(self, settings):
        self.asked = settings
        return HOOK


WALL = SandboxPolicy(mode="ask", walled=True, network=False)
HOOK = AuditSettings(writable=(Path("/there"),))


async def test_wall_environment_and_hook_are_what_the_provider_says_and_the_model_is_told(tmp_path):
    def script(messages, info):
        return "Done." if "It is far away." in info.instructions and len(messages) > 1 else CELL

    provider = Remote()
    config = Config(workspace=tmp_path, mode="ask")
    async with Agent(config, model=ScriptedModel(script), kernel_provider=provider) as agent:
        result = await ScriptedApprover().drive(agent.run("Count."))
    assert result.status == "completed"
    assert len(provider.kernels) == 1
    assert "no network" in provider.asked.no_network


async def test_a_provider_refuses_an_agent_that_it_has_no_kernels_for(tmp_path):
    with pytest.raises(ConfigError, match="kernels there have no wall"):
        async with Agent(Config(workspace=tmp_path, mode="auto"), model=ScriptedModel([]), kernel_provider=Remote()):
            pass


class Following(FakeKernelProvider):
    """Its kernels decide as real ones what they send about rules."""

    looks = 0

    async def start(self, spec, handler):
        real, fake = JupyterKernel(spec, None, handler), await super().start(spec, handler)

        def ask_about(names):
            self.looks += 1
            real.ask_about(names)

        fake.ask_about = ask_about
        return fake


async def test_a_kernel_is_sent_its_rules_when_they_change_and_only_then(tmp_path, monkeypatch):
    monkeypatch.setattr(policy, "LOOK_SECONDS", 0)
    provider, rules, sent = Following(), tmp_path / "rules.toml", []
    monkeypatch.setattr(KernelClient, "send_control", lambda _self, _kind, content: sent.append(content["asked"]))
    rules.write_text("")
    config = Config(workspace=tmp_path, mode="full", permission_files=(rules,))
    async with Agent(config, model=ScriptedModel([]), kernel_provider=provider):
        await eventually(lambda: provider.looks >= 3)
        assert sent == []
        for text in ('deny = ["write:x"]', "# no rule"):
            rules.with_name("new").write_text(text)
            rules.with_name("new").replace(rules)
            count, looks = len(sent), provider.looks
            await eventually(lambda: len(sent) > count and provider.looks >= looks + 3)
    first = provider.kernels[0].spec.audit.asked
    added, back = sent
    assert (len(added), back) == (len(first) + 1, first)
