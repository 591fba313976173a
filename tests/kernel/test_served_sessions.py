"""The sessions of an MCP server: which are open, and that a closed one comes back with its variables."""

import pytest
from support.waiting import eventually

from freeact_sub import Config, InvalidRequestError
from freeact_sub.mcp_server import served as served_module
from freeact_sub.mcp_server.served import ServedAgents

pytestmark = pytest.mark.kernel


async def test_idle_sessions_are_closed_and_come_back_when_they_are_named(tmp_path, monkeypatch):
    monkeypatch.setattr(served_module, "MAX_OPEN", 2)
    config = Config(workspace=tmp_path, mode="auto")
    async with ServedAgents(config) as served:
        first = await served.session()
        async with first.working() as live:
            await first.agent.execute("x = 42")
            assert not first.is_idle
        await live.ended()
        second = await served.session()
        third = await served.session()
        assert [*served] == [second, third], "the one that was not used for longest is closed"
        assert not first.agent.is_open
        again = await served.session(first.session_id)
        assert (await again.agent.execute("x")).text == "42"
        with pytest.raises(InvalidRequestError, match="no session or branch"):
            await served.session(again.session_id[:-1])
    assert not again.agent.is_open
    async with ServedAgents(config, idle_seconds=0.2) as served:
        kept = await served.session(first.session_id)
        async with kept.in_use():
            other = await served.session()
            await eventually(lambda: [*served] == [kept] and not other.agent.is_open)
            assert (await kept.agent.execute("x")).text == "42"
        await eventually(lambda: not [*served])
