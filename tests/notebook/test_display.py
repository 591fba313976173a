"""Drawing without a Jupyter kernel: order, pace, and the plain console."""

import asyncio
import itertools
import re
import time
from dataclasses import replace

import pytest
from support.agents import cell, task
from support.sample_events import CHILD, ROOT, picture
from support.virtual_time import in_virtual_time, passes
from support.waiting import eventually

from freeact_sub import Agent, Config
from freeact_sub.errors import AgentBusyError, FreeactError
from freeact_sub.events import AgentFinished, AgentStarted, CodeExecutionOutputChunk, ResponseChunk, ToolCallStarted
from freeact_sub.notebook import display_run
from freeact_sub.notebook.display import INTERVAL_SECONDS, Page, RunInterruptedError
from freeact_sub.testing import FakeKernelProvider, ScriptedModel


class RecordingScreen:
    """Keeps what stands on it, and when each display was drawn."""

    def __init__(self, *, live=True):
        self.live = live
        self.shown, self.times, self.drawn = {}, {}, asyncio.Event()

    def publish(self, display_id, data, *, update):
        assert update == (display_id in self.shown)
        self.shown[display_id] = data
        self.times.setdefault(display_id, []).append(asyncio.get_running_loop().time())
        self.drawn.set()

    @property
    def text(self):
        return "\n".join(data["text/plain"] for data in self.shown.values())


def started(agent_id, parent_id=None, depth=0):
    return AgentStarted(
        agent_id=agent_id, parent_id=parent_id, depth=depth, prompt=f"prompt of {agent_id}", time=time.time()
    )


async def test_children_stand_below_their_parents_though_they_start_later():
    screen = RecordingScreen()
    async with Page(screen) as page:
        page.take(started("root"))
        page.take(started("a", "root", 1))
        page.take(started("b", "root", 1))
        await eventually(lambda: "prompt of b" in screen.text)
        page.take(started("a1", "a", 2))
        page.take(started("orphan", "never-started", 1))
        page.take(ResponseChunk(agent_id="b", parent_id="root", depth=1, content="b streams"))
    places = [screen.text.index(f"prompt of {name}") for name in ("root", "a", "a1", "b", "orphan")]
    assert places == sorted(places)
    assert screen.text.count("prompt of") == 5
    html = list(screen.shown.values())[7]["text/html"]
    assert "b streams" in html  # the foot has moved with its body


async def test_a_page_can_be_drawn_again():
    async with Page(RecordingScreen()) as page:
        page.take(started("root"))
        page.take(started("a", "root", 1))
        page.take(started("b", "root", 1))
        page.take(started("a1", "a", 2))
    screen = RecordingScreen()
    Page(screen).show(page)
    assert re.findall(r"prompt of (\w+)", screen.text) == ["root", "a", "a1", "b"]


@in_virtual_time
async def test_a_part_is_drawn_ten_times_a_second_at_most_and_the_last_state_always():
    screen = RecordingScreen()
    async with Page(screen) as page:
        page.take(started("root"))
        await screen.drawn.wait()
        begun = asyncio.get_running_loop().time()
        for n in range(3000):
            page.take(ResponseChunk(agent_id="root", content=f"{n} "))
            if n % 100 == 0:
                await passes(0.02)  # the chunks of a quick model
        seconds = asyncio.get_running_loop().time() - begun
    *times, _ = screen.times[next(reversed(screen.times))]
    assert 2 < len(times) <= seconds / INTERVAL_SECONDS + 2
    assert all(later - earlier > INTERVAL_SECONDS * 0.9 for earlier, later in itertools.pairwise(times))
    assert "2999" in next(reversed(screen.shown.values()))["text/html"]


