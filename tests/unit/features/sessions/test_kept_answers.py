"""An answer that may be given again after a crash: of children that have done nothing else. Kernels are fakes."""

import pytest
from pydantic_ai import FunctionToolset
from pydantic_ai.messages import ModelResponse, ToolCallPart
from support.agents import cell, task
from support.tables import each

from freeact_sub.calls import Action, CodeAction, FileWrite, McpCall, NetworkConnect, ShellCommand, SpawnCall, ToolCall
from freeact_sub.features.files import FilesPart
from freeact_sub.testing import first_prompt


def kept_for(store, agent):
    """The ids of the agents whose answers the session keeps."""
    with store.reader(agent.session_id) as reader:
        return {answer.agent_id for answer in reader.known_answers()}


@pytest.mark.parametrize("what", ["written", "removed", "read"])
async def test_the_answer_of_a_child_that_has_written_or_removed_files_is_not_kept(make, store, what):
    def script(messages, info):
        done = sum(isinstance(message, ModelResponse) for message in messages)
        return "done" if done else [cell("1 + 1")]

    async with make(script, config={"mode": "full"}, session="new") as agent:
        child = await agent.spawn("write")
        run = agent.debug.agents[child.agent_id].run
        getattr(next(run.features.all(FilesPart)).files, what)["out.txt"] = None  # as the kernel's hook reports it
        assert (await child.result()).status == "completed"
    assert kept_for(store, agent) == ({child.agent_id} if what == "read" else set())


def mail(sent):
    """A toolset of the user whose tool has an effect."""
    tools = FunctionToolset()

    @tools.tool_plain
    def send_mail() -> str:
        sent.append(1)
        return "sent"

    return [tools]


async def test_the_answer_of_a_child_that_has_used_a_tool_of_the_user_is_not_kept(make, store):
    sent = []

    def script(messages, info):
        done = sum(isinstance(message, ModelResponse) for message in messages)
        return "sent" if done else ToolCallPart("send_mail", {})

    async with make(script, config={"mode": "full"}, toolsets=mail(sent), session="new") as agent:
        assert (await agent.spawn_and_run("mail Bob")).output == "sent"
    assert sent == [1]
    assert kept_for(store, agent) == set()


async def test_what_a_child_below_has_done_counts_for_those_above(make, store):
    sent = []

    def script(messages, info):
        done = sum(isinstance(message, ModelResponse) for message in messages)
        if done or first_prompt(messages) == "think":
            return "done"
        return ToolCallPart("send_mail", {}) if first_prompt(messages) == "mail Bob" else task("mail Bob")

    config = {"subagents": {"max_depth": 2}, "mode": "full"}
    async with make(script, config=config, toolsets=mail(sent), session="new") as agent:
        await agent.spawn_and_run("have Bob mailed")
        thinker = await agent.spawn_and_run("think")
    assert sent == [1]
    assert kept_for(store, agent) == {thinker.agent_id}


@each(
    ("call", "outside"),
    [
        (McpCall(server="a", tool="read", read_only=True), False),
        (McpCall(server="a", tool="write"), True),
        (ShellCommand(command="make", outside=True), True),
        (ShellCommand(command="curl x"), True),
        (NetworkConnect(host="a", port=1), True),
        (FileWrite(path="/tmp/x"), True),
        (ToolCall(tool_name="send_mail"), True),
        (ToolCall(tool_name="ask", harmless=True), False),
        (CodeAction(code="1"), False),
        (SpawnCall(prompt="x"), False),
    ],
)
def test_what_acts_outside(call, outside):
    assert call.acts_outside is outside


def test_a_kind_of_call_that_does_not_say_so_acts_outside():
    class Sent(Action):
        form = summary = question = "a mail"

    assert Sent().acts_outside
