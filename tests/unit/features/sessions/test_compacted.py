"""A conversation that was shortened is gone on with as it is; the events of what it leaves are still there."""

import pytest
from pydantic_ai.messages import CompactionPart, ModelMessagesTypeAdapter
from support.agents import cell, of_kind, read
from support.windows import WindowedModel, is_summary_request

from freeact_sub import Agent, Config
from freeact_sub.events import Compacted
from freeact_sub.testing import FakeKernelProvider

WORDS = "one two six ten "


@pytest.mark.features("compaction")
async def test_a_shortened_conversation_is_stored_and_gone_on_with(tmp_path, store):
    def script(messages, info):
        if is_summary_request(messages):
            return "all in short"
        ran = messages[-1].parts[0].part_kind == "tool-return"
        return WORDS * 100 if ran else [cell(f"print({WORDS!r} * 150)")]

    config = Config(workspace=tmp_path, mode="full", context={"window_tokens": 8_000})

    def agent_of(session):
        model = WindowedModel(script, window_tokens=8_000)
        return Agent(config, model=model, kernel_provider=FakeKernelProvider(), session=session)

    async with agent_of("new") as agent:
        events = [event for number in range(8) for event in (await read(agent.run(f"prompt {number}")))[0]]
        await agent.compact()
        history, session_id = agent.history, agent.session_id
    assert any(event.summary for event in of_kind(events, Compacted))
    with store.reader(session_id) as reader:
        stored = reader.messages(agent.agent_id)
        assert ModelMessagesTypeAdapter.dump_python(stored) == ModelMessagesTypeAdapter.dump_python(history)
        assert len(of_kind(list(reader.events()), Compacted)) == len(of_kind(events, Compacted)) + 1
        assert len(reader.cells(agent.agent_id)) == 8
    async with agent_of(session_id) as agent:
        assert any(isinstance(part, CompactionPart) for part in agent.history[0].parts)
        assert (await read(agent.run("on")))[1].status == "completed"
