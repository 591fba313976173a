"""A model chooses for its children: a smaller model, what they read, what they may call. `--model NAME` asks a real model.

One child counts, with the model `small` and a single tool. One works on a copy of the files, so that nobody else sees what
it writes. One continues the conversation of its parent.
"""

import argparse
import asyncio
from pathlib import Path
from typing import Any

from pydantic_ai.messages import ModelMessage, ToolCallPart, ToolReturnPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo

from freeact_sub import Agent, ApprovalRequest, load_config
from freeact_sub.events import AgentFinished, AgentStarted
from freeact_sub.testing import ScriptedModel, Turn

PROMPT = "How many days of data/ridge.csv have a temperature? Let children count, tidy a copy and say it in words."

READ = """
import csv
days = list(csv.DictReader(open("data/ridge.csv")))
print(len(days), "days")
"""
COUNT = 'print(sum(day["temp"].strip() == "" for day in days), "without a temperature")'
TIDY = """
kept = [day for day in days if day["temp"].strip()]
with open("data/ridge.csv", "w") as file:
    writer = csv.DictWriter(file, days[0])
    writer.writeheader()
    writer.writerows(kept)
print(sum(1 for _ in open("data/ridge.csv")) - 1, "left in the copy")
"""
CHILDREN: tuple[dict[str, Any], ...] = (
    {"prompt": "Count.", "branch": True, "model": "small", "thinking": "off", "tools": ["execute_ipython_cell"]},
    {"prompt": "Tidy.", "branch": True, "own_files": True, "model": "small"},
    {"prompt": "Say it in words.", "history": "all"},
)


async def main(model: str | None) -> None:
    """Run the prompt, and tell what each child works with and answers."""
    small = model or ScriptedModel(script, name="small")
    config = load_config(Path(__file__).parents[1], arguments={"models": {"small": small}})
    names: dict[str, str] = {}
    async with Agent(config, model=model or ScriptedModel(script, name="large")) as agent, agent.run(PROMPT) as run:
        async for event in run:
            match event:
                case ApprovalRequest():
                    event.approve()
                case AgentStarted() if event.depth:
                    names[event.agent_id] = f"{event.description or 'a child'} ({event.model})"
                case AgentFinished() if event.depth:
                    print(f"{names[event.agent_id]}: {event.output or event.error}")
        result = await run.result()
    print(f"{result.status}: {result.text}")
    print("lines of data/ridge.csv:", (config.workspace / "data/ridge.csv").read_text(encoding="utf-8").count("\n"))
    if result.status != "completed":
        raise SystemExit(result.error)


def script(messages: list[ModelMessage], info: AgentInfo) -> Turn:
    """Stands in for both models: for the root and for its children, told apart by the newest prompt."""
    prompts = [part.content for message in messages for part in message.parts if isinstance(part, UserPromptPart)]
    results = [str(part.content) for part in messages[-1].parts if isinstance(part, ToolReturnPart)]
    tools = ", ".join(tool.name for tool in info.function_tools)
    match str(prompts[-1]).split(".")[0]:
        case "Count":
            return f"{results[0]}; my tools: {tools}" if results else cell(COUNT)
        case "Tidy":
            return results[0] if results else cell(TIDY)
        case "Say it in words":
            said = next(part.content for message in messages for part in message.parts if isinstance(part, ToolReturnPart))
            return f"My parent has read {said}."
        case _ if not results:
            return cell(READ)
        case _ if len(results) == 1:
            return [ToolCallPart("task", {**child, "description": child["prompt"].rstrip(".")}) for child in CHILDREN]
    return "; ".join(result.rpartition("\n")[2] for result in results)


def cell(code: str) -> ToolCallPart:
    """A call that runs code."""
    return ToolCallPart("execute_ipython_cell", {"code": code.strip()})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", metavar="NAME", help="a real model, such as anthropic:NAME (default: a script)")
    asyncio.run(main(parser.parse_args().model))
