"""Plan and execute: a planner divides a task into steps, child agents do them, and what fails is planned again.

The first plan names a file that is not there. The planner reads what was found and what failed, and plans the rest anew;
what was done already is not done again. `--model NAME` asks a real model.
"""

import argparse
import asyncio
import logging
import re
import shutil
import tempfile
from pathlib import Path

from pydantic_ai.messages import ModelMessage, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo

from freeact_sub import Agent, load_config
from freeact_sub.strategies import PlanResult, plan_and_execute
from freeact_sub.testing import ScriptedModel, Turn, first_prompt

TASK = "Which station in data/ has more rows, the harbour or the ridge?"


async def main(workspace: Path, model: str | None) -> None:
    """Do the task; show each step with what came of it."""
    logging.getLogger("freeact_sub").setLevel(logging.ERROR)  # the failed step is shown below, without its traceback
    # nobody is asked here: in mode `auto` cells run unasked, behind a wall
    config = load_config(workspace, arguments={"mode": "auto"})
    async with Agent(config, model=model or ScriptedModel(script)) as agent:
        result = await agent.run_program(lambda: plan_and_execute(agent, TASK)).result()
    if result.status != "completed":
        raise SystemExit(f"{result.status}: {result.error}")
    found: PlanResult = result.output
    for step in found.steps:
        print(f"- {step.step.task}\n  {step.error or step.output}")
    print(f"{found.plans} plans, {result.tree_usage.turns} model requests: {found.answer}")


def script(messages: list[ModelMessage], info: AgentInfo) -> Turn:
    """Stands in for a model: for the planner, who hands over plans, and for the children, who run cells."""
    texts = [str(part.content) for message in messages for part in message.parts if hasattr(part, "content")]
    if first_prompt(messages).startswith("Make a plan"):
        return ToolCallPart(info.output_tools[0].name, planned(texts[-1]))
    results = [str(part.content) for message in messages for part in message.parts if isinstance(part, ToolReturnPart)]
    prompt = first_prompt(messages)
    if prompt.startswith("Compare"):
        rows = {station: int(count) for station, count in re.findall(r"^  (\w+): (\d+) rows$", prompt, re.MULTILINE)}
        return max(rows, key=lambda station: rows[station])
    name = prompt.partition("data/")[2].partition(".csv")[0]
    if not results:
        return ToolCallPart("execute_ipython_cell", {"code": f"print(sum(1 for _ in open('data/{name}.csv')) - 1)"})
    if "FileNotFoundError" in results[0]:
        return ValueError(f"data/{name}.csv is not there")  # so that this child fails
    return f"{name}: {results[0].strip()} rows"


def planned(prompt: str) -> dict[str, object]:
    """What the planner hands over: a plan; a new one where a step has failed; else the answer."""
    compare = {"task": "Compare the two.", "depends_on": [0]}
    if prompt.startswith("Make a plan"):
        steps = [{"task": f"Count the rows of data/{name}.csv."} for name in ("ridge", "harbor")]
        return {"value": [*steps, {**compare, "depends_on": [0, 1]}]}
    last = prompt.rpartition("Compare the two.\n  ")[2].split("\n")[0]
    if last.startswith("failed"):
        return {"answer": "", "steps": [{"task": "Count the rows of data/harbour.csv."}, compare]}
    return {"answer": last, "steps": []}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", metavar="NAME", help="a real model, such as anthropic:NAME (default: a script)")
    with tempfile.TemporaryDirectory() as workspace:
        shutil.copytree(Path(__file__).parents[1] / "data", Path(workspace) / "data")
        asyncio.run(main(Path(workspace), parser.parse_args().model))
