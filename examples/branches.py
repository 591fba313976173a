"""Three branches of one loaded dataset: each child's kernel starts as a copy of its parent's, and changes its copy only.

The root loads a table once. Then it starts three children from code, with `branch=True`: they find the table in their
kernels without a copy being made, each fills its gaps in another way, and the values come back. `--model NAME` asks a real
model.
"""

import argparse
import asyncio
from pathlib import Path

from pydantic_ai.messages import ModelMessage, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo

from freeact_sub import Agent, load_config
from freeact_sub.events import AgentFinished, AgentStarted, CodeExecutionOutput
from freeact_sub.testing import ScriptedApprover, ScriptedModel, Turn, first_prompt

PROMPT = "How much does the mean temperature of 100 stations depend on how gaps are filled? Try three ways in branches."

LOAD = """
import random
random.seed(7)
table = [[random.gauss(9, 6) if random.random() > 0.2 else None for day in range(365)] for station in range(100)]
print(len(table), "stations,", sum(value is None for row in table for value in row), "gaps")
"""

BRANCH = """
import asyncio
WAYS = ("leave gaps out", "fill gaps with zero", "fill gaps with the day before")
answers = await asyncio.gather(*(agent.task(f"{way}; then the mean of `table`", description=way, output=float, branch=True)
                                 for way in WAYS))
for way, answer in zip(WAYS, answers):
    print(f"{way}: {answer.output:.2f}")
print("gaps here:", sum(value is None for row in table for value in row))
"""

FILL = {
    "leave gaps out": "table = [[value for value in row if value is not None] for row in table]",
    "fill gaps with zero": "table = [[value or 0.0 for value in row] for row in table]",
    "fill gaps with the day before": """
for row in table:
    for day, value in enumerate(row):
        if value is None:
            row[day] = row[day - 1] if day else 9.0
""",
}
MEAN = "\nvalues = [value for row in table for value in row]\nprint(sum(values) / len(values))"


async def main(model: str | None) -> None:
    """Run the prompt; approve everything; show what the cells of all agents print."""
    config = load_config(Path(__file__).parent)
    approver = ScriptedApprover()
    async with Agent(config, model=model or ScriptedModel(script)) as agent:
        result = await approver.drive(agent.run(PROMPT))
    names = {event.agent_id: event.description or "root" for event in approver.events if isinstance(event, AgentStarted)}
    for event in approver.events:
        if isinstance(event, CodeExecutionOutput):
            print(f"{names[event.agent_id]}:\n  " + event.text.replace("\n", "\n  "))
        elif isinstance(event, AgentFinished) and event.depth:
            print(f"{names[event.agent_id]}: {event.status}")
    print(result.output)


def script(messages: list[ModelMessage], info: AgentInfo) -> Turn:
    """Stands in for a model, for the root and for its children."""
    del info
    results = [part.content for message in messages for part in message.parts if isinstance(part, ToolReturnPart)]
    prompt = first_prompt(messages)
    if prompt == PROMPT:
        cells = (LOAD, BRANCH)
        if len(results) < len(cells):
            return ToolCallPart("execute_ipython_cell", {"code": cells[len(results)].strip()})
        return "Zeros pull the mean down; the other two ways agree."
    if not results:
        return ToolCallPart("execute_ipython_cell", {"code": (FILL[prompt.partition(";")[0]] + MEAN).strip()})
    return ToolCallPart("hand_over", {"value": float(str(results[0]))})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", metavar="NAME", help="a real model, such as anthropic:NAME (default: a script)")
    asyncio.run(main(parser.parse_args().model))
