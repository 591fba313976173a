"""A tree of nodes over live state, files included: what a node costs, and whether each is what it was made of.

A kernel is set up once: data, and what cannot be pickled (a generator in the middle, a database in memory with an open
cursor, a lock). Then it is branched, and each branch again, each with files of its own. At each fork the digest of all
variables and files must be that of the node above; then the node changes variables and files at random. At the end every
node must still be as it was after its own changes, whatever the others have done. `replay` is what the setup takes when it
is run again, without the start of a kernel; `pickle` counts the variables that cannot be carried over.
"""

import asyncio
import random
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.common import Goal, OtherLoad, Series, clock, main, memory, report
from freeact_sub import Agent, Config, KernelConfig, KernelNode
from freeact_sub.testing import ScriptedModel

SETUP = """
import hashlib, itertools, os, pathlib, pickle, random, sqlite3, threading, zlib
ran = ["setup"]
data = bytearray(b"x") * {bytes}
def count_up():
    total = 0
    while True:
        total += 1
        yield total
numbers = count_up(); next(numbers); next(numbers)
draws = random.Random(7); draws.random()
memory = sqlite3.connect(":memory:")
memory.execute("create table t (x)"); memory.executemany("insert into t values (?)", [(n,) for n in range(100)])
cursor = memory.execute("select x from t order by x"); cursor.fetchone()
lock = threading.Lock()
steps = itertools.count(3)
values = {{"list": [1, 2, 3], "text": "t"}}
for number in range(20):
    pathlib.Path(f"file-{{number}}").write_text(str(number) * 100)
VARIABLES = ("ran", "data", "numbers", "draws", "memory", "cursor", "lock", "steps", "values")
def digest():
    "Of each variable and each file; what a look would change is looked at in a way that changes nothing."
    found = {{
        "ran": repr(ran), "data": (len(data), zlib.crc32(data)), "numbers": numbers.gi_frame.f_locals["total"],
        "draws": hash(draws.getstate()), "memory": list(memory.iterdump()), "lock": lock.locked(),
        "steps": repr(steps), "values": repr(values),
    }}
    paths = (p for p in pathlib.Path(".").rglob("*") if p.is_file() and ".freeact" not in p.parts)
    files = sorted((str(p), p.read_text()) for p in paths)
    return hashlib.sha256(repr((found, files)).encode()).hexdigest()
def lost():
    names = []
    for name in VARIABLES:
        try:
            pickle.dumps(globals()[name]) if name != "data" else None
        except Exception:
            names.append(name)
    return len(names)
"""
CHANGES = (
    "data[{n} % len(data)] = {n} % 256",
    "next(numbers)",
    "draws.random()",
    "memory.execute('insert into t values ({n})')",
    "next(steps)",
    "values['list'].append({n})",
    "pathlib.Path('file-{f}').write_text('{n}')",
    "pathlib.Path('new-{n}').write_text('{n}')",
    "pathlib.Path('file-{f}').unlink(missing_ok=True)",
    "os.path.exists('file-{f}') and os.rename('file-{f}', 'moved-{n}')",
)
"""What a node does, at random."""
NODE_MS, NODE_MB = 150, 15


@dataclass(kw_only=True)
class Size:
    """How large the tree is, and what it is over."""

    megabytes: int
    branching: int
    depth: int
    changes: int
    """Random writes of each node."""


def run(*, small: bool = False) -> dict[str, Any]:
    """All figures; small: a tree of four nodes over little data."""
    small_size = Size(megabytes=1, branching=3, depth=2, changes=3)
    whole = Size(megabytes=1000, branching=3, depth=4, changes=25)
    return asyncio.run(_run(small_size if small else whole))


async def _run(size: Size) -> dict[str, Any]:
    load, series, wrong = OtherLoad(), Series(), []
    with tempfile.TemporaryDirectory(prefix="fa-bench-") as folder:
        config = Config(workspace=Path(folder), mode="auto", kernel=KernelConfig(max_live=100, cell_timeout_seconds=600))
        async with Agent(config, model=ScriptedModel({})) as agent:

            async def program() -> None:
                wrong.extend(await _grow(agent, size, series))

            result = await agent.run_program(program).result()
            if result.status != "completed":
                wrong.append(result.error)
    bounds = {"a node": ("ms", NODE_MS), "its own memory": ("MB", NODE_MB), "taking over variables": ("ms", None)}
    rows = []
    for name in series.values:
        unit, bound = bounds.get(name, ("", None))
        rows.append(series.row(name, unit, *(() if bound is None else (Goal(of="branch", at_most=bound),))))
    return report("tree", rows, load, wrong) | {"failed": bool(wrong)}


async def _grow(agent: Agent, size: Size, series: Series) -> list[str]:
    """Makes the tree; returns what is not as it should be."""
    draw, wrong = random.Random(16), list[str]()
    begin = await agent.branch("setup", own_files=True)
    started = clock()
    await _text(begin, SETUP.format(bytes=size.megabytes * 10**6))
    setup_ms = (clock() - started) * 1000
    level: list[tuple[KernelNode, list[str]]] = [(begin, ["setup"])]
    known = {begin: await _text(begin, "print(digest())")}
    series.add("variables lost", "pickle", int(await _text(begin, "print(lost())")))
    for _ in range(size.depth - 1):
        above, level = level, []
        for node, path in above:
            for number in range(size.branching):
                child = await _child(node, str(number), series)
                if await _text(child, "print(digest())") != known[node]:
                    wrong.append(f"{child!r} is not what it was made of")
                own = [*path, child.node_id]
                known[child] = await _text(child, _program(draw, child.node_id, size.changes))
                if await _text(child, "print(ran)") != repr(own):
                    wrong.append(f"{child!r}: other cells than its own were run")
                level.append((child, own))
    changed = [node for node, digest in known.items() if await _text(node, "print(digest())") != digest]
    wrong += [f"{node!r} was changed by another node" for node in changed]
    series.add("nodes", "branch", len(known))
    series.add("random writes", "branch", (len(known) - 1) * size.changes)
    series.add("nodes that were changed by others", "branch", len(changed))
    series.add("variables lost", "branch", 0)
    series.add("a node", "replay", setup_ms)
    started = clock()
    await agent.adopt(level[0][0], ["values"])
    series.add("taking over variables", "branch", (clock() - started) * 1000)
    return wrong


async def _child(node: KernelNode, name: str, series: Series) -> KernelNode:
    started = clock()
    child = await node.branch(name)
    series.add("a node", "branch", (clock() - started) * 1000)
    series.add("its own memory", "branch", memory([int(await _text(child, "print(os.getpid())"))])[1])
    return child


def _program(draw: random.Random, name: str, changes: int) -> str:
    lines = [draw.choice(CHANGES).format(n=draw.randrange(10**6), f=draw.randrange(20)) for _ in range(changes)]
    return "\n".join([*lines, f"ran.append({name!r})", "print(digest())"])


async def _text(node: KernelNode, code: str) -> str:
    cell = await node.execute(code)
    if cell.status != "ok":
        raise RuntimeError(cell.text)
    return cell.text


if __name__ == "__main__":
    main(run)
