"""Kernels of a Jupyter Kernel Gateway beside those of this machine, and how many one host has there at once.

`here` forks kernels on this machine; `stock` is the gateway's usual kernelspec, `forked` ours, without a wall. All gateways
run on this machine too, so the network costs nothing. One of them has its own mounts: nobody else sees the files of its
kernels, as if it were on another machine.
"""

import asyncio
import contextlib
import os
import secrets
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pydantic_ai.messages import ModelMessage, ModelResponse, ToolCallPart

from benchmarks.cells import run_cell
from benchmarks.common import Goal, OtherLoad, Series, clock, cpu_ms, main, report, resident
from freeact_sub import Agent, Config
from freeact_sub.cli.serving import install_kernelspec
from freeact_sub.config.schema import GatewayConfig, KernelConfig
from freeact_sub.events import CodeExecutionOutput
from freeact_sub.kernels import AuditSettings, CellClock, Kernel, KernelProvider, KernelSpec
from freeact_sub.kernels.forkserver.fork_provider import ForkKernelProvider
from freeact_sub.kernels.handover import hand_over
from freeact_sub.kernels.provider import make_provider
from freeact_sub.testing import ScriptedModel, first_prompt

TOKEN: Final = secrets.token_hex(16)
NAME: Final = "values-" + "0" * 32
GIVE: Final = f"__import__('sys').modules['freeact_guest.values'].give({NAME!r}, {{'big': big}})"
SERVE_SECONDS: Final = 60.0
OWN_MOUNTS: Final = ("unshare", "-rm", "sh", "-c", 'mkdir "$0/own" && mount --bind "$0/own" "$0" && exec "$@"')


def run(*, small: bool = False) -> dict[str, Any]:
    """All figures; small: few of each, once."""
    return asyncio.run(_run(small=small))


async def _run(*, small: bool) -> dict[str, Any]:
    load, series = OtherLoad(), Series()
    times, at_once, megabytes, children = (1, 2, 1, 2) if small else (5, 20, 100, 100)
    lost = 0
    with tempfile.TemporaryDirectory(prefix="fa-bench-") as name:
        folder = Path(name)
        install_kernelspec(folder, sys.executable, wall="none")
        async with AsyncExitStack() as stack:
            first, second = [await stack.enter_async_context(_served(folder / place)) for place in "ab"]
            providers: dict[str, KernelProvider] = {"forked": make_provider(_at(first.url, "freeact"))}
            others = {"two gateways": second}
            if not small:
                providers |= {"here": ForkKernelProvider(spares=0), "stock": make_provider(_at(first.url))}
                others["no shared disk"] = await stack.enter_async_context(_served(folder / "c", own_mounts=True))
            for provider in providers.values():
                stack.push_async_callback(provider.aclose)
            routes = {name: (provider, provider) for name, provider in providers.items() if name != "stock"}
            for contender, gateway in others.items():
                routes[contender] = providers["forked"], make_provider(_at(gateway.url, "freeact"))
                stack.push_async_callback(routes[contender][1].aclose)
            for contender, provider in providers.items():
                await _measure(provider, contender, series, folder, times, at_once)
            await _values(routes, [gateway.pid for gateway in (first, *others.values())], series, folder, times, megabytes)
            lost = await _many(series, folder, _at((first.url, second.url), "freeact"), children)
    rows = [
        series.row("1+1", "ms"),
        series.row("first", "ms"),
        series.row("at once", "ms"),
        series.row("10 MB", "ms"),
        series.row("values", "ms"),
        series.row("values, times here", "", *(Goal(of=name, at_most=3) for name in ("forked", *others))),
        *(series.row(f"values, CPU of {part}", "ms") for part in ("the host", "gateways", "kernels")),
        series.row("host per child", "MB", Goal(of="forked", at_most=5)),
        series.row("children", "s"),
    ]
    notes = [
        f"at once: {at_once} kernels, each after its first cell",
        f"values: {megabytes} MB from one kernel to another; `two gateways`: one at each, on one disk",
        "times here: the median of ratios to `here` in the same round",
        f"children: {2 * children} kernels alive at once over two gateways, and their children's answers; {lost} lost",
    ]
    return {**report("gateway", rows, load, notes), "failed": lost > 0}


