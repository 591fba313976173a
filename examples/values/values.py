"""Values in and out: a frame goes into the agent's kernel, and a frame comes back. `--model NAME` asks a real model.

It needs pandas in this Python. Nothing that the kernel has written is unpickled here: frames come back as data.
"""

import argparse
import asyncio
from dataclasses import dataclass

import pandas as pd
from pydantic_ai.messages import ModelMessage, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo

from freeact_sub import Agent, KernelValueError, load_config
from freeact_sub.testing import ScriptedModel, Turn

PROMPT = "Which readings of `readings` are more than `limit` away from the median of their station?"


@dataclass
class Summary:
    """What the program asks of the kernel itself."""

    stations: int
    highest: float


async def main(model: str | None) -> None:
    """Run one prompt on a frame of this program."""
    readings = pd.DataFrame({"station": [*"aabbb"], "temp": [20.5, 21.0, 19.0, 55.0, 18.5]})
    config = load_config(arguments={"mode": "full"})
    async with Agent(config, model=model or ScriptedModel(script)) as agent:
        run = agent.run(PROMPT, inputs={"readings": readings, "limit": 10}, output=pd.DataFrame)
        result = await run.result()
        if result.status != "completed":
            raise SystemExit(f"{result.status}: {result.error}")
        print(result.output.to_string(index=False))
        # the program's own code, in the same kernel
        await agent.put(summary_of="temp")
        code = "summary = {'stations': readings.station.nunique(), 'highest': readings[summary_of].max()}"
        print((await agent.execute(code)).status, await agent.get("summary", output=Summary))
        try:
            await agent.get("summary", output=list[int])
        except KernelValueError as error:
            print(error)


def script(messages: list[ModelMessage], info: AgentInfo) -> Turn:
    """Stands in for a model: one cell, then the answer, which names a variable of the kernel."""
    if any(isinstance(part, ToolReturnPart) for part in messages[-1].parts):
        return ToolCallPart(info.output_tools[0].name, {"variable": "far"})
    code = "middle = readings.groupby('station').temp.transform('median')\n"
    code += "far = readings[(readings.temp - middle).abs() > limit]"
    return ToolCallPart("execute_ipython_cell", {"code": code})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", metavar="NAME", help="a real model, such as anthropic:NAME (default: a script)")
    asyncio.run(main(parser.parse_args().model))
