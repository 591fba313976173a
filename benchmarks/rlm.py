"""The same programs in rlms 0.1.3 and here, against one model server on this machine that answers at once or after 200 ms.

rlms is measured where `RLMS_PYTHON` names a Python that has it (`python -m venv there; there/bin/pip install rlms==0.1.3`);
it stays out of our environment. `wall` is by the clock of the program; `cpu` that of the host's process for the whole run
(rlms: with its REPLs, which are in it); `overspent` what was answered beyond the limit, by the server's count. A piece of a
long answer is measured beside an agent of pydantic-ai, because rlms does not stream.
"""

import asyncio
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pydantic_ai import Agent as PlainAgent

from benchmarks.common import Goal, OtherLoad, Series, main, report
from benchmarks.rlm_model import CHILD, DOLLARS, INPUT_TOKENS, LEAF, LOOP, OUTPUT_TOKENS, WORDS
from freeact_sub import Agent, Config
from freeact_sub.config.budget import Budget
from freeact_sub.models import build_model

HERE: Final = Path(__file__).parent
LIMIT_SECONDS: Final = 600
TOKENS: Final = 20 * (INPUT_TOKENS + OUTPUT_TOKENS)
MONEY: Final = 20 * DOLLARS
CHILDREN: Final = 16
PIECE: Final = "a piece of a streamed answer: cpu of one"


@dataclass(frozen=True, kw_only=True)
class _Case:
    """One program in both languages."""

    name: str
    ours: str
    theirs: str
    count: int
    delay_ms: int = 0
    budget: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    """Of rlms."""
    unit: str = ""
    """What is limited."""


def _cases(*, small: bool) -> Iterator[_Case]:
    asks, at_once, children, looping = (2, 2, 1, 2) if small else (50, 200, 20, CHILDREN)
    for delay in (0,) if small else (0, 200):
        yield _Case(
            name=f"asks one after the other, {delay} ms",
            ours=f"for n in range({asks}): await agent.ask(f'{LEAF} {{n}}')",
            theirs=f"for n in range({asks}): llm_query(f'{LEAF} {{n}}')",
            count=asks,
            delay_ms=delay,
        )
        yield _Case(
            name=f"{at_once} asks at once, {delay} ms",
            ours=f"import asyncio; await asyncio.gather(*(agent.ask(f'{LEAF} {{n}}') for n in range({at_once})))",
            theirs=f"llm_query_batched([f'{LEAF} {{n}}' for n in range({at_once})])",
            count=at_once,
            delay_ms=delay,
        )
        yield _Case(
            name=f"{children} children with a REPL, {delay} ms",
            ours=f"import asyncio; await asyncio.gather(*(agent.task(f'{CHILD} {{n}}') for n in range({children})))",
            theirs=f"rlm_query_batched([f'{CHILD} {{n}}' for n in range({children})])",
            count=children,
            delay_ms=delay,
            options={"max_depth": 2, "max_concurrent_subcalls": children},
        )
    loops = f"import asyncio; await asyncio.gather(*(agent.task(f'{LOOP} {{n}}') for n in range({looping})))"
    rlm_loops = f"rlm_query_batched([f'{LOOP} {{n}}' for n in range({looping})])"
    bounds = ("tokens", TOKENS, "max_tokens"), ("cost_usd", MONEY, "max_budget")
    for unit, most, option in bounds:
        yield _Case(
            name=f"{looping} looping children, limit on {unit}",
            ours=loops,
            theirs=rlm_loops,
            count=1,
            delay_ms=50,
            budget={unit: most},
            options={"max_depth": 2, "max_concurrent_subcalls": looping, option: most},
            unit=unit,
        )


def run(*, small: bool = False) -> dict[str, Any]:
    """All cases; small: of two each, once."""
    load, series, python = OtherLoad(), Series(), os.environ.get("RLMS_PYTHON")
    units: dict[str, str] = {}
    with server() as address:
        for _ in range(1 if small else 3):
            for case in _cases(small=small):
                set_program(address, f"import time; t = time.perf_counter()\n{case.ours}\nprint(time.perf_counter() - t)")
                look(address)
                _note("ours", case, asyncio.run(_ours(address, case)), look(address)["answered"], series, units)
                if python:
                    set_program(address, _as_block(case))
                    _note(
                        "rlms",
                        case,
                        theirs(python, f"{address}/d{case.delay_ms}/v1", case.options),
                        look(address)["answered"],
                        series,
                        units,
                    )
            for who, used in asyncio.run(_pieces(address, 20 if small else 2000)).items():
                units[PIECE] = "µs"
                series.add(PIECE, who, used)
    rows = [row for name in series.values if (row := series.row(name, units[name], *_goals(name, small=small))) is not None]
    notes = [] if python else ["rlms is not measured: RLMS_PYTHON names no Python that has it"]
    return report("rlm", rows, load, notes)


