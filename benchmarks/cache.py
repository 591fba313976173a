"""What a fan-out writes into a provider's cache and reads from it, with siblings that follow the first one and without.

A scripted server speaks Anthropic's protocol over HTTP and keeps what requests mark, from the moment at which it begins to
answer. Its tokens are characters of the request as it arrives. The answers are short: the figures are about what stands in
front of them, tools and system prompt.
"""

import asyncio
import importlib
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any, Final
from unittest import mock

from benchmarks.common import Goal, OtherLoad, Row, main, report

CHILDREN: Final = 20
ANSWERS_AFTER: Final = 0.3
SIBLINGS: Final = "following"
TOGETHER: Final = "all at once"
PRICES: Final = {"input_tokens": 1.0, "cache_creation_input_tokens": 1.25, "cache_read_input_tokens": 0.1}
"""Times the price of plain input, as Anthropic documents it for entries of 5 minutes."""
NAMES: Final = {"input_tokens": "plain", "cache_creation_input_tokens": "written", "cache_read_input_tokens": "read"}


def run(*, small: bool = False) -> dict[str, Any]:
    """All figures; small: few children."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
    return asyncio.run(_run(4 if small else CHILDREN))


async def _run(children: int) -> dict[str, Any]:
    load = OtherLoad()
    usages = {SIBLINGS: await _fan_out(children, waits=True), TOGETHER: await _fan_out(children, waits=False)}
    rows = [
        Row(
            figure=f"tokens {word}",
            unit="",
            values={name: float(sum(one[kind] for one in used)) for name, used in usages.items()},
        )
        for kind, word in NAMES.items()
    ]
    prices = {
        name: sum(one[kind] * price for one in used for kind, price in PRICES.items()) for name, used in usages.items()
    }
    goal = Goal(of=SIBLINGS, at_most=prices[TOGETHER])
    rows.append(Row(figure="price, in tokens of plain input", unit="", values=dict(prices), goals=(goal,)))
    notes = [
        f"the first requests of {children} children that one response of their parent starts; tokens are characters",
        f"the server begins to answer {ANSWERS_AFTER} s after a request; others can read what it marks from then on",
        f"`{TOGETHER}`: the same without waiting for the first of them",
    ]
    return report("cache", rows, load, notes)


async def _fan_out(children: int, *, waits: bool) -> list[dict[str, int]]:
    """What each child's first request took."""
    from freeact_sub import Agent, Config  # noqa: PLC0415  # slow, and not needed to list the benchmarks
    from freeact_sub.agents import turn  # noqa: PLC0415
    from freeact_sub.testing import FakeKernelProvider  # noqa: PLC0415

    server_module, chat = importlib.import_module("support.messages_server"), importlib.import_module("support.chat_server")

    def is_child(request: dict[str, Any]) -> bool:
        return "You are a child agent" in json.dumps(request["messages"][-1])

    def script(request: dict[str, Any]) -> list[Any]:
        if is_child(request):
            return ["It is done."]
        if len(request["messages"]) == 1:
            return [chat.ChatCall("task", {"prompt": f"Look at part {number}."}) for number in range(children)]
        return ["All parts are done."]

    keep = turn.prefix_of if waits else lambda _: None
    with tempfile.TemporaryDirectory() as folder, mock.patch.object(turn, "prefix_of", keep):
        async with server_module.MessagesServer(script, answers_after=lambda: asyncio.sleep(ANSWERS_AFTER)) as server:
            config = Config(
                workspace=Path(folder),
                mode="full",
                model="anthropic:claude-sonnet-4-6",
                base_url=server.base_url,
                subagents={"max_concurrent": children},
                models={"max_concurrent": children},
            )
            with mock.patch.dict(os.environ, {"ANTHROPIC_API_KEY": "none"}):
                async with Agent(config, kernel_provider=FakeKernelProvider()) as agent:
                    await agent.run("Look at all parts.").result()
    sent = zip(server.requests, server.usages, strict=True)
    return [usage for request, usage in sent if is_child(request)]


if __name__ == "__main__":
    main(run)
