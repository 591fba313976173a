"""Your own functions in cells: code of the agent calls functions of this program. `--model NAME` asks a real model.

They run here and not in the kernel, so they can use what no kernel should see, such as a connection or a key. The model can
call them too; from code it calls one a hundred times in one turn. Each call needs approval; here the mode allows it.
"""

import argparse
import asyncio
from dataclasses import dataclass, field

from pydantic_ai import RunContext
from pydantic_ai.messages import ModelMessage, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo

from freeact_sub import Agent, load_config
from freeact_sub.testing import ScriptedModel, Turn

PROMPT = "Which of the items pen, ink and paper are running out? Order ten of each."


@dataclass
class Shop:
    """What the functions work on; the agent does not see it."""

    stock: dict[str, int]
    orders: list[str] = field(default_factory=list)


def in_stock(ctx: RunContext[Shop], item: str) -> int:
    """How many of an item there are."""
    return ctx.deps.stock[item]


async def order(ctx: RunContext[Shop], item: str, count: int = 1) -> str:
    """Order something. Args: item: what. count: how many."""
    ctx.deps.orders.append(f"{count} x {item}")
    return f"ordered: {count} x {item}"


async def main(model: str | None) -> None:
    """Run one prompt; everything is allowed, so nobody needs to read the events."""
    shop = Shop({"pen": 120, "ink": 2, "paper": 0})
    config = load_config(arguments={"mode": "full"})
    async with Agent(config, model=model or ScriptedModel(script), tools=[in_stock, order], deps=shop) as agent:
        result = await agent.run(PROMPT).result()
    print(f"{result.output}\nThe shop has ordered: {', '.join(shop.orders) or 'nothing'}")
    if result.status != "completed":
        raise SystemExit(f"{result.status}: {result.error}")


def script(messages: list[ModelMessage], info: AgentInfo) -> Turn:
    """Stands in for a model: one cell, then an answer made from what it printed."""
    del info
    results = [part for part in messages[-1].parts if isinstance(part, ToolReturnPart)]
    if results:
        return str(results[0].content)
    code = """items = ['pen', 'ink', 'paper']
left = {item: await agent.tools.in_stock(item) for item in items}
for item in items:
    print(await agent.tools.order(item, count=10) if left[item] < 5 else f'enough: {left[item]} x {item}')"""
    return ToolCallPart("execute_ipython_cell", {"code": code})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", metavar="NAME", help="a real model, such as anthropic:NAME (default: a script)")
    asyncio.run(main(parser.parse_args().model))
