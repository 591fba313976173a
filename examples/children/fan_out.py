"""Code maps a question over files: one child each, with the file's frame in its kernel, and a value back from each.

The root writes one cell. It starts a child for every file and gathers their answers, which are objects of a class that the
cell defines; no number goes through the text of a prompt. `--model NAME` asks a real model.
"""

import argparse
import asyncio
from pathlib import Path

from pydantic_ai.messages import ModelMessage, ModelResponse, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo

from freeact_sub import Agent, load_config
from freeact_sub.events import AgentFinished, AgentStarted
from freeact_sub.testing import ScriptedApprover, ScriptedModel, Turn, first_prompt

PROMPT = "Which of the CSV files in data/ has the most rows without a temperature? Ask one child for each file, from code."

CELL = """
import asyncio, csv, dataclasses, pathlib

@dataclasses.dataclass
class Gaps:
    rows: int
    missing: int

async def gaps(path):
    rows = list(csv.DictReader(path.open()))
    r = await agent.task("Count the items of `rows`, and those whose `temp` is empty.",
                         description=path.stem, inputs={"rows": rows}, output=Gaps)
    return path.name, r.output

found = dict(await asyncio.gather(*map(gaps, sorted(pathlib.Path("data").glob("*.csv")))))
print(found)
print(max(found, key=lambda name: found[name].missing))
"""

CHILD_CELL = "print(len(rows), sum(not row['temp'].strip() for row in rows))"


async def main(model: str | None) -> None:
    """Run the prompt; approve everything; tell which children worked."""
    config = load_config(Path(__file__).parents[1])
    approver = ScriptedApprover()
    async with Agent(config, model=model or ScriptedModel(script)) as agent:
        result = await approver.drive(agent.run(PROMPT))
    names = {event.agent_id: event.description for event in approver.events if isinstance(event, AgentStarted)}
    ends = [event for event in approver.events if isinstance(event, AgentFinished)]
    for event in ends:
        if event.depth:
            print(f"{names[event.agent_id]}: {event.status}, {event.output}")
    print(result.output)
    if failed := [event.error for event in ends if event.status != "completed"]:
        raise SystemExit("\n".join(failed))


def script(messages: list[ModelMessage], info: AgentInfo) -> Turn:
    """Stands in for a model, for the root and for its children."""
    del info
    results = [part.content for part in messages[-1].parts if isinstance(part, ToolReturnPart)]
    is_root = first_prompt(messages) == PROMPT
    if not any(isinstance(message, ModelResponse) for message in messages):
        return ToolCallPart("execute_ipython_cell", {"code": (CELL if is_root else CHILD_CELL).strip()})
    if is_root:
        return f"It is {str(results[0]).splitlines()[-1]}."
    rows, missing = map(int, str(results[0]).split())
    return ToolCallPart("hand_over", {"rows": rows, "missing": missing})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", metavar="NAME", help="a real model, such as anthropic:NAME (default: a script)")
    asyncio.run(main(parser.parse_args().model))
