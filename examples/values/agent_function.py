"""A typed function whose body is an agent: called like any other, it starts a child that finds the answer by running code.

The child reads the signature and the docstring, and finds the arguments as variables in its kernel. What it answers is
validated as the type that the function returns. `--model NAME` asks a real model.
"""

import argparse
import asyncio
import csv
import tempfile
from dataclasses import dataclass
from pathlib import Path

from pydantic_ai.messages import ModelMessage, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo

from freeact_sub import Agent, load_config
from freeact_sub.strategies import agent_function, parallel
from freeact_sub.testing import ScriptedModel, Turn

FOLDER = Path(__file__).parents[1]


@dataclass
class Gaps:
    """What is missing in a column."""

    missing: int
    longest: int
    """Of what is missing in a row."""


async def main(workspace: Path, model: str | None) -> None:
    """Call the function for three files, side by side, as one calls any function."""
    # nobody is asked here: in mode `auto` cells run unasked, behind a wall
    config = load_config(workspace, arguments={"mode": "auto"})
    async with Agent(config, model=model or ScriptedModel(script)) as agent:

        @agent_function(agent, budget={"turns": 5})
        async def find_gaps(values: list[str], marks: list[str]) -> Gaps:
            """Count the values that are missing (empty, or one of the marks), and the longest row of them."""
            raise NotImplementedError  # an agent is the body

        async def gaps_of(station: str) -> Gaps:
            with (FOLDER / f"data/{station}.csv").open(encoding="utf-8") as file:
                temperatures = [row["temp"] for row in csv.DictReader(file)]
            return await find_gaps(temperatures, marks=["-999", "-999.0"])

        stations = ("harbour", "ridge", "valley")
        found = await parallel([lambda station=station: gaps_of(station) for station in stations])
        for station, gaps in zip(stations, found, strict=True):
            if isinstance(gaps, Exception):
                raise SystemExit(f"{station}: {gaps}")
            print(f"{station}: {gaps}")


def script(messages: list[ModelMessage], info: AgentInfo) -> Turn:
    """Stands in for a model: one cell, and its output handed over."""
    results = [str(part.content) for message in messages for part in message.parts if isinstance(part, ToolReturnPart)]
    if not results:
        return ToolCallPart("execute_ipython_cell", {"code": CODE.strip()})
    missing, longest = map(int, results[0].split())
    return ToolCallPart(info.output_tools[0].name, {"missing": missing, "longest": longest})


CODE = """
from itertools import groupby
gone = [not value.strip() or value.strip() in marks for value in values]
print(sum(gone), max((len([*run]) for is_gone, run in groupby(gone) if is_gone), default=0))
"""

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", metavar="NAME", help="a real model, such as anthropic:NAME (default: a script)")
    with tempfile.TemporaryDirectory() as workspace:
        asyncio.run(main(Path(workspace), parser.parse_args().model))
