"""Spare kernels: how many are kept, when they are made, whom they serve."""

import asyncio
import os
import signal

import pytest
from support.elsewhere import CANNOT_FORK
from support.kernels import no_host, run_cell, spec
from support.waiting import eventually, is_running

from freeact_sub.errors import KernelStartError
from freeact_sub.kernels.forkserver import fork_provider
from freeact_sub.kernels.forkserver.fork_provider import ForkKernelProvider

pytestmark = [pytest.mark.kernel, pytest.mark.skipif(CANNOT_FORK, reason="kernels are forked on Linux only")]


@pytest.fixture(autouse=True, scope="module")
def fork_servers():
    """How they start is what is tested here."""


async def test_spares_are_kept_handed_out_refilled_and_gone_at_the_end(tmp_path):
    provider = ForkKernelProvider(spares=2)
    try:
        first = await provider.start(spec(tmp_path), no_host)
        [spares] = provider.spares.values()
        await eventually(lambda: len(spares) == 2)
        ready = set(spares)
        second = await provider.start(spec(tmp_path, owner_id="agent-2"), no_host)
        assert second in ready
        assert (await run_cell(second, "6 * 7")).text == "42\n"
        await eventually(lambda: len(spares) == 2)
        pids = [kernel.pid for kernel in [*spares, first, second]]
        assert len(set(pids)) == 4
        (tmp_path / "other").mkdir()
        other = await provider.start(spec(tmp_path / "other"), no_host)
        assert other not in spares, "a spare is for one workspace"
        os.kill(spares[0].pid, signal.SIGKILL)
        await eventually(lambda: spares[0].lost_reason)
        third = await provider.start(spec(tmp_path), no_host)
        assert (await run_cell(third, "'alive'")).text == "'alive'\n"
        for kernel in (first, second, third, other):
            await kernel.aclose()
    finally:
        await provider.aclose()
    await eventually(lambda: not any(map(is_running, pids)))


async def test_as_many_spares_are_kept_as_were_asked_for_at_once_until_that_is_long_ago(tmp_path, monkeypatch):
    monkeypatch.setattr(fork_provider, "SECONDS", 3600.0)  # however slow the machine is
    provider = ForkKernelProvider(spares=1)
    try:
        kernels = await asyncio.gather(*(provider.start(spec(tmp_path), no_host) for _ in range(3)))
        [spares] = provider.spares.values()
        await eventually(lambda: len(spares) == 3)
        ready = set(spares)
        more = await asyncio.gather(*(provider.start(spec(tmp_path), no_host) for _ in range(3)))
        assert set(more) == ready
        await eventually(lambda: len(spares) == 3)
        await provider.refilled()
        pids = [kernel.pid for kernel in spares]
        [key] = provider.spares
        provider.demand.forget(key)  # as if it were long ago
        provider.end_surplus(key)
        assert len(spares) == 1
        await eventually(lambda: sum(map(is_running, pids)) == 1)
        for kernel in (*kernels, *more):
            await kernel.aclose()
    finally:
        await provider.aclose()
    assert all(look.cancelled() for look in provider._looks.values())  # noqa: SLF001  # a timer is seen by nothing else


async def test_no_spare_is_made_while_kernels_were_started_a_moment_ago(tmp_path, monkeypatch):
    monkeypatch.setattr(fork_provider, "PAUSE_SECONDS", 3600.0)
    provider = ForkKernelProvider(spares=1)
    try:
        kernels = [await provider.start(spec(tmp_path), no_host) for _ in range(3)]
        assert [len(spares) for spares in provider.spares.values()] == [0]
        await asyncio.gather(*(kernel.aclose() for kernel in kernels))
    finally:
        await asyncio.wait_for(provider.aclose(), 60)


async def test_spares_are_made_even_if_kernels_are_asked_for_all_the_time(tmp_path, monkeypatch):
    monkeypatch.setattr(fork_provider, "MOST_SPARES", 100_000)
    provider = ForkKernelProvider(spares=1)
    try:
        kernel = await provider.start(spec(tmp_path), no_host)
        [(key, spares)] = provider.spares.items()
        for _ in range(100_000):  # a pause for each is longer than this test
            provider.demand.asked(key)
        assert not spares
        await eventually(lambda: spares)
        await kernel.aclose()
    finally:
        await provider.aclose()


async def test_kernels_in_use_one_after_the_other_are_no_demand_for_more_than_one(tmp_path, monkeypatch):
    monkeypatch.setattr(fork_provider, "PAUSE_SECONDS", 3600.0)  # all are one burst
    provider = ForkKernelProvider(spares=1)
    try:
        for _ in range(4):
            kernel = await provider.start(spec(tmp_path), no_host)
            await kernel.aclose()
        [key] = provider.spares
        assert provider.demand.at_once(key) == 1
    finally:
        await asyncio.wait_for(provider.aclose(), 60)


async def test_nothing_is_kept_of_requests_that_came_to_nothing_before_their_start(tmp_path, monkeypatch):
    async def refuse(_):
        raise KernelStartError("the sandbox is required")

    provider = ForkKernelProvider(spares=1)
    monkeypatch.setattr(provider._gaps, "check", refuse)  # noqa: SLF001  # whether it is refused depends on the machine
    try:
        for name in "abc":
            starts = (provider.start(spec(tmp_path / name), no_host) for _ in range(2))
            failed = await asyncio.gather(*starts, return_exceptions=True)
            assert [type(error) for error in failed] == [KernelStartError] * 2
        counts = vars(provider.demand)
        assert (counts["_most"], counts["_bursts"]) == ({}, {})
    finally:
        await provider.aclose()


async def test_that_a_spare_has_no_fork_server_is_one_line_in_the_log(tmp_path, monkeypatch, caplog):
    provider = ForkKernelProvider(spares=1)
    try:
        kernel = await provider.start(spec(tmp_path), no_host)
        await provider.refilled()
        [spares] = provider.spares.values()
        lost = [kernel, *spares]

        async def fail(*_, **__):
            raise KernelStartError("no private folder for a kernel")

        monkeypatch.setattr(provider, "_start_server", fail)
        [server] = [await starting for starting in provider.servers.values()]
        await server.aclose()
        await eventually(lambda: all(each.lost_reason for each in lost))
        with pytest.raises(KernelStartError):
            await provider.start(spec(tmp_path), no_host)
        await asyncio.wait(refills := tuple(provider._background))  # noqa: SLF001  # its failure is seen nowhere else
        assert not [task.exception() for task in refills if task.exception()]
        assert "no spare kernel: no private folder" in caplog.text
        await kernel.aclose()
    finally:
        await provider.aclose()


async def test_a_spare_answers_for_the_agent_it_is_given_to(tmp_path):
    async def host(method, params, clock):
        tools = {"version": "1", "tools": [{"name": "tool", "parameters_json_schema": {}}]}
        return tools if method == "mcp_tools" else f"{method} for two"

    provider = ForkKernelProvider(spares=1)
    try:
        first = await provider.start(spec(tmp_path, mcp_servers=("s",)), no_host)
        [spares] = provider.spares.values()
        await eventually(lambda: len(spares) == 1)
        second = await provider.start(spec(tmp_path, mcp_servers=("s",)), host)
        assert (await run_cell(second, "agent.mcp.s.tool()")).text == "'mcp_call for two'\n"
        await asyncio.gather(first.aclose(), second.aclose())
    finally:
        await provider.aclose()
