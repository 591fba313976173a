"""What a streamed reply costs the event loop, which all agents of a root share: time linear in its length."""

import gc
import time

import pytest
from pydantic_ai.messages import ToolCallPart
from support.agents import read

pytestmark = pytest.mark.slow

ATTEMPTS = 12
"""A loaded machine may spoil a measurement; a cost that is not linear spoils all of them."""

REPLIES = {
    "prose": lambda size: "The sum is 5, see `x` and {y}; a line follows.\n" * (size // 47),
    "one line": lambda size: "word " * (size // 5),
    "fence": lambda size: "So:\n```python\n" + "print(sum(range(10)))\n" * (size // 22) + "```\n",
    "other fence": lambda size: "So:\n```text\n" + "print(sum(range(10)))\n" * (size // 22) + "```\n",
    "JSON": lambda size: '{"rows": [' + '{"name": "Ann", "age": 3}, ' * (size // 27) + "{}]}",
    "call as text": lambda size: '{"name": "task", "arguments": {"prompt": "' + "count the words " * (size // 16) + '"}}',
    "backticks": lambda size: "`" * size,
}


async def seconds_of(make, turns, **config):
    """Processor time of one run."""
    async with make(turns, config={"budget": {"turns": 3}, "mode": "full", **config}, chunk_chars=4) as agent:
        gc.collect()
        gc.disable()  # what other tests have left is not looked through in between
        try:
            began = time.process_time()
            await read(agent.run("go"))
            return time.process_time() - began
        finally:
            gc.enable()


async def ratio_of(make, turns_of, size, **config):
    """What a reply of twice the size costs, beside the same reply."""
    best = float("inf")
    for _ in range(ATTEMPTS):
        one = await seconds_of(make, turns_of(size), **config)
        two = await seconds_of(make, turns_of(2 * size), **config)
        best = min(best, two / one)
        if best < 3:
            break
    return best


@pytest.mark.parametrize("code_actions", ["tool", "block"])
@pytest.mark.parametrize("kind", REPLIES)
async def test_text_costs_time_in_proportion_to_its_length(make, kind, code_actions):
    assert await ratio_of(make, lambda size: [REPLIES[kind](size), "Done."], 4_000, code_actions=code_actions) < 3


async def test_the_check_for_small_models_is_linear_too(make):
    config = {"profile": "small", "code_actions": "tool"}
    assert await ratio_of(make, lambda size: [REPLIES["JSON"](size), "Done."], 4_000, **config) < 3


async def test_arguments_cost_time_in_proportion_to_their_length(make):
    def turns(size):
        return [[ToolCallPart("execute_ipython_cell", {"code": "x = 1\n" * (size // 6)})], "Done."]

    assert await ratio_of(make, turns, 4_000) < 3
