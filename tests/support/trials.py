"""Agents whose cells are tried, and questions about them one after the other."""

from contextlib import asynccontextmanager
from pathlib import Path

from support.agents import cell

from freeact_sub import Agent, Config
from freeact_sub.calls import CodeAction
from freeact_sub.events import ApprovalRequest
from freeact_sub.testing import ScriptedModel

ON = {"seconds": 60}


@asynccontextmanager
async def asking(workspace, *cells, effects=ON, **config):
    """An agent that runs these cells, and a function that reads on to the next question about one."""
    model = ScriptedModel([*map(cell, cells), "done"])
    async with Agent(Config(workspace=workspace, effects=effects, **config), model=model) as agent:
        run, events = agent.run("root"), []

        async def question():
            async for event in run:
                events.append(event)
                if isinstance(event, ApprovalRequest):
                    if isinstance(event.call, CodeAction):
                        return event
                    event.deny()
            return None

        question.events = events
        yield question


def tree(folder: Path):
    """All files below a folder with content, permissions and time."""
    return {
        str(path.relative_to(folder)): (
            path.lstat().st_mode,
            path.lstat().st_mtime_ns,
            path.read_bytes() if path.is_file() else b"",
        )
        for path in sorted(folder.rglob("*"))
        if ".freeact" not in path.parts
    }
