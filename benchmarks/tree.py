"""A tree of nodes over live state, files included: what a node costs, and whether each is what it was made of.

A kernel is set up once: data, some seconds of fitting, and what cannot be pickled (a generator in the middle, a database in
memory with an open cursor, a lock). Then it is branched, and each branch again, each with files of its own. At each fork
the digest of every variable and of the files must be that of the node above; then the node runs random programs, each of
which changes a variable or a file. At the end every node must still be as it was after its own, whatever the others did.

A node is what a user waits for: `node.branch()`, with its files, and a first cell in it that uses the data. What the
benchmark looks at besides, digests above all, is not counted. CPU is that of all processes: host, fork server, both kernels.

Beside it the last node once more in a new kernel, as others restore the state of a search: `replay` runs the setup and the
changes of all nodes above again; `pickle` and `dill` write each variable to a file and read it there. What is then not what
it was in the node counts as lost. `dill` is measured if it is installed.
"""

import asyncio
import json
import os
import random
import tempfile
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil

from benchmarks.common import Goal, OtherLoad, Series, clock, main, memory, report
from freeact_sub import Agent, Config, KernelConfig, KernelNode
from freeact_sub.testing import ScriptedModel

LOOK = """
import hashlib, json, os, pathlib, zlib
VARIABLES = ("ran", "data", "numbers", "draws", "memory", "cursor", "lock", "steps", "values", "fitted", "token")
LOOKS = {
    "data": lambda: (len(data), zlib.crc32(data)), "numbers": lambda: numbers.gi_frame.f_locals["total"],
    "draws": lambda: draws.getstate(), "memory": lambda: list(memory.iterdump()), "lock": lambda: lock.locked(),
    "cursor": lambda: (type(cursor), cursor.connection is memory), "fitted": lambda: (type(fitted).__name__, vars(fitted)),
}
def files():
    paths = (p for p in pathlib.Path(".").rglob("*") if p.is_file() and ".freeact" not in p.parts)
    return sorted((str(p), p.read_text()) for p in paths)
def digests():
    "Of each variable and of the files; what a look would change is looked at in a way that changes nothing."
    found = {"files": files()}
    for name in VARIABLES:
        try:
            found[name] = LOOKS.get(name, lambda: globals()[name])()
        except Exception as error:
            found[name] = f"not there: {error!r}"
    return json.dumps({name: hashlib.sha256(repr(value).encode()).hexdigest() for name, value in found.items()})
"""
SETUP = """
import itertools, random, sqlite3, threading
class Line:
    "A model that is fitted to points."
    def fit(self, rounds):
        self.slope, self.height = 0.0, 0.0
        for n in range(rounds):
            x = n % 7
            wrong = 3 * x + 2 - self.slope * x - self.height
            self.slope += 0.01 * wrong * x
            self.height += 0.01 * wrong
        return self
ran = ["setup"]
fitted = Line().fit({rounds})
token = os.urandom(8).hex()
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
"""What a program of a node does."""
DUMP = """
import {module}
for name in VARIABLES:
    try:
        with open("{folder}/{module}-" + name, "wb") as file:
            {module}.dump(globals()[name], file)
    except Exception:
        os.unlink("{folder}/{module}-" + name)
"""
LOAD = """
import {module}
for name in VARIABLES:
    try:
        with open("{folder}/{module}-" + name, "rb") as file:
            globals()[name] = {module}.load(file)
    except Exception:
        pass
