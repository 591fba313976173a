"""A plan whose parts depend on each other: three stations are measured side by side, then one child compares them.

The model calls `delegate` once. What the first three children find is put into the prompt of the fourth. The events are
read with callbacks. `--model NAME` asks a real model.
"""

import argparse
import asyncio
import re
from pathlib import Path

from pydantic_ai.messages import ModelMessage, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo

from freeact_sub import Agent, Callbacks, dispatch, load_config
from freeact_sub.events import AgentFinished, AgentStarted
from freeact_sub.testing import ScriptedModel, Turn, first_prompt

STATIONS = ("harbour", "ridge", "valley")
PROMPT = "Which station in data/ has the most rows: harbour, ridge or valley? One child for each, and one that compares."


async def main(model: str | None) -> None:
    """Run the prompt; say who begins and ends, and print the report of the plan."""
    names: dict[str, str] = {}

    def on_start(event: AgentStarted) -> None:
        names[event.agent_id] = event.description or "root"
        print(f"begins: {names[event.agent_id]}")

    failed: list[str] = []

    def on_end(event: AgentFinished) -> None:
        print(f"{event.status}: {names[event.agent_id]}")
        if event.status != "completed":
            failed.append(f"{names[event.agent_id]}: {event.error}")

    callbacks = Callbacks(
        on_start=on_start, on_finish=on_end, on_error=on_end, on_approval=lambda request: request.approve()
    )
    config = load_config(Path(__file__).parents[1])
    async with Agent(config, model=model or ScriptedModel(script)) as agent, agent.run(PROMPT) as run:
        await dispatch(run, callbacks)
        print(f"\n{(await run.result()).output}")
    if failed:
        raise SystemExit("\n".join(failed))


def script(messages: list[ModelMessage], info: AgentInfo) -> Turn:
    """Stands in for a model: for the root and for its children, told apart by their prompts."""
    del info
    prompt = first_prompt(messages)
    results = [str(part.content) for message in messages for part in message.parts if isinstance(part, ToolReturnPart)]
    if prompt == PROMPT:
        if results:
            return results[0]
        measured = [{"task": f"Count the rows of data/{station}.csv."} for station in STATIONS]
        compared = {"task": "Which station has the most rows?", "depends_on": [0, 1, 2]}
        arguments = {"plan": "Count each station, then compare.", "subtasks": [*measured, compared]}
        return ToolCallPart("delegate", arguments)
    if prompt.startswith("Count the rows of "):
        station = prompt.partition("data/")[2].partition(".csv")[0]
        if results:
            return f"{station}: {results[0].strip()} rows"
        return ToolCallPart("execute_ipython_cell", {"code": f"print(sum(1 for _ in open('data/{station}.csv')) - 1)"})
    rows = {station: int(count) for station, count in re.findall(r"^(\w+): (\d+) rows$", prompt, re.MULTILINE)}
    return f"{max(rows, key=lambda station: rows[station])} has the most: {rows}"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", metavar="NAME", help="a real model, such as anthropic:NAME (default: a script)")
    asyncio.run(main(parser.parse_args().model))
