"""Measures one state of the package: `python -P one_state.py PART SIZE`, with the package on PYTHONPATH.

`benchmarks.before` runs it. It prints `{figure: {kind: value}}` as JSON. It imports nothing of `benchmarks`, and of the
package only what has had one name since the commit that is measured beside this state.
"""

import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import psutil
from pydantic_ai import Agent as PlainAgent
from pydantic_ai.direct import model_request_stream
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, ToolCallPart, UserPromptPart

from freeact_sub import Agent, Config
from freeact_sub.kernels.forkserver.fork_provider import ForkKernelProvider
from freeact_sub.testing import ScriptedModel

Figures = dict[str, dict[str, float]]

ITEMS: Final = {
    "agent.ask from a cell": "for _ in range({n}): await agent.ask('hi')",
    "agent.task without a cell": "for _ in range({n}): await agent.task('hi')",
    "agent.task with a cell": "for _ in range({n}): await agent.task('cell x = 1')",
    "event, kernel to reader": "for i in range({n}): display(i)",
}
GATHER: Final = "import asyncio; await asyncio.gather(*(agent.task('cell x = 1') for _ in range({n})))"
PRINTS: Final = "for _ in range({n}): print('x' * 4999, flush=True)"
SPENT: Final = "import time; print(time.process_time())"
TURNS: Final = 5
"""Of the root in one conversation."""


class Slow(ScriptedModel):
    """Takes 200 ms for a request of a child."""

    async def _parts(self, messages: list[ModelMessage], info: Any) -> Any:
        if latest_prompt(messages)[0].startswith("cell x"):
            await asyncio.sleep(0.2)
        async for part in super()._parts(messages, info):
            yield part


