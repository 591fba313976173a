"""Cells that are interrupted while they work, in every way in which a cell can work, and a count of the variables that it costs.

As a program: `python tests/support/interrupted_cells.py [PYTHON ...]` tries all cells in all ways, in kernels of these Pythons
(default: the one that runs it), and prints a line for each Python and way. With `--terminal` as its only argument it is the
conversation whose cells are interrupted by Escape.
"""

import asyncio
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from pathlib import Path
from typing import Any

from pydantic_ai.messages import ModelMessage, ToolCallPart

sys.path.append(str(Path(__file__).parents[1]))
from support.terminal import ESCAPE, READY, Terminal

from freeact_sub import Agent, Config
from freeact_sub.config.schema import KernelConfig, McpServerConfig
from freeact_sub.errors import FreeactError
from freeact_sub.events import CodeExecutionOutput, CodeExecutionOutputChunk, KernelLost
from freeact_sub.terminal.conversation import converse
from freeact_sub.testing import ScriptedModel, prompts

PREPARE = """
import asyncio, contextlib, functools, os, queue, re, subprocess, threading, time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

kept = 41

def on():
    print("on", row, kept, flush=True)

def burn(*_):
    on()
    while True:
        pass

async def aburn():
    await asyncio.sleep(0)
    burn()

async def endless():
    await asyncio.sleep(0)
    while True:
        yield burn()

class Shown:
    def __repr__(self):
        burn()
"""
"""What the cells use."""

CELLS: dict[str, str] = {
    # plain code
    "a loop": "burn()",
    "a pause": "time.sleep(1000)",
    "a loop that goes on after exceptions": "while True:\n    with contextlib.suppress(Exception): time.sleep(0.01)",
    "a loop that goes on after all": "while True:\n    try: time.sleep(0.01)\n    except: pass",
    "a regular expression in C": "re.match('(a+)+$', 'a' * 60 + 'b')",
    "a clean-up that waits": "try: burn()\nfinally: time.sleep(1000)",
    "a value that is shown": "Shown()",
    "a program": "subprocess.run(['sleep', '1000'])",
    "a command": "!sleep 1000",
    "a function of a magic": "%time burn()",
    # threads
    "a thread that works": "t = threading.Thread(target=time.sleep, args=(2,)); t.start(); t.join()",
    "a queue that stays empty": "queue.Queue().get()",
    "a pool of threads": "with ThreadPoolExecutor(2) as pool: list(pool.map(time.sleep, [4] * 4))",
    "a thread that is awaited": "await asyncio.to_thread(time.sleep, 2)",
    "threads that are gathered": "await asyncio.gather(*(asyncio.to_thread(time.sleep, 2) for _ in range(3)))",
    # coroutines, tasks and callbacks
    "a pause that is awaited": "await asyncio.sleep(1000)",
    "a loop after an await": "await asyncio.sleep(0); burn()",
    "a coroutine that computes": "await aburn()",
    "a task that computes": "await asyncio.create_task(aburn())",
    "a task that computes in the background": "t = asyncio.create_task(aburn()); await asyncio.sleep(1000)",
    "five tasks that compute": "await asyncio.gather(*(aburn() for _ in range(5)))",
    "tasks whose errors are values": "await asyncio.gather(aburn(), asyncio.sleep(1000), return_exceptions=True)",
    "a group": "async with asyncio.TaskGroup() as g: g.create_task(aburn()); g.create_task(asyncio.sleep(1000))",
    "a group whose body computes": "async with asyncio.TaskGroup() as g: g.create_task(asyncio.sleep(1000)); burn()",
    "a task behind a shield": "await asyncio.shield(aburn())",
    "a time limit": "async with asyncio.timeout(1000): await asyncio.wait_for(aburn(), 1000)",
    "a generator": "async for _ in endless(): pass",
    "a value after an await": "await asyncio.sleep(0)\nShown()",
    "a loop that goes on after each cancel": "while True:\n    try: await asyncio.sleep(0.01)\n    except: pass",
    "tasks that go on after all": "async def f():\n    while True:\n        try: await aburn()\n        except: pass\n"
    "await asyncio.gather(f(), f())",
    "a callback": "asyncio.get_running_loop().call_soon(burn); await asyncio.sleep(1000)",
    "a callback that comes later": "asyncio.get_running_loop().call_later(0.05, burn); await asyncio.sleep(1000)",
    "a callback in C": "asyncio.get_running_loop().call_soon(functools.partial(time.sleep, 1000)); await asyncio.sleep(1000)",
    "a pool of processes": "with ProcessPoolExecutor(2) as pool:\n"
    "    await asyncio.gather(*(asyncio.get_running_loop().run_in_executor(pool, burn, n) for n in range(2)))",
    # what the host does
    "an ask": "agent.ask('wait')",
    "an ask that is awaited": "await agent.ask('wait')",
    "asks that are gathered": "await asyncio.gather(*(agent.ask('wait') for _ in range(3)))",
    "asks of threads": "await asyncio.gather(*(asyncio.to_thread(agent.ask, 'wait') for _ in range(3)))",
    "asks of a pool": "with ThreadPoolExecutor(3) as pool: list(pool.map(agent.ask, ['wait'] * 3))",
    "asks of a group": "async with asyncio.TaskGroup() as g:\n    for _ in range(3): g.create_task(agent.ask('wait'))",
    "a plain ask in a task": "def f(): return agent.ask('wait')\nasync def g(): f()\nawait asyncio.gather(g())",
    "a child": "agent.task('wait')",
    "children that are gathered": "await asyncio.gather(*(agent.task('wait') for _ in range(2)))",
    "an own tool": "await agent.tools.wait()",
    "own tools that are gathered": "await asyncio.gather(*(agent.tools.wait() for _ in range(3)), return_exceptions=True)",
    "a tool of a server": "agent.mcp.demo.slow(name='a', seconds=600)",
    "tools of a server": "await asyncio.gather(*(agent.mcp.demo.slow(name=str(n), seconds=600) for n in range(3)))",
}
"""By what works when the cell is interrupted."""
WAYS = ("cancel", "limit", "escape")
"""How a cell is interrupted: its run is cancelled, its time is up, a person presses Escape in the terminal."""
LIMIT_SECONDS = 0.4
SERVER = Path(__file__).with_name("sdk_mcp_server.py")


