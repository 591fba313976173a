"""The SDK: read a run's events, answer its approval requests, take its result. `--model NAME` asks a real model."""

import argparse
import asyncio

from pydantic_ai.messages import ModelMessage, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo

from freeact_sub import Agent, ApprovalRequest, load_config
from freeact_sub.events import CodeExecutionOutput
from freeact_sub.testing import ScriptedModel, Turn

PROMPT = "Which day of the week was the first of January 2000? Compute it."


async def main(model: str | None) -> None:
    """Run one prompt."""
    async with Agent(load_config(), model=model or ScriptedModel(script)) as agent, agent.run(PROMPT) as run:
        async for event in run:
            if isinstance(event, ApprovalRequest):
                print(f"{event.agent_id} asks to {event.call.summary}")
                event.approve()  # or event.deny("why not")
            elif isinstance(event, CodeExecutionOutput):
                print(f"{event.agent_id} got: {event.text}")
        result = await run.result()
    print(f"{result.status}: {result.text} ({result.usage}, {result.seconds:.1f} s)")
    if result.status != "completed":
        raise SystemExit(result.error)


def script(messages: list[ModelMessage], info: AgentInfo) -> Turn:
    """Stands in for a model: one cell, then an answer made from what the cell printed."""
    del info
    for part in messages[-1].parts:
        if isinstance(part, ToolReturnPart):
            return f"It was a {part.content}."
    code = "import datetime\nprint(datetime.date(2000, 1, 1).strftime('%A'))"
    return ToolCallPart("execute_ipython_cell", {"code": code})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", metavar="NAME", help="a real model, such as anthropic:NAME (default: a script)")
    asyncio.run(main(parser.parse_args().model))