"""
NODE_MS, NODE_MB = 150, 15
TICK_MS = 1000 / os.sysconf("SC_CLK_TCK")


@dataclass(kw_only=True)
class Size:
    """How large the tree is, and what it is over."""

    megabytes: int
    branching: int
    depth: int
    changes: int
    """Random programs of each node, a cell each."""
    rounds: int
    """Of fitting."""


@dataclass(kw_only=True)
class Grown:
    """A node of the tree, and what led to it."""

    node: KernelNode
    pid: int
    digests: dict[str, str]
    programs: list[str] = field(default_factory=list)


def run(*, small: bool = False) -> dict[str, Any]:
    """All figures; small: a tree of four nodes over little data."""
    small_size = Size(megabytes=1, branching=3, depth=2, changes=3, rounds=1000)
    whole = Size(megabytes=1000, branching=3, depth=4, changes=26, rounds=12_000_000)  # some 5 s of CPU
    return asyncio.run(_run(small_size if small else whole))


async def _run(size: Size) -> dict[str, Any]:
    load, series, wrong = OtherLoad(), Series(), list[str]()
    with tempfile.TemporaryDirectory(prefix="fa-bench-") as folder, tempfile.TemporaryDirectory(prefix="fa-bench-") as files:
        kernel = KernelConfig(max_live=100, cell_timeout_seconds=600, writable=(Path(files),))
        config = Config(workspace=Path(folder), mode="auto", kernel=kernel)
        async with Agent(config, model=ScriptedModel({})) as agent:

            async def program() -> None:
                wrong.extend(await _grow(agent, size, series, files))

            result = await agent.run_program(program).result()
            if result.status != "completed":
                wrong.append(result.error)
    bounds = {"a node": ("ms", NODE_MS), "its own memory": ("MB", NODE_MB)}
    units = {"CPU of a node": "ms", "taking over variables": "ms"}
    rows = []
    for name in series.values:
        unit, bound = bounds.get(name, (units.get(name, ""), None))
        rows.append(series.row(name, unit, *(() if bound is None else (Goal(of="branch", at_most=bound),))))
    return report("tree", rows, load, wrong) | {"failed": bool(wrong)}


async def _grow(agent: Agent, size: Size, series: Series, folder: str) -> list[str]:
    """Makes the tree; returns what is not as it should be."""
    draw, wrong = random.Random(16), list[str]()
    setup = LOOK + SETUP.format(bytes=size.megabytes * 10**6, rounds=size.rounds)
    begin = await agent.branch("setup", own_files=True)
    await _text(begin, setup)
    pid = int(await _text(begin, "print(os.getpid())"))
    level = [Grown(node=begin, pid=pid, digests=json.loads(await _text(begin, "print(digests())")), programs=[setup])]
    known = [*level]
    cpu_ms = 0.0
    for _ in range(size.depth - 1):
        above, level = level, []
        for parent in above:
            for number in range(size.branching):
                before = _cpu_ms(parent.pid)
                child = await _child(parent, str(number), series)
                cpu_ms += _cpu_ms(parent.pid, child.pid) - before
                series.add("its own memory", "branch", memory([child.pid])[1])
                if json.loads(await _text(child.node, "print(digests())")) != parent.digests:
                    wrong.append(f"{child.node!r} is not what it was made of")
                for _ in range(size.changes):
                    child.programs.append(_program(draw, child.node.node_id))
                    await _text(child.node, child.programs[-1])
                child.digests = json.loads(await _text(child.node, "print(digests())"))
                level.append(child)
        known += level
    changed = [each for each in known if json.loads(await _text(each.node, "print(digests())")) != each.digests]
    wrong += [f"{each.node!r} was changed by another node" for each in changed]
    wrong += [f"{each.node!r}: other cells than its own were run" for each in known if not await _ran_once(each)]
    series.add("CPU of a node", "branch", cpu_ms / (len(known) - 1))
    series.add("nodes", "branch", len(known))
    series.add("random programs that write", "branch", (len(known) - 1) * size.changes)
    series.add("nodes that were changed by others", "branch", len(changed))
    series.add("variables lost", "branch", 0)
    series.add("cells run again for a node", "branch", 0)
    started = clock()
    await agent.adopt(level[0].node, ["values"])
    series.add("taking over variables", "branch", (clock() - started) * 1000)
    await _other_ways(agent, level[-1], series, folder)
    return wrong


async def _child(parent: Grown, name: str, series: Series) -> Grown:
    """A node, as a user gets it: it is there when its first cell has used the data."""
    started = clock()
    node = await parent.node.branch(name)
    pid = await _text(node, "print(os.getpid() if data[len(data) // 2] is not None else 0)")
    series.add("a node", "branch", (clock() - started) * 1000)
    return Grown(node=node, pid=int(pid), digests={}, programs=[*parent.programs])


async def _ran_once(grown: Grown) -> bool:
    """Whether each cell of the way to a node was run once; its cursor goes on where the setup has left it."""
    return eval(await _text(grown.node, "print((len(ran), cursor.fetchone()))")) == (len(grown.programs), (1,))


async def _other_ways(agent: Agent, last: Grown, series: Series, folder: str) -> None:
    """Has the state of a node restored otherwise."""
    async with await agent.branch("replay", own_files=True) as node:
        started = clock()
        for program in last.programs:
            await _text(node, program)
        await _restored(node, last, "replay", series, started)
        series.add("cells run again for a node", "replay", len(last.programs))
    for module in filter(find_spec, ("pickle", "dill")):
        started = clock()
        await _text(last.node, DUMP.format(module=module, folder=folder))
        async with await agent.branch(module) as node:
            await _text(node, LOOK + LOAD.format(module=module, folder=folder))
            await _restored(node, last, module, series, started)


async def _restored(node: KernelNode, like: Grown, way: str, series: Series, started: float) -> None:
    series.add("a node", way, (clock() - started) * 1000)
    found = json.loads(await _text(node, "print(digests())"))
    lost = [name for name in found if name != "files" and found[name] != like.digests[name]]
    series.add("variables lost", way, len(lost))
    for name in lost:
        series.add(f"lost: {name}", way, 1)


def _program(draw: random.Random, name: str) -> str:
    change = draw.choice(CHANGES).format(n=draw.randrange(10**6), f=draw.randrange(20))
    return f"{change}\nran.append({name!r})"


def _cpu_ms(*kernels: int) -> float:
    """CPU of this process, of kernels and of the server that forks them, with what was below them and has ended."""
    total = sum(os.times()[:2]) * 1000
    for pid in {*kernels, psutil.Process(kernels[0]).ppid()}:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
        total += sum(map(int, fields[11:15])) * TICK_MS
    return total


async def _text(node: KernelNode, code: str) -> str:
    cell = await node.execute(code)
    if cell.status != "ok":
        raise RuntimeError(cell.text)
    return cell.text


if __name__ == "__main__":
    main(run)