def script(messages: list[ModelMessage], _: Any) -> Any:
    """Run the cell that the prompt names; a child, and whoever is asked, never answers."""
    prompt = prompts(messages)[-1]
    if "wait" in prompt.split():
        return [asyncio.Event()]
    if messages[-1].parts[-1].part_kind == "tool-return":
        return "done"
    if prompt.startswith("prepare"):
        return ToolCallPart("execute_ipython_cell", {"code": PREPARE})
    number = prompt.split()[-1]
    code = [*CELLS.values()][int(number)]
    begins = f"row = {number}\n" if any(word in code for word in ("burn", "Shown", "endless")) else f"row = {number}; on()\n"
    return ToolCallPart("execute_ipython_cell", {"code": f"{begins}{code}"})


async def wait() -> None:
    """A function of the program that never returns."""
    await asyncio.Event().wait()


def open_agent(workspace: Path, *, python: str = sys.executable, limit: float | None = None, **options: Any) -> Agent:
    """The agent that runs the cells. Args: limit: seconds that each may take."""
    kernel = KernelConfig(python=python, cell_timeout_seconds=limit or 300, spares=0, preload=())
    servers = {"demo": McpServerConfig(command=sys.executable, args=(str(SERVER),))}
    config = Config(workspace=workspace, mode="full", kernel=kernel, mcp_servers=servers, max_repeats=None, **options)
    return Agent(config, model=ScriptedModel(script), tools=[wait])


class Row:
    """What became of one cell."""

    def __init__(self, name: str, seconds: float, *, kept: bool) -> None:
        """Args: name: of the cell. seconds: from the interrupt to the end. kept: the kernel and its variables are there."""
        self.name, self.seconds, self.kept = name, seconds, kept


async def interrupted(
    names: Iterable[str], way: str, workspace: Path, *, python: str = sys.executable
) -> AsyncIterator[Row]:
    """Run the cells one after the other in one kernel, interrupt each when it works, and see what is left."""
    numbers = {name: number for number, name in enumerate(CELLS)}
    limit = LIMIT_SECONDS if way == "limit" else None
    async with open_agent(workspace, python=python, limit=limit) as agent:
        is_prepared = False
        for name in names:
            if not is_prepared:
                await agent.run("prepare").result()
            run, began, lost = agent.run(f"cell {numbers[name]}"), 0.0, False
            async for event in run:
                if not began and isinstance(event, CodeExecutionOutputChunk) and event.output.text.startswith("on"):
                    began = time.monotonic()
                    if way == "cancel":
                        run.cancel()
                lost = lost or isinstance(event, KernelLost)
                if isinstance(event, CodeExecutionOutput):
                    assert event.status != "ok", (name, event.text)
            try:  # this waits for the cell of a run that was cancelled
                is_prepared = not lost and "kept" in await agent.variables()
            except FreeactError as error:
                print(f"{name}: {error}", file=sys.stderr)
                is_prepared = False
            # the clock of a cell stands still while it waits for a model; a limit ten times as long does not
            waits = "agent.ask" in CELLS[name] or "agent.task" in CELLS[name]
            allowed = 0.0 if limit is None else limit * (10 if waits else 1)
            yield Row(name, time.monotonic() - began - allowed, kept=is_prepared)


def escaped(names: Iterable[str], workspace: Path, *, python: str = sys.executable) -> Iterator[str]:
    """Run the cells in a conversation in a terminal, and press Escape when each works. Yields the names of those that cost it.

    Each cell shows the variable that all would lose, and none begins without it.
    """
    numbers = {name: number for number, name in enumerate(CELLS)}
    with Terminal([sys.executable, __file__, "--terminal", python], cwd=workspace) as terminal:
        for name in [None, *names]:
            terminal.wait_at_bottom(READY)
            terminal.enter("prepare" if name is None else f"cell {numbers[name]}")
            if name is None:
                terminal.wait_for("done")
                continue
            working = f"on {numbers[name]} 41"
            terminal.wait_until(lambda: working in terminal.shown or "NameError" in terminal.shown, working)
            if working not in terminal.shown:
                yield name
                return
            terminal.press(ESCAPE)


def converse_here(python: str) -> int:
    """Hold the conversation of `escaped`."""
    agent = open_agent(Path.cwd(), python=python)
    return asyncio.run(converse(lambda: agent, config=agent.config, open_session=lambda *_: agent))


async def main(pythons: list[str]) -> None:
    """See the module."""
    for python in pythons or [sys.executable]:
        for way in WAYS[:2]:
            with tempfile.TemporaryDirectory() as folder:
                rows = [row async for row in interrupted(CELLS, way, Path(folder), python=python)]
            lost, times = [row.name for row in rows if not row.kept], sorted(row.seconds for row in rows)
            late = {row.name: round(row.seconds, 2) for row in rows if row.seconds > 2}
            print(
                f"{python} {way}: {len(rows)} cells, lost {len(lost)} {lost}, median {times[len(times) // 2]:.2f} s, over 2 s {late}"
            )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--terminal"]:
        sys.exit(converse_here(sys.argv[2]))
    asyncio.run(main(sys.argv[1:]))