async def test_streaming_does_not_draw_pictures_again():
    screen = RecordingScreen()
    async with Page(screen) as page:
        page.take(started("root"))
        header = {"agent_id": "root", "tool_call_id": "c"}
        page.take(ToolCallStarted(**header, tool_name="execute_ipython_cell", args={"code": "plot()"}))
        page.take(CodeExecutionOutputChunk(**header, output=picture()))
        body, foot = await eventually(lambda: list(screen.shown) if "<img" in str(screen.shown) else [])
        drawn = len(screen.times[body])
        for n in range(5):
            page.take(ResponseChunk(agent_id="root", content=f"word{n} "))
            await eventually(lambda n=n: f"word{n}" in screen.shown[foot]["text/html"])
        assert len(screen.times[body]) == drawn


def seconds_in(text):
    found = re.search(r"running · (\d+) s", text)
    return int(found[1]) if found else 0


@pytest.mark.slow
async def test_seconds_go_by_without_events():
    screen = RecordingScreen()
    async with Page(screen) as page:
        page.take(replace(started("root"), time=time.time() - 10))
        first = await eventually(lambda: seconds_in(screen.text))
        assert first >= 10
        await eventually(lambda: seconds_in(screen.text) > first)


async def test_a_console_gets_each_block_once_when_it_is_done():
    screen = RecordingScreen(live=False)
    async with Page(screen) as page:
        page.take(AgentStarted(**ROOT, prompt="root prompt"))
        page.take(AgentStarted(**CHILD, prompt="child prompt"))
        page.take(AgentFinished(**CHILD, status="completed", output="child answer"))
        await eventually(lambda: "child answer" in screen.text)
        assert "root prompt" not in screen.text
        page.take(AgentFinished(**ROOT, status="completed", output="root answer"))
    assert "root answer" in screen.text
    assert all(len(times) == 1 for times in screen.times.values())


@pytest.fixture
async def make(tmp_path):
    opened = []

    async def make_agent(script, **config):
        agent = Agent(
            Config(workspace=tmp_path, **config), model=ScriptedModel(script), kernel_provider=FakeKernelProvider()
        )
        opened.append(await agent.__aenter__())
        return agent

    yield make_agent
    for agent in opened:
        await agent.aclose()


async def test_display_run_in_a_plain_console(make, capsys):
    script = {
        "root": [[task("north", description="the child")], [cell("print(6 * 7)")], "All done."],
        "north": [cell("print('from the child')"), "child done"],
    }
    agent = await make(script, mode="full")
    result = await display_run(agent, "root")
    assert (result.status, result.output) == ("completed", "All done.")
    shown = capsys.readouterr().out
    for part in ("> print(6 * 7)", "42", "All done.", "    > print('from the child')", "completed"):
        assert part in shown, part
    assert agent.history


async def test_a_run_can_be_shown_that_somebody_else_has_made(make, capsys):
    agent = await make(["hello"])
    result = await display_run(agent.run("hi"))
    assert result.output == "hello"
    assert "hello" in capsys.readouterr().out


async def test_without_anybody_to_ask_questions_are_denied(make, capsys):
    agent = await make([cell("print(1)"), "so be it"])
    result = await display_run(agent, "root")
    assert result.status == "completed"
    assert "denied: nobody can answer" in capsys.readouterr().out


async def test_a_cancelled_cell_cancels_its_run_and_shows_the_end(make, capsys):
    silence = asyncio.Event()
    agent = await make([["before ", silence]])
    shown = asyncio.create_task(display_run(agent, "root"))
    await eventually(lambda: agent.agents()[0].status == "running")
    with pytest.raises(AgentBusyError):
        agent.run("second")
    shown.cancel()
    with pytest.raises(RunInterruptedError, match="the run was cancelled"):
        await shown
    assert shown.cancelled()
    assert "cancelled" in capsys.readouterr().out
    assert agent.agents()[0].status == "cancelled"


async def test_an_interrupt_is_shown_in_one_line():
    assert RunInterruptedError("interrupted")._render_traceback_() == ["interrupted"]


async def test_display_run_needs_a_prompt(make):
    agent = await make(["x"])
    with pytest.raises(FreeactError, match="needs a prompt"):
        await display_run(agent)


async def test_buttons_need_a_notebook(make):
    agent = await make(["x"])
    with pytest.raises(FreeactError, match="buttons need a notebook"):
        await display_run(agent, "root", questions="buttons")
