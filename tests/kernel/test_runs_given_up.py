"""What is left of runs and agents that were given up: by a cancel at any moment, by the end of an event loop, by Ctrl-C."""

import asyncio
import contextlib
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import anyio
import psutil
import pytest
from pydantic_ai.messages import ToolReturnPart
from support.agents import cell
from support.cli import environment
from support.thorough import THOROUGH
from support.waiting import eventually, turns

from freeact_sub import Agent, Config
from freeact_sub.testing import ScriptedModel, prompts

pytestmark = pytest.mark.kernel

CANCELS = 200
SOON_SECONDS = 20.0
"""The longest that the next call may take on a busy machine; a stand-still took 30."""
CELLS = {
    "asks": "found = await agent.task('computes')",
    "computes": "import time; time.sleep(.4)",
    "awaits": "import asyncio; await asyncio.sleep(.4)",
}


def reply(messages, _):
    prompt = prompts(messages)[-1]
    if isinstance(messages[-1].parts[-1], ToolReturnPart):
        return "done"
    return next(([cell(code)] for name, code in CELLS.items() if prompt.startswith(name)), "done")


async def read_to_the_end(events):
    async for _ in events:
        pass


async def read_slowly(events):
    async for _ in events:
        await turns(100)


async def read_until(events, late):
    loop = asyncio.get_running_loop()
    end = loop.time() + late
    async for _ in events:
        if loop.time() > end:
            break


async def in_a_block(agent, prompt):
    async with agent.run(prompt) as run:
        await run.result()


async def in_a_group(agent, prompt, late):
    with contextlib.suppress(ExceptionGroup):
        async with asyncio.TaskGroup() as group:
            await asyncio.wait({group.create_task(agent.run(prompt).result())}, timeout=late)
            raise KeyError


WORK = {
    "result": lambda agent, prompt: agent.run(prompt).result(),
    "loop": lambda agent, prompt: read_to_the_end(agent.run(prompt)),
    "slow loop": lambda agent, prompt: read_slowly(agent.run(prompt)),
    "stream": lambda agent, prompt: read_to_the_end(agent.stream(prompt)),
    "block": in_a_block,
    "task": lambda agent, prompt: agent.task(prompt),
    "program": lambda agent, prompt: agent.run_program(lambda: agent.task(prompt)).result(),
    "execute": lambda agent, prompt: agent.execute(CELLS[prompt]),
    "branch": lambda agent, prompt: branched(agent),
}


async def branched(agent):
    node = await agent.branch()
    try:
        await node.execute(CELLS["computes"])
    finally:
        await node.close()


async def given_up(agent, way, work, prompt, late):
    """Begin work, and give it up after so many seconds. It may be done by then."""
    match way:
        case "task.cancel":
            task = asyncio.create_task(WORK[work](agent, prompt))
            await asyncio.wait({task}, timeout=late)
            task.cancel()
            await asyncio.wait({task})
        case "timeout":
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(late):
                    await WORK[work](agent, prompt)
        case "wait_for":
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(WORK[work](agent, prompt), late)
        case "scope":
            with anyio.move_on_after(late):
                await WORK[work](agent, prompt)
        case "break":
            await read_until(agent.run(prompt), late)
        case "group":
            await in_a_group(agent, prompt, late)


