"""A tool of your own: a function of this program that the model may call. `--model NAME` asks a real model.

It runs here and not in the kernel, so it can use what no kernel should see, such as a connection or a key. It asks for
approval like every other tool; here a rule answers: small orders pass, large ones are denied, and the model reads why.
"""

import argparse
import asyncio

from pydantic_ai import FunctionToolset
from pydantic_ai.messages import ModelMessage, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo

from freeact_sub import Agent, ApprovalRequest, load_config
from freeact_sub.calls import ToolCall
from freeact_sub.testing import ScriptedModel, Turn

PROMPT = "Order 3 thermometers and 500 rain gauges."
orders: dict[str, int] = {}
shop = FunctionToolset()


@shop.tool_plain
def order(item: str, count: int) -> str:
    """Order something.

    Args:
        item: What to order.
        count: How many.
    """
    orders[item] = orders.get(item, 0) + count
    return f"ordered: {count} x {item}"


def decide(request: ApprovalRequest) -> None:
    """The rule of this program; a person could be asked as well."""
    call = request.call
    if isinstance(call, ToolCall) and call.args.get("count", 0) > 100:
        request.deny("more than 100 need a manager's signature")
    else:
        request.approve()


async def main(model: str | None) -> None:
    """Run one prompt."""
    async with (
        Agent(load_config(), model=model or ScriptedModel(script), toolsets=[shop]) as agent,
        agent.run(PROMPT) as run,
    ):
        async for event in run:
            if isinstance(event, ApprovalRequest):
                print(f"asked for: {event.call.summary}")
                decide(event)
        result = await run.result()
    print(f"{result.output}\nThe shop has: {orders}")
    if result.status != "completed":
        raise SystemExit(f"{result.status}: {result.error}")


def script(messages: list[ModelMessage], info: AgentInfo) -> Turn:
    """Stands in for a model: two calls at once, then an answer made from what they returned."""
    del info
    results = [part for part in messages[-1].parts if isinstance(part, ToolReturnPart)]
    if results:
        return "\n".join(f"- {part.content}" for part in results)
    return [
        ToolCallPart("order", {"item": "thermometer", "count": 3}),
        ToolCallPart("order", {"item": "rain gauge", "count": 500}),
    ]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", metavar="NAME", help="a real model, such as anthropic:NAME (default: a script)")
    asyncio.run(main(parser.parse_args().model))
