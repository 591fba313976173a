"""Sessions: what they add to a cell, what they take on disk, how soon they go on; and `kill -9` at random moments.

In each round of kills a program with 13 agents at 3 levels (`killed_agents.py`) is killed, up to three times, and goes on to
its end; some rounds go on beside each other. No child and no ask that the session knows as completed may be paid again, no
cell may run again unless the model was told that its end is unknown, all variables must come back as they were, with what
they share, or be named, and the database must be whole.
"""

import asyncio
import json
import multiprocessing
import os
import random
import sqlite3
import tempfile
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from pydantic_ai.messages import ModelRequest, ToolCallPart, ToolReturnPart

from benchmarks.common import Goal, OtherLoad, Series, clock, main, report
from benchmarks.killed_agents import EXPECTED, begin
from freeact_sub import Agent, ChildRequest, Config
from freeact_sub.kernels.files.states import ShadowFiles
from freeact_sub.sessions import state_folder
from freeact_sub.sessions.sqlite import SqliteStore
from freeact_sub.sessions.sqlite.database import NAME
from freeact_sub.testing import FakeKernelProvider, ScriptedModel

ROUNDS = 20
KILLS, SMALL_KILLS = 3, 1
"""At most in a round; then it goes on to its end."""
AT_ONCE = 4
"""Rounds beside each other."""
FIRST_SECONDS = 4.0
"""How long a program runs, before that is known."""
LIMIT_SECONDS = 300
PAIRS, CELLS = 11, 100
CHILDREN = 15
FILES = 50_000
RESUME_MS, CELL_MS = 1500, 1.0