def _goals(name: str, *, small: bool) -> list[Goal]:
    return [Goal(of="ours", at_most=0.0)] if name.endswith("overspent") and not small else []


def _note(who: str, case: _Case, done: dict[str, Any], answered: int, series: Series, units: dict[str, str]) -> None:
    if case.unit:
        each = INPUT_TOKENS + OUTPUT_TOKENS if case.unit == "tokens" else DOLLARS
        name, unit = f"{case.name}: overspent", "tokens" if case.unit == "tokens" else "USD"
        units[name] = unit
        series.add(name, who, max(0.0, answered * each - case.budget[case.unit]))
        return
    if done["why"] or answered < case.count:
        raise RuntimeError(f"{who}, {case.name}: {answered} requests were answered; {done}")
    for kind in ("wall", "cpu"):
        name = f"{case.name}: {kind} of one"
        units[name] = "ms"
        series.add(name, who, (done["cpu"] if kind == "cpu" else float(done["output"])) * 1000 / case.count)


def _config(folder: str, address: str, delay_ms: int) -> Config:
    return Config(
        workspace=Path(folder),
        mode="full",
        model="openai-chat:gpt-4o",
        base_url=f"{address}/d{delay_ms}/v1",
        subagents={"max_concurrent": 20},
        models={"max_concurrent": 50},
        kernel={"cell_timeout_seconds": None},
    )


async def _pieces(address: str, count: int) -> dict[str, float]:
    """The processor time of this process, of one of so many, in microseconds; the first answer of each is not counted."""
    found = {}

    async def read(_: Any, events: Any) -> None:
        async for _ in events:
            pass

    with tempfile.TemporaryDirectory(prefix="fa-bench-") as folder:
        config = _config(folder, address, 0)
        async with Agent(config) as agent:
            plain = PlainAgent(build_model(config))
            for _ in range(2):
                agent.history.clear()
                used = time.process_time()
                async for _ in agent.stream(f"{WORDS} {count}"):
                    pass
                between = time.process_time()
                await plain.run(f"{WORDS} {count}", event_stream_handler=read)
                found = {"ours": between - used, "pydantic-ai": time.process_time() - between}
    return {who: seconds * 1e6 / count for who, seconds in found.items()}


async def _ours(address: str, case: _Case) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="fa-bench-") as folder:
        async with Agent(_config(folder, address, case.delay_ms)) as agent:
            used = resource.getrusage(resource.RUSAGE_SELF)
            result = await agent.run("go", budget=Budget(**case.budget)).result()
            now = resource.getrusage(resource.RUSAGE_SELF)
        why = "" if result.status == "completed" else f"{result.status}: {result.error}"
        return {"why": why, "output": result.text, "cpu": now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime}


def _as_block(case: _Case) -> str:
    """The program as rlms's model writes it, one text for the root and its children; their contexts differ."""
    return (
        f"if {CHILD!r} in str(context)[:20]:\n    answer['content'] = 'ok'; answer['ready'] = True\n"
        f"elif {LOOP!r} in str(context)[:20]:\n    print('again')\n"
        f"else:\n    import time; t = time.perf_counter()\n    {case.theirs}\n"
        "    answer['content'] = str(time.perf_counter() - t); answer['ready'] = True"
    )


def theirs(python: str, base_url: str, options: dict[str, Any], context: str = "context") -> dict[str, Any]:
    """Run a case in rlms. Args: python: has rlms."""
    command = [python, "-P", str(HERE / "rlm_theirs.py"), base_url, json.dumps(options)]
    done = subprocess.run(command, input=context, capture_output=True, text=True, check=False, timeout=LIMIT_SECONDS)
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@contextmanager
def server() -> Iterator[str]:
    """The address of the model server."""
    with subprocess.Popen([sys.executable, "-P", str(HERE / "rlm_model.py")], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.terminate()


def set_program(address: str, program: str) -> None:
    """Set what a model that acts by code runs."""
    body = json.dumps({"program": program}).encode()
    with urllib.request.urlopen(urllib.request.Request(f"{address}/program", data=body), timeout=LIMIT_SECONDS) as response:
        response.read()


def look(address: str) -> dict[str, int]:
    """What the server has answered since the last look: `answered`, `tokens`."""
    with urllib.request.urlopen(f"{address}/stats", timeout=LIMIT_SECONDS) as response:
        found: dict[str, int] = json.load(response)
        return found


if __name__ == "__main__":
    main(run)
