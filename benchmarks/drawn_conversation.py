"""A program for `benchmarks/terminal.py`: events come at 5,000 a second, and are drawn in this terminal, or only read.

It says on standard error when they begin and end.
"""

import asyncio
import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from itertools import chain, count, cycle
from types import SimpleNamespace
from typing import Any, Final
from unittest.mock import Mock

from freeact_sub.cells import StreamText
from freeact_sub.config.budget import Usage
from freeact_sub.config.schema import Config
from freeact_sub.events import (
    AgentStarted,
    CodeExecutionOutputChunk,
    Event,
    ResponseChunk,
    ToolCallStarted,
    ToolOutput,
    UsageUpdated,
)
from freeact_sub.show.agent_story import Stories
from freeact_sub.terminal.display import Display
from freeact_sub.terminal.present import Present
from freeact_sub.terminal.surface import Keyboard

EVENTS_PER_SECOND: Final = 5000
BATCH: Final = 25
ROOT: Final[dict[str, Any]] = {"agent_id": "agent-00000000"}
CELL: Final = "execute_ipython_cell"


def children() -> Iterator[Event]:
    """Twenty at work: each calls, prints, and spends."""
    headers = [{"agent_id": f"agent-{number:08}", "parent_id": "agent-00000000", "depth": 1} for number in range(1, 21)]
    for number, header in enumerate(headers):
        yield AgentStarted(**header, prompt="clean", description=f"station {number}")
    for turn in count():
        for header in headers:
            call: dict[str, Any] = {**header, "tool_call_id": f"call-{turn}"}
            yield ToolCallStarted(**call, tool_name=CELL, args={"code": f"# step {turn}\nclean(file)"})
            yield CodeExecutionOutputChunk(**call, output=StreamText(name="stdout", text=f"row {turn}\n"))
            yield ToolOutput(**call, tool_name=CELL, content="row")
            yield UsageUpdated(**header, usage=Usage(turns=turn), tree_usage=Usage(turns=turn))


def lines() -> Iterator[Event]:
    """A cell that prints, line by line."""
    call = {**ROOT, "tool_call_id": "call-1"}
    yield ToolCallStarted(**call, tool_name=CELL, args={"code": "for row in rows:\n    print(row)"})
    for number in count():
        yield CodeExecutionOutputChunk(**call, output=StreamText(name="stdout", text=f"row {number}\n"))


def text() -> Iterator[Event]:
    """An answer in Markdown that grows."""
    for word in cycle(["A", "**word**", "and", "`code`,", "in", "a", "*long*", "answer.\n\n-", "one\n-", "two\n\n"]):
        yield ResponseChunk(**ROOT, content=f"{word} ")


CASES: Final[dict[str, Callable[[], Iterator[Event]]]] = {"children": children, "lines": lines, "text": text}


async def feed(case: str, seconds: float, show: Callable[[Event], None], drained: Callable[[], Any]) -> None:
    """Have events shown as they come: as many a second as is said, if whoever shows them can follow."""
    loop = asyncio.get_running_loop()
    events = chain([AgentStarted(**ROOT, prompt="go")], CASES[case]())
    os.write(2, b"begins\n")
    began = loop.time()
    for number in range(round(seconds * EVENTS_PER_SECOND / BATCH)):
        for _ in range(BATCH):
            show(next(events))
            await drained()
        await asyncio.sleep(max(0.0, began + (number + 1) * BATCH / EVENTS_PER_SECOND - loop.time()))
    os.write(2, b"ends\n")


async def main() -> None:
    """Arguments: the case, `drawn` or `alone`, and for how many seconds."""
    case, how, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3])
    if how == "alone":
        views = Stories()
        await feed(case, seconds, lambda event: views.observe(event) and None, lambda: asyncio.sleep(0))
        return
    keyboard = Mock(spec=Keyboard, actions=(), **{"answer_key.return_value": False, "take_back.return_value": ""})
    present = Present(config=Config(), once=False, phase="running", run=SimpleNamespace(usage=Usage()))  # type: ignore[arg-type]
    display = Display(present, verbose=False, keyboard=keyboard, other_program=contextlib.nullcontext)  # type: ignore[arg-type]

    def show(event: Event) -> None:
        display.show(event)
        display.refresh()

    async with display.screen as screen:
        await screen.shown()
        await feed(case, seconds, show, screen.drained)


if __name__ == "__main__":
    asyncio.run(main())