async def _measure(provider: KernelProvider, contender: str, series: Series, folder: Path, times: int, at_once: int) -> None:
    spec = _spec(contender, folder)

    async def first() -> Kernel:
        kernel = await provider.start(spec, _no_host)
        await run_cell(kernel, "1+1")
        return kernel

    await (await first()).aclose()  # a fork server is started
    for _ in range(times):
        started = clock()
        kernel = await first()
        series.add("first", contender, (clock() - started) * 1000)
        for _ in range(4 * times):
            started = clock()
            await run_cell(kernel, "1+1")
            series.add("1+1", contender, (clock() - started) * 1000)
        started = clock()
        await run_cell(kernel, "for n in range(10_000): print('x' * 999)")
        series.add("10 MB", contender, (clock() - started) * 1000)
        await kernel.aclose()
    started = clock()
    kernels = await asyncio.gather(*(first() for _ in range(at_once)))
    series.add("at once", contender, (clock() - started) * 1000)
    await asyncio.gather(*(kernel.aclose() for kernel in kernels))


async def _values(
    routes: dict[str, tuple[KernelProvider, KernelProvider]],
    gateways: list[int],
    series: Series,
    folder: Path,
    times: int,
    megabytes: int,
) -> None:
    """All ways take turns, so that what others do meanwhile falls on all of them; the first round is not counted."""
    kernels: dict[str, list[Kernel]] = {}
    try:
        for name, providers in routes.items():
            kernels[name] = [await provider.start(_spec(name, folder), _no_host) for provider in providers]
            await run_cell(kernels[name][0], f"import os; big = bytearray(os.urandom({megabytes} * 10**6))")
        for number in range(times + 1):
            taken = {}
            for name, pair in kernels.items():
                pids = [[int(await run_cell(kernel, "import os; print(os.getpid())"))] for kernel in pair]
                parts = {"the host": [os.getpid()], "gateways": gateways, "kernels": {*pids[0], *pids[1]}}
                used = {part: cpu_ms(pids) for part, pids in parts.items()}
                started = clock()
                await run_cell(pair[0], GIVE)
                await hand_over(NAME, *pair)
                taken[name] = (clock() - started) * 1000, {part: cpu_ms(pids) - used[part] for part, pids in parts.items()}
            for name, (milliseconds, used) in taken.items() if number else ():
                series.add("values", name, milliseconds)
                for part, processor in used.items():
                    series.add(f"values, CPU of {part}", name, processor)
                if "here" in taken:
                    series.add("values, times here", name, milliseconds / taken["here"][0])
    finally:
        await asyncio.gather(*(kernel.aclose() for pair in kernels.values() for kernel in pair))


def _spec(contender: str, folder: Path) -> KernelSpec:
    return KernelSpec(
        owner_id="bench",
        python=sys.executable,
        workspace=folder,
        environment=KernelConfig().environment() if contender == "here" else {},
        start_timeout_seconds=300,
        audit=AuditSettings(writable=(folder,)),
    )


