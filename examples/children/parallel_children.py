"""Children at work side by side: who does what, when, and who waits. `--model NAME` asks a real model.

Six children are asked for, three may work at a time. The events of all of them come in one stream; `agent_id` tells whose
they are.
"""

import argparse
import asyncio
import re

from pydantic_ai.messages import ModelMessage, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo

from freeact_sub import Agent, ApprovalRequest, load_config
from freeact_sub.events import AgentFinished, AgentStarted, CodeExecutionOutput
from freeact_sub.testing import ScriptedModel, Turn, first_prompt

PROMPT = (
    "For n = 5, 6, 7, 8, 9, 10: in how many ways can n queens stand on a board of n x n? One child for each, all at once."
)

QUEENS = """
def count(n, row=0, columns=0, left=0, right=0):
    if row == n:
        return 1
    free = ~(columns | left | right) & (1 << n) - 1
    total = 0
    while free:
        place = free & -free
        free -= place
        total += count(n, row + 1, columns | place, (left | place) << 1, (right | place) >> 1)
    return total

print(count({n}))
"""


async def main(model: str | None) -> None:
    """Run the prompt and tell what happens when."""
    config = load_config(arguments={"subagents": {"max_concurrent": 3}})
    names: dict[str, str] = {}
    start = None
    failed: list[str] = []
    async with Agent(config, model=model or ScriptedModel(script)) as agent, agent.run(PROMPT) as run:
        async for event in run:
            start = start or event.time
            if isinstance(event, AgentStarted):
                names[event.agent_id] = event.description or "root"
            clock = f"{event.time - start:5.1f} s  {names[event.agent_id]:<9}"
            match event:
                case ApprovalRequest():
                    event.approve()
                case AgentStarted():
                    print(clock, "waits for a place" if event.queued else "starts")
                case CodeExecutionOutput():
                    print(clock, f"computed {event.text}")
                case AgentFinished():
                    print(clock, event.status)
                    if event.status != "completed":
                        failed.append(f"{names[event.agent_id]}: {event.error}")
        result = await run.result()
    print(f"\n{result.output}\n\nAll agents together: {result.tree_usage}")
    if failed:
        raise SystemExit("\n".join(failed))


def script(messages: list[ModelMessage], info: AgentInfo) -> Turn:
    """Stands in for a model: for the root and for its children, told apart by their prompts."""
    del info
    prompt = first_prompt(messages)
    results = [part for part in messages[-1].parts if isinstance(part, ToolReturnPart)]
    if prompt.startswith("For n = "):
        if results:
            return "\n".join(str(part.content).rpartition("\n")[2] for part in results)
        numbers = prompt[len("For n = ") : prompt.index(":")].split(", ")
        return [
            ToolCallPart("task", {"prompt": f"Count the ways for n = {n}.", "description": f"{n} queens"}) for n in numbers
        ]
    n = re.findall(r"n = (\d+)", prompt)[0]
    if results:
        return f"{n} queens: {results[0].content} ways"
    return ToolCallPart("execute_ipython_cell", {"code": QUEENS.format(n=n).strip()})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", metavar="NAME", help="a real model, such as anthropic:NAME (default: a script)")
    asyncio.run(main(parser.parse_args().model))
