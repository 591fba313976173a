"""What was written is told once, with its lines where they are known, and told again when they have changed."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from support.sample_events import CHILD, ROOT

from freeact_sub.config.schema import Config
from freeact_sub.errors import FreeactError
from freeact_sub.events import AgentStarted, Event, Response, ToolOutput
from freeact_sub.show.agent_story import Stories
from freeact_sub.show.teller import blocks
from freeact_sub.terminal import display
from freeact_sub.terminal.display import MINUS, WrittenFiles
from freeact_sub.terminal.present import Present

CELL_ENDS = ToolOutput(**ROOT, tool_call_id="call-1", tool_name="execute_ipython_cell", content="")


class WritingAgent:
    """Says which lines have changed, or why it cannot."""

    def __init__(self) -> None:
        self.found: list[Any] | Exception | None = []

    async def line_changes(self) -> list[Any]:
        if self.found is None:
            await asyncio.Event().wait()
        if isinstance(self.found, Exception):
            raise self.found
        assert self.found is not None
        return self.found


class Told:
    """Those of a run that has written these files."""

    def __init__(self, *written: str) -> None:
        self.agent = WritingAgent()
        run: Any = SimpleNamespace(files_written=written)
        agent: Any = self.agent
        self.changes = WrittenFiles(Present(config=Config(), once=False, agent=agent, run=run))

    async def after(self, event: Event = CELL_ENDS) -> str:
        drawn = await self.changes.after(event, blocks(Stories().observe(event), event))
        return "" if drawn is None else drawn.plain


async def test_a_file_is_told_with_its_lines_and_again_when_they_have_changed() -> None:
    told = Told("report.md")
    told.agent.found = [("data.bin", None), ("report.md", (1200, 3))]
    assert await told.after() == f"  ± data.bin\n  ± report.md +1,200 {MINUS}3"
    assert await told.after() == ""
    told.agent.found = [("data.bin", None), ("report.md", (1201, 3))]
    assert await told.after() == f"  ± report.md +1,201 {MINUS}3"
    await told.after(AgentStarted(**ROOT, prompt="another"))
    assert await told.after() == f"  ± data.bin\n  ± report.md +1,201 {MINUS}3"


@pytest.mark.parametrize("found", [FreeactError("nothing is kept"), None])
async def test_where_the_lines_are_not_known_the_names_are_told(found: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(display, "LOOK_SECONDS", 0.01)
    told = Told("report.md", *(f"{number}.csv" for number in range(9)))
    told.agent.found = found
    assert (await told.after()).split("\n")[::8] == ["  ± report.md", "  ± and 2 more"]
    told.agent.found = [("report.md", (1, 1))]
    assert await told.after() == ""  # it is not tried again in this run


async def test_nothing_is_looked_for_where_nothing_was_written_or_a_child_is_at_work() -> None:
    told = Told()
    told.agent.found = AssertionError("it was asked")
    assert await told.after() == ""
    told = Told("report.md")
    told.agent.found = AssertionError("it was asked")
    assert await told.after(ToolOutput(**CHILD, tool_call_id="call-2", tool_name="ask", content="")) == ""
    assert await told.after(Response(**ROOT, content="done")) == ""