async def _many(series: Series, folder: Path, kernel: KernelConfig, children: int) -> int:
    """Two root agents, each with so many children, whose kernels are all alive at once. Returns how many were lost."""
    go_on, alive = folder / "go on", set[str]()
    before, most = resident(os.getpid()), 0.0
    started = clock()

    async def root(number: int) -> int:
        nonlocal most
        model = ScriptedModel(lambda messages, _: _said(messages, children, go_on))
        workspace = folder / f"root {number}"
        workspace.mkdir()
        config = Config(
            workspace=workspace,
            mode="full",
            kernel=kernel,
            subagents={"max_concurrent": children},  # type: ignore[arg-type]
        )
        values = 0
        async with Agent(config, model=model) as agent, agent.run("root") as run:
            async for event in run:
                text = getattr(getattr(event, "output", None), "text", "")
                if event.depth and "alive" in text:
                    alive.add(event.agent_id)
                    if len(alive) == 2 * children:
                        most = resident(os.getpid())
                        go_on.touch()
                values += isinstance(event, CodeExecutionOutput) and event.depth > 0 and "value" in event.text
            result = await run.result()
            ended = result.text == f"{children} completed"
            booked = result.tree_usage.turns == model.requests == 2 + 2 * children
        return (children - values) + (not ended) + (not booked)

    lost = sum(await asyncio.gather(root(0), root(1)))
    series.add("children", "forked", clock() - started)
    series.add("host per child", "forked", max(0.0, most - before) / (2 * children))
    return lost


def _said(messages: list[ModelMessage], children: int, go_on: Path) -> Any:
    turns = sum(isinstance(message, ModelResponse) for message in messages)
    prompt = first_prompt(messages)
    if "root" in prompt and not turns:
        code = f"""
import asyncio
results = await asyncio.gather(*(agent.task(f"child {{n}}") for n in range({children})))
print(sum(r.output == f"answer {{n}}" for n, r in enumerate(results)), *{{r.status for r in results}})
"""
    elif "root" in prompt:
        return str(messages[-1].parts[0].content)  # type: ignore[union-attr]
    elif not turns:
        code = f"""
import os, time
print("alive", flush=True)
while not os.path.exists({str(go_on)!r}): time.sleep(0.2)
print("value")
"""
    else:
        return "answer " + prompt.split("child ")[1].split()[0]
    return ToolCallPart("execute_ipython_cell", {"code": code})


def _at(urls: str | tuple[str, ...], name: str = "") -> KernelConfig:
    gateway = GatewayConfig(url=urls, token=TOKEN, kernel=name)  # type: ignore[arg-type]
    return KernelConfig(
        provider="gateway", gateway=gateway, start_timeout_seconds=300, cell_timeout_seconds=None, max_live=500
    )


@dataclass(frozen=True)
class _Gateway:
    url: str
    pid: int


@asynccontextmanager
async def _served(folder: Path, *, own_mounts: bool = False) -> AsyncIterator[_Gateway]:
    """A gateway on a free port, as docs/gateway.md has it. Args: own_mounts: only its kernels see their temporary files."""
    temporary = folder / "tmp"
    temporary.mkdir(parents=True)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    variables = {"JUPYTER_PATH": str(folder.parent), "JUPYTER_RUNTIME_DIR": str(folder), "KG_AUTH_TOKEN": TOKEN}
    command = [
        *((*OWN_MOUNTS, str(temporary)) if own_mounts else ()),
        *(sys.executable, "-m", "kernel_gateway", "--ip=127.0.0.1", f"--port={port}"),
        "--KernelGatewayApp.port_retries=0",
        "--ZMQChannelsWebsocketConnection.limit_rate=False",
        "--AsyncIOLoopKernelRestarter.restart_limit=0",
        "--AsyncIOLoopKernelRestarter.time_to_dead=0.3",
    ]
    environment = {**os.environ, **variables, **({"TMPDIR": str(temporary)} if own_mounts else {})}
    null = subprocess.DEVNULL
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, cwd=folder, env=environment, stdin=null, stdout=log, stderr=log)  # noqa: ASYNC220
    try:
        async with asyncio.timeout(SERVE_SECONDS):
            while True:
                with contextlib.suppress(ConnectionError):
                    _, writer = await asyncio.open_connection("127.0.0.1", port)
                    writer.close()
                    break
                await asyncio.sleep(0.05)
        yield _Gateway(f"http://127.0.0.1:{port}", process.pid)
    finally:
        process.terminate()
        await asyncio.to_thread(process.wait)


async def _no_host(method: str, params: Mapping[str, Any], clock: CellClock | None) -> None:
    del method, params, clock


if __name__ == "__main__":
    main(run)
