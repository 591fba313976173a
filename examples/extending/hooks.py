"""Hooks of a program: functions that are called before a call and after it. `--model NAME` asks a real model.

One denies a command that code in a cell is about to start, and one tells the model something after each cell.
"""

import argparse
import asyncio
from typing import Any

from pydantic_ai.messages import ModelMessage, ToolCallPart
from pydantic_ai.models.function import AgentInfo

from freeact_sub import Agent, ApprovalDeniedError, Hook, load_config
from freeact_sub.testing import ScriptedModel, Turn

PROMPT = "Push the branch, then add 20 and 22."
CODE = """\
import subprocess
try:
    subprocess.run(["git", "push"])
except PermissionError as error:
    print(error)
print(20 + 22)"""


def no_pushes(call: dict[str, Any]) -> None:
    """Before a command, whoever starts it."""
    if "git push" in call["tool_input"]["command"]:
        print(f"denied: {call['tool_input']['command']}")
        raise ApprovalDeniedError("pushes are mine")


def after_cell(call: dict[str, Any]) -> dict[str, Any]:
    """After a cell."""
    print(f"a cell has ended: {call['tool_response']['outcome']}")
    return {"hookSpecificOutput": {"hookEventName": "PostToolUse", "additionalContext": "Say what was denied."}}


HOOKS = (
    Hook("PreToolUse", no_pushes, "Bash"),
    Hook("PostToolUse", after_cell, "execute_ipython_cell"),
)


async def main(model: str | None) -> None:
    """Run one prompt; in mode `full`, so that only the hooks stand in the way."""
    config = load_config(arguments={"mode": "full"})
    async with Agent(config, model=model or ScriptedModel(script), hooks=HOOKS) as agent:
        result = await agent.run(PROMPT).result()
    print(result.output)
    if result.status != "completed":
        raise SystemExit(f"{result.status}: {result.error}")


def script(messages: list[ModelMessage], info: AgentInfo) -> Turn:
    """What the scripted model does."""
    del info
    turns: list[Turn] = [ToolCallPart("execute_ipython_cell", {"code": CODE}), "The push was denied; the sum is 42."]
    return turns[sum(message.kind == "response" for message in messages)]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", metavar="NAME", help="a real model, such as anthropic:NAME (default: a script)")
    asyncio.run(main(parser.parse_args().model))
