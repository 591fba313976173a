"""Two skills: how a commit message is written, and functions for a report on a table, which the model imports in a cell.

They are the folders in `.agents/skills/`; `freeact-sub skills list` lists them. `--model NAME` asks a real model.
"""

import argparse
import asyncio
from pathlib import Path

from pydantic_ai.messages import ToolCallPart

from freeact_sub import Agent, ApprovalRequest, load_config
from freeact_sub.events import CodeExecutionOutput, SkillLoaded
from freeact_sub.testing import ScriptedModel

PROMPT = "What is in ../../data/ridge.csv, and can it be trusted?"

LOAD = 'agent.skill("table-report")'
REPORT = """
from skills import table_report
columns = table_report.read_columns("../../data/ridge.csv")
print(*table_report.doubts(columns)[:5], sep="\\n")
print(table_report.as_markdown(columns))
"""
ANSWER = "The logger on the ridge: temperature, rain and wind of each day. Days without a temperature should be left out."


async def main(model: str | None) -> None:
    """Run the prompt; say which skill is loaded, and what its functions find."""
    turns = [*(ToolCallPart("execute_ipython_cell", {"code": code.strip()}) for code in (LOAD, REPORT)), ANSWER]
    config = load_config(Path(__file__).parent)
    async with Agent(config, model=model or ScriptedModel(turns)) as agent, agent.run(PROMPT) as run:
        print("skills:", *agent.skills)
        async for event in run:
            match event:
                case ApprovalRequest():
                    event.approve()
                case SkillLoaded():
                    print(f"it loads {event.name}")
                case CodeExecutionOutput():
                    print(event.text.strip())
        result = await run.result()
    print(f"\n{result.output}")
    if result.status != "completed":
        raise SystemExit(f"{result.status}: {result.error}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", metavar="NAME", help="a real model, such as anthropic:NAME (default: a script)")
    asyncio.run(main(parser.parse_args().model))
