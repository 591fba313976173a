"""A conversation that is given, and one that outlives its kernel."""

import pytest
from pydantic_ai.messages import ModelMessagesTypeAdapter, ModelRequest, ModelResponse, ToolCallPart, UserPromptPart
from support.agents import read

from freeact_sub import ConfigError

NEW = "[Your kernel is new: the variables and imports of the conversation so far are gone.]"


class Seen:
    """A script that answers `done`; keeps what it was sent."""

    def __init__(self):
        self.sent = []

    def __call__(self, messages, info):
        self.sent.append(prompts(messages))
        return "done"


def prompts(messages):
    return [part.content for message in messages for part in message.parts if isinstance(part, UserPromptPart)]


async def test_a_stored_conversation_goes_on_and_the_model_is_told_once_of_its_kernel(make):
    async with make(["first answer"]) as agent:
        await read(agent.run("first"))
        stored = ModelMessagesTypeAdapter.dump_json(agent.history)
    seen = Seen()
    async with make(seen, history=ModelMessagesTypeAdapter.validate_json(stored)) as agent:
        assert prompts(agent.history) == ["first"]
        await read(agent.run("second"))
        await read(agent.run("third"))
    assert seen.sent == [["first", f"{NEW}\n\nsecond"], ["first", f"{NEW}\n\nsecond", "third"]]


async def test_an_agent_that_is_opened_again_is_told_too_and_one_without_a_conversation_is_not(make):
    agent = make(lambda messages, info: "answer")
    for _ in range(2):
        async with agent:
            await read(agent.run("go"))
    assert prompts(agent.history) == ["go", f"{NEW}\n\ngo"]


async def test_a_call_that_was_never_answered_does_no_harm(make):
    cut = [
        ModelRequest(parts=[UserPromptPart("go")]),
        ModelResponse(parts=[ToolCallPart("execute_ipython_cell", {"code": "1"}, tool_call_id="open")]),
    ]
    async with make(lambda messages, info: "answer", history=cut) as agent:
        _, result = await read(agent.run("on"))
    assert (result.status, result.output) == ("completed", "answer")


@pytest.mark.parametrize("history", ["text", [{"kind": "request"}], [1]])
def test_a_history_that_is_no_conversation_is_an_error_of_one_sentence(make, history):
    with pytest.raises(ConfigError, match="history"):
        make([], history=history)
