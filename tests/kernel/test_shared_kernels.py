"""Agents of one process share a fork server; a provider that was passed in is its maker's. Real kernels."""

import asyncio
import threading

import psutil
import pytest
from support.agents import cell, root_text
from support.agents import read as read_run
from support.waiting import eventually

from freeact_sub import Agent, Config, FreeactError
from freeact_sub.kernels.forkserver.fork_provider import ForkKernelProvider
from freeact_sub.testing import ScriptedModel

pytestmark = pytest.mark.kernel


@pytest.fixture(autouse=True, scope="module")
def fork_servers():
    """They are found by their command lines here."""


def agent_in(folder, *, code="x = 1; print('ran')", **kwargs):
    folder.mkdir(exist_ok=True)
    config = Config(workspace=folder, mode="full", **kwargs.pop("config", {}))
    return Agent(
        config, model=ScriptedModel(lambda messages, info: "done" if asked_back(messages) else cell(code)), **kwargs
    )


def asked_back(messages):
    return any(part.part_kind == "tool-return" for part in messages[-1].parts)


def servers():
    """The guards of the fork servers that this process has started."""
    return [
        process.pid for process in psutil.Process().children() if "forkserver/server.py" in " ".join(command_of(process))
    ]


def command_of(process):
    try:
        return process.cmdline()
    except psutil.Error:
        return []


async def run(agent):
    _, result = await read_run(agent.run("go"))
    return result


async def test_a_provider_that_was_passed_in_outlives_the_agents_that_use_it(tmp_path):
    provider = ForkKernelProvider(spares=0)
    try:
        async with agent_in(tmp_path / "a", kernel_provider=provider) as first:
            async with agent_in(tmp_path / "b", kernel_provider=provider) as second:
                assert (await run(second)).status == "completed"
            events, result = await read_run(first.run("go"))
        assert (result.status, root_text(events)) == ("completed", "ran")
        async with agent_in(tmp_path / "c", kernel_provider=provider) as third:
            assert root_text((await read_run(third.run("go")))[0]) == "ran"
    finally:
        await provider.aclose()


async def test_agents_share_one_fork_server_and_the_last_one_ends_it(tmp_path):
    agents = [agent_in(tmp_path / name) for name in "abcde"]
    for agent in agents:
        await agent.open()
        assert (await run(agent)).status == "completed"
    one = servers()
    assert len(one) == 1
    for agent in agents[:-1]:
        await agent.aclose()
    assert servers() == one
    events, _ = await read_run(agents[-1].run("again"))
    assert root_text(events) == "ran"
    await agents[-1].aclose()
    await eventually(lambda: not servers())


async def test_opening_and_closing_at_the_same_time_leaves_each_with_a_kernel_and_nothing_behind(tmp_path):
    async def use(number):
        async with agent_in(tmp_path / str(number), config={"kernel": {"spares": 1}}) as agent:
            return root_text((await read_run(agent.run("go")))[0])

    for _ in range(2):
        assert await asyncio.gather(*(use(number) for number in range(4))) == ["ran"] * 4
        await eventually(lambda: not servers())


async def test_variables_and_other_environments_are_not_shared(tmp_path):
    code = "import os; print(globals().get('x'), os.environ.get('MINE')); x = 1"
    async with (
        agent_in(tmp_path / "a", code=code) as first,
        agent_in(tmp_path / "b", code=code, config={"kernel": {"env": {"MINE": "b"}}}) as second,
        agent_in(tmp_path / "c", code=code) as third,
    ):
        texts = [root_text((await read_run(agent.run("go")))[0]) for agent in (first, second, third)]
        assert texts == ["None None", "None b", "None None"]
        assert len(servers()) == 2, "the environment is part of what a server depends on"


async def test_spares_of_an_agent_that_is_gone_go_with_it(tmp_path):
    async with agent_in(tmp_path / "a") as first:
        await run(first)
        async with agent_in(tmp_path / "b") as second:
            await run(second)
        provider = first.debug.root.shared.provider._shared.provider  # noqa: SLF001  # spares are nothing that a user sees
        await provider.refilled()
        assert {key.workspace for key in provider.spares} == {tmp_path / "a"}


async def test_agents_of_other_loops_have_a_server_of_their_own(tmp_path):
    seen = []

    def in_thread(name):
        seen.append(asyncio.run(run_in_own_loop(name)))

    async def run_in_own_loop(name):
        async with agent_in(tmp_path / name) as agent:
            return (await run(agent)).status

    async with agent_in(tmp_path / "a") as agent:
        threads = [threading.Thread(target=in_thread, args=(name,)) for name in ("b", "c")]
        for thread in threads:
            thread.start()
        assert (await run(agent)).status == "completed"
        for thread in threads:
            await asyncio.to_thread(thread.join)
        assert seen == ["completed", "completed"]
        events, _ = await read_run(agent.run("again"))
        assert events[-1].status == "completed"
    await eventually(lambda: not servers())


def test_an_agent_in_another_loop_is_refused_in_a_sentence(tmp_path, caplog):
    agent = agent_in(tmp_path / "a")

    async def begin():
        await agent.open()
        return (await run(agent)).status

    async def elsewhere():
        for use in (lambda: agent.run("go").result(), agent.aclose, lambda: agent.spawn("x")):
            with pytest.raises(FreeactError, match="event loop"):
                await use()

    with asyncio.Runner() as home:
        assert home.run(begin()) == "completed"
        with asyncio.Runner() as other:
            other.run(elsewhere())
        home.run(agent.aclose())
    assert not [record for record in caplog.records if record.exc_info]


def test_run_sync_opens_runs_and_closes_and_goes_on_with_the_conversation(tmp_path):
    agent = agent_in(tmp_path / "a")
    first = agent.run_sync("go")
    assert (first.status, first.output) == ("completed", "done")
    assert not servers()
    second = agent.run_sync("go on")
    assert (second.status, len([m for m in agent.history if m.kind == "request"])) == ("completed", 4)


async def test_run_sync_says_what_to_do_in_a_loop(tmp_path):
    with pytest.raises(FreeactError, match=r"await agent\.run\(prompt\)\.result\(\)"):
        agent_in(tmp_path / "a").run_sync("go")


async def test_an_agent_is_opened_once_at_a_time_and_can_be_opened_again(tmp_path):
    agent = agent_in(tmp_path / "a")
    async with agent:
        with pytest.raises(FreeactError, match="already open"):
            await agent.open()
    async with agent:
        assert (await run(agent)).status == "completed"
