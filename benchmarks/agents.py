"""Many users in one program: memory and processes of root agents, each with a workspace and a kernel of its own.

`shared` is what agents do by default: one fork server for all. `own` gives each agent a kernel provider of its own.
`service` is `examples/services/service.py` over HTTP: its host is counted on a line of its own, and the end is by SIGTERM
while each user's page is open.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import psutil
from pydantic_ai.messages import ModelMessage, ModelResponse, ToolCallPart

from benchmarks.common import Goal, OtherLoad, Series, clean_environment, main, memory, processes, report
from freeact_sub import Agent, Config
from freeact_sub.kernels.forkserver.fork_provider import ForkKernelProvider
from freeact_sub.testing import ScriptedModel


def run(*, small: bool = False) -> dict[str, Any]:
    """All figures; small: two agents."""
    return asyncio.run(_run(agents=2 if small else 10))


async def _run(*, agents: int) -> dict[str, Any]:
    load, series = OtherLoad(), Series()
    for contender in ("own", "shared"):
        await _measure(contender, agents, series)
    await asyncio.to_thread(_service, agents, series)
    rows = [
        series.row("memory", "MB", Goal(of="shared", at_most=180 if agents == 10 else None)),
        series.row("processes", ""),
        series.row("host", "MB"),
        series.row("from SIGTERM to the end", "s", Goal(of="service", at_most=3)),
        series.row("processes left", "", Goal(of="service", at_most=0)),
    ]
    return report(
        "agents", rows, load, [f"{agents} agents, each with its own workspace, after one cell; the host is not counted"]
    )


async def _measure(contender: str, agents: int, series: Series) -> None:
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fa-bench-")))
        for number in range(agents):
            workspace = folder / str(number)
            workspace.mkdir()
            provider = ForkKernelProvider() if contender == "own" else None
            if provider is not None:
                stack.push_async_callback(provider.aclose)
            config = Config(workspace=workspace, mode="auto")
            agent = Agent(config, model=ScriptedModel(_script), kernel_provider=provider)
            await stack.enter_async_context(agent)
            result = await agent.run("begin").result()
            if result.text != "done":
                raise RuntimeError(f"{result}")
        await asyncio.sleep(2)  # spares are made
        below = processes(os.getpid())[1:]
        series.add("memory", contender, memory(below)[0])
        series.add("processes", contender, len(below))


def _service(users: int, series: Series) -> None:
    with tempfile.TemporaryDirectory(prefix="fa-bench-") as folder:
        program = Path(__file__).parent.parent / "examples/services/service.py"
        command = [sys.executable, str(program), folder, str(users)]
        with subprocess.Popen(command, cwd=folder, env=clean_environment(), stdout=subprocess.PIPE, text=True) as host:
            assert host.stdout is not None
            pages = [host.stdout.readline().strip() for _ in range(users)]
            try:
                with ThreadPoolExecutor(users) as pool:
                    opened = [*pool.map(_first_answer, pages)]
                time.sleep(2)  # spares are made
                below = processes(host.pid)[1:]
                series.add("memory", "service", memory(below)[0])
                series.add("processes", "service", len(below))
                series.add("host", "service", memory([host.pid])[0])
            finally:
                began = time.perf_counter()
                host.send_signal(signal.SIGTERM)
                host.wait(60)
            series.add("from SIGTERM to the end", "service", time.perf_counter() - began)
            series.add("processes left", "service", sum(map(psutil.pid_exists, below)))
            for stream in opened:
                stream.close()


def _first_answer(page: str) -> Any:
    """Open the page's stream of events, send a prompt, and wait for its answer. Returns the stream, which stays open."""
    stream = urllib.request.urlopen(f"{page}events", timeout=60)
    with urllib.request.urlopen(f"{page}prompt", data=b"Which day?", timeout=60):
        pass
    for line in stream:
        event = json.loads(line.removeprefix(b"data: "))["event"] if line.startswith(b"data: ") else {"type": ""}
        if event["type"] == "AgentFinished" and event["output"] == "It was a Saturday.":
            return stream
    raise RuntimeError("there is no answer")


def _script(messages: list[ModelMessage], _: Any) -> Any:
    asked = any(isinstance(message, ModelResponse) for message in messages)
    return "done" if asked else ToolCallPart("execute_ipython_cell", {"code": "x = 1"})


if __name__ == "__main__":
    main(run)
