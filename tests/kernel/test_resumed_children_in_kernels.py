"""A child that has ended is resumed from code in a cell: its kernel is its own again, or a new one has its variables."""

import pytest
from pydantic_ai.messages import UserPromptPart
from support.agents import cell, hand_over, of_kind, read, root_text

from freeact_sub import Agent, Config
from freeact_sub.events import AgentStarted, CodeExecutionOutput
from freeact_sub.testing import ScriptedModel, first_prompt

pytestmark = pytest.mark.kernel

ROOT = """
from dataclasses import dataclass

for keep in (True, False):
    r = await agent.task(f"review, keep={keep}", keep=keep)
    again = await agent.task("and now?", resume=r.agent_id, inputs={"more": [2]}, output=int)
    print(again.output, again.agent_id == r.agent_id, again.node is not None)
try:
    await agent.task("x", resume="agent-0")
except ValueError as error:
    print(error)
"""
FIRST = """
import threading
notes = [1]
shared = {"notes": notes}
lock = threading.Lock()
def count(): return len(notes)
"""
THEN = "notes += more\nprint(count(), shared['notes'] is notes, 'lock' in globals())"


def script(messages, info):
    done = sum(message.kind == "response" for message in messages)
    if first_prompt(messages) == "root":
        return [cell(ROOT), "done"][done]
    prompts = [part for message in messages for part in message.parts if isinstance(part, UserPromptPart)]
    if isinstance(messages[-1].parts[-1], UserPromptPart):
        return cell(FIRST if len(prompts) == 1 else THEN)
    return "reviewed" if len(prompts) == 1 else hand_over(len(prompts))


async def test_a_child_is_resumed(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    config = Config(workspace=workspace, mode="auto")
    async with Agent(config, model=ScriptedModel(script), session="new") as agent:
        events, result = await read(agent.run("root"))
    assert result.status == "completed"
    assert root_text(events).splitlines() == [
        "2 True True",
        "2 True False",
        "'agent-0' is not a child of yours, nor of one of your children",
    ]
    shown = [event.text for event in of_kind(events, CodeExecutionOutput) if event.depth and event.text]
    assert shown == ["2 True True", "2 True False"]  # a lock is not kept in files
    assert len({event.agent_id for event in of_kind(events, AgentStarted)}) == 3
