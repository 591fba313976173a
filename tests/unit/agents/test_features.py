"""Features: the core runs without one, a user's own takes part, and one that fails harms nobody."""

import subprocess
import sys

import pytest
from pydantic_ai.messages import ToolCallPart

from freeact_sub.agents.feature import Feature, RunPart
from freeact_sub.channel import hearing
from freeact_sub.errors import FreeactError
from freeact_sub.events import AgentFinished
from freeact_sub.features import default_features

BARE = """
import asyncio, sys
from pathlib import Path
from pydantic_ai.messages import ToolCallPart
from freeact_sub import Agent, ApprovalRequest, Config
from freeact_sub.testing import FakeKernelProvider, ScriptedModel

def script(messages, info):
    child = "child" in str(messages[0].parts[-1].content)
    cell = ToolCallPart("execute_ipython_cell", {"code": "print(6 * 7)"})
    task = ToolCallPart("task", {"prompt": "child", "description": "a child"})
    return ([cell, "done"] if child else [cell, task, "done"])[len(messages) // 2]

async def main():
    asked = 0
    config = Config(workspace=Path(sys.argv[1]))
    async with Agent(config, model=ScriptedModel(script), kernel_provider=FakeKernelProvider(), features=()) as agent:
        async with agent.run("root") as run:
            async for event in run:
                if isinstance(event, ApprovalRequest):
                    asked += event.approve() or 1
            result = await run.result()
    assert (result.status, asked, result.receipts) == ("completed", 3, None), (result, asked)
    print(*[name for name in sys.modules if name.startswith("freeact_sub.features.")])

asyncio.run(main())
"""


def test_an_agent_without_features_imports_none(tmp_path):
    ended = subprocess.run([sys.executable, "-c", BARE, tmp_path], capture_output=True, text=True, check=False)
    assert (ended.stdout.strip(), ended.stderr) == ("", "")


class Audit(Feature):
    """A user's feature: tells of each call around it, denies one, and has its say on the answer."""

    def __init__(self):
        self.told = []

    def attach(self, root):
        super().attach(root)
        return [hearing(lambda event: self.told.append(f"finished {event.status}"), AgentFinished)]

    def run(self, agent):
        return AuditOfRun(self.told)


class AuditOfRun(RunPart):
    def __init__(self, told):
        self._told = told

    async def opening(self, prompt):
        self._told.append(f"opening {prompt}")
        return "Be brief."

    async def call(self, call, proceed):
        self._told.append(f"begins {call.name}")
        ended = await proceed()
        self._told.append(f"ended {ended.outcome}")
        return ended.noted("[it was audited]")

    async def answer(self, text):
        self._told.append(f"answer {text}")
        return "" if self._told.count(f"answer {text}") > 1 else "Are you sure?"

    def ended(self, result):
        self._told.append(f"ended {result.status}")


async def test_a_users_feature_takes_part(make):
    audit, read = Audit(), []

    def script(messages, info):
        read.append(str(messages[-1].parts))
        return [ToolCallPart("execute_ipython_cell", {"code": "print(1)"}), "done", "done"][len(messages) // 2]

    async with make(script, config={"mode": "full"}, features=[*default_features(), audit]) as agent:
        assert (await agent.run("root").result()).output == "done"
    assert audit.told == [
        "opening root",
        "begins execute_ipython_cell",
        "ended success",
        "answer done",
        "answer done",
        "ended completed",
        "finished completed",
    ]
    assert ["Be brief." in read[0], "[it was audited]" in read[1], "Are you sure?" in read[2]] == [True] * 3


class Broken(Feature):
    def run(self, agent):
        return BrokenPart()


class BrokenPart(RunPart):
    async def closing(self, ending, kernel):
        raise ValueError("closing")

    def facts(self, ending):
        raise ValueError("facts")

    def ended(self, result):
        raise ValueError("ended")


async def test_a_feature_that_fails_at_the_end_costs_no_answer(make):
    async with make(["done"], features=[Broken(), *default_features()]) as agent:
        result = await agent.run("root").result()
    assert (result.status, result.output, result.receipts.nothing_was_run) == ("completed", "done", True)


async def test_a_method_of_a_missing_feature_names_it(make):
    async with make(["done"], features=()) as agent:
        with pytest.raises(FreeactError, match="this agent has no undo"):
            await agent.undo()
