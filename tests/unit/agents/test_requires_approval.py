"""A tool whose developer requires approval is asked about in every mode, and denied where nobody answers."""

import pytest
from pydantic_ai import ApprovalRequired, ApprovalRequiredToolset, FunctionToolset, RunContext
from pydantic_ai.messages import ToolCallPart
from support.agents import of_kind, read
from support.tables import each

from freeact_sub import Agent, Config
from freeact_sub.events import ApprovalRequest, Decision, ToolOutput
from freeact_sub.testing import FakeKernelProvider, ScriptedModel

RAN: list[str] = []


def deploy(place: str) -> str:
    """Deploy."""
    RAN.append(place)
    return f"deployed to {place}"


def deploy_or_raise(ctx: RunContext, place: str) -> str:
    """Deploy."""
    if not ctx.tool_call_approved and place == "production":
        raise ApprovalRequired
    return deploy(place)


def marked() -> FunctionToolset:
    toolset = FunctionToolset()
    toolset.add_function(deploy, name="deploy", requires_approval=True)
    return toolset


def wrapped() -> ApprovalRequiredToolset:
    return ApprovalRequiredToolset(FunctionToolset([deploy]), lambda ctx, tool, args: args["place"] == "production")


def raising() -> FunctionToolset:
    toolset = FunctionToolset()
    toolset.add_function(deploy_or_raise, name="deploy")
    return toolset


def renamed() -> ApprovalRequiredToolset:
    return FunctionToolset([deploy]).prefixed("x").renamed({"deploy": "x_deploy"}).approval_required()


TOOLSETS = [marked, wrapped, raising, renamed]


def agent(tmp_path, toolset, mode, **config):
    RAN.clear()
    calls = [ToolCallPart("deploy", {"place": "production"})]
    return Agent(
        Config(workspace=tmp_path, mode=mode, **config),
        model=ScriptedModel([calls, calls, "done"]),
        toolsets=[toolset()],
        kernel_provider=FakeKernelProvider(),
    )


@each("mode", ["ask", "auto", "full"])
@each("toolset", TOOLSETS)
@pytest.mark.slow
async def test_each_call_is_asked_about_in_every_mode(tmp_path, toolset, mode):
    (tmp_path / "rules.toml").write_text('allow = ["tool:deploy", "tool"]')
    async with agent(tmp_path, toolset, mode, permission_files=(tmp_path / "rules.toml",)) as deployer:
        events, _ = await read(deployer.run("x"), lambda request: Decision(allowed=True, remember="session"))
    needed = [request for request in of_kind(events, ApprovalRequest) if request.call.requires_approval]
    assert len(needed) == 2, "an answer holds for its call alone"
    assert all("developer requires" in request.reason for request in needed)
    assert all(request.suggested == () for request in needed)
    assert RAN == ["production"] * 2


@each("toolset", TOOLSETS)
async def test_a_no_means_no_in_full_too(tmp_path, toolset):
    async with agent(tmp_path, toolset, "full") as deployer:
        events, _ = await read(deployer.run("x"), lambda request: Decision(allowed=False, reason="not today"))
    assert RAN == []
    assert [end.outcome for end in of_kind(events, ToolOutput)][-1] == "denied"
    assert "not today" in of_kind(events, ToolOutput)[-1].content


@each("headless", ["allow", "auto", "deny"])
@each("mode", ["plan", "ask", "auto", "full"])
@each("toolset", TOOLSETS)
@pytest.mark.slow
async def test_a_call_that_requires_approval_is_denied_if_nobody_answers(tmp_path, toolset, mode, headless):
    async with agent(tmp_path, toolset, mode, headless=headless) as deployer:
        events, _ = await read(deployer.run("x"))
    assert RAN == []
    content = of_kind(events, ToolOutput)[-1].content
    assert "person" in content or "denied" in content or "mode plan" in content, content


async def test_a_call_that_requires_approval_is_denied_if_nobody_reads_the_events(tmp_path):
    async with agent(tmp_path, marked, "full") as deployer:
        await deployer.run("x").result()
    assert RAN == []


async def test_calls_that_need_no_approval_run_as_before(tmp_path):
    RAN.clear()
    calls = [ToolCallPart("deploy", {"place": "staging"})]
    for toolset in (wrapped, raising):
        model = ScriptedModel([calls, "done"])
        async with Agent(
            Config(workspace=tmp_path, mode="full"), model=model, toolsets=[toolset()], kernel_provider=FakeKernelProvider()
        ) as deployer:
            events, _ = await read(deployer.run("x"))
        assert not of_kind(events, ApprovalRequest)
    assert RAN == ["staging"] * 2


async def test_a_rule_that_denies_counts_first(tmp_path):
    (tmp_path / "rules.toml").write_text('deny = ["tool:deploy"]')
    async with agent(tmp_path, marked, "full", permission_files=(tmp_path / "rules.toml",)) as deployer:
        events, _ = await read(deployer.run("x"), lambda request: Decision(allowed=True))
    assert not of_kind(events, ApprovalRequest)
    assert RAN == []
