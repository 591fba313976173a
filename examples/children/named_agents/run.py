"""Named types of agents: a checker that can only read, and an editor without tools that answers with a value.

The types are the files in `.agents/agents/`; `freeact-sub agents` lists them. `--model NAME` asks a real model.
"""

import argparse
import asyncio
from pathlib import Path

from pydantic_ai.messages import ModelMessage, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo

from freeact_sub import Agent, ApprovalRequest, load_config
from freeact_sub.events import AgentFinished, AgentStarted
from freeact_sub.testing import ScriptedModel, Turn, first_prompt

PROMPT = "Have draft.md checked against rain.csv, then let the editor decide. Use a child for each."

CHECK = """
import csv
text = open("draft.md").read()
rain = {row["day"]: int(row["mm"]) for row in csv.DictReader(open("rain.csv"))}
print(text.strip())
wet = [day for day, mm in rain.items() if mm > 0]
print(len(wet), "of", len(rain), "days,", sum(rain.values()), "mm, most on", max(rain, key=rain.get))
"""


async def main(model: str | None) -> None:
    """Run the prompt; say who does what."""
    config = load_config(Path(__file__).parent)
    async with Agent(config, model=model or ScriptedModel(script)) as agent, agent.run(PROMPT) as run:
        async for event in run:
            match event:
                case ApprovalRequest():
                    print(f"{event.path[-1]} asks to {event.call.summary}")
                    event.approve()
                case AgentStarted(depth=1):
                    print(f"{event.description} starts")
                case AgentFinished(depth=1):
                    print(f"it answers: {event.output}")
        result = await run.result()
    print(f"\n{result.output}")
    if result.status != "completed":
        raise SystemExit(f"{result.status}: {result.error}")


def script(messages: list[ModelMessage], info: AgentInfo) -> Turn:
    """Stands in for a model: for the root and for its children, told apart by what they are offered."""
    results = [str(part.content) for message in messages for part in message.parts if isinstance(part, ToolReturnPart)]
    if info.output_tools:
        found = first_prompt(messages)
        changes = ["Write 28 mm instead of 31 mm."] if "28 mm" in found and "31 mm" in found else []
        return ToolCallPart(info.output_tools[0].name, {"verdict": "mend" if changes else "publish", "changes": changes})
    if first_prompt(messages) != PROMPT:
        if not results:
            return ToolCallPart("execute_ipython_cell", {"code": CHECK.strip()})
        return f"The text, and then what the data say:\n{results[0]}"
    if not results:
        return _task("checker", "Hold draft.md against rain.csv.")
    if len(results) == 1:
        return _task("editor", f"Judge this.\n{_answer(results[0])}")
    return f"The editor says: {_answer(results[1])}"


def _answer(report: str) -> str:
    """A child's answer, which stands below lines in brackets about its run."""
    return "\n".join(line for line in report.splitlines() if not line.startswith("["))


def _task(agent: str, prompt: str) -> ToolCallPart:
    return ToolCallPart("task", {"agent": agent, "prompt": prompt, "description": f"the {agent}"})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", metavar="NAME", help="a real model, such as anthropic:NAME (default: a script)")
    asyncio.run(main(parser.parse_args().model))
