"""A prompt with half a character, as of a file name or a text that was cut, reaches the model with it written out."""

import pytest
from support.agents import read
from support.chat_server import ChatServer
from support.tables import each

from freeact_sub import Agent, Config
from freeact_sub.testing import FakeKernelProvider

pytestmark = pytest.mark.usefixtures("allow_model_requests")


@each(
    ("prompt", "sent"),
    [
        ("half \ud83d", "half \\ud83d"),
        ("caf\udce9.txt", "caf\\udce9.txt"),
        ("\udfff\ud83d x", "\\udfff\\ud83d x"),
        ("whole 😀", "whole 😀"),
    ],
)
async def test_a_prompt_is_read(tmp_path, monkeypatch, prompt, sent):
    monkeypatch.setenv("OPENAI_API_KEY", "x")
    async with ChatServer(lambda _: ["It is done."]) as server:
        config = Config(workspace=tmp_path, model="openai-chat:m", base_url=server.base_url, code_actions="tool")
        async with Agent(config, kernel_provider=FakeKernelProvider()) as agent:
            _, result = await read(agent.run(prompt))
        assert (result.status, result.output) == ("completed", "It is done.")
        assert server.requests[0]["messages"][-1]["content"] == sent