@pytest.mark.slow
async def test_after_a_cancel_at_any_moment_the_next_call_is_an_ordinary_one(tmp_path):
    """Each kind of work of the library, given up in each way that Python knows, at a random moment."""
    choose, mine = random.Random(5), asyncio.current_task()
    me, slowest = psutil.Process(), 0.0
    async with Agent(Config(workspace=tmp_path, mode="auto"), model=ScriptedModel(reply)) as agent:
        assert (await agent.execute("kept = 1")).status == "ok"
        before = {process.pid for process in me.children(recursive=True)}
        for number in range(CANCELS if THOROUGH else CANCELS // 8):
            way = choose.choice(["task.cancel", "timeout", "wait_for", "scope", "break", "group"])
            work, prompt, late = choose.choice([*WORK]), choose.choice([*CELLS]), choose.random() * 0.6
            what = f"cancel {number}: {way} of {work} ({prompt}) after {late:.2f} s"
            await given_up(agent, way, work, prompt, late)
            began = time.monotonic()
            if choose.random() < 0.5:
                assert (await agent.execute("kept + 1")).text.strip() == "2", what
            else:
                assert (await agent.run("again").result()).output == "done", what
            slowest = max(slowest, time.monotonic() - began)
            assert slowest < SOON_SECONDS, what
            assert mine.cancelling() == 0, what
        # there are no more processes than before, but for a spare kernel
        await eventually(lambda: len({process.pid for process in me.children(recursive=True)} - before) <= 1)
    print(f"the slowest next call took {slowest:.2f} s")


PROGRAM = """
import asyncio, gc, os, signal, tempfile, threading
import psutil
from pydantic_ai.messages import ToolCallPart
from support.waiting import WORKS_ON, eventually, wait_until
from freeact_sub import Agent, Config
from freeact_sub.testing import ScriptedModel

WORKS = ToolCallPart("execute_ipython_cell", {"code": f"open('works', 'w').close(); {WORKS_ON}"})

def make(provider="fork"):
    folder = tempfile.mkdtemp(dir=os.getcwd())
    return Agent(Config(workspace=folder, mode="auto", kernel={"provider": provider}), model=ScriptedModel(lambda *_: [WORKS]))

async def use(agent):
    await agent.open()
    assert (await agent.execute("1")).status == "ok"

async def until_it_works(agent):
    await eventually(lambda: any(info.action for info in agent.agents()))

async def work(agent):
    await use(agent)
    agent.run("go").start()
    await until_it_works(agent)

def interrupt(agent):
    async def soon():
        await until_it_works(agent)
        os.kill(os.getpid(), signal.SIGINT)
    return asyncio.create_task(soon())

def all_gone():
    return wait_until(lambda: not psutil.Process().children(recursive=True))

def bare(main):
    loop = asyncio.new_event_loop()
    loop.run_until_complete(main)
    loop.close()
"""
ENDINGS = {
    "asyncio.run, at work": "agent = make(); asyncio.run(work(agent))",
    "asyncio.run, subprocess kernels": "agent = make('local'); asyncio.run(work(agent))",
    "two loops": "for _ in range(2): asyncio.run(use(make()))",
    "a thread": "thread = threading.Thread(target=lambda: asyncio.run(use(make()))); thread.start(); thread.join()",
    "closed, aclose": "agent = make(); bare(work(agent)); asyncio.run(agent.aclose())",
    "closed, collected": "agent = make(); bare(use(agent)); del agent; gc.collect()",
    "closed, subprocess kernels": "agent = make('local'); bare(use(agent)); asyncio.run(agent.aclose())",
    "Ctrl-C in a block": """
async def main():
    async with make() as agent:
        interrupting = interrupt(agent)
        await agent.run("go").result()
""",
    "Ctrl-C in a loop": """
async def main():
    agent = make()
    await agent.open()
    interrupting = interrupt(agent)
    async for event in agent.run("go"):
        pass
""",
    "Ctrl-C beside a run": """
async def main():
    agent = make()
    await work(agent)
    os.kill(os.getpid(), signal.SIGINT)
    await asyncio.Event().wait()
""",
    "Ctrl-C in run_sync": """
def interrupt_at_work(agent):
    wait_until((agent.config.workspace / "works").exists)
    os.kill(os.getpid(), signal.SIGINT)

def main():
    agent = make()
    threading.Thread(target=interrupt_at_work, args=(agent,)).start()
    agent.run_sync("go")
""",
}
CTRL_C = """
try:
    asyncio.run(main()) if asyncio.iscoroutinefunction(main) else main()
except KeyboardInterrupt:
    print("interrupted")
"""


@pytest.mark.slow
@pytest.mark.parametrize("ending", ENDINGS)
def test_a_loop_that_ends_leaves_no_process_of_an_agent(ending, tmp_path):
    code = f"{PROGRAM}\n{ENDINGS[ending]}\n{CTRL_C if 'Ctrl-C' in ending else ''}\nprint(all_gone())"
    command = [sys.executable, "-X", "dev", "-W", "error::ResourceWarning", "-c", code]
    own = environment() | {"PYTHONPATH": str(Path(__file__).parents[1])}
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, cwd=tmp_path, env=own, check=False)
    assert done.stdout.split() == [*(["interrupted"] if "Ctrl-C" in ending else []), "True"], done.stdout + done.stderr
    assert done.returncode in (0, -signal.SIGINT), done.stderr
    assert "Traceback" not in done.stderr, done.stderr


def test_an_agent_that_was_closed_with_its_loop_says_so_and_can_be_opened_again(tmp_path):
    async def use():
        await agent.open()
        assert (await agent.execute("x = 1")).status == "ok"

    async def use_later():
        with pytest.raises(Exception, match="the event loop in which the agent was opened has ended"):
            await agent.execute("x")

    agent = Agent(Config(workspace=tmp_path, mode="auto"), model=ScriptedModel(reply))
    asyncio.run(use())
    asyncio.run(use_later())
    asyncio.run(use())
    assert not agent.is_open
