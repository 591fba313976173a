"""The same recursion in rlms 0.1.3 and here, on one model server: requests, tokens, and what is spent past a limit.

The models are scripts, so both run the same code: records are halved down to the last level, which asks about 100 of them at
a time. The server counts (four characters are a token), and its kinds of records are right, so a wrong answer is a fault of
what lies between. In the rows of limits 16 children loop for ever. rlms is measured where `RLMS_PYTHON` names a Python that
has it; it has no limit on requests.
"""

import asyncio
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from benchmarks.common import Goal, OtherLoad, Series, main, report
from benchmarks.recursion import LINES, QUESTIONS, expected, records
from benchmarks.rlm import look, server, set_program, theirs
from benchmarks.rlm_model import DOLLARS, INPUT_TOKENS, LOOP, OUTPUT_TOKENS
from freeact_sub import Config, TaskError
from freeact_sub.rlm import RLM

CHILDREN: Final = 16
LIMITS: Final = {"cost_usd": 0.05, "tokens": 2000, "requests": 100}
OF_THEIRS: Final = {"cost_usd": "max_budget", "tokens": "max_tokens"}
EACH: Final = {"cost_usd": DOLLARS, "tokens": INPUT_TOKENS + OUTPUT_TOKENS, "requests": 1}
"""What one answer takes of a limit."""
UNITS: Final = {"cost_usd": "USD", "tokens": "tokens", "requests": ""}
FOUND: Final = {"count": "[kinds.count('river')]", "pairs": "[kinds.count('river'), kinds.count('painter')]"}
COUNTS: Final = f"""import json, math
lines = context.splitlines()
level, lines = (int(lines[0].split()[1]), lines[1:]) if lines[0].startswith("level ") else (1, lines)
if level == DEPTH:
    parts = ["\\n".join(lines[start:start + {LINES}]) for start in range(0, len(lines), {LINES})]
    kinds = [kind for text in llm_query_batched(parts) for kind in text.split()]
    found = FOUND
else:
    middle = len(lines) // 2
    halves = ["\\n".join([f"level {{level + 1}}", *half]) for half in (lines[:middle], lines[middle:])]
    found = [sum(each) for each in zip(*map(json.loads, HALVES))]
answer["content"], answer["ready"] = str(math.prod(found) if level == 1 else found), True"""
LOOPS: Final = f"""if {LOOP!r} in str(context)[:20]:
    print("again")
else:
    prompts = [f"{LOOP} {{number}}" for number in range(COUNT)]
    answer["content"], answer["ready"] = str(CHILDREN), True"""


@dataclass(frozen=True, kw_only=True)
class _Case:
    name: str
    ours: str
    """Here a child's context is an argument of its own."""
    theirs: str
    context: str
    depth: int
    answer: str = ""
    limit: str = ""
    way: str = "c0"
    options: dict[str, Any] = field(default_factory=dict)
    """Of rlms."""


def _cases(*, small: bool) -> Iterator[_Case]:
    context, kinds = records(32_000 if small else 131_000)
    for question in QUESTIONS:
        for depth in (1, 2, 3):
            program = COUNTS.replace("DEPTH", str(depth)).replace("FOUND", FOUND[question])
            yield _Case(
                name=f"{question}, depth {depth}",
                ours=program.replace("HALVES", 'rlm_query_batched(["one half", "the other half"], halves)'),
                theirs=program.replace("HALVES", "rlm_query_batched(halves)"),
                context=context,
                depth=depth,
                answer=expected(question, kinds),
            )
    program = LOOPS.replace("COUNT", "2" if small else str(CHILDREN))
    for limit in LIMITS:
        yield _Case(
            name=f"{CHILDREN} looping children, limit on {limit}",
            ours=program.replace("CHILDREN", "rlm_query_batched(prompts, prompts)"),
            theirs=program.replace("CHILDREN", "rlm_query_batched(prompts)"),
            context="context",
            depth=2,
            limit=limit,
            way="d50",
            options={OF_THEIRS[limit]: LIMITS[limit], "max_concurrent_subcalls": CHILDREN} if limit in OF_THEIRS else {},
        )


def run(*, small: bool = False) -> dict[str, Any]:
    """All cases; small: 32 KB instead of 131 KB, and two children."""
    load, series, python = OtherLoad(), Series(), os.environ.get("RLMS_PYTHON")
    units: dict[str, str] = {}
    with server() as address:
        for case in _cases(small=small):
            for who in ("ours", "rlms"):
                if who == "ours" or (python and (not case.limit or case.options)):
                    set_program(address, case.ours if who == "ours" else case.theirs)
                    look(address)
                    began = time.perf_counter()
                    base_url = f"{address}/{case.way}/v1"
                    if who == "ours":
                        output = asyncio.run(_ours(base_url, case))
                    else:
                        options = {"max_depth": case.depth, **case.options}
                        output = str(theirs(str(python), base_url, options, case.context)["output"])
                    seconds = time.perf_counter() - began
                    _note(who, case, output, look(address) | {"seconds": seconds}, series, units)
    rows = [row for name in series.values if (row := series.row(name, units[name], *_goals(name))) is not None]
    notes = [] if python else ["rlms is not measured: RLMS_PYTHON names no Python that has it"]
    return report("rlm_costs", rows, load, notes)


def _goals(name: str) -> list[Goal]:
    if name.endswith("overspent"):
        return [Goal(of="ours", at_most=0.0)]
    return [Goal(of="ours", at_least=1.0)] if name.endswith("exact") else []


async def _ours(base_url: str, case: _Case) -> str:
    config = Config(model="openai-chat:gpt-4o", base_url=base_url, subagents={"max_concurrent": CHILDREN})
    budget = {case.limit: LIMITS[case.limit]} if case.limit else {}
    try:
        return (await RLM(max_depth=case.depth, budget=budget, config=config).acompletion(case.context, "go")).response
    except TaskError as error:
        if not case.limit:
            raise
        return str(error)


def _note(who: str, case: _Case, output: str, done: dict[str, float], series: Series, units: dict[str, str]) -> None:
    if case.limit:
        spent = done["answered"] * EACH[case.limit]
        figures = {"spent": spent, "overspent": max(0.0, spent - LIMITS[case.limit])}
    else:
        figures = {"exact": float(output == case.answer), "requests": done["answered"], "tokens": done["tokens"]}
    for what, value in {**figures, "time": done["seconds"]}.items():
        name = f"{case.name}: {what}"
        units[name] = "s" if what == "time" else UNITS.get(case.limit, "") if case.limit else ""
        series.add(name, who, value)


if __name__ == "__main__":
    main(run)