def run(*, small: bool = False, rounds: int | None = None) -> dict[str, Any]:
    """All figures; small: few rounds, little data. Args: rounds: of kills."""
    load, series = OtherLoad(), Series()
    kept = os.environ.get("XDG_STATE_HOME")
    with tempfile.TemporaryDirectory(prefix="fa-bench-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        try:
            os.environ["XDG_STATE_HOME"] = str(folder / "cells")
            for _ in range(1 if small else PAIRS):
                asyncio.run(_cells(series, folder, 20 if small else CELLS))
            _database_size(series)
            for number in range(1 if small else 5):
                os.environ["XDG_STATE_HOME"] = str(folder / f"resume-{number}")
                asyncio.run(_resume(series, folder, 1 if small else 100))
            asyncio.run(_children(series, folder, 1 if small else CHILDREN))
            for number in range(1 if small else 5):
                asyncio.run(_files(series, folder / f"undo-{number}", 200 if small else FILES))
        finally:
            os.environ.pop("XDG_STATE_HOME")
            if kept is not None:
                os.environ["XDG_STATE_HOME"] = kept
        problems = _kills(series, folder, rounds or (1 if small else ROUNDS), SMALL_KILLS if small else KILLS)
    goals = {
        "a cell, CPU time of the host": Goal(of="added", at_most=CELL_MS),
        "resume to the first request": Goal(of="ms", at_most=RESUME_MS),
    }
    units = {
        "a cell, wall time": "ms",
        "a cell, CPU time of the host": "ms",
        "a cell, CPU time of the event loop": "ms",
        "a cell, CPU time of the writer": "ms",
        "a child of one cell, wall time": "ms",
        "a child of one cell, CPU time of the host": "ms",
        "a resumed child, to its first request": "ms",
        "files before a prompt, wall time": "ms",
        "files before a prompt, CPU time": "ms",
        "database, 1,000 events": "kB",
    }
    rows = [series.row(figure, units.get(figure, ""), *filter(None, [goals.get(figure)])) for figure in series.values]
    return report("sessions", rows, load, problems[:20]) | {"failed": problems}


async def _cells(series: Series, folder: Path, cells: int) -> None:
    """The same conversation with and without a session; kernels are fakes, so all of the time is the host's."""
    clocks = {
        "a cell, wall time": clock,
        "a cell, CPU time of the host": time.process_time,
        "a cell, CPU time of the event loop": time.thread_time,
    }
    added = dict.fromkeys(clocks, 0.0)
    for name, session in (("none", None), ("session", "new")):
        turns = [[ToolCallPart("execute_ipython_cell", {"code": f"print({number})"})] for number in range(cells)]
        model = ScriptedModel([*turns, "done"])
        config = Config(workspace=folder, mode="full", max_repeats=None)
        async with Agent(config, model=model, kernel_provider=FakeKernelProvider(), session=session) as agent:
            began = {figure: now() for figure, now in clocks.items()}
            await agent.run("go").result()
            for figure, now in clocks.items():
                used = (now() - began[figure]) / cells * 1000
                series.add(figure, name, used)
                added[figure] = used - added[figure]
            for thread in threading.enumerate():
                if thread.name == f"writes session {agent.session_id}":
                    writer = time.clock_gettime(time.pthread_getcpuclockid(thread.ident or 0))
                    series.add("a cell, CPU time of the writer", "session", writer / cells * 1000)
    for figure, difference in added.items():
        series.add(figure, "added", difference)


def _database_size(series: Series) -> None:
    store, events = SqliteStore(state_folder()), 0
    for session in store.sessions():
        with store.reader(session.session_id) as reader:
            events += sum(1 for _ in reader.events())
    series.add("database, 1,000 events", "kB", store.database_bytes / events)  # bytes by events: kB by 1,000


async def _resume(series: Series, folder: Path, megabytes: int) -> None:
    """From the begin of a program that goes on, its imports left out, to the first request of its model."""
    config = Config(workspace=folder, mode="full", kernel={"sandbox": "off"})
    code = f"data = bytearray(b'x') * {megabytes * 10**6}"
    turns = [[ToolCallPart("execute_ipython_cell", {"code": code})], "done"]
    async with Agent(config, model=ScriptedModel(turns), session="new") as agent:
        await agent.run("make").result()
    asked: list[float] = []

    def script(messages: Any, info: Any) -> str:
        del messages, info
        asked.append(clock())
        return "done"

    started = clock()
    async with Agent(config, model=ScriptedModel(script), session=agent.session_id) as again:
        await again.run("go on").result()
    series.add("resume to the first request", "ms", (asked[0] - started) * 1000)


async def _children(series: Series, folder: Path, children: int) -> None:
    """A child, whose variables are saved at its end, with and without a session; and that child resumed."""
    config = Config(workspace=folder, mode="full", kernel={"sandbox": "off"})
    asked: list[float] = []

    def script(messages: Any, info: Any) -> Any:
        del info
        asked.append(clock())
        code = "rows = [{'number': number} for number in range(1000)]"
        ran = isinstance(messages[-1].parts[-1], ToolReturnPart)
        return "done" if ran else [ToolCallPart("execute_ipython_cell", {"code": code})]

    agents = {name: Agent(config, model=ScriptedModel(script), session=name) for name in (None, "new")}
    async with agents[None], agents["new"]:
        for number in range(children + 1):
            wall, cpu = {}, {}
            for name, agent in agents.items():
                started, used = clock(), time.process_time()
                child = await agent.spawn_and_run("make rows")
                wall[name], cpu[name] = (clock() - started) * 1000, (time.process_time() - used) * 1000
                asked.clear()
                started = clock()
                await agent.spawn_and_run(ChildRequest(prompt="and now?", resume=child.agent_id))
                if number:  # the first ones start the fork server
                    kind = "none" if name is None else "session"
                    series.add("a resumed child, to its first request", kind, (asked[0] - started) * 1000)
            for figure, values in (("wall time", wall), ("CPU time of the host", cpu)) if number else ():
                series.add(f"a child of one cell, {figure}", "none", values[None])
                series.add(f"a child of one cell, {figure}", "session", values["new"])
                series.add(f"a child of one cell, {figure}", "added", values["new"] - values[None])


async def _files(series: Series, folder: Path, number: int) -> None:
    """What undo does with the files of a workspace before a prompt; CPU time with that of git."""
    workspace = folder / "work"
    for place in range(number // 100):
        (workspace / f"{place % 20}" / f"{place}").mkdir(parents=True)
        for name in range(100):
            (workspace / f"{place % 20}" / f"{place}" / f"{name}.py").write_text(f"x = {place * 100 + name}\n" * 20)
    files = ShadowFiles(workspace, folder / "kept")
    for which in ("first", "unchanged", "one changed"):
        if which == "one changed":
            (workspace / "0" / "0" / "0.py").write_text("y = 1\n")
        began, used = clock(), _cpu_seconds()
        await files.begin()
        series.add("files before a prompt, wall time", which, (clock() - began) * 1000)
        series.add("files before a prompt, CPU time", which, (_cpu_seconds() - used) * 1000)


def _cpu_seconds() -> float:
    """Of this process and of those that it has waited for."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def _kills(series: Series, folder: Path, rounds: int, most: int) -> list[str]:
    """Rounds of kills; what went wrong."""
    # each program is a fork of a process that has imported all of it: an import takes as long as the agents do
    processes = multiprocessing.get_context("forkserver")
    processes.set_forkserver_preload(["benchmarks.killed_agents"])
    undisturbed = [FIRST_SECONDS]

    def one(number: int) -> "_Round":
        place = folder / f"round-{number}"
        place.mkdir()
        done = _Round(place, processes, undisturbed, most)
        done.carry_out()
        return done

    with ThreadPoolExecutor(AT_ONCE) as threads:
        done = list(threads.map(one, range(rounds)))
    problems = [f"round {number}: {problem}" for number, each in enumerate(done, 1) for problem in each.problems]
    series.add("rounds", "number", rounds)
    series.add("kills", "number", sum(each.kills for each in done))
    series.add("kills after which a session went on", "number", sum(each.resumed for each in done))
    series.add("problems", "number", len(problems))
    return problems


class _Round:
    """One program, killed up to some times, and resumed to its end."""

    def __init__(self, place: Path, processes: Any, undisturbed: list[float], most: int) -> None:
        """Args: place: a folder. undisturbed: seconds of programs that were not killed, the latest last."""
        self.problems: list[str] = []
        self.kills = self.resumed = 0
        self._place, self._processes, self._undisturbed, self._most = place, processes, undisturbed, most
        self._store = SqliteStore(place / "state" / "freeact")
        self._dice = random.Random(time.time_ns())  # moments

    def carry_out(self) -> None:
        """To its end."""
        session, known = "new", Counter[str]()
        while True:
            before = len(_lines(self._place / "requests"))
            killed = self._run(session)
            paid = Counter(json.loads(line) for line in _lines(self._place / "requests")[before:])
            self.problems += [f"{prompt!r} was paid again" for prompt in known if paid[prompt]]
            written = "".join(_lines(self._place / "session")) or session
            if not killed:
                session = written
                break
            if _has_session(self._store, written):
                session = written
                self.resumed += 1
                known = _completed(self._store, session)
                self.problems += _database(self._store)
            else:
                session, known = "new", Counter()
        self._look_at_end(session)

    def _run(self, session: str) -> bool:
        """Begin the program or go on with it; whether it was killed."""
        last = self.kills >= self._most
        process = self._processes.Process(target=begin, args=(self._place, session))
        started = clock()
        process.start()
        process.join(LIMIT_SECONDS if last else self._dice.uniform(0, self._undisturbed[-1]))
        killed = process.is_alive()
        if killed:
            process.kill()
            process.join()
        elif session == "new":
            self._undisturbed.append(clock() - started)
        if killed and last:
            self.problems.append(f"it did not end within {LIMIT_SECONDS} s")
        self.kills += killed and not last
        return killed and not last

    def _look_at_end(self, session: str) -> None:
        place = self._place
        result = "\n".join(_lines(place / "result"))
        if not result.startswith("completed all done"):
            self.problems.append(f"it ended with {result[-300:]!r}")
        end = "".join(_lines(place / "end"))
        if end != EXPECTED:
            self.problems.append(f"its variables are {end or 'gone'}, not {EXPECTED}")
        self.problems += _lines(place / "wrong")
        if _has_session(self._store, session):
            self.problems += _repeated(self._store, session, place)


def _has_session(store: SqliteStore, session: str) -> bool:
    return any(found.session_id == session and found.title for found in store.sessions())


def _completed(store: SqliteStore, session: str) -> Counter[str]:
    """The prompts of children and asks that the session knows as completed, and that are not to be paid again.

    What was asked before the root last completed a run is asked anew.
    """
    with store.reader(session) as reader:
        root, runs = reader.agents()[0].agent_id, reader.runs()
        ended = max((run.number for run in runs if run.agent_id == root and run.status == "completed"), default=0)
        done = [run for run in runs if run.agent_id != root and run.status == "completed" and run.root_run > ended]
        asks = [call for call in reader.calls(root) if call.name == "ask" and call.outcome == "success" and call.run > ended]
    return Counter([*(run.prompt for run in done), *(call.args["prompt"] for call in asks)])


def _repeated(store: SqliteStore, session: str, place: Path) -> list[str]:
    """Stages that ran again though the model was not told that their end is unknown, or that variables are gone."""
    with store.reader(session) as reader:
        messages = reader.messages(reader.agents()[0].agent_id)
    told = 0
    for message in messages:
        if isinstance(message, ModelRequest):
            text = str(message.parts)
            told += sum("[UNKNOWN]" in str(part.content) for part in message.parts if isinstance(part, ToolReturnPart))
            told += "Your kernel is new" in text
    most = max(Counter(_lines(place / "effects")).values(), default=0)
    return [] if most <= 1 + told else [f"a cell ran {most} times, and the model was told {told} times"]


def _database(store: SqliteStore) -> list[str]:
    connection = sqlite3.connect(store.folder / NAME)
    try:
        found = connection.execute("PRAGMA integrity_check").fetchone()[0]
    finally:
        connection.close()
    return [] if found == "ok" else [f"the database: {found}"]


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


if __name__ == "__main__":
    main(run)