def script(messages: list[ModelMessage], _: Any) -> Any:
    """`cell CODE` runs a cell; `json N` is answered by so much JSON; all else by a word."""
    prompt, answers = latest_prompt(messages)
    verb, _, rest = prompt.partition(" ")
    if verb == "json":
        return json.dumps([{"name": f"row {number}", "value": number} for number in range(int(rest) // 36)])
    return ToolCallPart("execute_ipython_cell", {"code": rest}) if verb == "cell" and not answers else "done"


def latest_prompt(messages: list[ModelMessage]) -> tuple[str, int]:
    """As in `benchmarks.cells`."""
    prompt, answers = "", 0
    for message in messages:
        if isinstance(message, ModelResponse):
            answers += 1
        elif isinstance(message, ModelRequest):
            for part in message.parts:
                if isinstance(part, UserPromptPart):
                    prompt, answers = str(part.content), 0
    return prompt, answers


@asynccontextmanager
async def agent(model: type[ScriptedModel] = ScriptedModel, *, spares: int = 1, **settings: Any) -> AsyncIterator[Any]:
    """An agent with a kernel, which has done a little of everything."""
    kernel = {"cell_timeout_seconds": None} | settings.pop("kernel", {})
    with tempfile.TemporaryDirectory(prefix="fa-bench-") as folder:
        config = Config(workspace=Path(folder), mode="full", kernel=kernel, **settings)
        provider = ForkKernelProvider(spares=spares)
        try:
            async with Agent(config, model=model(script, chunk_chars=1000), kernel_provider=provider) as made:
                await run(made, "cell await agent.ask('hi'); await agent.task('cell x = 1')")
                await provider.refilled()
                yield made
        finally:
            await provider.aclose()


async def run(made: Any, prompt: str) -> str:
    """Read a run to its end; what the model has read of its last tool call.

    Raises:
        RuntimeError: It has not completed.
    """
    last: Any = None
    output = ""
    async for last in made.stream(prompt):
        if type(last).__name__ == "ToolOutput":
            output = last.content
    if last is None or last.status != "completed":
        raise RuntimeError(f"{prompt[:80]}: {last}")
    return output


async def measured(work: Coroutine[Any, Any, Any], count: int) -> dict[str, float]:
    """CPU time of this process, and wall-clock time, of one of so many, in ms."""
    used, began = time.process_time(), time.perf_counter()
    await work
    spent, wall = time.process_time() - used, time.perf_counter() - began
    return {"CPU": spent * 1000 / count, "wall": wall * 1000 / count}


async def host(size: int) -> Figures:
    """Turns, children, questions, events. Args: size: how many of each."""
    found: Figures = {}
    async with agent(subagents={"max_concurrent": 20}, budget={"children": 10_000, "turns": None}) as made:
        for name, code in ITEMS.items():
            count = size * 50 if name.startswith("event") else size
            found[name] = await measured(run(made, f"cell {code.format(n=count)}"), count)

        async def turns() -> None:
            for number in range(size):
                if not number % TURNS:
                    made.history.clear()
                await run(made, "cell x = 1")

        found["root turn with a cell"] = await measured(turns(), size)
    return found


async def streamed(size: int) -> Figures:
    """A JSON answer of so many characters, character by character; one half as long; the same in pydantic-ai."""
    found: Figures = {}

    class Letters(ScriptedModel):
        def __init__(self, *args: Any, **_: Any) -> None:
            super().__init__(*args, chunk_chars=1)

    async def read(_: Any, events: Any) -> None:
        async for _ in events:
            pass

    async def alone() -> None:
        async with model_request_stream(Letters(script), [ModelRequest.user_text_prompt(f"json {size}")]) as events:
            await read(None, events)

    async with agent(Letters, code_actions="block") as made:
        for length in (size // 2, size):
            found[f"delta of a streamed answer of {length:,} characters"] = await measured(
                run(made, f"json {length}"), length
            )
    plain = PlainAgent(Letters(script)).run(f"json {size}", event_stream_handler=read)
    found["the same delta, an agent of pydantic-ai"] = await measured(plain, size)
    found["the same delta, the model's stream alone"] = await measured(alone(), size)
    return found


async def children(size: int) -> Figures:
    """So many children at once, and as many a second later, with one spare kernel at least and with none."""
    found: Figures = {}
    for spares in (0, 1):
        async with agent(spares=spares, subagents={"max_concurrent": size}) as made:
            for wave in ("at once", "more a second later"):
                name = f"{size} children {wave}, {'one spare' if spares else 'no spares'}"
                found[name] = await measured(run(made, f"cell {GATHER.format(n=size)}"), 1)
                await asyncio.sleep(1)
    return found


async def crowd(size: int) -> Figures:
    """So many children of one root, 100 at once, with a model that takes 200 ms."""
    settings: dict[str, Any] = {
        "subagents": {"max_concurrent": 100},
        "kernel": {"max_live": 101},
        "budget": {"children": size + 10},
    }
    if "requests" in Config.model_fields["budget"].annotation.model_fields:  # they were not limited
        settings["budget"]["requests"] = 10 * size
    if hasattr(Config.model_fields["models"].annotation, "model_fields"):  # they were no section
        settings["models"] = {"max_concurrent": 100}
    async with agent(Slow, **settings) as made:
        return {f"{size} children": await measured(run(made, f"cell {GATHER.format(n=size)}"), 1)}


async def kernel(size: int) -> Figures:
    """What a forked kernel has used when its first cell begins: the median of so many kernels."""
    spent = []
    for _ in range(size):
        provider = ForkKernelProvider(spares=0)
        try:
            with tempfile.TemporaryDirectory(prefix="fa-bench-") as folder:
                config = Config(workspace=Path(folder), mode="full")
                async with Agent(config, model=ScriptedModel(script), kernel_provider=provider) as made:
                    spent.append(float(await run(made, f"cell {SPENT}")))
        finally:
            await provider.aclose()
    return {"forked kernel up to its first cell": {"CPU": statistics.median(spent) * 1000}}


async def prints(size: int) -> Figures:
    """So many MB in flushed prints, read as they come: CPU of this process and the kernel."""
    async with agent() as made:
        count = size * 200
        below = psutil.Process().children(recursive=True)
        used = kernels_cpu(below)
        found = await measured(run(made, f"cell {PRINTS.format(n=count)}"), 1)
        found["CPU"] += (kernels_cpu(below) - used) * 1000
    return {f"{size} MB of flushed prints": found}


def kernels_cpu(below: list[psutil.Process]) -> float:
    """Seconds of processes that are still there."""
    return sum(sum(process.cpu_times()[:2]) for process in below if process.is_running())


async def agents(size: int) -> Figures:
    """So many root agents in this process, each with a workspace and a kernel: what the processes below take."""
    with tempfile.TemporaryDirectory(prefix="fa-bench-") as folder:
        made = []
        for number in range(size):
            config = Config(workspace=tempfile.mkdtemp(prefix=f"{number}-", dir=folder), mode="full")
            made.append(await Agent(config, model=ScriptedModel(script)).__aenter__())
            await run(made[-1], "cell x = 1")
        await asyncio.sleep(2)  # spares are made
        total = sum(pss(process.pid) for process in psutil.Process().children(recursive=True))
        for one in made:
            await one.aclose()
    return {f"memory of {size} agents in one program": {"MB": total}}


def pss(pid: int) -> float:
    """The share of a process in memory, in MB."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) * 1024 / 1e6


PARTS: Final[dict[str, Callable[[int], Coroutine[Any, Any, Figures]]]] = {
    part.__name__: part for part in (host, streamed, children, kernel, prints, agents, crowd)
}

if __name__ == "__main__":
    os.environ.pop("FREEACT_CONFIG", None)
    print(json.dumps(asyncio.run(PARTS[sys.argv[1]](int(sys.argv[2])))))
