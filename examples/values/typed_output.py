"""An answer that is a value: `output_type` is a pydantic model. `--model NAME` asks a real model.

An answer that does not fit the type goes back to the model with what is wrong with it.
"""

import argparse
import asyncio
import re
from pathlib import Path

from pydantic import BaseModel
from pydantic_ai.messages import ModelMessage, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo

from freeact_sub import Agent, load_config
from freeact_sub.testing import ScriptedModel, Turn

FILE = Path(__file__).resolve().parents[1] / "data" / "harbour.csv"
PROMPT = f"How many rows and which columns has {FILE}?"


class Table(BaseModel):
    """What a file holds."""

    rows: int
    columns: list[str]


async def main(model: str | None) -> None:
    """Run one prompt; everything is allowed, so nobody needs to read the events."""
    config = load_config(arguments={"mode": "full"})
    async with Agent(config, model=model or ScriptedModel(script), output_type=Table) as agent:
        result = await agent.run(PROMPT).result()
    if result.status != "completed":
        raise SystemExit(f"{result.status}: {result.error}")
    table: Table = result.output
    print(f"{FILE.name}: {table.rows} rows, {len(table.columns)} columns: {', '.join(table.columns)}")


def script(messages: list[ModelMessage], info: AgentInfo) -> Turn:
    """Stands in for a model: one cell, then the answer, which is a call of the output tool that pydantic-ai offers."""
    for part in messages[-1].parts:
        if isinstance(part, ToolReturnPart):
            rows, columns = re.findall(r"(\d+) rows of (\S+)", str(part.content))[0]
            return ToolCallPart(info.output_tools[0].name, {"rows": int(rows), "columns": columns.split(",")})
    code = f"header, *rows = open({str(FILE)!r}).read().splitlines()\nprint(len(rows), 'rows of', header)"
    return ToolCallPart("execute_ipython_cell", {"code": code})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", metavar="NAME", help="a real model, such as anthropic:NAME (default: a script)")
    asyncio.run(main(parser.parse_args().model))
